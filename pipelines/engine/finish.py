"""Finish a build from its shards: split files, README and, last, the card."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest
from pathlib import Path

import numpy as np

from kmip_data.arrays import Array
from kmip_data.builds.files_of_build import WORK_FOLDER
from kmip_data.errors import DamagedInput
from kmip_data.format.build_files import finish_folder, write_split_file
from kmip_data.format.card import CARD_NAME, Card, FileEntry, ShardEntry, SplitEntry, read_card
from kmip_data.format.reader import Shard, check_column
from kmip_data.format.schema import FORMAT_VERSION, Schema, ShardStructure
from kmip_data.format.split_files import PART_CODES
from kmip_data.format.writer import COUNTS
from kmip_data.graphs.statistics import count_classes, sum_statistics
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import CardAdditions, JsonObject, RecordTable, Split
from kmip_data.pipelines.engine.plan import BuildPlan, versions_affecting_bytes
from kmip_data.pipelines.engine.repeated_items import RepeatCounter, RepeatCounts
from kmip_data.pipelines.engine.unfinished_builds import StepResults, UnitResult
from kmip_data.pipelines.parameters import BaseSplitParams
from kmip_data.pipelines.units_and_splits import apply_split
from kmip_data.text import count_with_noun

_MAX_LISTED_CLASSES = 8  #: number of empty classes listed in a note
_RELATIVE_TOLERANCE = 1e-3  #: for published averages, which are rounded


def read_record_table(
    folder: Path,
    entries: Sequence[FileEntry],
    schema: Schema,
    structures: Iterable[ShardStructure | None] = (),
) -> RecordTable:
    """Read keys, sizes and class counts of all records from the shards of ``entries``.

    ``structures`` are those of shards that this run has written, whose headers are not read again.
    Raises ``DamagedInput`` if two records have the same key, or a label is out of range.
    """
    label = schema.y_column
    keys = []
    node_counts = []
    edge_counts = []
    class_counts = []
    labels: Array = np.empty(0)
    # Opening checks a shard, and takes longer than reading a column of it.
    shards = [
        Shard(folder / entry.file, entry=entry, structure=structure)
        for entry, structure in zip_longest(entries, structures)
    ]
    for shard in shards:
        keys += shard.keys
        node_counts.append(np.diff(shard.node_ptr))
        edge_counts.append(np.diff(shard.edge_ptr))
        if label is not None and label.num_classes:
            check_column(shard, label)
            starts = shard.node_ptr if label.level == "node" else np.arange(shard.graphs + 1)
            labels = shard.read(label.key, 0, int(starts[-1]))
            class_counts += [count_classes(labels[a:b], label) for a, b in pairwise(starts)]

    # Splits and predictions refer to records by key, so keys must be unique.
    [(most_frequent_key, occurrences)] = Counter(keys).most_common(1)
    if occurrences > 1:
        raise DamagedInput(
            f"{occurrences} records have the key {most_frequent_key!r}.",
            steps="check the raw files: one of them may occur twice",
        )

    def read_column(key: str) -> Array:
        if len(shards) == 1:
            return shards[0].mapped_view(key)  # a column of a country takes 1.5 GB
        level = key.partition("/")[0]
        return np.concatenate([shard.read(key, 0, getattr(shard, f"{level}s")) for shard in shards])

    # Only a split of a single graph divides nodes; ``labels`` are the labels of the only shard.
    node_labels = None
    if len(keys) == 1 and label is not None and label.level == "node" and len(labels):
        node_labels = (labels, label)
    return RecordTable(
        keys,
        np.concatenate(node_counts),
        np.concatenate(edge_counts),
        np.array(class_counts, dtype=np.int64).reshape(len(keys), -1),
        node_labels,
        read_column,
        label,
        schema.columns,
        shards=shards,
    )


def write_split(
    folder: Path,
    split: Split,
    records: RecordTable,
    requested: Mapping[str, object],
) -> tuple[SplitEntry, dict[str, list[int]]]:
    """Write ``splits/<name>.h5``; return its entry on the card, and class counts by part.

    The ``requested`` parameters are stored with the rule's parameters, so that the same request
    finds the split again. Raises ``DamagedInput`` if a record is in two parts, or if the part codes
    do not fit the graph.
    """
    codes = split.part_codes
    nodes = int(records.node_counts.sum())
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
        np.stack([records.node_counts, records.edge_counts], axis=1),
        rule=split.rule,
        parameters={**requested, **split.parameters},
        note=split.note,
    )

    class_counts = {}
    if codes is None:
        for name, rows in parts.items():
            class_counts[name] = records.class_counts[rows].sum(axis=0).tolist()
        return entry, class_counts
    for name, code in PART_CODES.items():
        class_counts[name] = []
        if records.node_labels is not None:
            labels, column = records.node_labels
            class_counts[name] = count_classes(labels[codes == code], column).tolist()
    return entry, class_counts


def _write_splits(
    plan: BuildPlan, split_params: Sequence[BaseSplitParams], records: RecordTable, schema: Schema
) -> tuple[dict[str, SplitEntry], dict[str, dict[str, list[int]]], dict[str, RepeatCounts]]:
    """Write every split once; return the entries on the card, class counts and repeats, by name."""
    entries: dict[str, SplitEntry] = {}
    class_counts = {}
    repeats = {}
    repeat_counter = RepeatCounter(plan.pipeline, records, schema)
    planned_files = []
    for params in split_params:
        split = apply_split(plan.pipeline, records, params, plan.raw.path)
        if split.name in entries:  # different parameters may give the same split
            continue
        planned_files.append(f"splits/{split.name}.h5")
        StepResults(plan.folder / WORK_FOLDER).finish("splits", {"files": planned_files})
        entry, counts = write_split(plan.folder, split, records, params.identity())
        entries[split.name] = entry
        class_counts[split.name] = counts
        if counted := repeat_counter.count(split):
            repeats[split.name] = counted
    return entries, class_counts, repeats


def finish_build(
    plan: BuildPlan,
    split_params: Sequence[BaseSplitParams],
    units: Sequence[UnitResult],
    additions: CardAdditions,
) -> Card:
    """Write splits, README and card for the shards of all ``units``, which are in order.

    The first split is the default. Raises ``DamagedInput`` if two records have the same key, or a
    split has a record twice.
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

    # 1. Read the shards back, so that the card describes what is on disk, and write the splits.
    shards = [ShardEntry(file=unit.file, **unit.card_fields) for unit in units]
    structures = [unit.structure for unit in units]
    records = read_record_table(folder, shards, schema, structures)
    records = replace(records, given_parts=additions.given_parts)
    statistics = {**sum_statistics(unit.statistics for unit in units), **additions.statistics}
    if skipped:
        statistics["skipped"] = skipped
    splits, split_class_counts, repeats = _write_splits(plan, split_params, records, schema)
    if repeats:
        statistics["repeats"] = repeats

    # 2. Compare with the published counts, and collect notes.
    has_published_counts = manifest.expected.graphs is not None
    differences: list[str] = []
    if has_published_counts and not raw.sample:
        has_default_parameters = not params.model_dump(exclude_defaults=True)
        differences += differing_counts(
            manifest, statistics, splits, compare_averages=has_default_parameters
        )
    notes = [
        *manifest.notes,
        *additions.notes,
        *_build_notes(raw.sample, statistics["graphs"], differences, skipped),
    ]
    if not has_published_counts and not raw.sample:
        notes += _notes_on_empty_classes(schema, statistics["classes"])

    # 3. Write the card last: a folder without one is an unfinished build.
    counts = {name: statistics.pop(name) for name in COUNTS}
    statistics["classes"] = {"total": statistics["classes"], "splits": split_class_counts}
    card = Card(
        dataset=manifest.name,
        manifest=manifest.registered_name,
        pipeline=manifest.pipeline,
        title=manifest.title,
        key=plan.key,
        sample=raw.sample,
        complete=not raw.sample and not differences if has_published_counts else None,
        pinned=bool(raw.pinned) and not raw.sample,
        parameters=params.identity(),
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
        statistics=statistics,
        versions=versions_affecting_bytes(),
        notes=notes,
    )
    finish_folder(folder, card)
    return read_card(folder)


def _notes_on_empty_classes(schema: Schema, counts: Sequence[int]) -> list[str]:
    """Return a note if a class of the user's own data never occurs: the labels may be misread."""
    empty = [str(number) for number, count in enumerate(counts) if not count]
    if not empty or schema.y_column is None:
        return []
    label = schema.y_column
    classes = ", ".join(empty[:_MAX_LISTED_CLASSES])
    if len(empty) > _MAX_LISTED_CLASSES:
        classes += ", …"
    last = len(counts) - 1
    return [f"no {label.level} has the class {classes}; classes are 0 to {last} ({label.doc})"]


def _build_notes(
    sample: bool,
    graphs: int,
    differences: Sequence[str],
    skipped: Sequence[Sequence[str]],
) -> list[str]:
    """Return notes on a sample, a build of part of the dataset, and skipped records."""
    notes = []
    if sample:
        notes.append(
            f"SAMPLE: {count_with_noun(graphs, 'graph')} generated in the upstream layout; not the real data."
        )
    elif differences:
        notes.append(f"Partial, not the counts of the complete set: {'; '.join(differences)}.")
    if skipped:
        notes.append(
            f"Skipped {count_with_noun(len(skipped), 'record')} that could not be built "
            f"(statistics.skipped of {CARD_NAME} has the reasons)."
        )
    return notes


def differing_counts(
    manifest: Manifest,
    counts: JsonObject,
    splits: Mapping[str, SplitEntry],
    *,
    compare_averages: bool,
) -> Iterator[str]:
    """Describe the published counts that differ from the build.

    Published averages of nodes and edges hold only for the default parameters.
    """
    expected = manifest.expected
    graphs = counts["graphs"]
    if graphs != expected.graphs:
        yield f"{graphs:,} of the {expected.graphs:,} graphs"
    for unit, published in (("nodes", expected.avg_nodes), ("edges", expected.avg_edges)):
        mean = counts[unit] / max(graphs, 1)
        if (
            compare_averages
            and published is not None
            and abs(mean - published) > _RELATIVE_TOLERANCE * published
        ):
            yield f"{mean:,.4f} {unit} per graph, published are {published:,.4f}"
    # A partial build may lack some classes.
    classes = counts["classes"]
    missing = classes.count(0)
    if missing and len(classes) == len(manifest.class_names):
        yield f"{len(classes) - missing} of the {len(classes)} classes"

    for name, sizes in expected.splits.items():
        if name not in splits:
            continue
        for part, size in sizes.items():
            entry = splits[name].parts.get(part)
            actual_size = 0
            if entry is not None:
                actual_size = entry.nodes if expected.graphs == 1 else entry.graphs
            if actual_size != size:
                yield f"{actual_size:,} of {size:,} in {part} of the split {name!r}"
