"""HDF5 files assembled in memory, with equal bytes for equal content."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from kmip_data.errors import UsageError

if TYPE_CHECKING:
    import h5py

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
    if not text.isascii():
        raise UsageError(f"The attribute {name!r} cannot be stored.", expected="ASCII text", found=repr(text))
    data = text.encode("ascii")
    if len(data) > _MAX_TEXT:
        raise UsageError(
            f"The attribute {name!r} is too long for HDF5.",
            expected=f"at most {_MAX_TEXT:,} bytes",
            found=f"{len(data):,} bytes",
        )
    file.attrs.create(name, np.array(data or b"\0", dtype=f"S{max(1, len(data))}"))
