"""Your own graphs in common formats, each read by one module of this folder.

Files are read graph by graph: once to collect the columns, and again for each shard, up to its last
graph. Facts: ``docs/own-data.md``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from kmip_data.arrays import Array, Bools
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.format.schema import RESERVED, Column, Schema
from kmip_data.format.split_files import NO_PART, NODE_PARTS
from kmip_data.format.writer import MAX_SHARD_BYTES, GraphRecord, Skipped
from kmip_data.pipelines.base import About, Prepared, RawFolder, Records, Split, Unit, check_fold
from kmip_data.pipelines.datasets.graphs import (
    arrays,
    citations,
    edge_tables,
    networks,
    smiles,
    tensors,
    tudataset,
)
from kmip_data.pipelines.datasets.graphs.links import Links, both_ways
from kmip_data.pipelines.datasets.graphs.parameters_and_targets import (
    NO_CLASS,
    OTHER_FORMATS,
    ColumnFacts,
    GraphParams,
    first_member,
    head_of,
    numbers,
)
from kmip_data.pipelines.domains.molecules import molecule_columns
from kmip_data.pipelines.graph_arrays.graph_checks import MAX_NODES
from kmip_data.pipelines.raw import archives
from kmip_data.pipelines.raw.copies import store_own, unpack
from kmip_data.pipelines.units_and_splits import units_of_rows
from kmip_data.pipelines.user_files import (
    OwnPipeline,
    OwnSplitParams,
    ascii_key,
    dealt,
    random_name,
)
from kmip_data.runtime.extras import require_extra
from kmip_data.strict_model import Strict

#: Formats in the order in which they are tried.
FORMATS = (citations, tensors, arrays, networks, tudataset, smiles, edge_tables)
KEY_LENGTH = 160
#: memory per row beyond the columns: row pointers, counts of edges, codes of a split
_BYTES_OF_NODE = 32
_BYTES_OF_EDGE = 64
_MAX_EXPANDED = 128  #: most bytes of arrays per byte of a regular file: a SMILES has about 100
_MAX_NAMES = 20_000  #: letters of the names of features in a shard; more are on the card alone
BYTES_OF_MOLECULE = 2_048  #: approximate size, so that a shard has 30,000
_Kind = tuple[str, tuple[int, ...]]
PART_DOC = "part: 0 train, 1 val, 2 test, 255 none"


class GraphSource(Strict):
    """Source of graphs."""

    path: Path | None = Field(
        default=None, description="file, folder or archive: docs/own-data.md has the formats"
    )


class GraphSplitParams(OwnSplitParams):
    """Parameters of the split."""

    seeded: ClassVar[tuple[str, ...]] = ("random", "stratified")
    sizes_of: ClassVar[str | None] = None

    split: str = Field(
        default="given",
        description="given: the masks, or column of parts, else random; random: records, or nodes of a single "
        "graph, divided at random; stratified: with equal shares of the classes; or the name of a column "
        "of parts",
    )
    fold: int = Field(
        default=0,
        ge=0,
        le=9_999,
        description="index of the split if masks have several columns, from 0",
    )


class OwnGraphsPipeline(OwnPipeline[GraphParams]):
    """Pipeline of ``graphs``, for datasets of any name."""

    version = 5
    Params = GraphParams
    Source = GraphSource
    SplitParams = GraphSplitParams

    def schema(self, params: GraphParams) -> Schema:
        """Return the columns found in the files."""
        return params._read[0]  # noqa: SLF001

    def class_names(self, params: GraphParams) -> tuple[str, ...]:
        """Return the given class names, or the texts of labels."""
        return params.class_name or params._read[1]  # noqa: SLF001

    def import_files(
        self, source: GraphSource, params: GraphParams, home: Home, *, offline: bool, quiet: bool
    ) -> tuple[RawFolder, bool]:
        """Copy the files, possibly out of an archive, into the home folder."""
        if source.path is None:
            raise UsageError("--archive is missing.", next="a file, folder or zip of graphs")
        path = source.path.expanduser().absolute()
        # Files of tensors and arrays are zips themselves.
        first = first_member(archives.head_of(path)) if path.is_file() else b""
        bare = path.name if first.endswith((b"data.pkl", b".npy")) else ""
        return store_own(
            home.raw / self.manifest.name,
            lambda target: unpack(path, self.manifest, target, quiet=quiet, bare=bare),
            quiet=quiet,
        )

    def resolve(self, params: GraphParams, raw: RawFolder) -> GraphParams:
        """Read all graphs once; return the parameters with their columns and classes."""
        survey = _Survey(sum((raw.path / name).stat().st_size for name in raw.members))
        links = Links(params)
        try:
            facts, graphs = read_graphs(raw.path, list(raw.members), params, self.memory)
            for graph in graphs:
                survey.claim(graph, facts)
                if graph.edge_index is not None:
                    links.add(graph.edge_index, graph.num_nodes)
                if params.undirected:
                    graph, unequal = both_ways(graph)  # noqa: PLW2901 -- the file's is done with
                    links.unequal += unequal
                survey.add(graph, facts)
        except DamagedInput as error:
            error.lines["next"] = error.lines["next"] or "repair or replace the file"
            raise
        except UsageError:
            raise
        except MemoryError as error:
            raise OutOfResources(
                f"Memory ran out while the files were read: {error}.",
                next="close other programs, or use a machine with more memory",
            ) from error
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise DamagedInput(
                "The files cannot be read as graphs.",
                found=f"{type(error).__name__}: {error}",
            ) from error
        if not survey.graphs:
            raise DamagedInput("The files hold no graph.", found=", ".join(raw.members)[:500])

        if survey.graphs == 1 and facts.values > 1:
            raise DamagedInput(
                f"There are {facts.values:,} labels for a graph of {survey.most_nodes:,} nodes.",
                expected="a label for each node, or one for the graph",
                next="check the files; nodes without edges or features count by num_nodes of a Data",
            )

        columns = survey.columns(facts)
        if survey.is_molecule:
            require_extra("chem", self.manifest.name)
            columns = [*molecule_columns(), *columns]
        classes: tuple[str, ...] = ()
        if survey.targets:
            target, classes = facts.target(survey.targets)
            columns.append(target)
        schema = Schema(
            columns=tuple(columns),
            max_nodes=65_536 if survey.most_nodes <= 65_536 else MAX_NODES,
            directed=not (params.undirected or survey.is_molecule),
            key_length=min(max(survey.longest_key, 8), KEY_LENGTH),
        )

        # As many graphs in a shard as fill it on average.
        per_unit = survey.graphs * MAX_SHARD_BYTES // max(survey.size, MAX_SHARD_BYTES) or 1
        resolved = params.model_copy()
        summary = _summary(survey, links, facts, columns)
        resolved._read = (schema, classes, survey.graphs, per_unit, summary)  # noqa: SLF001
        return resolved

    def about(self, prepared: Prepared, params: GraphParams) -> About:
        """Return the summary of the files: statistics.files of the card, and its warnings as notes."""
        summary = params._read[4]  # noqa: SLF001
        return About({"files": summary}, summary["warnings"])

    def prepare(self, raw: RawFolder, params: GraphParams, workdir: Path) -> Prepared:
        """Write nothing: workers read the files up to their graphs."""
        return Prepared(raw.path, {"members": list(raw.members)})

    def units(self, prepared: Prepared, params: GraphParams) -> list[Unit]:
        """Assign the graphs to shards of about 64 MiB."""
        _, _, total, per_unit, _ = params._read  # noqa: SLF001
        return units_of_rows(params.choose(total), per_unit, "graphs")

    def records(
        self, prepared: Prepared, unit: Unit, params: GraphParams
    ) -> Iterator[GraphRecord | Skipped]:
        """Yield the graphs of one unit; molecules are made from SMILES here."""
        schema, classes, *_ = params._read  # noqa: SLF001
        target = schema.labels
        _, graphs = read_graphs(prepared.path, prepared.plan["members"], params)
        rows = set(unit.items["rows"])
        for row, graph in enumerate(islice(graphs, max(rows) + 1)):
            if row not in rows:
                continue
            key = ascii_key(graph.key, KEY_LENGTH)
            try:
                record = smiles.finished(both_ways(graph)[0] if params.undirected else graph)
            except DamagedInput as error:
                yield self.stop_or_skip(key, error, params)
                continue
            columns = dict(record.columns)
            if target is not None:
                y = numbers(columns[target.key], classes)
                if target.num_classes and not target.shape and y.ndim > 1:
                    y = y.argmax(axis=1)
                if target.low == NO_CLASS:
                    y = np.nan_to_num(y, nan=NO_CLASS)
                if target.num_classes and not target.finite:
                    y = np.where(y == NO_CLASS, np.nan, y)
                columns[target.key] = y.astype(target.stored)
            for column in schema.columns:
                array = columns[column.key].astype(column.stored, copy=False)
                columns[column.key] = array[0] if column.level == "graph" else array
            yield replace(record, key=key, columns=columns)

    def split(self, records: Records, params: OwnSplitParams, raw: Path | None) -> Split:
        """Apply a column of parts, or divide graphs, or the nodes of a single graph, at random."""
        # Parts of nodes divide a single graph only.
        alone = len(records.keys) == 1
        given = {}
        for column in records.columns:
            if column.doc == PART_DOC and (alone or column.level == "graph"):
                given[column.attribute] = column
        rule = params.split
        if rule == "given":
            rule = next(iter(given), "random")
        if rule not in {"random", *given}:
            raise UsageError(
                f"There is no rule or column of parts {rule!r}.",
                expected=", ".join(["random", "stratified", *given]),
                next=f"--split-rule {shlex.quote(next(iter(given), 'random'))}",
            )
        part = given.get(rule)
        folds = part.shape[0] if part and part.shape else 1
        fold = params.fold if isinstance(params, GraphSplitParams) else 0
        check_fold(self.manifest.name, fold, folds)

        # Nodes are divided if a single graph has node labels; what has no label is in no part.
        known = _labelled(records)
        if part and part.level == "graph":
            codes = records.column(part.key)
            parts = {name: (codes == code) & known for name, code in NODE_PARTS.items()}
            positions = {name: np.flatnonzero(rows).tolist() for name, rows in parts.items()}
            return Split(rule, "given", {}, positions)
        of_nodes = alone and records.label is not None and records.label.level == "node"
        if part and not of_nodes:
            raise UsageError(
                f"{rule!r} divides nodes, but graphs are to be divided.",
                next="--split-rule random, or a column of parts of graphs",
            )
        if part:
            codes = records.column(part.key)
            name = rule
            if folds > 1:
                codes = codes.T[fold]
                name += f"-fold{fold}"
            codes = np.where(known, codes, np.uint8(NO_PART))
            return Split(name, "given", {"fold": fold}, node_code=codes)
        if not of_nodes:
            drawn = super().split(records, params, raw)
            with_label = {}
            for name, drawn_rows in drawn.parts.items():
                with_label[name] = [row for row in drawn_rows if known[row]]
            return replace(drawn, parts=with_label)
        codes = np.full(len(known), NO_PART, np.uint8)
        for name, rows in dealt(int(known.sum()), params).items():
            codes[np.flatnonzero(known)[rows]] = NODE_PARTS[name]
        options = params.model_dump(exclude={"split", "fold"})
        return Split(random_name(params), "random", options, node_code=codes)


def _labelled(records: Records) -> Bools:
    """Return what has a label: graphs (G,), or the nodes of a single graph (N,)."""
    label = records.label
    graphs = len(records.keys)
    if label is None or (label.level == "node" and graphs > 1):
        return np.ones(graphs, bool)
    y: Array = records.column(label.key)
    y = y.reshape(len(y), -1)
    known: Bools = ~np.isnan(y)
    if label.low == NO_CLASS:
        known &= y != NO_CLASS
    return np.asarray(known.any(axis=1))


PIPELINE = OwnGraphsPipeline


@dataclass
class _Survey:
    """Columns and sizes of all graphs."""

    bytes_of_files: int
    graphs: int = 0
    most_nodes: int = 0
    longest_key: int = 0
    size: int = 0  #: bytes, about
    is_molecule: bool = False
    targets: list[Array] = field(default_factory=list)
    bytes_of_labels: int = 0
    #: Column -> dtype and shape of a row, the same in all graphs.
    kinds: dict[str, _Kind] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)  #: columns with values that are not finite

    def claim(self, graph: GraphRecord, facts: ColumnFacts) -> None:
        """Reserve the memory of a graph: its values, their checks, and the labels of all graphs."""
        values = sum(array.nbytes for array in graph.columns.values())
        # A tensor may repeat one stored number: 180 kB can become 160 GB of shards.
        repeated = self.size - _MAX_EXPANDED * self.bytes_of_files
        facts.claim(repeated, "A copy of the values that the files repeat")
        per_edge = _BYTES_OF_EDGE * (1 + facts.params.undirected)
        sizes = _BYTES_OF_NODE * graph.num_nodes + per_edge * graph.num_edges
        facts.claim(
            3 * self.bytes_of_labels + 2 * values + sizes,
            f"The graph {ascii_key(graph.key, KEY_LENGTH)} of {graph.num_nodes:,} nodes",
        )

    def add(self, graph: GraphRecord, facts: ColumnFacts) -> None:
        """Count a graph; refuse it if its columns differ from the columns of previous graphs."""
        self.graphs += 1
        self.most_nodes = max(self.most_nodes, graph.num_nodes)
        self.longest_key = max(self.longest_key, len(ascii_key(graph.key, KEY_LENGTH)))

        # Targets of all graphs are examined together; molecules get their columns later.
        values = dict(graph.columns)
        target = f"{facts.level}/y"
        has_target = "y" in facts.names and target in values
        if has_target:
            self.targets.append(values.pop(target))
            self.bytes_of_labels += self.targets[-1].nbytes
        self.is_molecule = values.pop(smiles.SMILES, None) is not None
        self.size += sum(array.nbytes for array in values.values()) + 8 * graph.num_edges
        self.size += self.is_molecule * BYTES_OF_MOLECULE

        kinds = {key: (array.dtype.name, array.shape[1:]) for key, array in values.items()}
        if has_target:
            kinds[target] = ("label", ())
        if self.graphs == 1:
            self.kinds = kinds
        for key in self.kinds.keys() | kinds.keys():
            self.kinds[key] = _common(key, self.kinds.get(key), kinds.get(key), graph)
            if key in values and not np.isfinite(values[key]).all():
                self.unfinished.add(key)

    @property
    def warning(self) -> str:
        """Warning of values that are not finite; empty if all are."""
        if not self.unfinished:
            return ""
        names = ", ".join(sorted(key.partition("/")[2] for key in self.unfinished))
        return f"not finite everywhere: {names}; training refuses such features"

    def columns(self, facts: ColumnFacts) -> list[Column]:
        """Return the columns of the schema except the targets."""
        columns = []
        for key, (dtype, shape) in self.kinds.items():
            if dtype == "label":
                continue
            attribute = key.partition("/")[2]
            if key in RESERVED or not attribute.isidentifier():
                raise DamagedInput(
                    f"{attribute!r} cannot be the name of a column.", next="rename it"
                )
            column = Column(
                key=key,
                attribute=attribute,
                stored=dtype.replace("bool", "uint8"),
                presented=dtype,
                shape=shape,
                form=facts.forms.get(key, "axis"),
                doc=PART_DOC if key in facts.parts else "",
                fields=fields_of(attribute, facts),
                finite=key not in self.unfinished,
            )
            columns.append(column)
        return columns


def _common(key: str, before: _Kind | None, kind: _Kind | None, graph: GraphRecord) -> _Kind:
    """Return dtype and shape of a row in all graphs: the wider of two dtypes that differ in width."""
    if before == kind and kind is not None:
        return kind
    if before and kind and before[1] == kind[1] and before[0] != "label" != kind[0]:
        dtypes = np.dtype(before[0]), np.dtype(kind[0])
        wider = np.promote_types(*dtypes)
        if len({"i" if dtype.kind == "u" else dtype.kind for dtype in (*dtypes, wider)}) == 1:
            return wider.name, kind[1]
    level, _, attribute = key.partition("/")
    raise DamagedInput(
        f"Graph {graph.key}: {attribute!r} is not as in the graphs before it.",
        expected=_described(level, before),
        found=_described(level, kind),
        next=f"give every graph a {attribute!r} of the same dtype and as many numbers, or none",
    )


def _described(level: str, kind: _Kind | None) -> str:
    if kind is None:
        return "none"
    dtype, shape = kind
    return f"{dtype}, {list(shape)} for each {level}"


def _summary(
    survey: _Survey, links: Links, facts: ColumnFacts, columns: Sequence[Column]
) -> dict[str, Any]:
    """Return what the card says of the files."""
    given_splits = []
    for column in columns:
        if column.doc == PART_DOC:
            folds = f", folds 0 to {column.shape[0] - 1}" if column.shape else ""
            given_splits.append(f"{column.attribute}{folds}")
    directed = links.directed
    if survey.is_molecule:
        directed = "no: a bond joins its atoms both ways"
    summary: dict[str, Any] = {
        "directed": directed,
        "self_loops": links.loops,
        "isolated_nodes": links.isolated,
        "given_splits": given_splits,
        "ignored": [f"{name}: {reason}" for name, reason in facts.ignored.items()],
        "missing": [f"{name}: {count:,}" for name, count in facts.missing.items()],
        "warnings": [warning for warning in (links.warning, survey.warning) if warning],
    }
    long_names = {}
    for attribute, names in facts.names.items():
        if names and not fields_of(attribute, facts):
            long_names[attribute] = list(names)
    if long_names:
        summary["features"] = long_names
    return summary


def fields_of(attribute: str, facts: ColumnFacts) -> tuple[str, ...]:
    """Return the names of an attribute's components; none if a shard has no room for them."""
    names = facts.names.get(attribute, ())
    return names if sum(map(len, names)) < _MAX_NAMES else ()


def read_graphs(
    folder: Path, members: Sequence[str], params: GraphParams, memory: int | None = None
) -> tuple[ColumnFacts, Iterator[GraphRecord]]:
    """Return the columns found in raw files, and their graphs.

    Raises ``DamagedInput`` for an unknown format; ``OutOfResources`` if the files need more than
    ``memory`` bytes.
    """
    heads = {name: head_of(folder / name) for name in members}
    facts = ColumnFacts(params, memory=memory)
    for form in FORMATS:
        if form.recognises(heads, params):
            return facts, form.read(folder, members, facts)
    hint = OTHER_FORMATS
    if any(name.lower().endswith(".bin") for name in members):
        hint = (
            "a graph of DGL: torch.save(torch_geometric.utils.from_dgl(graph), 'graph.pt');"
            " a laser scan: kmip-data build points"
        )
    shown = [f"{name} begins with {head[:24]!r}" for name, head in heads.items()]
    raise DamagedInput(
        "The files are not graphs in a known format.",
        expected="; or ".join(form.WANTS for form in FORMATS),
        found="; ".join(shown[:4]),
        next=hint,
    )
