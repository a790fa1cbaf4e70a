"""Read rows of a gzip-compressed HDF5 dataset that is not trusted, chunk by chunk within bounds.

HDF5's own gzip filter inflates a stored chunk to whatever size the stream gives, however small the
chunk was declared (measured: 1 MB of file became 1 GB of memory and no error). Here each chunk is
inflated by us, to exactly the declared size or an error, and only chunks with the rows asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput

if TYPE_CHECKING:
    import h5py


def read_chosen_rows(dataset: h5py.Dataset, rows: Sequence[int], *, name: str) -> NDArray[Any]:
    """Return ``dataset[rows]`` for ascending rows; only chunks that hold one of them are inflated.

    Errors as for :func:`read_rows`.
    """
    if rows[-1] - rows[0] + 1 == len(rows):
        return read_rows(dataset, rows[0], rows[-1] + 1, name=name)
    parts = []
    size = dataset.chunks[0] if dataset.chunks else 1
    for _, group in itertools.groupby(rows, lambda row: row // size):
        chosen = list(group)
        part = read_rows(dataset, chosen[0], chosen[-1] + 1, name=name)
        parts.append(part[[row - chosen[0] for row in chosen]])
    return np.concatenate(parts)


def read_rows(dataset: h5py.Dataset, start: int, stop: int, *, name: str) -> NDArray[Any]:
    """Return ``dataset[start:stop]``.

    The dataset is contiguous, or chunked with gzip as its only filter or none. Raises ``DamagedInput`` where
    a chunk is missing, damaged or not of its declared size, or there are other filters.
    """
    if dataset.chunks is None:
        rows: NDArray[Any] = dataset[start:stop]
        return rows
    plist = dataset.id.get_create_plist()
    filters = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
    if filters not in ([], [1]):  # 1 is H5Z_FILTER_DEFLATE
        raise DamagedInput(f"{name} uses unknown filters.", expected="gzip", found=f"filter ids {filters}")
    chunk, shape = dataset.chunks, (stop - start, *dataset.shape[1:])
    out = np.empty(shape, dataset.dtype)
    first = start // chunk[0] * chunk[0]
    starts = [
        range(first, stop, chunk[0]),
        *(range(0, n, c) for n, c in zip(shape[1:], chunk[1:], strict=True)),
    ]
    for offset in itertools.product(*starts):
        block = _chunk(dataset, offset, bool(filters), name)
        # Where the chunk lies in `out`, cut to the rows asked for and to the edges of the dataset.
        low = max(offset[0], start)
        high = min(offset[0] + chunk[0], stop)
        target = [slice(low - start, high - start)]
        source = [slice(low - offset[0], high - offset[0])]
        for n, c, at in zip(shape[1:], chunk[1:], offset[1:], strict=True):
            target.append(slice(at, min(at + c, n)))
            source.append(slice(0, min(c, n - at)))
        out[tuple(target)] = block[tuple(source)]
    return out


def _chunk(dataset: h5py.Dataset, offset: tuple[int, ...], deflated: bool, name: str) -> NDArray[Any]:
    """Return one whole chunk as an array of the chunk's shape."""
    from kmip_data.format.safety import inflate  # with h5py, which a list of parameters does not need

    size = int(np.prod(dataset.chunks)) * dataset.dtype.itemsize
    where = f"{name}, chunk at {list(offset)}"
    if not dataset.id.get_chunk_info_by_coord(offset).size:
        raise DamagedInput(f"{where}, is not there.", expected=f"{size} bytes", found="no data")
    mask, stored = dataset.id.read_direct_chunk(offset)
    try:
        data = inflate(stored, size) if deflated and not mask else stored
    except ValueError as error:
        raise DamagedInput(f"{where}, is damaged.", expected=f"{size} bytes", found=str(error)) from error
    if len(data) != size:
        raise DamagedInput(f"{where}, is damaged.", expected=f"{size} bytes", found=f"{len(data)} bytes")
    return np.frombuffer(data, dataset.dtype).reshape(dataset.chunks)
