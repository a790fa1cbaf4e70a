"""Your own graphs in common formats, which ``file_formats.py`` lists.

Files are read graph by graph: once to infer the columns, and again for each shard, up to its last
graph. User documentation: ``docs/graph-files.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from pydantic import Field

from kmip_data.arrays import U8, Bools
from kmip_data.builds.home import Home
from kmip_data.columns.column_uses import DESCRIPTION_NAME
from kmip_data.columns.conform_to_schema import conform_record
from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.small_files import first_problem, sha256_file
from kmip_data.format.card import Receipt
from kmip_data.format.schema import Schema
from kmip_data.format.split_files import NO_PART, PART_CODES
from kmip_data.format.writer import GraphRecord, SkippedRecord
from kmip_data.pipelines.base import CardAdditions, Prepared, RawCopy, RecordTable, Split, Unit
from kmip_data.pipelines.datasets.graphs.description_sources import (
    description_for_like,
    description_from_findings,
    description_in_folder,
    kinds_of_features,
)
from kmip_data.pipelines.datasets.graphs.edge_directions import add_missing_reverse_edges
from kmip_data.pipelines.datasets.graphs.file_summary import MASK_SPLIT, summarise_files
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.given_parts import (
    GraphSplitParams,
    find_given_parts,
    labelled_mask,
)
from kmip_data.pipelines.datasets.graphs.inference import (
    accumulate_totals,
    check_totals,
    count_missing_labels,
    graphs_per_shard,
    infer_target_column,
    non_target_columns,
    refuse_options_of_targets,
)
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import (
    CompletedGraphParams,
    GraphParams,
    InferredGraphs,
)
from kmip_data.pipelines.datasets.graphs.readers import smiles_tables
from kmip_data.pipelines.formats.file_heads import first_member
from kmip_data.pipelines.formats.unsupported_formats import refuse_unsupported_format
from kmip_data.pipelines.own_pipeline import (
    KEY_LENGTH,
    OwnPipeline,
    OwnSplitParams,
    divide_at_random,
    escaped_key,
    random_split_name,
)
from kmip_data.pipelines.parameters import check_fold
from kmip_data.pipelines.raw import archives
from kmip_data.pipelines.raw.copies import RECEIPT_NAME, store_own_files, unpack_archive
from kmip_data.pipelines.units_and_splits import units_of_rows
from kmip_data.strict_model import StrictModel


class GraphSource(StrictModel):
    """Source options of ``build graphs``."""

    path: Path | None = Field(
        default=None, description="file, folder or archive: docs/graph-files.md has the formats"
    )
    like: str = Field(
        default="",
        description="earlier build or run with the columns and classes to use, or a file of --describe",
    )


_MASKS_FILE = "masks.npy"  #: part of each node, if the files of a single graph give parts


class OwnGraphsPipeline(OwnPipeline[CompletedGraphParams]):
    """Pipeline of ``graphs``, for datasets of any name."""

    version = 7
    Params = GraphParams
    Source = GraphSource
    SplitParams = GraphSplitParams

    def schema(self, params: CompletedGraphParams) -> Schema:
        """Return the schema inferred from the files."""
        return params.inferred.record_schema

    def class_names(self, params: CompletedGraphParams) -> tuple[str, ...]:
        """Return the class names that are given, in the files, or labels."""
        return params.inferred.class_names

    def import_files(
        self, source: GraphSource, params: GraphParams, home: Home, *, offline: bool, quiet: bool
    ) -> tuple[RawCopy, bool]:
        """Copy or unpack the files into the home folder."""
        if source.path is None:
            raise UsageError(
                "--archive is missing.",
                expected="a file, a folder or an archive of graphs",
                next="--archive FILE",
            )
        if source.path.is_file():
            refuse_unsupported_format(source.path)
        path = source.path.expanduser().absolute()
        # Files of tensors and arrays are zips, and must not be unpacked.
        member = first_member(archives.first_bytes(path)) if path.is_file() else b""
        as_member = path.name if member.endswith((b"data.pkl", b".npy")) else ""
        described = description_for_like(source.like, home) if source.like else None

        def copy_files(destination: Path) -> tuple[dict[str, str], list[Receipt]]:
            members, receipts = unpack_archive(
                path, self.manifest, destination, quiet=quiet, as_member=as_member
            )
            if path.is_relative_to(home.raw):  # copied by an earlier build
                atomic_writes.remove_file(destination / RECEIPT_NAME)
                members.pop(RECEIPT_NAME, None)
            if described is not None:
                (destination / DESCRIPTION_NAME).write_text(described.to_toml(), "utf-8")
                members[DESCRIPTION_NAME], _ = sha256_file(destination / DESCRIPTION_NAME)
            return dict(sorted(members.items())), receipts

        return store_own_files(home.raw / self.manifest.name, copy_files, quiet=quiet)

    def read(
        self, folder: Path, members: Sequence[str], options: ReadOptions, first: int = 0
    ) -> tuple[Findings, Iterator[GraphRecord]]:
        """Return the graphs from index ``first``, and findings that are complete after the last."""
        # Imported late: the readers import pandas, which slows the command line.
        from kmip_data.pipelines.datasets.graphs.file_formats import read_graphs

        findings, graphs = read_graphs(folder, members, options)
        return findings, islice(graphs, first, None)

    def resolve(self, params: GraphParams, raw: RawCopy) -> GraphParams:
        """Add the parameters of a description next to the files, which given ones override."""
        described = description_in_folder(raw.path, raw.members)
        if described is None:
            return params
        defaults = described.parameters()
        return params.model_copy(
            update={key: defaults[key] for key in defaults.keys() - params.model_fields_set}
        )

    def prepare(self, raw: RawCopy, params: GraphParams, workdir: Path) -> Prepared:
        """Read all graphs once, and infer schema, target and description."""
        try:
            described = description_in_folder(raw.path, raw.members)
            inferred, masks = self._infer(ReadOptions(params, described, self.memory_limit), raw)
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
                found=first_problem(error),
            ) from error
        if masks is not None:
            np.save(workdir / _MASKS_FILE, masks)
        facts = {
            "members": list(raw.members),
            "inferred": inferred.model_dump(mode="json"),
            "masks": None if masks is None else str(workdir / _MASKS_FILE),
        }
        return Prepared(raw.path, facts)

    def complete(self, params: GraphParams, prepared: Prepared) -> CompletedGraphParams:
        """Return the parameters with the schema and everything else inferred from the files."""
        facts = prepared.facts
        inferred = InferredGraphs.model_validate_json(json.dumps(facts["inferred"]))
        masks = np.load(facts["masks"]) if facts["masks"] else None
        return CompletedGraphParams.from_params(params, inferred=inferred, masks=masks)

    def _infer(self, options: ReadOptions, raw: RawCopy) -> tuple[InferredGraphs, U8 | None]:
        """Return what the schema, the shards and the card depend on, and the parts of nodes."""
        params = options.params

        # 1. Read all graphs once, one at a time; later steps only use their columns and counts.
        findings, graphs = self.read(raw.path, list(raw.members), options)
        totals = accumulate_totals(graphs, findings, options, self.file_bytes(raw))
        check_totals(totals, findings, list(raw.members))

        # 2. Columns except the target.
        columns = non_target_columns(totals.columns, options, findings)
        findings.notices.missing.update(totals.columns.missing_values())

        # 3. The target, whose type depends on the labels of all graphs.
        target = None
        if totals.columns.targets:
            target = infer_target_column(totals.columns, options, findings)
            count_missing_labels(target, findings)
        else:
            refuse_options_of_targets(options, findings)

        # 4. The schema; SMILES become columns of atoms and bonds.
        stored = [*columns, target.column] if target else columns
        schema = totals.columns.schema(stored, directed=not params.undirected)
        if totals.are_molecules:
            schema = smiles_tables.molecule_schema(schema, self.manifest.name)

        # 5. The summary for the card; bonds are unknown until shards are built.
        edge_summary = totals.edge_counts.summary()
        if totals.are_molecules:
            edge_summary = smiles_tables.EDGE_SUMMARY
        warnings = [*findings.notices.warnings]
        if totals.edge_counts.warning:
            warnings.insert(0, totals.edge_counts.warning)
        # Given names come first, then the names in the files, then labels that are strings.
        class_names: tuple[str, ...] = ()
        if target is not None:
            class_names = findings.attributes.class_names or target.class_names
        inferred = InferredGraphs(
            record_schema=schema,
            target=target,
            class_names=params.class_name or class_names,
            graphs=totals.columns.graphs,
            graphs_per_shard=graphs_per_shard(totals, schema),
            description=description_from_findings(findings, columns, target, options),
            summary=summarise_files(edge_summary, warnings, findings, schema.columns),
        )
        return inferred, findings.attributes.masks

    def file_bytes(self, raw: RawCopy) -> int:
        """Return the total size of the files in bytes."""
        return sum((raw.path / name).stat().st_size for name in raw.members)

    def card_additions(self, prepared: Prepared, params: CompletedGraphParams) -> CardAdditions:
        """Return the summary of the files for the card, its warnings as notes, and given splits."""
        inferred = params.inferred
        given_parts = {} if params.masks is None else {MASK_SPLIT: params.masks}
        columns = inferred.description.model_dump(mode="json", exclude_defaults=True)
        kinds = kinds_of_features(inferred.description, inferred.record_schema)
        statistics = {"files": {**inferred.summary, "columns": columns}, "kinds": kinds}
        return CardAdditions(statistics, inferred.summary["warnings"], given_parts)

    def units(self, prepared: Prepared, params: CompletedGraphParams) -> list[Unit]:
        """Return a unit for each shard of about 64 MiB."""
        inferred = params.inferred
        positions = params.positions_to_build(inferred.graphs)
        return units_of_rows(positions, inferred.graphs_per_shard, "graphs")

    def records(
        self, prepared: Prepared, unit: Unit, params: CompletedGraphParams
    ) -> Iterator[GraphRecord | SkippedRecord]:
        """Yield the graphs of one unit, with molecules made from SMILES."""
        inferred = params.inferred
        rows = set(unit.selection["rows"])
        first = min(rows)
        members = prepared.facts["members"]
        described = description_in_folder(prepared.path, members)
        options = ReadOptions(params, described, self.memory_limit, inferred)
        _, graphs = self.read(prepared.path, members, options, first)
        numbered = enumerate(islice(graphs, max(rows) + 1 - first), first)
        unit_graphs = (graph for row, graph in numbered if row in rows)
        if params.undirected:
            unit_graphs = (add_missing_reverse_edges(graph)[0] for graph in unit_graphs)
        skip_errors = params.on_error == "skip"
        for name, graph in smiles_tables.build_molecules(unit_graphs, skip_errors=skip_errors):
            key = escaped_key(name, KEY_LENGTH)
            if isinstance(graph, DamagedInput):
                yield self.stop_or_skip(key, graph, params)
                continue
            yield conform_record(replace(graph, key=key), inferred.record_schema, inferred.target)

    def default_splits(self, params: CompletedGraphParams) -> list[OwnSplitParams]:
        """Return a split for each fold of the masks; masks are not stored, so add all splits now."""
        folds = 1 if params.masks is None else params.masks[:1].size
        return [GraphSplitParams(fold=fold) for fold in range(folds)]

    def split(self, records: RecordTable, params: OwnSplitParams, raw_folder: Path | None) -> Split:
        """Split graphs, or the nodes of a single graph, as given in the files or at random.

        Graphs and nodes without a label are in no part.
        """
        # 1. Find the parts given in the files: a code for each graph or node, if any.
        rule, level, codes = find_given_parts(records, params)
        folds = codes.shape[1] if codes is not None and codes.ndim > 1 else 1
        fold = params.fold if isinstance(params, GraphSplitParams) else 0
        check_fold(self.manifest.name, fold, folds, drawn=codes is None)

        label_level = records.label_column.level if records.label_column else level
        divides_nodes = len(records.keys) == 1 and label_level == "node"
        is_labelled = labelled_mask(records, divides_nodes=divides_nodes)

        # 2. Without given parts, divide at random.
        if codes is None and divides_nodes:
            return self._draw_nodes(is_labelled, params)
        if codes is None:
            drawn = super().split(records, params, raw_folder)
            parts = {
                name: [row for row in rows if is_labelled[row]]
                for name, rows in drawn.parts.items()
            }
            return replace(drawn, parts=parts)

        # 3. Use the given parts of graphs, or of the nodes of a single graph.
        if level == "graph":
            parts = {
                name: np.flatnonzero((codes == code) & is_labelled).tolist()
                for name, code in PART_CODES.items()
            }
            return Split(rule, "given", {}, parts)
        if not divides_nodes:
            raise UsageError(
                f"{rule!r} divides nodes, but graphs are to be divided.",
                next="--split-rule random, or a column of parts of graphs",
            )
        name = rule
        if folds > 1:
            codes = codes.T[fold]
            name += f"-fold{fold}"
        codes = np.where(is_labelled, codes, np.uint8(NO_PART))
        return Split(name, "given", {"fold": fold}, part_codes=codes)

    def _draw_nodes(self, is_labelled: Bools, params: OwnSplitParams) -> Split:
        """Divide the labelled nodes of a single graph at random."""
        codes = np.full(len(is_labelled), NO_PART, np.uint8)
        labelled = np.flatnonzero(is_labelled)
        for name, rows in divide_at_random(len(labelled), params).items():
            codes[labelled[rows]] = PART_CODES[name]
        options = params.model_dump(exclude={"split_rule", "fold"})
        return Split(random_split_name(params), "random", options, part_codes=codes)


PIPELINE = OwnGraphsPipeline
