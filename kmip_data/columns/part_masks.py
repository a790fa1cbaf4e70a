"""Masks and positions that divide nodes into train, val and test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kmip_data.arrays import I64, U8, Array
from kmip_data.errors import DamagedInput
from kmip_data.format.split_files import NO_PART, PARTS, part_name

#: Name of an array -> the part whose nodes it chooses, and how: flags (``mask``), or positions (``idx``).
MASKS = {
    f"{name}_{kind}": (part_name(name), kind)
    for name in (*PARTS, "valid")
    for kind in ("mask", "masks", "idx")
}


def holds_positions(name: str) -> bool:
    """True if an array of this name holds positions of nodes."""
    return MASKS.get(name, ("", ""))[1] == "idx"


def masks_by_part(arrays: Mapping[str, Array], nodes: int, where: str) -> dict[str, Array]:
    """Return a flag of each node by part, (N,) or (N, folds), from arrays with names in :data:`MASKS`."""
    by_part: dict[str, Array] = {}
    for name, array in arrays.items():
        part = MASKS[name][0] or ""
        if part in by_part:
            raise DamagedInput(f"{where}: {part} is given twice: {', '.join(arrays)}.")
        if not holds_positions(name):  # as many rows as nodes, or as many columns
            by_part[part] = array.T if array.shape[-1:] == (nodes,) else array
            continue
        by_part[part] = np.zeros(nodes, bool)
        by_part[part][_integer_positions(name, array, nodes, where)] = True
    return by_part


def _integer_positions(name: str, array: Array, nodes: int, where: str) -> I64:
    """Return positions of nodes as integers; raise ``DamagedInput`` for fractions and others."""
    if array.dtype.kind not in "iuf" or (array != np.rint(array)).any():
        raise DamagedInput(
            f"{where}: {name} is {array.dtype}, not integers.",
            next=f"write {name} as positions of nodes, from 0",
        )
    outside = array[(array < 0) | (array >= nodes)]
    if outside.size:
        problem = f"{outside[0]:.0f}, which is no position of {nodes:,} nodes"
        step = f"write positions from 0 to {nodes - 1}"
        if (outside == nodes).all() and array.min() > 0:
            problem = f"{nodes}, one beyond the last node: positions begin with 0"
            step = f"subtract 1 from {name}, and from the other parts, if they count from 1"
        raise DamagedInput(f"{where}: {name} has {problem}.", next=step)
    return array.astype(np.int64)


def codes_of_parts(by_part: Mapping[str, Array], nodes: int, where: str) -> U8:
    """Return the part of each node, (N,) or (N, folds), by the masks of :func:`masks_by_part`."""
    masks = [by_part.get(part, np.zeros(nodes, bool)) for part in PARTS]
    folds = {mask.shape[1] for mask in masks if mask.ndim == 2} or {1}
    if len(folds) > 1:
        raise DamagedInput(f"{where}: masks of {sorted(folds)} splits.")
    codes = []
    for fold in range(max(folds)):
        columns = [mask[:, fold] if mask.ndim == 2 else mask for mask in masks]
        codes.append(codes_of_masks(columns, nodes, where))
    return codes[0] if len(codes) == 1 else np.stack(codes, axis=1)


def codes_of_masks(masks: Sequence[Array], nodes: int, where: str, kinds: str = "biu") -> U8:
    """Return the part of each node, (N,), by the masks of train, val and test, 255 for none.

    Raises ``DamagedInput``, which begins with ``where``, for anything but 0 and 1 of every node, in
    a dtype of one of the ``kinds``, and where a node is in two parts.
    """
    codes = np.full(nodes, NO_PART, np.uint8)
    for code, (part, mask) in enumerate(zip(PARTS, masks, strict=True)):
        is_flag = mask.dtype.kind in kinds and np.isin(mask, (0, 1)).all()
        if mask.shape != (nodes,) or not is_flag:
            raise DamagedInput(
                f"{where}: the mask of {part} is {mask.dtype} {mask.shape}, "
                f"not 0 and 1 of {nodes:,} nodes."
            )
        chosen = mask.astype(bool)
        # Refuse a node in two parts, which would be in train and test.
        twice = np.flatnonzero(chosen & (codes != NO_PART))
        if len(twice):
            raise DamagedInput(f"{where}: node {twice[0]} is in two parts.")
        codes[chosen] = code
    return codes
