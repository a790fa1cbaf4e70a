"""Pipelines of datasets whose manifest describes columns and splits; a subclass reads the files.

``read`` returns the arrays of a graph as stored in the files: ``x``, ``y``, ``edge_index`` and the
other ``[layout.columns]``. It needs no checks of its own: :mod:`.graph_arrays.layout_reader`
compares the values with the manifest, casts them, and adds reverse edges.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, TypeVar, cast

import numpy as np
from pydantic import Field

from kmip_data.arrays import Array
from kmip_data.columns.part_masks import part_codes_from_masks
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.format.split_files import PARTS
from kmip_data.pipelines.base import (
    Pipeline,
    Prepared,
    RawCopy,
    RecordTable,
    Split,
    Unit,
    require_raw,
)
from kmip_data.pipelines.graph_arrays.layout_reader import (
    RawGraph,
    RawReader,
    concatenate_graphs,
    concatenate_in_batches,
    record_of,
    schema_of,
)
from kmip_data.pipelines.graph_arrays.mapped_graphs import MappedGraphs, write_graph_arrays
from kmip_data.pipelines.parameters import (
    BaseSplitParams,
    BuildParams,
    PublishedSplitParams,
    check_fold,
)
from kmip_data.pipelines.units_and_splits import (
    OneGraphParams,
    OneGraphPipeline,
    units_of_parts,
)

FP = TypeVar("FP", bound="FoldParams")


class FoldParams(BaseSplitParams):
    """Parameters of a split that is one of several published folds."""

    split_rule: Literal["upstream", "stratified"] = Field(
        default="upstream",
        description="upstream: the published masks; stratified: redrawn in parts of the same "
        "sizes, with equal class fractions",
    )
    fold: int = Field(
        default=0, ge=0, le=9_999, description="number of the published split, from 0"
    )


class GraphWithMasksPipeline(OneGraphPipeline[OneGraphParams, FP]):
    """Pipeline of a single graph whose splits are published as masks."""

    version = 1
    Params = OneGraphParams
    SplitParams = FoldParams

    @abstractmethod
    def read(self, raw: RawReader) -> RawGraph:
        """Return the arrays of the one graph."""

    @abstractmethod
    def masks(self, raw: RawReader, fold: int) -> Sequence[Array]:
        """Return the masks of train, val and test for a fold, each (N,)."""

    def schema(self, params: OneGraphParams) -> Schema:
        """Return the schema of the manifest's layout."""
        return schema_of(self.manifest)

    def prepare(self, raw: RawCopy, params: OneGraphParams, workdir: Path) -> Prepared:
        """Read and check the graph, and the masks of all folds."""
        reader = RawReader(raw.path, self.manifest.name)
        layout = self.manifest.layout
        with reader.convert_item_errors():
            graph = self.read(reader)
            arrays, rows = concatenate_graphs(
                [graph], self.schema(params), layout, reader.current_item
            )
        for fold in range(layout.folds):
            self._part_codes(raw.path, fold, len(arrays["x"]))
        write_graph_arrays(workdir / "graph", [(arrays, rows)])
        return Prepared(workdir)

    def records(
        self, prepared: Prepared, unit: Unit, params: OneGraphParams
    ) -> Iterator[GraphRecord]:
        """Yield the graph as the only record."""
        graph = MappedGraphs(prepared.path / "graph")[0]
        yield record_of(unit.name, graph, self.schema(params))

    def split(self, records: RecordTable, params: FP, raw_folder: Path | None) -> Split:
        """Return the published split of a fold."""
        check_fold(self.manifest.name, params.fold, self.manifest.layout.folds)
        codes = self._part_codes(
            require_raw(self.manifest, raw_folder), params.fold, int(records.node_counts[0])
        )
        return Split(
            f"upstream-fold{params.fold}",
            "upstream",
            {"fold": params.fold},
            note=self.manifest.layout.split_note,
            part_codes=codes,
        )

    def default_splits(self, params: OneGraphParams) -> list[FP]:
        """Return the parameters of all folds."""
        folds = range(self.manifest.layout.folds)
        return [cast("FP", self.SplitParams(fold=fold)) for fold in folds]

    def _part_codes(self, folder: Path, fold: int, nodes: int) -> Array:
        raw = RawReader(folder, self.manifest.name)
        with raw.convert_item_errors():
            masks = self.masks(raw, fold)
            return part_codes_from_masks(masks, nodes, f"{raw.current_item}, fold {fold}")


class MappedGraphsPipeline(Pipeline[BuildParams, PublishedSplitParams]):
    """Pipeline of many graphs whose arrays ``prepare`` writes to disk, in the order of the files.

    ``prepared.facts`` has the ``sizes`` of the parts. If a part is published as a list of graph
    numbers, ``listed_numbers`` has that list; graphs of other parts are numbered from 0.
    """

    version = 1
    parts: ClassVar[Sequence[str]] = PARTS  #: in source order
    key: ClassVar[str] = "{part}/{number:06d}"  #: template of record keys
    records_per_unit: ClassVar[int]

    def units(self, prepared: Prepared, params: BuildParams) -> list[Unit]:
        """Divide the chosen graphs of each part, in order, into units of ``records_per_unit``."""
        sizes = {part: prepared.facts["sizes"][part] for part in self.parts}
        return units_of_parts(sizes, params, self.records_per_unit)

    def records(self, prepared: Prepared, unit: Unit, params: BuildParams) -> Iterator[GraphRecord]:
        """Yield the graphs of one unit in their published order."""
        part = unit.selection["part"]
        schema = self.schema(params)
        graphs = MappedGraphs(prepared.path / part)
        numbers = prepared.facts["listed_numbers"].get(part)
        if numbers is None:
            numbers = range(prepared.facts["sizes"][part])
        # Graphs are stored in file order: the position of a graph is the rank of its number.
        positions = np.searchsorted(np.sort(numbers), numbers).tolist()
        for row in unit.selection["rows"]:
            key = self.key.format(part=part, number=numbers[row])
            yield record_of(key, graphs[positions[row]], schema)


class PublishedPart(NamedTuple):
    """A published part of a dataset and its graphs, in the order of their file."""

    name: str  #: ``train``, ``val`` or ``test``
    graphs: Iterable[RawGraph]
    #: numbers of these graphs in their file, in published order; ``None`` if the part is the file
    listed_numbers: list[int] | None = None


class GraphsInPartsPipeline(MappedGraphsPipeline):
    """Pipeline of many graphs in published parts."""

    @abstractmethod
    def read(self, raw: RawReader) -> Iterator[PublishedPart]:
        """Yield train, val and test."""

    def schema(self, params: BuildParams) -> Schema:
        """Return the schema of the manifest's layout."""
        return schema_of(self.manifest, key_length=16)

    def prepare(self, raw: RawCopy, params: BuildParams, workdir: Path) -> Prepared:
        """Check each graph and append its arrays to files in which workers can seek."""
        reader = RawReader(raw.path, self.manifest.name)
        schema = self.schema(params)
        sizes = {}
        listed_numbers = {}
        with reader.convert_item_errors():
            for part in self.read(reader):
                batches = concatenate_in_batches(part.graphs, schema, self.manifest.layout, reader)
                sizes[part.name] = write_graph_arrays(workdir / part.name, batches)
                if part.listed_numbers is not None:
                    listed_numbers[part.name] = part.listed_numbers
        return Prepared(workdir, {"sizes": sizes, "listed_numbers": listed_numbers})
