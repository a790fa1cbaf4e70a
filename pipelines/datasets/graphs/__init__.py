"""Your own graphs in common formats, which ``file_formats.py`` lists.

Files are parsed once, into a spool of typed arrays; columns are inferred from it, and shards are
written from it. User documentation: ``docs/graph-files.md``.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from pydantic import Field

from kmip_data.builds.home import Home
from kmip_data.columns.attribute_levels import MaskUse
from kmip_data.columns.column_inference import InferredColumns
from kmip_data.columns.column_roles import DESCRIPTION_NAME, ColumnRoles
from kmip_data.columns.conform_to_schema import conform_block
from kmip_data.columns.graph_block import GraphBlock
from kmip_data.errors import DamagedInput, OutOfResources, Setting, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.small_files import first_problem, sha256_file
from kmip_data.format.card import Receipt
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.format.writer import SkippedRecord
from kmip_data.pipelines.base import CardAdditions, Prepared, RawCopy, Unit
from kmip_data.pipelines.datasets.graphs import molecules
from kmip_data.pipelines.datasets.graphs.description_sources import (
    description_for_like,
    description_from_findings,
    description_in_folder,
    kinds_of_features,
)
from kmip_data.pipelines.datasets.graphs.edge_directions import EdgeCounts, add_reverses_to_block
from kmip_data.pipelines.datasets.graphs.file_summary import MASK_SPLIT, summarise_files
from kmip_data.pipelines.datasets.graphs.findings import Attributes, Findings, key_columns_by_level
from kmip_data.pipelines.datasets.graphs.inference import (
    add_array_roles,
    attribute_rules,
    check_totals,
    checked_graphs,
    count_missing_labels,
    graphs_per_shard,
    infer_target_column,
    non_target_columns,
    refuse_options_of_targets,
)
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import (
    GraphParams,
    InferredGraphParams,
    InferredGraphs,
)
from kmip_data.pipelines.formats.file_heads import first_member, is_workbook
from kmip_data.pipelines.formats.unsupported_formats import refuse_unsupported_format
from kmip_data.pipelines.graph_arrays.spooled_graphs import SpooledGraphs, spool_graphs
from kmip_data.pipelines.own_pipeline import OwnPipeline
from kmip_data.pipelines.own_split import GraphSplitParams, OwnSplitParams
from kmip_data.pipelines.raw import archives
from kmip_data.pipelines.raw.copies import RECEIPT_NAME, store_own_files, unpack_archive
from kmip_data.pipelines.units_and_splits import units_of_rows
from kmip_data.strict_model import StrictModel


class GraphSource(StrictModel):
    """Source options of ``build graphs``."""

    path: Path | None = Field(
        default=None, description="file, folder or archive: docs/graph-files.md has the formats"
    )
    like: str | ColumnRoles = Field(
        default="",
        description="earlier build or run with the columns and classes to use, or a file of --describe",
    )


_SPOOL_FOLDER = "graphs"
_MASKS_FILE = "masks.npy"  #: part of each node, if the files of a single graph give parts


class OwnGraphsPipeline(OwnPipeline[InferredGraphParams]):
    """Pipeline of ``graphs``, for datasets of any name."""

    version = 9
    #: Starting a worker takes 0.8 s of CPU; a table of this size takes 0.1 s, 4,000 SMILES 2 s.
    max_bytes_in_process = 2**17
    Params = GraphParams
    Source = GraphSource
    SplitParams = GraphSplitParams
    divides_nodes = True

    def schema(self, params: InferredGraphParams) -> Schema:
        """Return the schema inferred from the files."""
        return params.inferred.record_schema

    def class_names(self, params: InferredGraphParams) -> tuple[str, ...]:
        """Return the class names that are given, in the files, or labels."""
        return params.inferred.class_names

    def store_raw_files(
        self, source: GraphSource, params: GraphParams, home: Home, *, offline: bool, quiet: bool
    ) -> tuple[RawCopy, bool]:
        """Copy or unpack the files into the home folder."""
        if source.path is None:
            raise UsageError(
                "archive is missing.",
                expected="a file, a folder or an archive of graphs",
                steps=Setting(archive="FILE"),
            )
        path = source.path.expanduser().absolute()
        refuse_unsupported_format(path)
        # Files of tensors and arrays and workbooks are zips, and must not be unpacked.
        member = first_member(archives.first_bytes(path)) if path.is_file() else b""
        is_one_file = member.endswith((b"data.pkl", b".npy")) or is_workbook(path.name)
        as_member = path.name if is_one_file else ""
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

    def resolve(self, params: GraphParams, raw: RawCopy) -> GraphParams:
        """Add the parameters of a description next to the files, which given ones override."""
        described = description_in_folder(raw.path, raw.members, params.label)
        if described is None:
            return params
        defaults = described.parameters()
        return params.model_copy(
            update={key: defaults[key] for key in defaults.keys() - params.model_fields_set}
        )

    def prepare(self, raw: RawCopy, params: GraphParams, workdir: Path) -> Prepared:
        """Read the files once into a spool of typed arrays, and infer everything else from it."""
        with _convert_reading_errors():
            described = description_in_folder(raw.path, raw.members, params.label)
            options = ReadOptions(params, described, self.memory_limit, workdir)
            spool = workdir / _SPOOL_FOLDER
            findings = self.ingest(raw, options, spool)
            graphs = SpooledGraphs(spool)
            inferred = self._infer(graphs, findings, options, list(raw.members))
        masks = findings.attributes.masks
        if masks is not None:
            np.save(workdir / _MASKS_FILE, masks)
        return Prepared(workdir, {"inferred": inferred.model_dump(mode="json")})

    def ingest(self, raw: RawCopy, options: ReadOptions, spool: Path) -> Findings:
        """Read all graphs of the files into a new folder; return the findings of the reader."""
        # Imported late: the readers import pandas, which slows the command line.
        from kmip_data.pipelines.datasets.graphs.file_formats import read_graphs

        members = list(raw.members)
        file_bytes = sum((raw.path / name).stat().st_size for name in members)
        findings, graphs = read_graphs(raw.path, members, options)
        spool_graphs(spool, checked_graphs(graphs, findings, options, file_bytes))
        return findings

    def mask_use(self, graphs: int) -> MaskUse:
        """Return the use of boolean masks in the attributes of this many graphs."""
        return "split" if graphs == 1 else "flags"

    def with_inferred(self, params: GraphParams, prepared: Prepared) -> InferredGraphParams:
        """Return the parameters with the schema and everything else inferred from the files."""
        inferred = InferredGraphs.model_validate_json(json.dumps(prepared.facts["inferred"]))
        masks = None
        if (prepared.path / _MASKS_FILE).exists():
            masks = np.load(prepared.path / _MASKS_FILE, allow_pickle=False)
        return InferredGraphParams.from_params(params, inferred=inferred, masks=masks)

    def _infer(
        self,
        graphs: SpooledGraphs,
        findings: Findings,
        options: ReadOptions,
        members: Sequence[str],
    ) -> InferredGraphs:
        """Return what the schema, the shards and the card depend on, and complete ``findings``."""
        params = options.params

        # 1. Columns and counts of all graphs, and the levels of attributes.
        rules = attribute_rules(graphs, findings, self.mask_use(len(graphs)))
        edge_counts = EdgeCounts(params.undirected)
        inferred = InferredColumns()
        are_molecules = False
        for spooled in graphs.blocks():
            block = key_columns_by_level(spooled, rules, options, findings)
            if block.edge_index is not None:
                edge_counts.add(block.union())
            if params.undirected:
                block, unequal = add_reverses_to_block(block)
                edge_counts.unequal_reverses += unequal
            block, are_molecules = molecules.drop_smiles(block)
            inferred.add(block, findings.attributes.target_key, findings.attributes.forms)
        check_totals(inferred, findings, members)

        # 2. Columns except the target.
        findings.notices.missing.update(inferred.missing_values())
        columns = non_target_columns(inferred, options, findings)

        # 3. The target, whose type depends on the labels of all graphs.
        target = None
        if inferred.targets:
            target = infer_target_column(inferred, options, findings)
            count_missing_labels(target, findings)
        else:
            refuse_options_of_targets(options)
        add_array_roles(columns, target, options, findings)

        # 4. The schema; SMILES become columns of atoms and bonds.
        stored = [*columns, target.column] if target else columns
        schema = inferred.schema(stored, directed=not params.undirected)
        if are_molecules:
            schema = molecules.molecule_schema(schema, self.manifest.name)

        # 5. The summary for the card; bonds are unknown until shards are built.
        edge_summary = molecules.EDGE_SUMMARY if are_molecules else edge_counts.summary()
        warnings = [*findings.notices.warnings]
        if edge_counts.warning:
            warnings.insert(0, edge_counts.warning)
        # Given names come first, then the names in the files, then labels that are strings.
        class_names: tuple[str, ...] = ()
        if target is not None:
            class_names = findings.attributes.class_names or target.class_names
        return InferredGraphs(
            record_schema=schema,
            attributes=rules,
            target=target,
            class_names=params.class_name or class_names,
            counts=(inferred.graphs, inferred.nodes, inferred.edges),
            are_molecules=are_molecules,
            description=description_from_findings(findings, target, options),
            summary=summarise_files(edge_summary, warnings, findings, schema.columns),
        )

    def card_additions(self, prepared: Prepared, params: InferredGraphParams) -> CardAdditions:
        """Return the summary of the files for the card, its warnings as notes, and given splits."""
        inferred = params.inferred
        given_parts = {} if params.masks is None else {MASK_SPLIT: params.masks}
        columns = inferred.description.model_dump(mode="json", exclude_defaults=True)
        kinds = kinds_of_features(inferred.description)
        statistics = {"files": {**inferred.summary, "columns": columns}, "kinds": kinds}
        return CardAdditions(statistics, inferred.summary["warnings"], given_parts)

    def units(self, prepared: Prepared, params: InferredGraphParams) -> list[Unit]:
        """Return a unit for each shard of about 64 MiB."""
        positions = params.positions_to_build(params.inferred.counts[0])
        return units_of_rows(positions, graphs_per_shard(params.inferred), "graphs")

    def records(
        self, prepared: Prepared, unit: Unit, params: InferredGraphParams
    ) -> Iterator[GraphRecord | SkippedRecord]:
        """Yield the graphs of one unit, with molecules made from SMILES."""
        inferred = params.inferred
        blocks = self._blocks(prepared, unit, params)
        if not inferred.are_molecules:
            for block in blocks:
                yield from conform_block(block, inferred.record_schema, inferred.target)
            return
        for key, molecule in molecules.build_molecules(
            blocks,
            inferred.record_schema,
            inferred.target,
            skip_errors=params.on_error == "skip",
        ):
            if isinstance(molecule, DamagedInput):
                yield self.stop_or_skip(key, molecule, params)
            else:
                yield molecule

    def _blocks(
        self, prepared: Prepared, unit: Unit, params: InferredGraphParams
    ) -> Iterator[GraphBlock]:
        """Yield the graphs of one unit, whose columns have the level in their key."""
        rules = params.inferred.attributes
        findings = Findings(Attributes(forms=dict(rules.forms)))
        graphs = SpooledGraphs(prepared.path / _SPOOL_FOLDER)
        for spooled in graphs.blocks(unit.selection["rows"]):
            block = key_columns_by_level(spooled, rules, ReadOptions(params), findings)
            yield add_reverses_to_block(block)[0] if params.undirected else block

    def default_splits(self, params: InferredGraphParams) -> list[OwnSplitParams]:
        """Return a split for each fold of the masks; masks are not stored, so add all splits now.

        With groups there are none: a split by them is random, and refused if the files give parts.
        """
        if params.group:
            return []
        folds = 1 if params.masks is None else params.masks[:1].size
        return [GraphSplitParams(fold=fold) for fold in range(folds)]


@contextlib.contextmanager
def _convert_reading_errors() -> Iterator[None]:
    """Convert the exceptions of parsers to errors of the files."""
    try:
        yield
    except DamagedInput as error:
        error.steps = error.steps or ["repair or replace the file"]
        raise
    except UsageError:
        raise
    except MemoryError as error:
        raise OutOfResources(
            f"Memory ran out while the files were read: {error}.",
            steps="close other programs, or use a machine with more memory",
        ) from error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise DamagedInput(
            "The files cannot be read as graphs.",
            found=first_problem(error),
        ) from error


PIPELINE = OwnGraphsPipeline
