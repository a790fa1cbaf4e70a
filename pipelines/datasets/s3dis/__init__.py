"""S3DIS: 1 m blocks of 4,096 points from the PointNet HDF5 release, as k-NN graphs.

Raw layout (pointnet ``sem_seg/gen_indoor3d_h5.py``): ``all_files.txt`` lists the HDF5 files in
order, each with ``data`` float32 [B, 4096, 9] and ``label`` uint8 [B, 4096]; ``room_filelist.txt``
has the room of each block, one per line. Facts and deviations: ``docs/datasets/s3dis.md``,
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
from kmip_data.files.small_files import first_problem
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.graphs.split_rules import count_of_fraction, grouped_split, shuffled_split
from kmip_data.pipelines.base import Pipeline, Prepared, RawCopy, RecordTable, Split, Unit
from kmip_data.pipelines.domains.point_clouds import (
    KnnParams,
    knn_record,
    knn_schema,
    nodes_per_shard,
)
from kmip_data.pipelines.formats.text import read_lines
from kmip_data.pipelines.graph_arrays.layout_reader import columns_of
from kmip_data.pipelines.parameters import BaseSplitParams
from kmip_data.pipelines.units_and_splits import chosen_rows_by_file

if TYPE_CHECKING:
    import h5py

POINT_COLUMNS = 9
VALIDATION_FRACTION = Fraction(3_294, 20_291)  #: published sizes for test area 6
MAX_FILE_BYTES = 400_000_000  #: declared size of an HDF5 file; upstream's have 151 million


class S3DISParams(KnnParams):
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
        description="upstream: random validation blocks, as in the paper's code; room: complete rooms, "
        "so that no validation block overlaps a train block; stratified: drawn with equal "
        "fractions of the blocks' most frequent classes",
    )
    test_area: int = Field(
        default=6,
        ge=1,
        le=6,
        description="area used as the test set",
    )
    val_fraction: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="validation fraction of the other areas (default: 3294/20291)",
    )


class S3DISPipeline(Pipeline[S3DISParams, S3DISSplitParams]):
    """Pipeline of ``s3dis``."""

    version = 1
    Params = S3DISParams
    SplitParams = S3DISSplitParams
    redrawn_parts = ("train", "val")

    def schema(self, params: S3DISParams) -> Schema:
        """Return nine features in file order, ``pos`` as a view of the first three, and the label."""
        return knn_schema(
            columns_of(self.manifest),
            params,
            pos=0,
            max_nodes=self.manifest.max_nodes,
        )

    def prepare(self, raw: RawCopy, params: S3DISParams, workdir: Path) -> Prepared:
        """Check the lists against the files, and plan the size of each file."""
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
        """Assign the blocks of each file by complete chunks, so that no chunk is decompressed twice."""
        units: list[Unit] = []
        budget = nodes_per_shard(self.schema(params), params)
        files = prepared.facts["files"]
        inside = chosen_rows_by_file([(name, blocks) for name, blocks, _, _ in files], params)
        for (name, first, file_rows), (_, _, points, chunk_rows) in zip(inside, files, strict=True):
            # Fill a shard, rounded down to complete storage chunks.
            step = max(1, budget // points)
            if step >= chunk_rows:
                step -= step % chunk_rows
            for start in range(0, len(file_rows), step):
                rows = file_rows[start : start + step]
                selection = {"file": name, "rows": rows, "first": first}
                units.append(Unit(len(units), f"{name}[{rows[0]}:{rows[-1] + 1}]", selection))
        return units

    def records(self, prepared: Prepared, unit: Unit, params: S3DISParams) -> Iterator[GraphRecord]:
        """Yield the graphs of a unit's blocks in file order."""
        name, rows, first = (unit.selection[key] for key in ("file", "rows", "first"))
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

    def split(
        self, records: RecordTable, params: S3DISSplitParams, raw_folder: Path | None
    ) -> Split:
        """Test on one area, and validate on blocks or rooms drawn from the others."""
        # Keys include the room, so a split needs no raw files.
        rooms = {i: key.rpartition("/")[0] for i, key in enumerate(records.keys)}
        test = [i for i, room in rooms.items() if room.startswith(f"Area_{params.test_area}_")]
        pool = sorted(rooms.keys() - test)
        val = count_of_fraction(len(pool), params.val_fraction or VALIDATION_FRACTION)
        seed = params.split_seed
        if params.split_rule == "upstream":
            parts = shuffled_split(pool, test, val=val, seed=seed)
            note = (
                "validation blocks overlap train blocks, as in upstream; parts in upstream's order"
            )
        else:
            parts = grouped_split(pool, test, rooms, val=val, seed=seed)
            note = "complete rooms validate; parts in source order"

        name = f"{params.split_rule}-area{params.test_area}-seed{seed}"
        if params.val_fraction is not None:
            name += f"-val{params.val_fraction}"
        drawn_by = params.model_dump(exclude={"split_rule"})
        return Split(name, params.split_rule, drawn_by, parts, note)

    def folder_name_pieces(self, params: S3DISParams) -> list[str]:
        """Return ``k32`` and non-default edge parameters."""
        return params.folder_name_pieces


PIPELINE = S3DISPipeline


def read_file_list(path: Path) -> list[str]:
    """Return the HDF5 file names of ``all_files.txt`` in order, without their folders."""
    names = []
    for line_number, line in enumerate(read_lines(path), 1):
        name = PurePosixPath(line).name
        is_valid_name = re.fullmatch(r"[\w.-]+\.h5", name) is not None
        if not is_valid_name or name in names or not (path.parent / name).is_file():
            problem = "not the name of an HDF5 file next to the list, or a duplicate"
            raise DamagedInput(f"{path.name}, line {line_number}: {problem}: {line!r}")
        names.append(name)
    return names


def read_room_list(path: Path) -> list[str]:
    """Return the room of each block from ``room_filelist.txt``."""
    rooms = read_lines(path)
    for line_number, room in enumerate(rooms, 1):
        if _ROOM_NAME.fullmatch(room) is None:
            raise DamagedInput(
                f"{path.name}, line {line_number}: {room!r} is not a room, Area_<1-6>_<room>."
            )
    return rooms


_ROOM_NAME = re.compile(r"Area_[1-6]_[A-Za-z0-9_-]+")


@contextmanager
def _open_blocks(path: Path) -> Iterator[tuple[h5py.Dataset, h5py.Dataset]]:
    """Open one HDF5 file and check its two datasets."""
    from kmip_data.format.untrusted_hdf5 import GZIP, open_untrusted_hdf5

    filters = frozenset({GZIP})
    with open_untrusted_hdf5(path, max_declared_bytes=MAX_FILE_BYTES, filters=filters) as (file, _):
        for name, dtype, axes in (("data", "float32", 3), ("label", "uint8", 2)):
            dataset = file.get(name)
            shape = getattr(dataset, "shape", None)
            if shape is None or dataset.dtype != np.dtype(dtype) or len(shape) != axes:
                content = "missing" if shape is None else f"{dataset.dtype} {list(shape)}"
                raise DamagedInput(
                    f"{path.name}: {name!r} is {content}, not {dtype} with {axes} axes."
                )
        data = file["data"]
        label = file["label"]
        if data.shape[2] != POINT_COLUMNS or label.shape != data.shape[:2]:
            raise DamagedInput(
                f"{path.name}: 'data' {list(data.shape)} and 'label' {list(label.shape)} do not match, or "
                f"'data' does not have {POINT_COLUMNS} columns."
            )
        yield data, label


def read_rows(dataset: h5py.Dataset, rows: Sequence[int], *, name: str) -> Array:
    """Return ``dataset[rows]`` for ascending rows, reading only the chunks that contain them.

    HDF5's gzip filter decompresses a chunk to any size, ignoring the declared one: a file of 1 MB
    became 1 GB of memory without an error. So decompress chunks here, to exactly the declared
    size. Raises ``DamagedInput`` if a chunk is missing, damaged or of another size.
    """
    if dataset.chunks is None:
        stored: Array = dataset[list(rows)]
        return stored
    positions = np.asarray(rows)
    result = np.empty((len(positions), *dataset.shape[1:]), dataset.dtype)
    for row_range, *other_ranges in dataset.iter_chunks():
        low, high = np.searchsorted(positions, [row_range.start, row_range.stop])
        if low == high:
            continue
        offset = (row_range.start, *(extent.start for extent in other_ranges))
        chunk = _read_chunk(dataset, offset, name)
        # Chunks at the edges of the dataset extend beyond it.
        inside = [slice(extent.stop - extent.start) for extent in other_ranges]
        chunk_rows = positions[low:high] - row_range.start
        result[low:high, *other_ranges] = chunk[chunk_rows][:, *inside]
    return result


def _read_chunk(
    dataset: h5py.Dataset,
    offset: tuple[int, ...],
    name: str,
) -> Array:
    """Return one complete chunk as an array of the chunk's shape."""
    # Import lazily: this loads h5py.
    from kmip_data.format.untrusted_hdf5 import inflate_chunk

    size = int(np.prod(dataset.chunks)) * dataset.dtype.itemsize
    message = f"{name}, chunk at {list(offset)}, is damaged"
    if not dataset.id.get_chunk_info_by_coord(offset).size:
        raise DamagedInput(f"{message}: no data.")
    try:
        mask, data = dataset.id.read_direct_chunk(offset)
        if dataset.compression and not mask:
            data = inflate_chunk(data, size)
        return np.frombuffer(data, dataset.dtype).reshape(dataset.chunks)
    except ValueError as error:
        raise DamagedInput(f"{message}: {first_problem(error)}.") from error
