"""Safe opening of untrusted HDF5 files: harmful constructs are refused before data are read.

HDF5 can refer to other files (external links, external storage, virtual datasets), load plugins
(filters), and declare arrays far larger than the file. Neither shards nor the raw files of pipelines
use any of this, so :func:`open_untrusted_hdf5` visits every object with the low-level interface,
follows no link, and refuses such a file.

HDF5's gzip filter inflates a chunk to the full length of its stream, even beyond the declared size of
the chunk: a file of 1 MB can fill 1 GB. So readers of compressed raw files use :func:`inflate_chunk`,
which stops at the declared size.
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
from kmip_data.errors import Command, KmipDataError
from kmip_data.files.path_errors import check_version, raise_damaged
from kmip_data.files.small_files import first_problem, open_regular_file

M = TypeVar("M", bound=BaseModel)
MAX_OBJECTS = 1_000
MAX_DEPTH = 16
MAX_ATTRIBUTES = 64  #: per object
MAX_ATTRIBUTE_BYTES = 2**16
MAX_CHUNK_BYTES = 2**26
MAX_RATIO = 200  #: compression ratio above which declared bytes are in excess; graphs reach 3 to 20
MAX_EXCESS_BYTES = 2**26  #: limit of the bytes in excess of all datasets of a file

GZIP = h5z.FILTER_DEFLATE
RAW_FILTERS = frozenset({GZIP, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32})


class _Refused(Exception):
    """Refusal of a construct, with the problem and its location or size; caught in this module."""


@dataclass(frozen=True)
class StoredArray:
    """Dtype, shape and location of a dataset in a file."""

    dtype: DType
    shape: tuple[int, ...]
    offset: int | None  #: set for contiguous data that are not empty

    @property
    def nbytes(self) -> int:
        """Uncompressed size in bytes."""
        return self.dtype.itemsize * math.prod(self.shape)


def _require(condition: object, problem: str, found: str) -> None:
    if not condition:
        raise _Refused(problem, found)


class _ObjectInspector:
    """Visitor of all objects of a file that enforces the limits."""

    def __init__(self, size: int, filters: frozenset[int], max_declared_bytes: int) -> None:
        self.size = size
        self.max_declared_bytes = max_declared_bytes
        self.filters = filters
        self.visited_addresses: set[int] = set()
        self.datasets: dict[str, StoredArray] = {}
        self.declared_bytes = 0
        self.excess_bytes = 0  #: declared bytes beyond MAX_RATIO, of all datasets together

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
            return True if len(names) > MAX_OBJECTS else None  # any value stops the iteration

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
        """Check that a group or dataset has one name, and few and small attributes."""
        address = int(h5o.get_info(member).addr)
        where = f"at {name[:80]!r}"
        _require(
            address not in self.visited_addresses,
            "holds an object twice",
            f"a second hard link {where}",
        )
        self.visited_addresses.add(address)
        _require(
            len(self.visited_addresses) <= MAX_OBJECTS,
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
            _ = attribute.dtype  # raises for an invalid type, before the value is read

    def check_dataset(self, dataset: h5d.DatasetID, name: str) -> None:
        """Check layout, filters, type and sizes of a dataset."""
        where = f"at {name[:80]!r}"
        # Check the layout first: asking for the shape of a virtual dataset opens its sources.
        properties = dataset.get_create_plist()
        layout = properties.get_layout()
        is_internal = layout != h5d.VIRTUAL and not properties.get_external_count()
        _require(is_internal, "holds data of other files", where)
        for index in range(properties.get_nfilters()):
            code = properties.get_filter(index)[0]
            _require(
                code in self.filters,
                "uses an unknown filter",
                f"filter {code} {where}",
            )
        data_type = dataset.get_type()
        is_number = isinstance(data_type, h5t.TypeIntegerID | h5t.TypeFloatID)
        _require(
            is_number or _is_fixed_string(data_type),
            "holds data of an unsupported type",
            f"{type(data_type).__name__} {where}",
        )
        space = dataset.get_space()
        _require(
            space.get_simple_extent_type() != h5s.NULL,
            "holds a dataset without data",
            where,
        )
        offset = dataset.get_offset() if layout == h5d.CONTIGUOUS else None
        stored = StoredArray(data_type.dtype, space.shape, offset)
        self.check_sizes(stored, dataset, where)
        self.datasets[name] = stored

    def check_sizes(self, stored: StoredArray, dataset: h5d.DatasetID, where: str) -> None:
        """Check the declared size of a dataset against its stored bytes."""
        properties = dataset.get_create_plist()
        layout = properties.get_layout()
        stored_bytes = dataset.get_storage_size()
        problem = "declares absurd sizes"
        declared = stored.nbytes

        # 1. All datasets together. An axis of length 0 must not hide the others: converting a
        #    (0, 10**10) array takes 6 GB.
        lengths = [max(1, length) for length in stored.shape]
        self.declared_bytes += stored.dtype.itemsize * math.prod(lengths)
        total = f"{self.declared_bytes:,} bytes in all, of at most {self.max_declared_bytes:,}"
        _require(self.declared_bytes <= self.max_declared_bytes, problem, total)

        # 2. Contiguous data must be inside the file.
        sizes = f"{declared:,} bytes declared, {stored_bytes:,} stored"
        sizes = f"{sizes} of a file of {self.size:,} {where}"
        if layout == h5d.CONTIGUOUS and declared:
            is_inside = stored.offset is not None and stored.offset + declared <= self.size
            _require(is_inside and stored_bytes == declared, problem, sizes)
            return

        # 3. Compressed data may expand MAX_RATIO times; excess bytes add up over all datasets.
        chunk_bytes = 0
        if layout == h5d.CHUNKED:
            chunk_bytes = stored.dtype.itemsize * math.prod(properties.get_chunk())
        _require(
            chunk_bytes <= MAX_CHUNK_BYTES, problem, f"a chunk of {chunk_bytes:,} bytes {where}"
        )
        self.excess_bytes += max(0, declared - stored_bytes * MAX_RATIO)
        is_plausible = stored_bytes <= self.size and self.excess_bytes <= MAX_EXCESS_BYTES
        _require(is_plausible, problem, sizes)


def _is_fixed_string(data_type: h5t.TypeID) -> bool:
    return isinstance(data_type, h5t.TypeStringID) and not data_type.is_variable_str()


_NOT_VALID = "has attributes that are not valid"
_MAGIC = b"\x89HDF\r\n\x1a\n"
_REMEDY = (
    "get the file again from its source; or, if it is a shard, repair its build",
    Command("kmip-data verify BUILD --repair"),
)
# Exceptions raised by h5py while it reads data of a damaged file.
_HDF5_ERRORS = (OSError, RuntimeError, LookupError, ValueError, TypeError, MemoryError)


@contextlib.contextmanager
def open_untrusted_hdf5(
    path: str | os.PathLike[str],
    *,
    max_declared_bytes: int,
    filters: frozenset[int] = RAW_FILTERS,
    source: io.RawIOBase | io.BytesIO | None = None,
) -> Iterator[tuple[h5py.File, dict[str, StoredArray]]]:
    """Open an HDF5 file for reading, after checking every object in it.

    Yields the file and its datasets by key (``node/x``). All datasets together may declare at most
    ``max_declared_bytes``, uncompressed, and use only the given ``filters``. ``source`` supplies the
    bytes if the file is not at ``path``.

    Raises ``DamagedInput`` if the file is not HDF5, is damaged, or holds a link, external or virtual
    data, types other than numbers and fixed-length strings, another filter, or absurd sizes; and for
    errors of HDF5 while the caller reads. Raises ``OutOfResources`` if this process lacks memory or
    file descriptors.
    """
    path = Path(path)
    size = _size_of_hdf5_file(path, source)
    with contextlib.ExitStack() as stack:
        try:
            # locking=False: network file systems may lack locks, and reading needs none.
            file = stack.enter_context(
                h5py.File(path if source is None else source, "r", locking=False)
            )
            inspector = _ObjectInspector(size, filters, max_declared_bytes)
            inspector.check_group(h5g.open(file.id, b"/"), "", 0)
        except _Refused as refused:
            raise_damaged(path, *refused.args, remedy=_REMEDY)
        except Exception as error:  # noqa: BLE001 -- on a damaged file h5py may raise anything
            raise_damaged(path, "is damaged", error, remedy=_REMEDY)
        try:
            yield file, inspector.datasets
        except KmipDataError:
            raise
        except _HDF5_ERRORS as error:
            raise_damaged(path, "is damaged", error, remedy=_REMEDY)


def read_scalar(file: h5py.File, name: str) -> int | str | None:
    """Return a root attribute, an integer or a fixed-length ASCII string; ``None`` if missing.

    Raises ``ValueError`` for other types: variable-length data could refer to a large object many
    times.
    """
    if name not in file.attrs:
        return None
    attribute = h5a.open(file.id, name.encode())
    data_type = attribute.get_type()
    is_integer = isinstance(data_type, h5t.TypeIntegerID)
    if attribute.shape != () or not (is_integer or _is_fixed_string(data_type)):
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
    """Read and validate the root attributes of a shard, split or column file.

    Raises ``DamagedInput`` if format, version or attributes are not valid.
    """
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
    """Return the size of a regular file, or of ``source``; refuse it without the HDF5 signature."""
    opened: contextlib.AbstractContextManager[io.RawIOBase | io.BytesIO]
    opened = open_regular_file(path) if source is None else contextlib.nullcontext(source)
    try:
        with opened as file:
            head = file.read(16) or b""
            size = file.seek(0, os.SEEK_END)
    except (OSError, ValueError) as error:  # a zero byte in the path
        raise_damaged(path, "cannot be opened", error, remedy=_REMEDY)
    if not head.startswith(_MAGIC):
        raise_damaged(
            path,
            "is not an HDF5 file",
            repr(head) if head else "an empty file",
            remedy=_REMEDY,
        )
    return size


def inflate_chunk(stored: bytes, size: int) -> bytes:
    """Inflate a gzip chunk; raise ``ValueError`` if it is damaged or not of exactly ``size`` bytes."""
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
