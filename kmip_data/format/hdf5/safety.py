"""Open an HDF5 file that someone else may have made, and refuse what only harms.

HDF5 can point out of its file (external links, external storage, virtual datasets), run plugins
(filters), and declare arrays far larger than the file. Nothing of that occurs in shards or in the
raw files that pipelines read, so :func:`open_untrusted` walks every object with the low-level
interface, following no link, and refuses the file before a byte of data is read.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

import h5py
import numpy as np
from h5py import h5a, h5f, h5g, h5p, h5t

from kmip_data.errors import KmipDataError
from kmip_data.format.hdf5.objects import TYPE_NAMES, Inspection, Refused, StoredDataset
from kmip_data.format.refusals import refuse

SHARD_FILTERS: Final = frozenset({"gzip", "shuffle", "zstd"})
RAW_FILTERS: Final = frozenset({"gzip", "shuffle", "fletcher32"})

_MAGIC: Final = b"\x89HDF\r\n\x1a\n"
_OTHER_MAGIC: Final = (
    (b"PK", "a zip archive"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\x80", "a Python pickle"),
    (b"\x93NUMPY", "a NumPy file"),
    (b"{", "JSON text"),
    (b"<", "an HTML or XML page"),
)
_AGAIN: Final = "get the file again from where it came (kmip-data verify BUILD --repair rebuilds a shard)"
# What h5py raises while data of a damaged file are read.
_HDF5_ERRORS: Final = (OSError, RuntimeError, LookupError, ValueError, TypeError, MemoryError)


@contextlib.contextmanager
def open_untrusted(
    path: str | os.PathLike[str], *, max_declared_bytes: int, filters: frozenset[str] = RAW_FILTERS
) -> Iterator[h5py.File]:
    """Open an HDF5 file for reading after every object in it has been found harmless.

    All datasets together may declare ``max_declared_bytes``, uncompressed, and use no ``filters`` but those
    given, of ``gzip``, ``shuffle``, ``fletcher32``, ``lzf``, ``zstd``. Raises ``DamagedInput`` where the file
    is not HDF5, is truncated or damaged, or holds a link, external or virtual data, a type other than numbers
    and fixed-length text, another filter, or absurd sizes, also for errors of HDF5 while the caller reads;
    ``OutOfResources`` where memory or file descriptors of this process ran out: the file may be whole.
    """
    with open_inspected(path, max_declared_bytes=max_declared_bytes, filters=filters) as (file, _):
        yield file


@contextlib.contextmanager
def open_inspected(
    path: str | os.PathLike[str],
    *,
    max_declared_bytes: int,
    filters: frozenset[str],
    source: io.RawIOBase | None = None,
) -> Iterator[tuple[h5py.File, dict[str, StoredDataset]]]:
    """As :func:`open_untrusted`, with every dataset found on the way, by key (``node/x``).

    ``source`` gives the bytes of a file that is not at ``path``.
    """
    path = Path(path)
    size = _check_file(path) if source is None else _check_source(path, source)
    with contextlib.ExitStack() as stack:
        try:
            file = h5py.File(source, "r") if source is not None else _open(path)
            stack.callback(file.close)
            inspection = Inspection(size, filters, max_declared_bytes)
            inspection.group(h5g.open(file.id, b"/"), "", 0)
            if inspection.needs_zstd:
                enable_zstd()
        except Refused as refused:
            refuse(path, *refused.args, then=_AGAIN)
        except Exception as error:  # noqa: BLE001 -- on a damaged file h5py may raise anything
            _refuse_damaged(path, error)
        try:
            yield file, inspection.datasets
        except KmipDataError:
            raise
        except _HDF5_ERRORS as error:
            _refuse_damaged(path, error)


def read_scalar(file: h5py.File, name: str) -> int | str | None:
    """Return an attribute of the root that is one whole number or fixed-length ASCII text, or ``None``.

    Another type is a ``ValueError``: one of variable length could name the same large object many times.
    """
    if name not in file.attrs:
        return None
    attribute = h5a.open(file.id, name.encode())
    kind = attribute.get_type()
    fixed = isinstance(kind, h5t.TypeIntegerID) or (
        isinstance(kind, h5t.TypeStringID) and not kind.is_variable_str()
    )
    if not fixed or attribute.shape != ():
        raise ValueError(f"{TYPE_NAMES.get(kind.get_class(), 'a number')} of shape {attribute.shape}")
    value = np.empty((), attribute.dtype)
    attribute.read(value)
    found = value.item()
    return found.decode("ascii") if isinstance(found, bytes) else int(found)


def enable_zstd() -> None:
    """Register the zstd filter with HDF5 in this process."""
    import hdf5plugin  # noqa: F401 -- importing it registers its filters


def _check_file(path: Path) -> int:
    """Return the size of a regular file that starts like HDF5; anything else is refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO must not block
    except OSError as error:
        refuse(path, "cannot be opened", "a readable file", error.strerror or str(error), error, then=_AGAIN)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            refuse(path, "is not a file", "an HDF5 file", stat.filemode(status.st_mode), then=_AGAIN)
        head = os.read(descriptor, 16)
    finally:
        os.close(descriptor)
    _check_head(path, head)
    return status.st_size


def _check_source(path: Path, source: io.RawIOBase) -> int:
    _check_head(path, source.read(16) or b"")
    return source.seek(0, os.SEEK_END)


def _check_head(path: Path, head: bytes) -> None:
    if not head.startswith(_MAGIC):
        names = (name for magic, name in _OTHER_MAGIC if head.lstrip().startswith(magic))
        found = "an empty file" if not head else next(names, f"a file that starts with {head[:8]!r}")
        refuse(path, "is not an HDF5 file", "the HDF5 signature in the first bytes", found, then=_AGAIN)


def _open(path: Path) -> h5py.File:
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    if hasattr(access, "set_file_locking"):  # network file systems may have no locks; we only read
        access.set_file_locking(False, True)
    return h5py.File(h5f.open(os.fsencode(path), h5f.ACC_RDONLY, fapl=access))


def _refuse_damaged(path: Path, error: Exception) -> NoReturn:
    found = " ".join(str(error).split())[:200] or type(error).__name__
    refuse(path, "is damaged", "a complete HDF5 file", found, error, then=_AGAIN)
