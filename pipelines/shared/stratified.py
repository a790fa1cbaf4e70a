"""The stratified split of any dataset: parts as large as its own rule's, with equal shares of classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmip_data.format.splits import NO_PART, PARTS
from kmip_data.graphs.splits import meta_labels, stratified_parts
from kmip_data.pipelines.base import Pipeline, Records, Split, SplitParams


def apply_split(
    pipeline: Pipeline[Any, Any], records: Records, params: SplitParams, raw: Path | None
) -> Split:
    """Apply the rule that ``params`` names: the dataset's own, or the stratified one, which all have."""
    if params.split == "stratified":
        return _stratified_split(pipeline, records, params, raw)
    return pipeline.split(records, params, raw)


def _stratified_split(
    pipeline: Pipeline[Any, Any], records: Records, params: SplitParams, raw: Path | None
) -> Split:
    """Deal the records that the dataset's default rule deals to ``pipeline.stratified_parts`` anew.

    Graphs are told apart by their label, by their set of labels where several may hold, or by the most
    frequent class of their nodes; the nodes of a single graph by their own. The rule is LRGB's
    (:func:`~kmip_data.graphs.splits.stratified_draw`).
    """
    default = type(params).model_fields["split"].default
    own = pipeline.split(records, params.model_copy(update={"split": default}), raw)
    name = f"stratified{own.name.removeprefix(own.rule)}"
    if (seed := f"-seed{params.split_seed}") not in name:
        name += seed
    if own.node_code is not None:
        codes = _deal_nodes(own.node_code, records, params.split_seed)
        note = "nodes dealt at random with equal shares of the classes"
        return Split(name, "stratified", own.parameters, note=note, node_code=codes)
    labels, what = graph_labels(records, pipeline.background)
    chosen = [part for part in PARTS if part in pipeline.stratified_parts]
    pool = np.asarray(pipeline.pool_order([own.parts[part] for part in chosen], labels), np.int64)
    sizes = {part: len(own.parts[part]) for part in chosen}
    dealt = stratified_parts(labels[pool], sizes, seed=params.split_seed)
    parts = {**own.parts, **{part: pool[rows].tolist() for part, rows in dealt.items()}}
    return Split(name, "stratified", own.parameters, parts, f"{', '.join(chosen)} dealt anew by {what}")


def graph_labels(records: Records, background: int | None) -> tuple[NDArray[np.int64], str]:
    """Return the label that each graph is stratified by, (G,), and what it is in words."""
    column, classes = records.label, records.classes
    if column is None or not classes.shape[1]:
        return np.zeros(len(records.keys), np.int64), "chance alone: there are no classes"
    if column.level == "node":
        return meta_labels(classes, background), "the most frequent class of their nodes"
    if not column.shape:
        return classes.argmax(axis=1), "their class"
    _, label = np.unique(classes, axis=0, return_inverse=True)
    return label.reshape(-1).astype(np.int64), "the set of their labels"


def _deal_nodes(codes: NDArray[np.uint8], records: Records, seed: int) -> NDArray[np.uint8]:
    """Deal the nodes of one graph, but those that are in no part."""
    nodes = np.flatnonzero(codes != NO_PART)
    labels = np.zeros(len(codes), np.int64) if records.node_labels is None else records.node_labels[0]
    sizes = {part: int((codes == code).sum()) for code, part in enumerate(PARTS)}
    dealt = codes.copy()
    for code, rows in enumerate(stratified_parts(labels[nodes], sizes, seed=seed).values()):
        dealt[nodes[rows]] = code
    return dealt
