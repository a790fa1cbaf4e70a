"""From finished shards to a finished build: split files, README and the card, which is written last."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kmip_data
from kmip_data.errors import DamagedInput
from kmip_data.format.card import CARD_NAME, Card, ShardEntry, SplitEntry, SplitPart, read_card
from kmip_data.format.card_page import PAGE_NAME, render_card
from kmip_data.format.schema import FORMAT_VERSION, Schema
from kmip_data.graphs.statistics import count_classes, summarise
from kmip_data.pipelines.base import About, Params, Pipeline, RawFolder, Records, Split, SplitParams
from kmip_data.pipelines.engine.workers import Compression, UnitResult
from kmip_data.pipelines.finishing.completeness import differing_counts
from kmip_data.pipelines.finishing.identity import card_parameters, content_digest
from kmip_data.pipelines.splits.stratified import apply_split


def read_records(folder: Path, files: Iterable[str], schema: Schema) -> Records:
    """Read keys, sizes and class counts of all records from the shards.

    Raises
    ------
    DamagedInput
        Two records have the same key, or a label is out of range.
    """
    from kmip_data.format.contents import column_faults, refuse_faults
    from kmip_data.format.reader import Shard

    label = schema.labels
    keys: list[str] = []
    nodes, edges, classes = [], [], []
    labels: NDArray[Any] | None = None
    paths = [folder / file for file in files]
    for path in paths:
        shard = Shard(path)
        keys += shard.keys
        nodes.append(np.diff(shard.node_ptr))
        edges.append(np.diff(shard.edge_ptr))
        if label is not None and label.num_classes:
            refuse_faults(shard, column_faults(shard, label))
            starts = shard.node_ptr if label.level == "node" else np.arange(shard.graphs + 1)
            labels = shard.read(label.key, 0, int(starts[-1]))
            classes += [count_classes(labels[a:b], label) for a, b in pairwise(starts)]
    if not keys:
        raise nothing_to_build()
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DamagedInput(
            "Two records have the same key.",
            expected="keys that are unique inside a dataset",
            found=f"{twice!r} comes {keys.count(twice)} times",
            left="the shards, without a card",
            next="check the raw files: one of them may be there twice",
        )
    one_graph = len(keys) == 1 and label is not None and label.level == "node"
    return Records(
        keys,
        np.concatenate(nodes),
        np.concatenate(edges),
        np.array(classes, dtype=np.int64).reshape(len(keys), -1),
        (labels, label) if one_graph and labels is not None and label is not None else None,
        lambda key: _read_column(paths, key),
        label,
    )


def _read_column(paths: Sequence[Path], key: str) -> NDArray[Any]:
    """Read a column of all records."""
    from kmip_data.format.reader import Shard

    level = key.partition("/")[0]
    shards = [Shard(path) for path in paths]
    rows = [{"node": s.nodes, "edge": s.edges, "graph": s.graphs}[level] for s in shards]
    return np.concatenate([shard.read(key, 0, count) for shard, count in zip(shards, rows, strict=True)])


def nothing_to_build() -> DamagedInput:
    """Return the error for raw files that give no record with the parameters asked for."""
    return DamagedInput(
        "There is nothing to build.",
        expected="at least one record",
        found="none in the raw files, with these parameters",
        left="no finished build",
        next="check the parameters and the archive",
    )


def write_split(
    folder: Path, split: Split, records: Records, asked: Mapping[str, Any]
) -> tuple[SplitEntry, dict[str, list[int]]]:
    """Write ``splits/<name>.h5`` and describe it.

    Parameters
    ----------
    asked
        The split parameters that were asked for; kept in the entry beside the rule's own, so that
        the same question finds the split again.

    Returns
    -------
    entry, classes
        For the card: the split, and how often each class occurs in each part.

    Raises
    ------
    DamagedInput
        A record is in two parts, or the codes of a split of nodes do not fit the graph.
    """
    from kmip_data.format.splits import NODE_PARTS, encode_node_split, encode_split
    from kmip_data.format.writer import write_file

    parameters = {**asked, **split.parameters}
    sizes: dict[str, tuple[int, int, int]] = {}
    classes: dict[str, list[int]] = {}
    if split.node_code is None:
        parts = {name: np.asarray(rows, dtype=np.int64) for name, rows in split.parts.items()}
        data, digests = encode_split(parts, rule=split.rule, parameters=parameters, keys=records.keys)
        for name, rows in parts.items():
            sizes[name] = len(rows), int(records.nodes[rows].sum()), int(records.edges[rows].sum())
            classes[name] = records.classes[rows].sum(axis=0).tolist()
    else:
        if len(split.node_code) != records.nodes.sum():
            raise DamagedInput(
                f"The split {split.name!r} does not fit the graph.",
                expected=f"a code for each of {int(records.nodes.sum()):,} nodes",
                found=f"{len(split.node_code):,} codes",
                left="the shards, without this split",
            )
        data, digests = encode_node_split(split.node_code, rule=split.rule, parameters=parameters)
        for name, code in NODE_PARTS.items():
            chosen = split.node_code == code
            # Nodes of all parts lie in the same graph and see all of its edges.
            sizes[name] = 1, int(chosen.sum()), int(records.edges.sum())
            labels = records.node_labels
            classes[name] = [] if labels is None else count_classes(labels[0][chosen], labels[1]).tolist()
    file = f"splits/{split.name}.h5"
    write_file(folder / file, data, root=folder)
    entry = SplitEntry(
        file=file,
        sha256=hashlib.sha256(data).hexdigest(),
        rule=split.rule,
        parameters=parameters,
        parts={
            name: SplitPart(graphs=graphs, nodes=nodes, edges=edges, digest=digests[name])
            for name, (graphs, nodes, edges) in sizes.items()
        },
        note=split.note,
    )
    return entry, classes


def protect(path: Path) -> None:
    """Take the write permission off a finished shard: readers map it and trust that it does not change."""
    with contextlib.suppress(OSError):  # some network file systems have no permissions
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, os.fstat(descriptor).st_mode & ~0o222)
        finally:
            os.close(descriptor)


def write_card(folder: Path, card: Card) -> None:
    """Write the README, then the card: from here on the build is finished."""
    from kmip_data.format.writer import write_file

    write_file(folder / PAGE_NAME, render_card(card).encode())
    write_file(folder / CARD_NAME, card.to_json().encode())


def finish_build(
    pipeline: Pipeline[Any, Any],
    params: Params,
    split_params: Sequence[SplitParams],
    raw: RawFolder,
    folder: Path,
    units: Sequence[UnitResult],
    *,
    key: str,
    compression: Compression,
    about: About,
) -> Card:
    """Write splits, README and card for the shards of ``units`` (all of them, in order).

    Raises
    ------
    DamagedInput
        Two records have the same key, or a split has a record twice.
    """
    manifest = pipeline.manifest
    schema = pipeline.schema(params)
    records = read_records(folder, [unit.file for unit in units], schema)
    statistics = {**summarise(unit.statistics for unit in units), **about.statistics}
    if skipped := [entry for unit in units for entry in unit.skipped]:
        statistics["skipped"] = skipped
    statistics["classes"] = {"total": statistics["classes"], "splits": {}}
    splits: dict[str, SplitEntry] = {}
    for asked in split_params:
        split = apply_split(pipeline, records, asked, raw.path)
        if split.name in splits:
            continue
        entry, classes = write_split(folder, split, records, asked.asked())
        splits[split.name] = entry
        statistics["classes"]["splits"][split.name] = classes
    counts = {name: statistics.pop(name) for name in ("graphs", "nodes", "edges")}
    differing: list[str] = []
    if manifest.expected.graphs is not None and not raw.sample:
        total = statistics["classes"]["total"]
        usual = params == type(params)()
        differing = list(differing_counts(manifest, counts, splits, total, usual=usual))
    complete = None if manifest.expected.graphs is None else not raw.sample and not differing
    card = Card(
        dataset=manifest.name,
        manifest=manifest.file,
        pipeline=manifest.pipeline,
        title=manifest.title,
        key=key,
        sample=raw.sample,
        complete=complete,
        parameters=card_parameters(params, compression),
        pipeline_version=pipeline.version,
        format_version=FORMAT_VERSION,
        license=manifest.license.model_dump(mode="json"),
        citation=manifest.citation.strip(),
        receipts=list(raw.receipts),
        content_digest=content_digest(raw.members),
        data_schema=json.loads(schema.to_json()),
        default_split=next(iter(splits)),
        class_names=list(pipeline.class_names(params)),
        shards=[
            ShardEntry(
                file=unit.file,
                sha256=unit.sha256,
                bytes=unit.bytes,
                graphs=unit.graphs,
                nodes=unit.nodes,
                edges=unit.edges,
            )
            for unit in units
        ],
        splits=splits,
        counts=counts,
        statistics=statistics,
        versions=versions(),
        notes=[
            *manifest.notes,
            *about.notes,
            *_notes(raw.sample, counts["graphs"], differing),
            *_skipped_note(skipped),
        ],
    )
    for unit in units:
        protect(folder / unit.file)
    write_card(folder, card)
    return read_card(folder)


def versions() -> dict[str, str]:
    """Versions of what has a say in the bytes of a build."""
    import h5py

    return {
        "kmip-data": kmip_data.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": h5py.__version__,
        "hdf5": h5py.version.hdf5_version,
        "numba": metadata.version("numba"),
    }


def _notes(sample: bool, graphs: int, differing: Sequence[str]) -> list[str]:
    if sample:
        return [f"SAMPLE: {graphs:,} graphs generated in the upstream layout; not the real data."]
    return [f"Partial, not the counts of the complete set: {'; '.join(differing)}."] if differing else []


def _skipped_note(skipped: Sequence[Sequence[str]]) -> list[str]:
    if not skipped:
        return []
    shown = "; ".join(f"{key}: {reason}" for key, reason in skipped[:5])
    more = f"; … all under statistics.skipped of {CARD_NAME}" if len(skipped) > 5 else ""
    return [f"Skipped {len(skipped):,} records that could not be built: {shown}{more}"]
