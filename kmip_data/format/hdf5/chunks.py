"""Read rows of a compressed dataset, each chunk within the size that it declares.

HDF5's gzip filter inflates a chunk to whatever its stream gives, and the zstd filter to whatever
its frame announces, however small the chunk was declared: a file of 1 MB can fill 1 GB. So gzip is
inflated here, to exactly the declared size or an error, and a zstd frame is read by HDF5 only if
it announces that size.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import h5py

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
    plan = dataset.id.get_create_plist()
    filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
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
    """Compressed bytes of the chunk that starts with row ``first``."""
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
    """Content size in the header of a zstd frame (RFC 8878, 3.1.1.1), ``None`` if there is none."""
    if frame[:4] != b"\x28\xb5\x2f\xfd" or len(frame) < 6:
        return None
    descriptor = frame[4]
    single_segment = descriptor >> 5 & 1
    width = (single_segment, 2, 4, 8)[descriptor >> 6]
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    if not width or len(frame) < start + width:
        return None
    return int.from_bytes(frame[start : start + width], "little") + (256 if width == 2 else 0)
