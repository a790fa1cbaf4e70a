"""Graphs of your own in the formats that they are kept in; a file of this folder reads each.

Files are read graph by graph: once for the columns of all, and again for each shard, up to its last
graph. Facts: ``docs/own-data.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import compress, count, islice
from pathlib import Path

import numpy as np
from pydantic import Field

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format.schema import Column, Schema
from kmip_data.format.splits import NO_PART, NODE_PARTS
from kmip_data.format.writer import MAX_SHARD_BYTES, GraphRecord
from kmip_data.manifest import Strict
from kmip_data.pipelines.base import Prepared, RawFolder, Records, Split, Unit
from kmip_data.pipelines.datasets.graphs import edges
from kmip_data.pipelines.datasets.graphs.tables import (
    NO_CLASS,
    Facts,
    GraphParams,
    head_of,
    numbers,
)
from kmip_data.pipelines.raw.archives import open_archive
from kmip_data.pipelines.raw.copies import RawCopy, store_own, unpack
from kmip_data.pipelines.shared.own import (
    OwnPipeline,
    OwnSplitParams,
    ascii_key,
    dealt,
    random_name,
)
from kmip_data.pipelines.shared.records import units_of_rows

#: Formats in the order in which they are tried.
FORMATS = (edges,)
KEY_LENGTH = 160
PART_DOC = "part: 0 train, 1 val, 2 test, 255 none"


class GraphSource(Strict):
    """Source of graphs."""

    path: Path | None = Field(
        default=None, description="file, folder or archive: docs/own-data.md has the formats"
    )


class GraphSplitParams(OwnSplitParams):
    """Parameters of the split."""

    split: str = Field(
        default="given",
        description="given: the column of parts, else random; random: records, or nodes of a single "
        "graph, dealt at random; stratified: with equal shares of the classes; or the name of a column "
        "of parts",
    )


class OwnGraphsPipeline(OwnPipeline[GraphParams]):
    """Pipeline of ``graphs``, whatever name a dataset has."""

    version = 1
    Params = GraphParams
    Source = GraphSource
    SplitParams = GraphSplitParams

    def schema(self, params: GraphParams) -> Schema:
        """Columns as the files have them."""
        return params._read[0]  # noqa: SLF001

    def class_names(self, params: GraphParams) -> tuple[str, ...]:
        """Those that were given, or the texts that are labels."""
        return params.class_name or params._read[1]  # noqa: SLF001

    def bring(
        self, source: GraphSource, params: GraphParams, home: Home, *, offline: bool, quiet: bool
    ) -> tuple[RawCopy, bool]:
        """Copy the files, out of an archive too, into the home folder."""
        if source.path is None:
            raise UsageError("--archive is missing.", next="a file, folder or zip of tables")
        archive = open_archive(source.path.expanduser().absolute())
        return store_own(
            home.raw / self.manifest.name,
            lambda target: unpack(archive, self.manifest, target, quiet=quiet),
            quiet=quiet,
        )

    def resolve(self, params: GraphParams, raw: RawFolder) -> GraphParams:
        """Read all graphs once; return the parameters with their columns and classes."""
        facts, graphs = read_graphs(raw.path, list(raw.members), params)
        targets = []
        nodes = keys = total = size = 0
        for graph in graphs:
            total += 1
            nodes = max(nodes, graph.num_nodes)
            keys = max(keys, len(graph.key))
            arrays = dict(graph.columns)
            if "y" in facts.names:
                targets.append(arrays.pop(f"{facts.level}/y"))
            size += sum(array.nbytes for array in arrays.values()) + 8 * graph.num_edges
        if not total:
            raise DamagedInput("The files hold no graph.", found=", ".join(raw.members)[:500])

        columns: list[Column] = []
        for key, array in arrays.items():
            attribute = key.partition("/")[2]
            dtype = array.dtype.name
            names = facts.names.get(attribute, ())
            doc = PART_DOC if key in facts.parts else ""
            columns.append(
                Column(
                    key=key, attribute=attribute, stored=dtype, presented=dtype, doc=doc,
                    shape=(len(names),) if names else (), fields=names,
                )
            )  # fmt: skip
        classes: tuple[str, ...] = ()
        if targets:
            target, classes = facts.target(targets)
            columns.append(target)
        schema = Schema(
            columns=tuple(columns),
            max_nodes=65_536 if nodes <= 65_536 else 2**32,
            directed=not params.undirected,
            key_length=min(max(keys, 8), KEY_LENGTH),
        )
        resolved = params.model_copy()
        per_unit = total * MAX_SHARD_BYTES // max(size, MAX_SHARD_BYTES) or 1
        resolved._read = (schema, classes, total, per_unit)  # noqa: SLF001
        return resolved

    def prepare(self, raw: RawFolder, params: GraphParams, workdir: Path) -> Prepared:
        """Nothing is written: workers read the files up to their graphs."""
        return Prepared(raw.path, {"members": list(raw.members)})

    def units(self, prepared: Prepared, params: GraphParams) -> list[Unit]:
        """Deal the graphs to shards of about 64 MiB."""
        _, _, total, per_unit = params._read  # noqa: SLF001
        return units_of_rows(params.choose(total), per_unit, "graphs")

    def records(self, prepared: Prepared, unit: Unit, params: GraphParams) -> Iterator[GraphRecord]:
        """Yield the graphs of one unit."""
        schema, classes, *_ = params._read  # noqa: SLF001
        target = schema.labels
        _, graphs = read_graphs(prepared.path, prepared.plan["members"], params)
        rows = set(unit.items["rows"])
        for graph in islice(compress(graphs, (row in rows for row in count())), len(rows)):
            columns = dict(graph.columns)
            if target is not None:
                y = numbers(columns[target.key], classes)
                if target.low == NO_CLASS:
                    y = np.nan_to_num(y, nan=NO_CLASS)
                columns[target.key] = y.astype(target.stored)
            for column in schema.columns:
                if column.level == "graph":
                    columns[column.key] = columns[column.key][0]
            yield replace(graph, key=ascii_key(graph.key, KEY_LENGTH), columns=columns)

    def split(self, records: Records, params: OwnSplitParams, raw: Path | None) -> Split:
        """Apply a column of parts, or deal graphs, or the nodes of a single graph, at random."""
        given = {column.attribute: column for column in records.columns if column.doc == PART_DOC}
        rule = params.split
        if rule == "given":
            rule = next(iter(given), "random")
        if rule not in {"random", *given}:
            raise UsageError(
                f"There is no rule or column of parts {rule!r}.",
                expected=", ".join(["random", "stratified", *given]),
            )
        label = records.label
        by_node = len(records.keys) == 1 and label is not None and label.level == "node"
        level = "node" if by_node else "graph"
        if rule in given:
            level = given[rule].level
            codes = records.column(given[rule].key)
        elif not by_node:
            return super().split(records, params, raw)
        if level == "graph":
            parts = {part: np.flatnonzero(codes == code) for part, code in NODE_PARTS.items()}
            return Split(rule, "given", {}, {part: rows.tolist() for part, rows in parts.items()})
        if not by_node or label is None:
            raise UsageError(f"{rule!r} gives parts to nodes, and graphs are dealt.")

        # Nodes without a target are in no part.
        y = records.column(label.key).reshape(int(records.nodes[0]), -1)
        known = (~np.isnan(y) & (y != NO_CLASS)).any(axis=1)
        if rule in given:
            return Split(rule, "given", {}, node_code=np.where(known, codes, np.uint8(NO_PART)))
        codes = np.full(len(known), NO_PART, np.uint8)
        for part, rows in dealt(int(known.sum()), params).items():
            codes[np.flatnonzero(known)[rows]] = NODE_PARTS[part]
        options = params.model_dump(exclude={"split"})
        return Split(random_name(params), "random", options, node_code=codes)


PIPELINE = OwnGraphsPipeline


def read_graphs(
    folder: Path, members: Sequence[str], params: GraphParams
) -> tuple[Facts, Iterator[GraphRecord]]:
    """Return what the columns of raw files turn out to be, and their graphs.

    Raises ``DamagedInput`` where the format is none that is known.
    """
    heads = {name: head_of(folder / name) for name in members}
    facts = Facts(params)
    for form in FORMATS:
        if form.recognises(heads, params):
            return facts, form.read(folder, members, facts)
    shown = [f"{name} begins with {head[:24]!r}" for name, head in heads.items()]
    raise DamagedInput(
        "These are no graphs of a format that is known.",
        expected="; or ".join(form.WANTS for form in FORMATS),
        found="; ".join(shown[:4]),
    )
