"""Your own graphs in common formats, each read by one module: ``file_formats.py``.

Files are read graph by graph: once to collect the columns, and again for each shard, up to its last
graph. Facts: ``docs/graph-files.md``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from kmip_data.arrays import U8, Array, Bools
from kmip_data.builds.home import Home
from kmip_data.columns.column_uses import DESCRIPTION_NAME, Description
from kmip_data.columns.fit import fit_record
from kmip_data.columns.infer import InferredColumns
from kmip_data.columns.target_inference import NO_CLASS, Target, infer_target, targets_as_numbers
from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.reading import sha256_file
from kmip_data.format.card import Receipt
from kmip_data.format.schema import NODE_ID, Column, Schema, bytes_per_graph_node_edge
from kmip_data.format.split_files import NO_PART, NODE_PARTS
from kmip_data.format.writer import MAX_SHARD_BYTES, GraphRecord, Skipped
from kmip_data.pipelines.base import About, Prepared, RawFolder, Records, Split, Unit, check_fold
from kmip_data.pipelines.datasets.graphs.description_sources import (
    description_beside,
    description_like,
    description_of,
    is_given_as_arrays,
)
from kmip_data.pipelines.datasets.graphs.edge_directions import EdgeCounts, with_reverse_edges
from kmip_data.pipelines.datasets.graphs.file_formats import read_graphs
from kmip_data.pipelines.datasets.graphs.findings import Attributes, Findings
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import (
    NODE_ID_DOC,
    PART_DOC,
    GraphParams,
    InferredGraphs,
)
from kmip_data.pipelines.datasets.graphs.readers import smiles_tables
from kmip_data.pipelines.formats.file_heads import first_member
from kmip_data.pipelines.formats.unsupported_formats import refuse_unsupported_format
from kmip_data.pipelines.raw import archives
from kmip_data.pipelines.raw.copies import RECEIPT_NAME, store_user_files, unpack_archive
from kmip_data.pipelines.units_and_splits import units_of_rows
from kmip_data.pipelines.user_files import (
    KEY_LENGTH,
    OwnPipeline,
    OwnSplitParams,
    divide_at_random,
    escaped_key,
    random_split_name,
)
from kmip_data.strict_model import Strict
from kmip_data.text import is_likely_typo, nearest_name

#: Memory in bytes per node and per edge beyond the columns: row pointers, counts, codes of a split.
_BYTES_PER_NODE = 32
_BYTES_PER_EDGE = 64
_MAX_EXPANSION = 128  #: most bytes of arrays per byte of a regular file: a SMILES has about 100
#: Most letters of the names of features in a shard; longer lists are on the card alone.
_MAX_NAME_LETTERS = 20_000
_MASK_SPLIT = "masks"  #: name of the split that masks give


class GraphSource(Strict):
    """Source of graphs."""

    path: Path | None = Field(
        default=None, description="file, folder or archive: docs/graph-files.md has the formats"
    )
    like: str = Field(
        default="",
        description="earlier build of graphs, or a file of --describe, with the columns and classes",
    )


class GraphSplitParams(OwnSplitParams):
    """Parameters of the split."""

    seeded: ClassVar[tuple[str, ...]] = ("random", "stratified")
    sizes_of: ClassVar[str | None] = None

    split_rule: str = Field(
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

    version = 6
    Params = GraphParams
    Source = GraphSource
    SplitParams = GraphSplitParams

    def schema(self, params: GraphParams) -> Schema:
        """Return the columns found in the files."""
        return params.inferred.schema

    def class_names(self, params: GraphParams) -> tuple[str, ...]:
        """Return the given class names, or the texts of labels."""
        target = params.inferred.target
        return params.class_name or (target.class_names if target else ())

    def import_files(
        self, source: GraphSource, params: GraphParams, home: Home, *, offline: bool, quiet: bool
    ) -> tuple[RawFolder, bool]:
        """Copy the files, possibly out of an archive, into the home folder."""
        if source.path is None:
            raise UsageError(
                "--archive is missing.",
                expected="a file, a folder or an archive of graphs",
                next="--archive FILE",
            )
        if source.path.is_file():
            refuse_unsupported_format(source.path)
        path = source.path.expanduser().absolute()
        # Files of tensors and arrays are zips themselves.
        first = first_member(archives.first_bytes(path)) if path.is_file() else b""
        bare = path.name if first.endswith((b"data.pkl", b".npy")) else ""
        described = description_like(source.like, home) if source.like else None

        def make(destination: Path) -> tuple[dict[str, str], list[Receipt]]:
            members, receipts = unpack_archive(
                path, self.manifest, destination, quiet=quiet, bare=bare
            )
            if path.is_relative_to(home.raw):  # a copy made by this package
                atomic_writes.remove_file(destination / RECEIPT_NAME)
                members.pop(RECEIPT_NAME, None)
            if described is not None:
                (destination / DESCRIPTION_NAME).write_text(described.to_toml(), "utf-8")
                members[DESCRIPTION_NAME], _ = sha256_file(destination / DESCRIPTION_NAME)
            return dict(sorted(members.items())), receipts

        return store_user_files(home.raw / self.manifest.name, make, quiet=quiet)

    def read(
        self, folder: Path, members: Sequence[str], options: ReadOptions, first: int = 0
    ) -> tuple[Findings, Iterator[GraphRecord]]:
        """Return the findings of a reader, complete after the last graph, and the graphs from ``first``."""
        findings, graphs = read_graphs(folder, members, options)
        return findings, islice(graphs, first, None)

    def resolve(self, params: GraphParams, raw: RawFolder) -> GraphParams:
        """Read all graphs once; return the parameters with their columns and target."""
        try:
            described = description_beside(raw.path, raw.members)
            if described is not None:  # given parameters are edits of it
                chosen = described.parameters()
                edits = {key: chosen[key] for key in chosen.keys() - params.model_fields_set}
                params = params.model_copy(update=edits)
            return self._inferred(ReadOptions(params, described, self.memory), raw)
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

    def _inferred(self, options: ReadOptions, raw: RawFolder) -> GraphParams:
        # 1. All graphs, one by one.
        params = options.params
        size_of_files = self.size_of(raw)
        edge_counts = EdgeCounts(params)
        findings, graphs = self.read(raw.path, list(raw.members), options)
        inference = InferredColumns()
        are_molecules = False
        for graph in graphs:
            _claim_memory(graph, inference, options, size_of_files)
            if graph.edge_index is not None:
                edge_counts.add(graph.edge_index, graph.num_nodes)
            if params.undirected:
                graph, unequal = with_reverse_edges(graph)  # noqa: PLW2901 -- the graph of the file is not needed again
                edge_counts.unequal += unequal
            record, are_molecules = smiles_tables.without_smiles(graph)
            record = replace(record, key=escaped_key(graph.key, KEY_LENGTH))
            inference.add(record, findings.attributes.target_key, findings.attributes.forms)
        if not inference.graphs:
            raise DamagedInput("The files hold no graph.", found=", ".join(raw.members)[:500])
        values = findings.attributes.target_values
        if inference.graphs == 1 and values > 1:
            raise DamagedInput(
                f"There are {values:,} labels for a graph of {inference.most_nodes:,} nodes.",
                expected="a label for each node, or one for the graph",
                next="check the files; nodes without edges or features count by num_nodes of a Data",
            )

        # 2. Columns and targets of all.
        all_columns = _described_columns(inference, options, findings)
        of_files = tuple(all_columns)
        findings.notices.missing.update(inference.missing_values())
        target = None
        if inference.targets:
            target = self.target(inference, options, findings)
            all_columns.append(target.column)
            names = findings.attributes.component_names["y"]
            missing = findings.notices.missing
            # Each column of a table is counted already.
            if target.missing and (len(names) == 1 or missing.keys().isdisjoint(names)):
                missing[", ".join(names)] = target.missing
        schema = inference.schema(all_columns, directed=not params.undirected)
        if are_molecules:
            schema = smiles_tables.with_atoms(schema, self.manifest.name)

        # 3. As many graphs in a shard as fill it on average.
        counts = (inference.graphs, inference.nodes, inference.edges)
        size = int(np.dot(counts, bytes_per_graph_node_edge(schema)))
        if are_molecules:
            size += inference.graphs * smiles_tables.BYTES_OF_MOLECULE
        per_shard = inference.graphs * MAX_SHARD_BYTES // max(size, MAX_SHARD_BYTES) or 1
        inferred = InferredGraphs(
            schema=schema,
            target=target,
            graphs=inference.graphs,
            graphs_per_shard=per_shard,
            description=description_of(findings, of_files, target, options),
            summary=_summary(
                smiles_tables.EDGE_SUMMARY if are_molecules else edge_counts.summary(),
                [*filter(None, [edge_counts.warning]), *findings.notices.warnings],
                findings,
                schema.columns,
            ),
            masks=findings.attributes.masks,
        )
        names = params.class_name or (findings.attributes.class_names if target else ())
        return params.with_findings(inferred, class_name=names)

    def size_of(self, raw: RawFolder) -> int:
        """Return the bytes of the files."""
        return sum((raw.path / name).stat().st_size for name in raw.members)

    def target(
        self, inference: InferredColumns, options: ReadOptions, findings: Findings
    ) -> Target:
        """Return the column of the targets."""
        target = infer_target(
            inference.target,
            findings.attributes.component_names["y"],
            inference.targets,
            options.params.task,
            options.described.classes if options.described else (),
            named=bool(findings.tables.levels),
        )
        names = options.params.class_name or findings.attributes.class_names
        _check_class_names(names, target, inference.targets)
        return target

    def about(self, prepared: Prepared, params: GraphParams) -> About:
        """Return the summary of the files: statistics.files of the card, and its warnings as notes."""
        inferred = params.inferred
        given = {} if inferred.masks is None else {_MASK_SPLIT: inferred.masks}
        columns = inferred.description.model_dump(mode="json", exclude_defaults=True)
        return About(
            {"files": {**inferred.summary, "columns": columns}}, inferred.summary["warnings"], given
        )

    def prepare(self, raw: RawFolder, params: GraphParams, workdir: Path) -> Prepared:
        """Write nothing: workers read the files up to their graphs."""
        return Prepared(raw.path, {"members": list(raw.members)})

    def units(self, prepared: Prepared, params: GraphParams) -> list[Unit]:
        """Assign the graphs to shards of about 64 MiB."""
        inferred = params.inferred
        return units_of_rows(params.choose(inferred.graphs), inferred.graphs_per_shard, "graphs")

    def records(
        self, prepared: Prepared, unit: Unit, params: GraphParams
    ) -> Iterator[GraphRecord | Skipped]:
        """Yield the graphs of one unit; molecules are made from SMILES here."""
        inferred = params.inferred
        rows = set(unit.items["rows"])
        first = min(rows)
        members = prepared.plan["members"]
        described = description_beside(prepared.path, members)
        options = ReadOptions(params, described, self.memory)
        _, graphs = self.read(prepared.path, members, options, first)
        numbered = enumerate(islice(graphs, max(rows) + 1 - first), first)
        unit_graphs = (graph for row, graph in numbered if row in rows)
        if params.undirected:
            unit_graphs = (with_reverse_edges(graph)[0] for graph in unit_graphs)
        skips = params.on_error == "skip"
        for name, graph in smiles_tables.with_bonds(unit_graphs, skips=skips):
            key = escaped_key(name, KEY_LENGTH)
            if isinstance(graph, DamagedInput):
                yield self.stop_or_skip(key, graph, params)
                continue
            yield fit_record(replace(graph, key=key), inferred.schema, inferred.target)

    def default_splits(self, params: GraphParams) -> list[OwnSplitParams]:
        """Every split that masks give: they are no column, from which one could be made later."""
        masks = params.inferred.masks
        folds = 1 if masks is None else masks[:1].size
        return [GraphSplitParams(fold=fold) for fold in range(folds)]

    def split(self, records: Records, params: OwnSplitParams, raw: Path | None) -> Split:
        """Apply a column of parts, or divide graphs, or the nodes of a single graph, at random."""
        rule, level, codes = self._given_parts(records, params)
        folds = codes.shape[1] if codes is not None and codes.ndim > 1 else 1
        fold = params.fold if isinstance(params, GraphSplitParams) else 0
        check_fold(self.manifest.name, fold, folds, drawn=codes is None)

        # 1. Graphs; what has no label is in no part.
        alone = len(records.keys) == 1
        label_level = records.label.level if records.label else level
        divides_nodes = alone and label_level == "node"
        known = _labelled(records, divides_nodes=divides_nodes)
        if codes is not None and level == "graph":
            parts = {name: (codes == code) & known for name, code in NODE_PARTS.items()}
            positions = {name: np.flatnonzero(rows).tolist() for name, rows in parts.items()}
            return Split(rule, "given", {}, positions)
        if codes is not None and not divides_nodes:
            raise UsageError(
                f"{rule!r} divides nodes, but graphs are to be divided.",
                next="--split-rule random, or a column of parts of graphs",
            )
        if not divides_nodes:
            drawn = super().split(records, params, raw)
            with_label = {}
            for name, drawn_rows in drawn.parts.items():
                with_label[name] = [row for row in drawn_rows if known[row]]
            return replace(drawn, parts=with_label)

        # 2. Nodes of a single graph.
        if codes is not None:
            name = rule
            if folds > 1:
                codes = codes.T[fold]
                name += f"-fold{fold}"
            codes = np.where(known, codes, np.uint8(NO_PART))
            return Split(name, "given", {"fold": fold}, node_code=codes)
        codes = np.full(len(known), NO_PART, np.uint8)
        for name, rows in divide_at_random(int(known.sum()), params).items():
            codes[np.flatnonzero(known)[rows]] = NODE_PARTS[name]
        options = params.model_dump(exclude={"split_rule", "fold"})
        return Split(random_split_name(params), "random", options, node_code=codes)

    def _given_parts(self, records: Records, params: OwnSplitParams) -> tuple[str, str, U8 | None]:
        """Return the rule, and level and codes of the masks or column of parts that it names."""
        # Parts of nodes divide a single graph only.
        columns = {}
        for column in records.columns:
            if column.doc == PART_DOC and (len(records.keys) == 1 or column.level == "graph"):
                columns[column.attribute] = column
        names = [*records.given, *columns]
        rule = params.split_rule
        if rule == "given":
            rule = next(iter(names), "random")
        if rule in records.given:
            return rule, "node", records.given[rule]
        if rule in columns:
            return rule, columns[rule].level, records.column(columns[rule].key)
        if rule != "random":
            rules = [*names, "random", "stratified"]
            close = nearest_name(rule, rules)
            step = "one of these rules, or the parts in a column split of the files"
            # Another rule is another experiment: it is advised for a slip of the finger alone.
            if close and is_likely_typo(rule, close):
                step = f"--split-rule {shlex.quote(close)}"
            raise UsageError(
                f"There is no rule or column of parts {rule!r}.",
                expected=", ".join(rules),
                next=step,
            )
        return rule, "graph", None


def _labelled(records: Records, *, divides_nodes: bool) -> Bools:
    """Return what has a label: the nodes of a single graph (N,), or graphs (G,)."""
    label = records.label
    if label is None or (label.level == "node" and not divides_nodes):
        return np.ones(records.nodes[0] if divides_nodes else len(records.keys), bool)
    y: Array = records.column(label.key)
    y = y.reshape(len(y), -1)
    known: Bools = ~np.isnan(y)
    if label.low == NO_CLASS:
        known &= y != NO_CLASS
    return np.asarray(known.any(axis=1))


PIPELINE = OwnGraphsPipeline


def _check_class_names(names: Sequence[str], target: Target, labels: Sequence[Array]) -> None:
    """Refuse another number of class names than of classes, which would name the wrong ones."""
    classes = target.column.num_classes or 0
    if not names or len(names) == classes:
        return
    known = (targets_as_numbers(rows, target.class_names).reshape(-1) for rows in labels)
    found = np.unique(np.concatenate(list(known)))
    found = found[~np.isnan(found)]
    shown = target.class_names or [f"{value:g}" for value in found[:100]]
    step = f"--set class_name= once for each of {classes} classes, in order; or leave it out"
    if not target.class_names and len(found) and found[0] == 1 == classes - len(names):
        step = "subtract 1 from the labels: classes count from 0, and no label is 0"
    raise DamagedInput(
        f"class_name has {len(names)} names for {classes} classes.",
        expected=f"a name for each class, or none; {', '.join(target.column.fields) or target.column.doc}",
        found=f"labels {', '.join(shown)}",
        next=step,
    )


def _claim_memory(
    graph: GraphRecord, inference: InferredColumns, options: ReadOptions, size_of_files: int
) -> None:
    """Reserve the memory of a graph: its values, their checks, and the labels of all graphs."""
    values = sum(array.nbytes for array in graph.columns.values())
    labels = sum(array.nbytes for array in inference.targets[-1:]) * inference.graphs
    # A tensor may repeat one stored number: 180 kB can become 160 GB of shards.
    repeated = inference.bytes - _MAX_EXPANSION * size_of_files
    options.claim(repeated, "A copy of the values that the files repeat")
    per_edge = _BYTES_PER_EDGE * (1 + options.params.undirected)
    sizes = _BYTES_PER_NODE * graph.num_nodes + per_edge * graph.num_edges
    options.claim(
        3 * labels + 2 * values + sizes,
        f"The graph {escaped_key(graph.key, KEY_LENGTH)} of {graph.num_nodes:,} nodes",
    )


def _described_columns(
    inference: InferredColumns, options: ReadOptions, findings: Findings
) -> list[Column]:
    """Return all columns but the target, with the names of their components, or their meaning.

    Raises ``DamagedInput`` for an array that the description has and the files lack.
    """
    columns = []
    given = options.described or Description()
    arrays_left = {array.name: array for array in given.columns if array.use == "array"}
    for column in inference.columns():
        if column.key == NODE_ID:
            columns.append(replace(column, doc=NODE_ID_DOC))
            continue
        is_part = column.key in findings.attributes.part_keys
        fields = stored_component_names(column.attribute, findings.attributes)
        described = replace(column, doc=PART_DOC if is_part else "", fields=fields)
        array = arrays_left.pop(column.attribute, None)
        if array is not None:
            kinds = {np.dtype(name).kind for name in (array.dtype, column.presented)}
            if array.shape != column.shape or len(kinds) > 1:
                raise DamagedInput(
                    f"{column.attribute} is not as in the description.",
                    expected=f"{array.dtype} {list(array.shape)}",
                    found=f"{column.presented} {list(column.shape)}",
                    next="give it as many numbers and the same dtype",
                )
            described = replace(described, presented=array.dtype)
        elif is_given_as_arrays(given, column) and not is_part:
            findings.notices.ignored[column.attribute] = "not in the description"
            continue
        columns.append(described)
    if arrays_left:
        raise DamagedInput(
            f"The files have no {', '.join(arrays_left)}.",
            next="add what the description has",
        )
    return columns


def _summary(
    edge_summary: Mapping[str, Any],
    warnings: Sequence[str],
    findings: Findings,
    columns: Sequence[Column],
) -> dict[str, Any]:
    """Return the summary of the files for the card."""
    given_splits = [column.attribute for column in columns if column.doc == PART_DOC]
    masks = findings.attributes.masks
    if masks is not None:
        folds = f", folds 0 to {masks.shape[1] - 1}" if masks.ndim > 1 else ""
        given_splits.insert(0, f"{_MASK_SPLIT}{folds}")
    not_finite = sorted(
        column.attribute for column in columns if not column.finite and column.attribute != "y"
    )
    if not_finite:
        names = ", ".join(not_finite)
        warnings = [*warnings, f"not finite everywhere: {names}; training refuses such features"]
    summary: dict[str, Any] = {}
    if findings.tables.key_column:
        summary["key"] = findings.tables.key_column
    summary |= edge_summary
    summary |= {
        "given_splits": given_splits,
        "ignored": [f"{name}: {reason}" for name, reason in findings.notices.ignored.items()],
        "missing": [],
        "warnings": list(warnings),
    }
    targets = findings.attributes.component_names.get("y", ())
    for name, count in findings.notices.missing.items():
        kind = "missing_labels" if name in {*targets, ", ".join(targets)} else "missing"
        summary.setdefault(kind, []).append(f"{name}: {count:,}")
    long_names = {}
    for attribute, names_of_one in findings.attributes.component_names.items():
        if names_of_one and not stored_component_names(attribute, findings.attributes):
            long_names[attribute] = list(names_of_one)
    if long_names:
        summary["features"] = long_names
    return summary


def stored_component_names(attribute: str, attributes: Attributes) -> tuple[str, ...]:
    """Return the names of an attribute's components; none if a shard has no room for them."""
    names = attributes.component_names.get(attribute, ())
    return names if sum(map(len, names)) < _MAX_NAME_LETTERS else ()
