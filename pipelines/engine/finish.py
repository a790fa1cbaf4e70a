"""Finish a build from its shards: split files, README and, last, the card."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from kmip_data.arrays import Array
from kmip_data.builds.added_columns import WORK
from kmip_data.errors import DamagedInput
from kmip_data.format.build_files import finish_folder, write_split_file
from kmip_data.format.card import CARD_NAME, Card, FileEntry, ShardEntry, SplitEntry, read_card
from kmip_data.format.reader import Shard, check_column
from kmip_data.format.schema import FORMAT_VERSION, Schema
from kmip_data.format.split_files import NODE_PARTS
from kmip_data.format.writer import COUNTS
from kmip_data.graphs.statistics import count_classes, sum_statistics
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import (
    BaseSplitParams,
    CardAdditions,
    Facts,
    Records,
    Split,
)
from kmip_data.pipelines.engine.plan import BuildPlan, versions_of_bytes
from kmip_data.pipelines.engine.unfinished_builds import Steps, UnitResult
from kmip_data.pipelines.record_assignment import apply_split
from kmip_data.text import count_with_noun

_MAX_SHOWN = 8  #: classes without a node or graph
ROUNDED = 1e-3  #: tolerance of published averages, which are rounded


def read_records(folder: Path, entries: Iterable[FileEntry], schema: Schema) -> Records:
    """Read keys, sizes and class counts of all records from the shards of ``entries``.

    Raises ``DamagedInput`` where two records have the same key, or a label is out of range.
    """
    label = schema.label_column
    keys = []
    nodes = []
    edges = []
    classes = []
    labels: Array = np.empty(0)
    entries = list(entries)

    def open_shard(entry: FileEntry) -> Shard:
        return Shard(folder / entry.file, entry=entry)

    # Keep keys, sizes and labels, shard by shard, without reading features.
    for entry in entries:
        shard = open_shard(entry)
        keys += shard.keys
        nodes.append(np.diff(shard.node_ptr))
        edges.append(np.diff(shard.edge_ptr))
        if label is not None and label.num_classes:
            check_column(shard, label)
            starts = shard.node_ptr if label.level == "node" else np.arange(shard.graphs + 1)
            labels = shard.read(label.key, 0, int(starts[-1]))
            # Class counts of each graph, for stratified rules.
            classes += [count_classes(labels[a:b], label) for a, b in pairwise(starts)]
    # A key names a record in splits and predictions, so no two may share one.
    counts = Counter(keys)
    duplicate = next((key for key, count in counts.items() if count > 1), None)
    if duplicate is not None:
        raise DamagedInput(
            f"{counts[duplicate]} records have the key {duplicate!r}.",
            next="check the raw files: one of them may occur twice",
        )

    def read_column(key: str) -> Array:
        shards = list(map(open_shard, entries))
        if len(shards) == 1:
            rows = shards[0].mapped_view(key)  # 1.5 GB for a country; a split reads two columns
            if rows is not None:
                return rows
        count = {"node": "nodes", "edge": "edges", "graph": "graphs"}[key.partition("/")[0]]
        return np.concatenate([shard.read(key, 0, getattr(shard, count)) for shard in shards])

    # A split of nodes exists for a dataset of one graph alone.
    node_labels = None
    if len(keys) == 1 and label is not None and label.level == "node" and len(labels):
        node_labels = (labels, label)
    return Records(
        keys,
        np.concatenate(nodes),
        np.concatenate(edges),
        np.array(classes, dtype=np.int64).reshape(len(keys), -1),
        node_labels,
        read_column,
        label,
        schema.columns,
    )


def write_split(
    folder: Path,
    split: Split,
    records: Records,
    requested: Mapping[str, object],
) -> tuple[SplitEntry, dict[str, list[int]]]:
    """Write ``splits/<name>.h5``.

    Returns its entry on the card, and class counts by part.

    The ``requested`` parameters are stored with the rule's, so that the same request finds the
    split again. Raises ``DamagedInput`` for a record in two parts, or node codes that do not fit
    the graph.
    """
    # A split divides either the nodes of one graph, by codes, or whole records.
    codes = split.node_code
    nodes = int(records.nodes.sum())
    if codes is not None and len(codes) != nodes:
        raise DamagedInput(
            f"The split {split.name!r} has {len(codes):,} codes for {nodes:,} nodes."
        )
    parts = {name: np.asarray(rows, dtype=np.int64) for name, rows in split.parts.items()}
    entry = write_split_file(
        folder,
        split.name,
        parts if codes is None else codes,
        records.keys,
        np.stack([records.nodes, records.edges], axis=1),
        rule=split.rule,
        parameters={**requested, **split.parameters},
        note=split.note,
    )

    classes = {}
    if codes is None:
        for name, rows in parts.items():
            classes[name] = records.class_counts[rows].sum(axis=0).tolist()
        return entry, classes
    for name, code in NODE_PARTS.items():
        classes[name] = []
        if records.node_labels is not None:
            labels, column = records.node_labels
            classes[name] = count_classes(labels[codes == code], column).tolist()
    return entry, classes


def finish_build(
    plan: BuildPlan,
    split_params: Sequence[BaseSplitParams],
    units: Sequence[UnitResult],
    about: CardAdditions,
) -> Card:
    """Write splits, README and card for the shards of ``units`` (all of them, in order).

    Raises ``DamagedInput`` where two records have the same key, or a split has a record twice.
    """
    pipeline = plan.pipeline
    params = plan.params
    raw = plan.raw
    folder = plan.folder
    manifest = pipeline.manifest
    schema = pipeline.schema(params)
    skipped = [entry for unit in units for entry in unit.skipped]
    if not any(unit.graphs for unit in units):
        raise DamagedInput(f"All {len(skipped):,} records were skipped.", found=str(skipped[:1]))
    # From here on shards are read back, so that the card describes what is on disk.
    shards = [ShardEntry(file=unit.file, **unit.facts) for unit in units]
    records = replace(read_records(folder, shards, schema), given_parts=about.given_parts)
    statistics = {**sum_statistics(unit.statistics for unit in units), **about.statistics}
    if skipped:
        statistics["skipped"] = skipped
    # The first split is the default; each is written once, and counted by class.
    splits = {}
    split_classes = {}
    planned = []
    for chosen in split_params:
        split = apply_split(pipeline, records, chosen, raw.path)
        if split.name in splits:  # two requests may mean one split
            continue
        planned.append(f"splits/{split.name}.h5")
        Steps(folder / WORK).finish("splits", {"files": planned})
        entry, classes = write_split(folder, split, records, chosen.identity())
        splits[split.name] = entry
        split_classes[split.name] = classes

    # Published averages hold for the default parameters; counts of graphs for any.
    usual = not params.model_dump(exclude_defaults=True)
    known = manifest.expected.graphs is not None
    differing: list[str] = []
    if known and not raw.sample:
        differing += differing_counts(
            manifest,
            statistics,
            splits,
            usual=usual,
        )
    # Counts of graphs, nodes and edges are fields of their own on the card.
    others = {**statistics, "classes": {"total": statistics["classes"], "splits": split_classes}}
    counts = {name: others.pop(name) for name in COUNTS}
    card = Card(
        dataset=manifest.name,
        manifest=manifest.registered_name,
        pipeline=manifest.pipeline,
        title=manifest.title,
        key=plan.key,
        sample=raw.sample,
        complete=not raw.sample and not differing if known else None,
        pinned=bool(raw.pinned) and not raw.sample,
        parameters=params.model_dump(mode="json"),
        pipeline_version=pipeline.version,
        format_version=FORMAT_VERSION,
        license=manifest.license.model_dump(mode="json"),
        citation=manifest.citation.strip(),
        receipts=list(raw.receipts),
        content_digest=raw.content_digest,
        data_schema=json.loads(schema.to_json()),
        default_split=next(iter(splits), ""),
        class_names=list(pipeline.built_class_names(params, records)),
        shards=shards,
        splits=splits,
        counts=counts,
        statistics=others,
        versions=versions_of_bytes(),
        notes=[
            *manifest.notes,
            *about.notes,
            *_build_notes(raw.sample, statistics["graphs"], differing, skipped),
            *([] if known or raw.sample else _empty_classes(schema, statistics["classes"])),
        ],
    )
    # The card comes last: a folder without one is an unfinished build.
    finish_folder(folder, card)
    return read_card(folder)


def _empty_classes(schema: Schema, counts: Sequence[int]) -> Iterator[str]:
    """Yield a note if a class of the user's own data never occurs: its numbers may mean something else."""
    empty = [str(number) for number, count in enumerate(counts) if not count]
    if empty and schema.label_column is not None:
        more = ", …" if len(empty) > _MAX_SHOWN else ""
        yield (
            f"no {schema.label_column.level} has the class {', '.join(empty[:_MAX_SHOWN])}{more}; classes are"
            f" 0 to {len(counts) - 1} ({schema.label_column.doc})"
        )


def _build_notes(
    sample: bool,
    graphs: int,
    differing: Sequence[str],
    skipped: Sequence[Sequence[str]],
) -> list[str]:
    """Return notes for a sample, a part of the set, and records that were skipped."""
    notes = []
    if sample:
        notes.append(
            f"SAMPLE: {count_with_noun(graphs, 'graph')} generated in the upstream layout; not the real data."
        )
    elif differing:
        notes.append(f"Partial, not the counts of the complete set: {'; '.join(differing)}.")
    if skipped:
        notes.append(
            f"Skipped {count_with_noun(len(skipped), 'record')} that could not be built "
            f"(statistics.skipped of {CARD_NAME} has the reasons)."
        )
    return notes


def differing_counts(
    manifest: Manifest,
    counts: Facts,
    splits: Mapping[str, SplitEntry],
    *,
    usual: bool,
) -> Iterator[str]:
    """Yield the manifest's counts that differ from the build, as text.

    Nodes and edges are compared for the ``usual`` parameters alone.
    """
    expected = manifest.expected
    graphs = counts["graphs"]
    if graphs != expected.graphs:
        yield f"{graphs:,} of the {expected.graphs:,} graphs"
    for unit, published in (("nodes", expected.avg_nodes), ("edges", expected.avg_edges)):
        mean = counts[unit] / max(graphs, 1)
        if usual and published is not None and abs(mean - published) > ROUNDED * published:
            yield f"{mean:,.4f} {unit} per graph, published are {published:,.4f}"
    # Classes without examples are missing in a partial build.
    classes = counts["classes"]
    missing = classes.count(0)
    if missing and len(classes) == len(manifest.class_names):
        yield f"{len(classes) - missing} of the {len(classes)} classes"

    for name, sizes in expected.splits.items():
        if name not in splits:
            continue
        for part, size in sizes.items():
            entry = splits[name].parts.get(part)
            # Parts of one graph are of nodes, others of graphs.
            records = 0
            if entry is not None:
                records = entry.nodes if expected.graphs == 1 else entry.graphs
            if records != size:
                yield f"{records:,} of {size:,} in {part} of the split {name!r}"
