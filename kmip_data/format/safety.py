"""Open an untrusted HDF5 file, and refuse harmful constructs.

HDF5 can point out of its file (external links, external storage, virtual datasets), run plugins
(filters), and declare arrays far larger than the file. None of this occurs in shards or in the raw
files that pipelines read, so :func:`open_untrusted_hdf5` visits every object with the low-level
interface, follows no link, and refuses the file before any data are read.

HDF5's gzip filter inflates a chunk to whatever its stream gives, however small the chunk was
declared: a file of 1 MB can fill 1 GB. So readers of compressed raw files inflate by
:func:`inflate_chunk`, to exactly the declared size or an error.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5l, h5o, h5s, h5t, h5z
from pydantic import BaseModel, ValidationError

from kmip_data.arrays import DType
from kmip_data.errors import KmipDataError
from kmip_data.files.path_errors import check_version, raise_damaged
from kmip_data.files.reading import first_problem, open_regular_file

M = TypeVar("M", bound=BaseModel)
MAX_OBJECTS = 1_000
MAX_DEPTH = 16
MAX_ATTRIBUTES = 64  #: most attributes of one object
MAX_ATTRIBUTE_BYTES = 2**16
MAX_CHUNK_BYTES = 2**26
MAX_RATIO = 200  #: uncompressed to stored, beyond FREE_BYTES; graph data reach 3 to 20
FREE_BYTES = 2**26  #: bytes of a file that may be declared beyond that

GZIP = h5z.FILTER_DEFLATE
RAW_FILTERS = frozenset({GZIP, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32})


class _Refused(Exception):
    """A refused construct: what the file does, and where or how much; caught in this module."""


@dataclass(frozen=True)
class StoredDataset:
    """One dataset of a file; ``offset`` is set for contiguous data that are not empty."""

    dtype: DType
    shape: tuple[int, ...]
    offset: int | None

    @property
    def nbytes(self) -> int:
        """Bytes of the data, uncompressed."""
        return self.dtype.itemsize * math.prod(self.shape)


def _require(fine: object, problem: str, found: str) -> None:
    if not fine:
        raise _Refused(problem, found)


class _Inspection:
    """Visit every object of a file and enforce the limits."""

    def __init__(self, size: int, filters: frozenset[int], max_declared: int) -> None:
        self.size = size
        self.max_declared = max_declared
        self.filters = filters
        self.seen: set[int] = set()
        self.datasets: dict[str, StoredDataset] = {}
        self.declared = 0
        self.excess = 0  #: declared bytes beyond MAX_RATIO, of all datasets together

    def check_group(self, group: h5g.GroupID, name: str, depth: int) -> None:
        """Check a group and its members."""
        self.check_object(group, name or "/")
        _require(
            depth <= MAX_DEPTH,
            f"nests groups more than {MAX_DEPTH} deep",
            repr(name[:80]),
        )
        names = []

        def collect(link: bytes) -> bool | None:
            names.append(link)
            return True if len(names) > MAX_OBJECTS else None  # a value stops the iteration

        if group.get_num_objs():
            group.links.iterate(collect)
        for link in names:
            child = f"{name}/{os.fsdecode(link)}".removeprefix("/")
            link_type = group.links.get_info(link).type
            _require(link_type == h5l.TYPE_HARD, "holds a link", repr(child[:80]))
            member = h5o.open(group, link)
            if isinstance(member, h5g.GroupID):
                self.check_group(member, child, depth + 1)
            else:
                _require(
                    isinstance(member, h5d.DatasetID),
                    "holds a named type",
                    repr(child[:80]),
                )
                self.check_object(member, child)
                self.check_dataset(member, child)

    def check_object(self, member: h5g.GroupID | h5d.DatasetID, name: str) -> None:
        """Check a group or dataset for a single name and for few and small attributes."""
        address = int(h5o.get_info(member).addr)
        where = f"at {name[:80]!r}"
        _require(
            address not in self.seen,
            "holds an object twice",
            f"a second hard link {where}",
        )
        self.seen.add(address)
        _require(
            len(self.seen) <= MAX_OBJECTS,
            "holds too many objects",
            f"more than {MAX_OBJECTS:,}",
        )
        count = h5a.get_num_attrs(member)
        _require(count <= MAX_ATTRIBUTES, "has too many attributes", f"{count:,} {where}")
        for index in range(count):
            attribute = h5a.open(member, index=index)
            size = attribute.get_storage_size()
            _require(
                size <= MAX_ATTRIBUTE_BYTES,
                "has a huge attribute",
                f"{size:,} bytes {where}",
            )
            _ = attribute.dtype  # an invalid type raises here rather than while it is read

    def check_dataset(self, dataset: h5d.DatasetID, name: str) -> None:
        """Check a dataset, its layout first: the shape of a virtual one would open its sources."""
        where = f"at {name[:80]!r}"
        properties = dataset.get_create_plist()
        layout = properties.get_layout()
        inside = layout != h5d.VIRTUAL and not properties.get_external_count()
        _require(inside, "holds data of other files", where)
        for index in range(properties.get_nfilters()):
            code = properties.get_filter(index)[0]
            _require(
                code in self.filters,
                "uses an unknown filter",
                f"filter {code} {where}",
            )
        data_type = dataset.get_type()
        fixed = isinstance(data_type, h5t.TypeStringID) and not data_type.is_variable_str()
        read = fixed or isinstance(data_type, h5t.TypeIntegerID | h5t.TypeFloatID)
        _require(
            read,
            "holds data of a type that is not read",
            f"{type(data_type).__name__} {where}",
        )
        space = dataset.get_space()
        _require(
            space.get_simple_extent_type() != h5s.NULL,
            "holds a dataset without data",
            where,
        )
        offset = dataset.get_offset() if layout == h5d.CONTIGUOUS else None
        stored = StoredDataset(data_type.dtype, space.shape, offset)
        self.check_sizes(stored, dataset, where)
        self.datasets[name] = stored

    def check_sizes(self, stored: StoredDataset, dataset: h5d.DatasetID, where: str) -> None:
        """Check the declared size of a dataset against its stored bytes."""
        properties = dataset.get_create_plist()
        layout = properties.get_layout()
        stored_bytes = dataset.get_storage_size()
        problem = "declares absurd sizes"
        declared = stored.nbytes
        # An axis of length 0 must not hide the others: (0, 10**10) takes 6 GB as soon as it is
        # converted.
        self.declared += stored.dtype.itemsize * math.prod(max(1, size) for size in stored.shape)
        most = f"{self.declared:,} bytes in all, of at most {self.max_declared:,}"
        _require(self.declared <= self.max_declared, problem, most)
        sizes = f"{declared:,} bytes declared, {stored_bytes:,} stored"
        sizes = f"{sizes} of a file of {self.size:,} {where}"
        if layout == h5d.CONTIGUOUS and declared:
            inside = stored.offset is not None and stored.offset + declared <= self.size
            _require(inside and stored_bytes == declared, problem, sizes)
            return

        # Compressed data may unpack to MAX_RATIO times their size; what exceeds it adds up over
        # datasets.
        chunk = 0
        if layout == h5d.CHUNKED:
            chunk = stored.dtype.itemsize * math.prod(properties.get_chunk())
        _require(chunk <= MAX_CHUNK_BYTES, problem, f"a chunk of {chunk:,} bytes {where}")
        self.excess += max(0, declared - stored_bytes * MAX_RATIO)
        _require(stored_bytes <= self.size and self.excess <= FREE_BYTES, problem, sizes)


_NOT_VALID = "has attributes that are not valid"
_MAGIC = b"\x89HDF\r\n\x1a\n"
_NEXT = "get the file again from where it came (kmip-data verify BUILD --repair rebuilds a shard)"
# Exceptions of h5py while it reads data of a damaged file.
_HDF5_ERRORS = (OSError, RuntimeError, LookupError, ValueError, TypeError, MemoryError)


@contextlib.contextmanager
def open_untrusted_hdf5(
    path: str | os.PathLike[str],
    *,
    max_declared_bytes: int,
    filters: frozenset[int] = RAW_FILTERS,
    source: io.RawIOBase | io.BytesIO | None = None,
) -> Iterator[tuple[h5py.File, dict[str, StoredDataset]]]:
    """Open an HDF5 file for reading after every object in it has been checked.

    Yields the file and each of its datasets by key (``node/x``). All datasets together may declare
    at most ``max_declared_bytes``, uncompressed, and use the given ``filters`` only. ``source``
    supplies the bytes of a file that is not at ``path``.

    Raises ``DamagedInput`` if the file is not HDF5, is damaged, or holds a link, external or
    virtual data, a type other than numbers and fixed-length text, another filter, or absurd sizes,
    also for errors of HDF5 while the caller reads; ``OutOfResources`` if this process lacks memory
    or file descriptors.
    """
    path = Path(path)
    size = _size_of_hdf5_file(path, source)
    with contextlib.ExitStack() as stack:
        try:
            # Without locks, which network file systems may lack: we only read.
            file = stack.enter_context(
                h5py.File(path if source is None else source, "r", locking=False)
            )
            inspection = _Inspection(size, filters, max_declared_bytes)
            inspection.check_group(h5g.open(file.id, b"/"), "", 0)
        except _Refused as refused:
            raise_damaged(path, *refused.args, remedy=_NEXT)
        except Exception as error:  # noqa: BLE001 -- on a damaged file h5py may raise anything
            raise_damaged(path, "is damaged", error, remedy=_NEXT)
        try:
            yield file, inspection.datasets
        except KmipDataError:
            raise
        except _HDF5_ERRORS as error:
            raise_damaged(path, "is damaged", error, remedy=_NEXT)


def read_scalar(file: h5py.File, name: str) -> int | str | None:
    """Return an attribute of the root that is one integer or fixed-length ASCII text, or ``None``.

    Another type is a ``ValueError``: variable-length data could refer to one large object many
    times.
    """
    if name not in file.attrs:
        return None
    attribute = h5a.open(file.id, name.encode())
    data_type = attribute.get_type()
    text = isinstance(data_type, h5t.TypeStringID) and not data_type.is_variable_str()
    fixed = text or isinstance(data_type, h5t.TypeIntegerID)
    if not fixed or attribute.shape != ():
        raise ValueError(f"{type(data_type).__name__} of shape {attribute.shape}")
    value = np.empty((), attribute.dtype)
    attribute.read(value)
    scalar = value.item()
    return scalar.decode("ascii") if isinstance(scalar, bytes) else int(scalar)


def read_root_attributes(
    path: Path,
    file: h5py.File,
    model: type[M],
    format_name: str,
    version: int,
) -> M:
    """Return the attributes of the root of one of our files, which may be untrusted."""
    values = {}
    names = [field.alias or name for name, field in model.model_fields.items()]
    for name in ("format", "format_version", *names):
        try:
            values[name] = read_scalar(file, name)
        except ValueError as error:
            raise_damaged(path, _NOT_VALID, f"{name}: {error}")
    actual_format = values.pop("format")
    if actual_format != format_name:
        raise_damaged(
            path, f"is HDF5, but not a file of {format_name}", f"format {actual_format!r}"[:80]
        )
    check_version(path, values.pop("format_version"), version)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise_damaged(path, _NOT_VALID, first_problem(error))


def _size_of_hdf5_file(path: Path, source: io.RawIOBase | io.BytesIO | None) -> int:
    """Return the size of a regular file, or ``source``, with the HDF5 signature.

    Anything else is refused.
    """
    opened: contextlib.AbstractContextManager[io.RawIOBase | io.BytesIO]
    opened = open_regular_file(path) if source is None else contextlib.nullcontext(source)
    try:
        with opened as file:
            head = file.read(16) or b""
            size = file.seek(0, os.SEEK_END)
    except (OSError, ValueError) as error:  # a zero byte in the path
        raise_damaged(path, "cannot be opened", error, remedy=_NEXT)
    if not head.startswith(_MAGIC):
        raise_damaged(
            path,
            "is not an HDF5 file",
            repr(head) if head else "an empty file",
            remedy=_NEXT,
        )
    return size


def inflate_chunk(stored: bytes, size: int) -> bytes:
    """Return the ``size`` bytes of a gzip chunk; a ValueError if it holds others, or is damaged."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(stored, size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(data) != size or not inflater.eof:
        raise ValueError(
            f"a gzip chunk without an end, or of {len(data):,} bytes or more, expected {size:,}"
        )
    return data
