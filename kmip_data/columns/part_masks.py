"""Masks and positions that divide nodes into train, val and test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kmip_data.arrays import U8, Array
from kmip_data.errors import DamagedInput
from kmip_data.format.split_files import NO_PART, PARTS, part_name

#: Name of an array -> the part whose nodes it chooses, and how: flags (``mask``), or positions (``idx``).
MASKS = {
    f"{name}_{kind}": (part_name(name), kind)
    for name in (*PARTS, "valid")
    for kind in ("mask", "masks", "idx")
}


def is_positions(name: str) -> bool:
    """True if an array of this name holds positions of nodes."""
    return MASKS.get(name, ("", ""))[1] == "idx"


def masks_by_part(arrays: Mapping[str, Array], nodes: int, where: str) -> dict[str, Array]:
    """Return a flag of each node by part, (N,) or (N, folds), from arrays with names in :data:`MASKS`."""
    by_part: dict[str, Array] = {}
    for name, array in arrays.items():
        part = MASKS[name][0] or ""
        if part in by_part:
            raise DamagedInput(f"{where}: {part} is given twice: {', '.join(arrays)}.")
        if not is_positions(name):  # as many rows as nodes, or as many columns
            by_part[part] = array.T if array.shape[-1:] == (nodes,) else array
            continue
        is_inside = not array.size or (array.min() >= 0 and array.max() < nodes)
        if array.dtype.kind not in "iu" or not is_inside:
            raise DamagedInput(f"{where}: {name} does not hold positions of {nodes:,} nodes.")
        by_part[part] = np.zeros(nodes, bool)
        by_part[part][array] = True
    return by_part


def codes_of_parts(by_part: Mapping[str, Array], nodes: int, where: str) -> U8:
    """Return the part of each node, (N,) or (N, folds), by the masks of :func:`masks_by_part`."""
    masks = [by_part.get(part, np.zeros(nodes, bool)) for part in PARTS]
    folds = {mask.shape[1] for mask in masks if mask.ndim == 2} or {1}
    if len(folds) > 1:
        raise DamagedInput(f"{where}: masks of {sorted(folds)} splits.")
    codes = []
    for fold in range(max(folds)):
        columns = [mask[:, fold] if mask.ndim == 2 else mask for mask in masks]
        codes.append(part_codes(columns, nodes, where))
    return codes[0] if len(codes) == 1 else np.stack(codes, axis=1)


def part_codes(masks: Sequence[Array], nodes: int, where: str, kinds: str = "biu") -> U8:
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
