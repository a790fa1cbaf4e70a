"""Split files from positions or masks that were given with the graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import I64
from kmip_data.errors import UsageError
from kmip_data.format.build_files import write_split_file
from kmip_data.format.card import SplitEntry
from kmip_data.format.splits import NO_PART, NODE_PARTS, encode_node_split, encode_split
from kmip_data.saving.plain import PlainGraph

Positions = Sequence[int] | NDArray[Any] | Any  #: indices or a boolean mask; a torch tensor too

RULE: Final = "given"  #: name of the split and its rule
MASKS: Final = {f"{part}_mask": part for part in NODE_PARTS}  #: attribute of a single graph to part


def masks_of(graph: PlainGraph) -> dict[str, NDArray[np.bool_]] | None:
    """Return the parts that the masks of a graph give, ``None`` unless all three exist and are disjoint."""
    masks = {part: graph.values[name] for name, part in MASKS.items() if name in graph.values}
    plain = len(masks) == len(MASKS) and all(
        mask.dtype == np.bool_ and mask.shape == (graph.num_nodes,) for mask in masks.values()
    )
    return masks if plain and np.sum(list(masks.values()), axis=0).max(initial=0) <= 1 else None


def write_node_split(folder: Path, split: Mapping[str, Positions], nodes: int, edges: int) -> SplitEntry:
    """Write the split of the nodes of a single graph and describe it; raises as :func:`write_split`."""
    code = np.full(nodes, NO_PART, np.uint8)
    for part, chosen in split.items():
        rows = _positions(chosen, nodes, part)
        if (code[rows] != NO_PART).any() or len(np.unique(rows)) != len(rows):
            raise UsageError("The split has a node twice.", expected="disjoint parts", found=f"in {part!r}")
        code[rows] = NODE_PARTS[part]
    encoded = encode_node_split(code, rule=RULE, parameters={})
    sizes = {part: (1, int((code == value).sum()), edges) for part, value in NODE_PARTS.items()}
    return write_split_file(folder, RULE, encoded, sizes, rule=RULE, parameters={})


def write_split(folder: Path, split: Mapping[str, Positions], keys: Sequence[str], sizes: I64) -> SplitEntry:
    """Write the split of several graphs, of these ``keys`` and nodes and edges (G, 2), and describe it.

    Raises ``UsageError`` where a part has a name other than train, val or test, or a position is out of
    range; ``DamagedInput`` where a graph is in two parts.
    """
    parts = {part: _positions(chosen, len(keys), part) for part, chosen in split.items()}
    encoded = encode_split(parts, rule=RULE, parameters={}, keys=keys)
    counts = {part: (len(rows), *sizes[rows].sum(axis=0).tolist()) for part, rows in parts.items()}
    return write_split_file(folder, RULE, encoded, counts, rule=RULE, parameters={})


def _positions(chosen: Positions, count: int, part: str) -> I64:
    """Return indices, given as such or as a boolean mask."""
    array = np.asarray(chosen)
    if part in NODE_PARTS and array.dtype == np.bool_ and array.shape == (count,):
        return np.flatnonzero(array)
    whole = array.ndim == 1 and (array.dtype.kind in "iu" or not array.size)
    fits = whole and (not array.size or (array.min() >= 0 and array.max() < count))
    if part not in NODE_PARTS or not fits:
        found = f"{array.dtype} {list(array.shape)}"
        if whole and array.size:
            found += f", {array.min()} to {array.max()}"
        raise UsageError(
            f"The part {part!r} of the split does not fit.",
            expected=f"train, val or test: positions from 0 to {count - 1}, or a boolean mask [{count}]",
            found=found,
            left="nothing",
        )
    return array.astype(np.int64)
