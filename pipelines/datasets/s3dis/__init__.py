"""S3DIS: 1 m blocks of 4,096 points from the PointNet HDF5 release, as k-NN graphs.

Raw layout (pointnet ``sem_seg/gen_indoor3d_h5.py``): ``all_files.txt`` names the HDF5 files in
order, each with ``data`` float32 [B, 4096, 9] and ``label`` uint8 [B, 4096]; ``room_filelist.txt``
has the room of every block, one per line. Facts and deviations: ``docs/datasets/s3dis.md``,
``docs/fidelity.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Schema
from kmip_data.format.writer import GraphRecord
from kmip_data.graphs.split_rules import count_of_fraction, grouped_split, shuffled_split
from kmip_data.pipelines.base import (
    BaseSplitParams,
    Pipeline,
    Prepared,
    RawFolder,
    Records,
    Split,
    Unit,
)
from kmip_data.pipelines.domains.point_clouds import (
    PointParams,
    knn_record,
    knn_schema,
    nodes_per_shard,
)
from kmip_data.pipelines.formats.text import read_lines
from kmip_data.pipelines.graph_arrays.layout_reader import columns_of
from kmip_data.pipelines.record_assignment import chosen_rows_by_file

if TYPE_CHECKING:
    import h5py

WIDTH = 9  #: columns of a point
VALIDATION_SHARE = Fraction(3_294, 20_291)  #: sizes of the train pool as published for test area 6
MAX_FILE_BYTES = 400_000_000  #: declared size of one HDF5 file; upstream's have 151 million


class S3DISParams(PointParams):
    """Parameters that change the records."""

    k: int = Field(
        default=32,
        ge=1,
        le=4_095,
        description="neighbours per point",
    )


class S3DISSplitParams(BaseSplitParams):
    """Parameters of the split."""

    random_rules = ("upstream", "room", "stratified")

    split_rule: Literal["upstream", "room", "stratified"] = Field(
        default="upstream",
        description="upstream: validation blocks drawn at random, as the paper's code does; room: whole "
        "rooms, so that no validation block overlaps a train block; stratified: drawn with equal "
        "shares of the blocks' most frequent classes",
    )
    test_area: int = Field(
        default=6,
        ge=1,
        le=6,
        description="area whose blocks are the test set",
    )
    val_fraction: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="validation share of the other areas (default: 3294/20291)",
    )


class S3DISPipeline(Pipeline[S3DISParams, S3DISSplitParams]):
    """Pipeline of ``s3dis``."""

    version = 1
    Params = S3DISParams
    SplitParams = S3DISSplitParams
    stratified_parts = ("train", "val")  #: not the test area

    def schema(self, params: S3DISParams) -> Schema:
        """Return nine features in file order, ``pos`` as a view of the first three, and the class."""
        return knn_schema(
            columns_of(self.manifest),
            params,
            pos=0,
            max_nodes=self.manifest.max_nodes,
        )

    def prepare(self, raw: RawFolder, params: S3DISParams, workdir: Path) -> Prepared:
        """Check the lists against the files; the plan has the size of each."""
        rooms = read_room_list(raw.path / "room_filelist.txt")
        files = []
        for name in read_file_list(raw.path / "all_files.txt"):
            with _open_blocks(raw.path / name) as (data, _):
                blocks, points, _ = map(int, data.shape)
                chunk_rows = int(data.chunks[0]) if data.chunks else 1
            files.append((name, blocks, points, chunk_rows))
            if not 1 <= points <= self.manifest.max_nodes:
                raise DamagedInput(
                    f"{name} has blocks of {points} points instead of 1 to {self.manifest.max_nodes}."
                )
        total = sum(blocks for _, blocks, _, _ in files)
        if total != len(rooms):
            raise DamagedInput(
                f"room_filelist.txt has {len(rooms)} lines for {total} blocks of {len(files)} files."
            )
        return Prepared(raw.path, {"files": files})

    def units(self, prepared: Prepared, params: S3DISParams) -> list[Unit]:
        """Assign the blocks of each file by whole storage chunks, so that none is inflated twice."""
        units: list[Unit] = []
        budget = nodes_per_shard(self.schema(params), params)
        files = prepared.plan["files"]
        inside = chosen_rows_by_file([(name, blocks) for name, blocks, _, _ in files], params)
        for (name, first, wanted), (_, _, points, chunk_rows) in zip(inside, files, strict=True):
            # As many blocks as a shard may hold, rounded down to whole storage chunks.
            step = max(1, budget // points)
            if step >= chunk_rows:
                step -= step % chunk_rows
            for start in range(0, len(wanted), step):
                rows = wanted[start : start + step]
                items = {"file": name, "rows": rows, "first": first}
                units.append(Unit(len(units), f"{name}[{rows[0]}:{rows[-1] + 1}]", items))
        return units

    def records(self, prepared: Prepared, unit: Unit, params: S3DISParams) -> Iterator[GraphRecord]:
        """Yield the blocks of one unit in file order."""
        name, rows, first = (unit.items[key] for key in ("file", "rows", "first"))
        rooms = read_room_list(prepared.path / "room_filelist.txt")
        schema = self.schema(params)
        with _open_blocks(prepared.path / name) as (data, label):
            features = read_rows(data, rows, name=f"{name}, data")
            labels = read_rows(label, rows, name=f"{name}, label")
        for row, x, y in zip(rows, features, labels, strict=True):
            key = f"{rooms[first + row]}/{first + row:06d}"
            for column, values in zip(schema.columns, (x, y), strict=True):
                if problem := column.problem(values):
                    raise DamagedInput(
                        f"{name}, block {row} ({key}): {column.attribute} {problem}."
                    )
            columns = {"node/x": x, "node/y": y}
            record = knn_record(key, x[:, :3], columns, params, schema.index_dtype)
            if record is not None:
                yield record

    def split(self, records: Records, params: S3DISSplitParams, raw: Path | None) -> Split:
        """Test on one area; validate on blocks (or rooms) drawn from the others."""
        # The room is in the key, so that a split needs no raw files.
        rooms = {i: key.rpartition("/")[0] for i, key in enumerate(records.keys)}
        test = [i for i, room in rooms.items() if room.startswith(f"Area_{params.test_area}_")]
        pool = sorted(rooms.keys() - test)
        val = count_of_fraction(len(pool), params.val_fraction or VALIDATION_SHARE)
        seed = params.split_seed
        if params.split_rule == "upstream":
            parts = shuffled_split(pool, test, val=val, seed=seed)
            note = "validation blocks overlap train blocks, as upstream's do; parts in upstream's order"
        else:
            parts = grouped_split(pool, test, rooms, val=val, seed=seed)
            note = "whole rooms validate; parts in source order"

        name = f"{params.split_rule}-area{params.test_area}-seed{seed}"
        if params.val_fraction is not None:
            name += f"-val{params.val_fraction}"
        drawn_by = params.model_dump(exclude={"split_rule"})
        return Split(name, params.split_rule, drawn_by, parts, note)

    def folder_name_pieces(self, params: S3DISParams) -> list[str]:
        """Return ``k32`` and deviations from the defaults."""
        return params.edge_name_parts


PIPELINE = S3DISPipeline


def read_file_list(path: Path) -> list[str]:
    """Return the HDF5 file names of ``all_files.txt`` in order.

    Only the last part of each path counts.
    """
    names = []
    for number, line in enumerate(read_lines(path), 1):
        name = PurePosixPath(line).name
        is_path_component = re.fullmatch(r"[\w.-]+\.h5", name) is not None
        if not is_path_component or name in names or not (path.parent / name).is_file():
            problem = "not the name of an HDF5 file next to the list, or repeated"
            raise DamagedInput(f"{path.name}, line {number}: {problem}: {line!r}")
        names.append(name)
    return names


def read_room_list(path: Path) -> list[str]:
    """Return the room of each block from ``room_filelist.txt``."""
    rooms = read_lines(path)
    for number, room in enumerate(rooms, 1):
        if _ROOM_NAME.fullmatch(room) is None:
            raise DamagedInput(
                f"{path.name}, line {number}: {room!r} is not a room, Area_<1-6>_<room>."
            )
    return rooms


_ROOM_NAME = re.compile(r"Area_[1-6]_[A-Za-z0-9_-]+")


@contextmanager
def _open_blocks(path: Path) -> Iterator[tuple[h5py.Dataset, h5py.Dataset]]:
    """Open one HDF5 file and check what its two datasets are."""
    from kmip_data.format.safety import GZIP, open_untrusted_hdf5

    filters = frozenset({GZIP})
    with open_untrusted_hdf5(path, max_declared_bytes=MAX_FILE_BYTES, filters=filters) as (file, _):
        for name, dtype, axes in (("data", "float32", 3), ("label", "uint8", 2)):
            dataset = file.get(name)
            shape = getattr(dataset, "shape", None)
            if shape is None or dataset.dtype != np.dtype(dtype) or len(shape) != axes:
                content = "nothing" if shape is None else f"{dataset.dtype} {list(shape)}"
                raise DamagedInput(
                    f"{path.name}: {name!r} is not {dtype} of {axes} axes, but {content}."
                )
        data = file["data"]
        label = file["label"]
        if data.shape[2] != WIDTH or label.shape != data.shape[:2]:
            raise DamagedInput(
                f"{path.name}: 'data' {list(data.shape)} and 'label' {list(label.shape)} do not match, or "
                f"'data' does not have {WIDTH} columns."
            )
        yield data, label


def read_rows(dataset: h5py.Dataset, rows: Sequence[int], *, name: str) -> Array:
    """Return ``dataset[rows]`` for ascending rows; only chunks that hold one of them are inflated.

    HDF5's own gzip filter inflates a stored chunk to whatever size the stream gives, however small
    the chunk was declared (measured: 1 MB of file became 1 GB of memory and no error). So chunks
    are inflated here, to exactly the declared size. Raises ``DamagedInput`` for a missing or
    damaged chunk, or one of another size.
    """
    if dataset.chunks is None:
        stored: Array = dataset[list(rows)]
        return stored
    wanted = np.asarray(rows)
    result = np.empty((len(wanted), *dataset.shape[1:]), dataset.dtype)
    for first, *others in dataset.iter_chunks():
        low, high = np.searchsorted(wanted, [first.start, first.stop])
        if low == high:
            continue
        offset = (first.start, *(extent.start for extent in others))
        block = _read_chunk(dataset, offset, name)
        # Chunks at the edges of the dataset reach beyond it.
        inside = [slice(extent.stop - extent.start) for extent in others]
        result[low:high, *others] = block[wanted[low:high] - first.start][:, *inside]
    return result


def _read_chunk(
    dataset: h5py.Dataset,
    offset: tuple[int, ...],
    name: str,
) -> Array:
    """Return one whole chunk as an array of the chunk's shape."""
    # With h5py, which a list of parameters does not need.
    from kmip_data.format.safety import inflate_chunk

    size = int(np.prod(dataset.chunks)) * dataset.dtype.itemsize
    where = f"{name}, chunk at {list(offset)}, is damaged"
    if not dataset.id.get_chunk_info_by_coord(offset).size:
        raise DamagedInput(f"{where}: no data.")
    try:
        mask, data = dataset.id.read_direct_chunk(offset)
        if dataset.compression and not mask:
            data = inflate_chunk(data, size)
        return np.frombuffer(data, dataset.dtype).reshape(dataset.chunks)
    except ValueError as error:
        raise DamagedInput(f"{where}: {error}.") from error
