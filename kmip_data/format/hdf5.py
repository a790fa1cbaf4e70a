"""HDF5 building blocks: files made in memory, compressed chunks, and errors for damaged files.

HDF5's gzip filter inflates a chunk to whatever its stream gives, and the zstd filter to whatever its frame
announces, however small the chunk was declared: a file of 1 MB can fill 1 GB. So gzip is inflated here, to
exactly the declared size or an error, and a zstd frame is read by HDF5 only if it announces that size.
"""

from __future__ import annotations

import contextlib
import errno
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput, KmipDataError, OutOfResources, UsageError

if TYPE_CHECKING:
    import h5py


def refuse(
    path: Path, what: str, expected: str, found: str, error: BaseException | None = None, *, then: str = ""
) -> NoReturn:
    """Raise DamagedInput, or OutOfResources if ``error`` is one; ``then`` is the next step.

    By default that is the repair of a file in ``shards/`` or ``splits/`` of a build.
    """
    if error is not None:
        check_resources(path, error)
    if isinstance(error, KmipDataError) and error.parts["found"]:
        found = f"{error.what} ({error.parts['found']})"
    raise DamagedInput(
        f"{path} {what}.",
        expected=expected,
        found=found,
        next=then or f"kmip-data verify {path.parent.parent} --repair",
    ) from error


def check_resources(path: Path, error: BaseException) -> None:
    """Raise OutOfResources if this process lacks memory or descriptors: the file may be sound."""
    lacking = isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
    if lacking or isinstance(error, MemoryError):
        raise OutOfResources(
            f"{path} cannot be read now: {str(error) or type(error).__name__}",
            next="close other programs or raise the limit (ulimit -n), and repeat the command",
        ) from error


def check_version(path: Path, found: int | str | None, known: int) -> None:
    """Raise DamagedInput unless a file has the known version of its format."""
    if isinstance(found, int) and found > known:
        what = f"{path} was written by a newer kmip-data: format version {found}, not {known}."
        raise DamagedInput(what, next="pip install --upgrade kmip-data")
    if found != known:
        refuse(path, "has no valid format version", f"{known}", repr(found)[:40])


ALIGNMENT: Final = 64  #: contiguous data start at multiples of this
_MAX_TEXT: Final = 64_000  #: an attribute lies in its object's header, which HDF5 limits to 64 KiB


@contextlib.contextmanager
def memory_file() -> Iterator[h5py.File]:
    """Open a new HDF5 file that exists in memory only.

    ``libver="earliest"`` because the bytes of ``latest`` differ between HDF5 versions; data are
    aligned only when both alignment arguments are given.
    """
    import h5py

    with h5py.File(
        "memory.h5",
        "w",
        driver="core",
        backing_store=False,
        libver="earliest",
        alignment_threshold=1,
        alignment_interval=ALIGNMENT,
    ) as file:
        yield file


def file_bytes(file: h5py.File) -> bytes:
    """Return all bytes of an open file of :func:`memory_file`."""
    file.flush()
    image: bytes = file.id.get_file_image()
    return image


def put_text(file: h5py.File, name: str, text: str) -> None:
    """Store ``text`` as a fixed-length ASCII attribute of the root.

    A variable-length string, the default of h5py, would go through HDF5's global heap: another structure to
    keep deterministic and to distrust when reading.
    """
    if not text.isascii() or len(text) > _MAX_TEXT:
        expected = f"ASCII text of at most {_MAX_TEXT:,} bytes, the limit of HDF5"
        found = f"{len(text):,} characters, {text[:40]!r}"
        raise UsageError(f"The attribute {name!r} cannot be stored.", expected=expected, found=found)
    data = text.encode("ascii")
    file.attrs.create(name, np.array(data or b"\0", dtype=f"S{max(1, len(data))}"))


_DEFLATE: Final = 1
_SHUFFLE: Final = 2
_ZSTD: Final = 32015
_PIPELINES: Final = ([_SHUFFLE, _DEFLATE], [_SHUFFLE, _ZSTD])


def read_chunked(dataset: h5py.Dataset, axis: int, start: int, stop: int) -> NDArray[Any]:
    """Return rows ``start:stop`` (along ``axis``) of a dataset that is chunked in whole rows.

    Raises ``ValueError``, or an error of h5py, if the storage violates the format or a chunk is damaged.
    """
    shape, chunks = dataset.shape, dataset.chunks
    if chunks is None or any(chunks[i] != shape[i] for i in range(len(shape)) if i != axis):
        raise ValueError(f"chunks {chunks} of {shape}, which are not whole rows")
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    if filters not in _PIPELINES:
        raise ValueError(f"filters {filters}, expected byte shuffle, then deflate (1) or zstd (32015)")
    rows = chunks[axis]
    size = math.prod(chunks) * dataset.dtype.itemsize
    firsts = range(start // rows * rows, stop, rows)
    if filters[1] == _ZSTD:
        for first in firsts:
            announced = _announced_size(_stored(dataset, axis, first))
            if announced != size:
                raise ValueError(f"a zstd chunk that announces {announced} bytes, expected {size:,}")
        part: NDArray[Any] = dataset[:, start:stop] if axis else dataset[start:stop]
        return part
    blocks = []
    for first in firsts:
        block = _unshuffle(inflate(_stored(dataset, axis, first), size), dataset.dtype).reshape(chunks)
        cut = slice(max(start - first, 0), min(stop, first + rows) - first)
        blocks.append(block[:, cut] if axis else block[cut])
    return np.concatenate(blocks, axis=axis)


def _stored(dataset: h5py.Dataset, axis: int, first: int) -> bytes:
    """Return the compressed bytes of the chunk that starts with row ``first``."""
    offset = tuple(first if i == axis else 0 for i in range(len(dataset.shape)))
    if not dataset.id.get_chunk_info_by_coord(offset).size:
        raise ValueError(f"no chunk at row {first:,}")
    skipped, stored = dataset.id.read_direct_chunk(offset)
    if skipped:
        raise ValueError(f"a chunk at row {first:,} that skips filters")
    return bytes(stored)


def inflate(stored: bytes, size: int) -> bytes:
    """Return the ``size`` bytes of a gzip chunk; a ValueError if it holds others, or is damaged."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(stored, size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(data) != size or not inflater.eof:
        found = f"more than {size:,} bytes" if len(data) > size else f"{len(data):,} bytes or no end"
        raise ValueError(f"a gzip chunk of {found}, expected {size:,}")
    return data


def _unshuffle(data: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Undo byte shuffle, which keeps the first bytes of all values, then all second bytes, and so on."""
    shuffled = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, -1)
    values = np.empty(shuffled.shape[::-1], np.uint8)
    for byte, column in enumerate(shuffled):  # four times as fast as a transposed copy
        values[:, byte] = column
    return values.view(dtype)


def _announced_size(frame: bytes) -> int | None:
    """Return the content size in the header of a zstd frame (RFC 8878, 3.1.1.1), if there is one."""
    if frame[:4] != b"\x28\xb5\x2f\xfd" or len(frame) < 6:
        return None
    descriptor = frame[4]
    single_segment = descriptor >> 5 & 1
    width = (single_segment, 2, 4, 8)[descriptor >> 6]
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    if not width or len(frame) < start + width:
        return None
    return int.from_bytes(frame[start : start + width], "little") + (256 if width == 2 else 0)
