"""Your own graphs in common formats, each read by one module: ``file_formats.py``.

Files are read graph by graph: once to collect the columns, and again for each shard, up to its last
graph. Facts: ``docs/graph-files.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from pydantic import Field

from kmip_data.builds.home import Home
from kmip_data.columns.column_uses import DESCRIPTION_NAME
from kmip_data.columns.conform_to_schema import conform_record
from kmip_data.columns.infer import InferredColumns
from kmip_data.columns.target_inference import Target
from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.reading import sha256_file
from kmip_data.format.card import Receipt
from kmip_data.format.schema import Schema
from kmip_data.format.split_files import NO_PART, NODE_PARTS
from kmip_data.format.writer import GraphRecord, Skipped
from kmip_data.pipelines.base import (
    CardAdditions,
    Prepared,
    RawFolder,
    Records,
    Split,
    Unit,
    check_fold,
)
from kmip_data.pipelines.datasets.graphs.description_sources import (
    description_beside,
    description_like,
    description_of,
)
from kmip_data.pipelines.datasets.graphs.edge_directions import with_reverse_edges
from kmip_data.pipelines.datasets.graphs.file_summary import MASK_SPLIT, summarise_files
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.given_parts import GraphSplitParams, given_parts, has_label
from kmip_data.pipelines.datasets.graphs.inference import (
    check_totals,
    count_missing_labels,
    described_columns,
    graphs_per_shard,
    infer_labels,
    read_all,
)
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import (
    GraphParams,
    InferredGraphs,
    ResolvedGraphParams,
)
from kmip_data.pipelines.datasets.graphs.readers import smiles_tables
from kmip_data.pipelines.formats.file_heads import first_member
from kmip_data.pipelines.formats.unsupported_formats import refuse_unsupported_format
from kmip_data.pipelines.raw import archives
from kmip_data.pipelines.raw.copies import RECEIPT_NAME, store_user_files, unpack_archive
from kmip_data.pipelines.record_assignment import units_of_rows
from kmip_data.pipelines.user_files import (
    KEY_LENGTH,
    OwnPipeline,
    OwnSplitParams,
    divide_at_random,
    escaped_key,
    random_split_name,
)
from kmip_data.strict_model import Strict


class GraphSource(Strict):
    """Source of graphs."""

    path: Path | None = Field(
        default=None, description="file, folder or archive: docs/graph-files.md has the formats"
    )
    like: str = Field(
        default="",
        description="earlier build of graphs, or a file of --describe, with the columns and classes",
    )


class OwnGraphsPipeline(OwnPipeline[ResolvedGraphParams]):
    """Pipeline of ``graphs``, for datasets of any name."""

    version = 6
    Params = GraphParams
    Source = GraphSource
    SplitParams = GraphSplitParams

    def schema(self, params: ResolvedGraphParams) -> Schema:
        """Return the columns found in the files."""
        return params.inferred.schema

    def class_names(self, params: ResolvedGraphParams) -> tuple[str, ...]:
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
        # The readers import pandas, which an error of the command line needs not.
        from kmip_data.pipelines.datasets.graphs.file_formats import read_graphs

        findings, graphs = read_graphs(folder, members, options)
        return findings, islice(graphs, first, None)

    def resolve(self, params: GraphParams, raw: RawFolder) -> ResolvedGraphParams:
        """Read all graphs once; return the parameters with their columns and target."""
        try:
            described = description_beside(raw.path, raw.members)
            if described is not None:  # given parameters are edits of it
                chosen = described.parameters()
                edits = {key: chosen[key] for key in chosen.keys() - params.model_fields_set}
                params = params.model_copy(update=edits)
            return self._infer_params(ReadOptions(params, described, self.memory), raw)
        except DamagedInput as error:
            error.next = error.next or "repair or replace the file"
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

    def _infer_params(self, options: ReadOptions, raw: RawFolder) -> ResolvedGraphParams:
        """Return the parameters with all that the schema, the shards and the card need of the files."""
        params = options.params

        # 1. Read all graphs once, one by one: later steps know their columns and counts alone.
        findings, graphs = self.read(raw.path, list(raw.members), options)
        totals = read_all(graphs, findings, options, self.size_of(raw))
        check_totals(totals, findings, list(raw.members))

        # 2. Columns besides the target, with the names of their components.
        columns = described_columns(totals.columns, options, findings)
        findings.notices.missing.update(totals.columns.missing_values())

        # 3. The target, whose meaning depends on the labels of all graphs.
        target = None
        if totals.columns.targets:
            target = self.target(totals.columns, options, findings)
            count_missing_labels(target, findings)

        # 4. The schema; atoms and bonds of SMILES are columns that no file has.
        stored = [*columns, target.column] if target else columns
        schema = totals.columns.schema(stored, directed=not params.undirected)
        if totals.are_molecules:
            schema = smiles_tables.with_atoms(schema, self.manifest.name)

        # 5. The summary for the card; edges of molecules are made later, so none are counted.
        edge_summary = totals.edge_counts.summary()
        if totals.are_molecules:
            edge_summary = smiles_tables.EDGE_SUMMARY
        warnings = [*findings.notices.warnings]
        if totals.edge_counts.warning:
            warnings.insert(0, totals.edge_counts.warning)
        inferred = InferredGraphs(
            schema=schema,
            target=target,
            graphs=totals.columns.graphs,
            graphs_per_shard=graphs_per_shard(totals, schema),
            description=description_of(findings, columns, target, options),
            summary=summarise_files(edge_summary, warnings, findings, schema.columns),
            masks=findings.attributes.masks,
        )
        names = params.class_name or (findings.attributes.class_names if target else ())
        return ResolvedGraphParams.from_params(params, inferred=inferred, class_name=names)

    def size_of(self, raw: RawFolder) -> int:
        """Return the bytes of the files."""
        return sum((raw.path / name).stat().st_size for name in raw.members)

    def target(
        self, inference: InferredColumns, options: ReadOptions, findings: Findings
    ) -> Target:
        """Return the column of the targets."""
        return infer_labels(inference, options, findings)

    def card_additions(self, prepared: Prepared, params: ResolvedGraphParams) -> CardAdditions:
        """Return the summary of the files: statistics.files of the card, and its warnings as notes."""
        inferred = params.inferred
        given = {} if inferred.masks is None else {MASK_SPLIT: inferred.masks}
        columns = inferred.description.model_dump(mode="json", exclude_defaults=True)
        return CardAdditions(
            {"files": {**inferred.summary, "columns": columns}}, inferred.summary["warnings"], given
        )

    def prepare(self, raw: RawFolder, params: ResolvedGraphParams, workdir: Path) -> Prepared:
        """Write nothing: workers read the files up to their graphs."""
        return Prepared(raw.path, {"members": list(raw.members)})

    def units(self, prepared: Prepared, params: ResolvedGraphParams) -> list[Unit]:
        """Assign the graphs to shards of about 64 MiB."""
        inferred = params.inferred
        return units_of_rows(
            params.positions_to_build(inferred.graphs), inferred.graphs_per_shard, "graphs"
        )

    def records(
        self, prepared: Prepared, unit: Unit, params: ResolvedGraphParams
    ) -> Iterator[GraphRecord | Skipped]:
        """Yield the graphs of one unit; molecules are made from SMILES here."""
        inferred = params.inferred
        rows = set(unit.items["rows"])
        first = min(rows)
        members = prepared.plan["members"]
        described = description_beside(prepared.path, members)
        options = ReadOptions(params, described, self.memory, inferred)
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
            yield conform_record(replace(graph, key=key), inferred.schema, inferred.target)

    def default_splits(self, params: ResolvedGraphParams) -> list[OwnSplitParams]:
        """Return a split for each fold of the masks: these are not stored, so none can be added later."""
        masks = params.inferred.masks
        folds = 1 if masks is None else masks[:1].size
        return [GraphSplitParams(fold=fold) for fold in range(folds)]

    def split(self, records: Records, params: OwnSplitParams, raw: Path | None) -> Split:
        """Apply a column of parts, or divide graphs, or the nodes of a single graph, at random."""
        rule, level, codes = given_parts(records, params)
        folds = codes.shape[1] if codes is not None and codes.ndim > 1 else 1
        fold = params.fold if isinstance(params, GraphSplitParams) else 0
        check_fold(self.manifest.name, fold, folds, drawn=codes is None)

        # 1. Graphs; what has no label is in no part.
        alone = len(records.keys) == 1
        label_level = records.label_column.level if records.label_column else level
        divides_nodes = alone and label_level == "node"
        known = has_label(records, divides_nodes=divides_nodes)
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


PIPELINE = OwnGraphsPipeline
