"""``ogbn-papers100M``: a graph of 10⁸ nodes, streamed and built in bounded memory.

Raw layout: ``raw/data.npz`` with ``edge_index`` (2, E), ``node_feat`` (N, 128), ``node_year`` (N, 1),
``num_nodes_list`` and ``num_edges_list`` (1,), in any order, compressed or not;
``raw/node-label.npz`` with ``node_label`` (N, 1), NaN if unknown; ``split/time``. Two passes sort the
edges by target on disk; features are copied from the archive while the shard is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from kmip_data.arrays import Array
from kmip_data.columns.labels import NO_CLASS
from kmip_data.errors import DamagedInput
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Column, Schema
from kmip_data.format.split_files import NO_PART
from kmip_data.format.writer import LazyColumn
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import Prepared, RawCopy, RecordTable, Split, Unit, require_raw
from kmip_data.pipelines.datasets.ogb.csv_pipelines import OGBNodesParams, read_part_lists
from kmip_data.pipelines.formats.npz import ArrayStream, NpzFile
from kmip_data.pipelines.graph_arrays import external_edge_sort
from kmip_data.pipelines.parameters import PublishedSplitParams
from kmip_data.pipelines.units_and_splits import OneGraphPipeline
from kmip_data.runtime.parallel import prepare_ahead

NUM_FEATURES = 128
MAX_YEAR = 10_000
_SPLIT_RULE = "time"
_DATA_FILE = "raw/data.npz"
_LABEL_FILE = "raw/node-label.npz"
_ROWS_PER_BATCH = 2**20  #: labels or years converted at a time
_BATCHES_AHEAD = 4  #: batches decompressed in advance


class PapersParams(OGBNodesParams):
    """Parameters that change the record."""

    features: Literal["float32", "float16"] = Field(
        default="float32",
        description="dtype of the stored features; float16: half the size, relative error at most 1/2048, "
        "absolute error at most 3e-8 below 6e-5; refused if a value exceeds 65,504",
    )


class PapersPipeline(OneGraphPipeline[PapersParams, PublishedSplitParams]):
    """Pipeline of ``ogbn-papers100m``."""

    version = 1
    passes = ("sort",)
    folder_name_templates = (("edges", "{}"), ("features", "{}"))
    Params = PapersParams

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.classes = manifest.expected.classes or 2

    def schema(self, params: PapersParams) -> Schema:
        """Return the columns of features, class and year; edges are sorted by target."""
        columns = (
            Column(
                key="node/x", attribute="x", shape=(NUM_FEATURES,), stored=params.features,
                presented="float32", doc="mean of the vectors of the words of title and abstract",
            ),
            Column(
                key="node/y", attribute="y", stored="int16", presented="int64",
                low=NO_CLASS, high=self.classes - 1, num_classes=self.classes,
                doc="subject, or -1 where it is not known",
            ),
            Column(
                key="node/year", attribute="node_year", shape=(1,), stored="int16", presented="int64",
                low=0, high=MAX_YEAR, doc="year of publication",
            ),
        )  # fmt: skip
        return Schema(
            columns=columns,
            edges="index",
            max_nodes=self.manifest.max_nodes,
            directed=params.edges == "published",
        )

    def prepare(self, raw: RawCopy, params: PapersParams, workdir: Path) -> Prepared:
        """First pass: check array headers and the split, and partition the edges by target."""
        data = NpzFile(raw.path / _DATA_FILE)
        nodes = data.read_number("num_nodes_list")
        edges = data.read_number("num_edges_list")
        _open_features(raw.path, nodes)
        _open_years(data, nodes)
        _open_labels(raw.path, nodes)
        _part_codes(raw.path, nodes)
        external_edge_sort.write_runs(
            _edge_batches(data, nodes, edges),
            nodes,
            edges,
            workdir,
            both_ways=params.edges == "undirected",
        )
        return Prepared(workdir, {"nodes": nodes, "raw": str(raw.path)})

    def sort(self, prepared: Prepared, params: PapersParams, workdir: Path) -> Prepared:
        """Second pass: sort the runs, and convert and check labels and years."""
        nodes = prepared.facts["nodes"]
        raw = Path(prepared.facts["raw"])
        years = _open_years(NpzFile(raw / _DATA_FILE), nodes)
        _write_int16(years, nodes, workdir / "year", 0, MAX_YEAR)
        _write_int16(_open_labels(raw, nodes), nodes, workdir / "y", NO_CLASS, self.classes - 1)
        count, capacity = external_edge_sort.sort_runs(
            prepared.path,
            nodes,
            workdir,
            distinct=params.edges == "undirected",
        )
        return Prepared(workdir, {**prepared.facts, "edges": count, "capacity": capacity})

    def records(
        self, prepared: Prepared, unit: Unit, params: PapersParams
    ) -> Iterator[GraphRecord]:
        """Yield the graph, whose features are read while they are written."""
        facts = prepared.facts
        folder = prepared.path
        nodes = facts["nodes"]
        edges = external_edge_sort.map_sorted_edges(folder, facts["edges"], facts["capacity"])
        features = FeatureStream(Path(facts["raw"]), nodes, np.dtype(params.features))
        columns: dict[str, Array | LazyColumn] = {
            "node/x": LazyColumn((nodes, NUM_FEATURES), features.dtype, features),
            "node/y": np.asarray(np.memmap(folder / "y", np.int16, "r")),
            "node/year": np.asarray(np.memmap(folder / "year", np.int16, "r"))[:, None],
        }
        yield GraphRecord(
            key=unit.name,
            num_nodes=nodes,
            columns=columns,  # type: ignore[arg-type] # rows computed while written
            edge_index=edges.astype(self.schema(params).index_dtype, copy=False),
        )

    def split(
        self, records: RecordTable, params: PublishedSplitParams, raw_folder: Path | None
    ) -> Split:
        """Apply the published lists; most nodes are in no part."""
        codes = _part_codes(require_raw(self.manifest, raw_folder), int(records.node_counts[0]))
        if records.node_labels is not None:
            labels = records.node_labels[0]
            unknown = np.flatnonzero((codes != NO_PART) & (labels < 0))
            if len(unknown):
                raise DamagedInput(f"split/{_SPLIT_RULE}: node {unknown[0]} has no label.")
        note = f"the published lists, by {_SPLIT_RULE}; nodes without a label are in no part"
        return Split("upstream", "upstream", {}, note=note, part_codes=codes)


class FeatureStream:
    """Rows of ``node_feat``, decompressed ahead of the writer, which requests them in order."""

    def __init__(self, raw: Path, nodes: int, dtype: np.dtype[np.floating]) -> None:
        self.dtype = dtype
        self._raw = raw
        self._nodes = nodes
        self._next = (0, 0)  #: row range of the next batch
        self._batches: Iterator[Array] = iter(())

    def __call__(self, start: int, stop: int) -> Array:
        """Return rows ``start:stop`` as stored; raises ``DamagedInput`` if they are damaged."""
        if (start, stop) != self._next:
            self._begin_reading(start, stop - start)
        rows = next(self._batches)
        step = self._next[1] - self._next[0]
        self._next = (stop, min(stop + step, self._nodes))
        return rows

    def _begin_reading(self, first: int, step: int) -> None:
        """Start reading at row ``first``, ``step`` rows at a time."""
        stream = _open_features(self._raw, self._nodes)
        stream.skip(first * NUM_FEATURES)
        bounds = [*range(first, self._nodes, max(step, 1)), self._nodes]
        self._next = (first, first + step)

        def feature_batch(rows: tuple[int, int]) -> Array:
            start, stop = rows
            values = stream.take((stop - start) * NUM_FEATURES).reshape(-1, NUM_FEATURES)
            with np.errstate(over="ignore"):
                stored = values.astype(self.dtype, copy=False)
            if not np.isfinite(stored).all():
                row, column = np.argwhere(~np.isfinite(stored))[0]
                raise DamagedInput(
                    f"{stream.name}: {values[row, column]} in row {start + row:,} is not a {self.dtype}.",
                    next="--set features=float32, if it is finite",
                )
            return stored

        self._batches = prepare_ahead(
            pairwise(bounds), feature_batch, threads=1, depth=_BATCHES_AHEAD
        )


def _open_features(raw: Path, nodes: int) -> ArrayStream:
    stream = NpzFile(raw / _DATA_FILE).open_array("node_feat", "f", (nodes, NUM_FEATURES))
    if stream.is_fortran_order:
        raise DamagedInput(
            f"{stream.name} is stored by columns.",
            next="save it again: numpy.ascontiguousarray(array)",
        )
    return stream


def _open_years(data: NpzFile, nodes: int) -> ArrayStream:
    return data.open_array("node_year", "iu", (nodes, 1))


def _open_labels(raw: Path, nodes: int) -> ArrayStream:
    return NpzFile(raw / _LABEL_FILE).open_array("node_label", "fiu", (nodes, 1))


def _edge_batches(data: NpzFile, nodes: int, edges: int) -> Iterator[tuple[Array, Array]]:
    """Yield the sources and targets of the edges in order, int64, all below ``nodes``.

    In row-major arrays all sources precede all targets, so two streams read the array at two
    positions. In column-major arrays they alternate.
    """
    streams = [data.open_array("edge_index", "iu", (2, edges)) for _ in range(2)]
    name = streams[0].name
    is_fortran_order = streams[0].is_fortran_order
    if not is_fortran_order:
        streams[1].skip(edges)

    def edge_batch(start: int) -> Array:
        count = min(external_edge_sort.EDGES_PER_BATCH, edges - start)
        if is_fortran_order:
            ends = streams[0].take(2 * count).reshape(-1, 2).T
        else:
            ends = np.stack([stream.take(count) for stream in streams])
        if ends.min() < 0 or ends.max() >= nodes:
            row, column = np.argwhere((ends < 0) | (ends >= nodes))[0]
            raise DamagedInput(
                f"{name}: edge {start + column:,} leads out of the graph.",
                expected=f"nodes from 0 to {nodes - 1:,}",
                found=f"{ends[row, column]}",
            )
        return ends.astype(np.int64, copy=False)

    starts = range(0, edges, external_edge_sort.EDGES_PER_BATCH)
    for ends in prepare_ahead(starts, edge_batch, threads=1, depth=_BATCHES_AHEAD):
        yield ends[0], ends[1]


def _write_int16(stream: ArrayStream, nodes: int, path: Path, low: int, high: int) -> None:
    """Write integers from ``low`` to ``high`` as int16, and NaN as ``NO_CLASS``."""
    with path.open("wb") as file:
        for start in range(0, nodes, _ROWS_PER_BATCH):
            values = stream.take(min(_ROWS_PER_BATCH, nodes - start))
            missing = np.isnan(values)
            filled = np.where(missing, 0, values)
            is_invalid = (filled < 0) | (filled > high) | (filled != np.rint(filled))
            if low == 0:
                is_invalid |= missing
            if is_invalid.any():
                row = int(is_invalid.argmax())
                raise DamagedInput(
                    f"{stream.name}: {values[row]} in row {start + row:,}.",
                    expected=f"an integer from 0 to {high:,}",
                )
            stored = filled.astype(np.int16)
            stored[missing] = NO_CLASS
            file.write(stored.data)


def _part_codes(folder: Path, nodes: int) -> Array:
    """Return the part code of each node in the published lists, uint8 (N,)."""
    codes = np.full(nodes, NO_PART, np.uint8)
    for code, (part, rows) in enumerate(read_part_lists(folder, _SPLIT_RULE).items()):
        outside = rows[rows >= nodes]
        if len(outside):
            raise DamagedInput(
                f"split/{_SPLIT_RULE}, {part}: node {outside[0]} is not in 0 to {nodes - 1:,}."
            )
        if (codes[rows] != NO_PART).any() or len(np.unique(rows)) < len(rows):
            raise DamagedInput(f"split/{_SPLIT_RULE}, {part}: a node is listed twice.")
        codes[rows] = code
    return codes
