"""Parts of a split read from masks and indices, such as ``train_mask`` and ``val_idx``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from kmip_data.arrays import I64, U8, Array
from kmip_data.errors import DamagedInput
from kmip_data.format.split_files import NO_PART, PART_CODES, PARTS, part_name

#: name of an array -> part, and the kind of the array: booleans (``mask``) or indices (``idx``)
PART_ARRAYS = {
    f"{name}_{kind}": (part_name(name), kind)
    for name in (*PARTS, "valid")
    for kind in ("mask", "masks", "idx")
}

_COMMON_PART_NAMES = {"train", "val", "valid", "validation", "test"}


def part_code(string: str) -> int | None:
    """Return the code of a part by its name; ``None`` if it is unknown."""
    return PART_CODES.get(part_name(string) or "") if string else NO_PART


def are_parts(values: Collection[object]) -> bool:
    """True for the values of a column of parts.

    These have a common name of a part, or are only names of parts, of more than one part: ``te``
    among other strings is a language.
    """
    strings = {str(value).strip().lower() for value in values} - {""}
    codes = {part_code(string) for string in strings}
    has_common_name = not strings.isdisjoint(_COMMON_PART_NAMES)
    return has_common_name or (len(codes) > 1 and None not in codes)


def is_index_array(name: str) -> bool:
    """True if an array of this name holds indices of nodes."""
    return PART_ARRAYS.get(name, ("", ""))[1] == "idx"


def masks_by_part(arrays: Mapping[str, Array], nodes: int, where: str) -> dict[str, Array]:
    """Return the mask of each part, (N,) or (N, folds), from arrays named as in :data:`PART_ARRAYS`."""
    masks: dict[str, Array] = {}
    for name, array in arrays.items():
        part = PART_ARRAYS[name][0] or ""
        if part in masks:
            raise DamagedInput(f"{where}: {part} is given twice: {', '.join(arrays)}.")
        if is_index_array(name):
            masks[part] = np.zeros(nodes, bool)
            masks[part][_check_indices(name, array, nodes, where)] = True
        else:  # some datasets store (folds, N)
            masks[part] = array.T if array.shape[-1:] == (nodes,) else array
    return masks


def _check_indices(name: str, array: Array, nodes: int, where: str) -> I64:
    """Return indices of nodes as int64; raise ``DamagedInput`` for fractions and unknown nodes."""
    if array.dtype.kind not in "iuf" or (array != np.rint(array)).any():
        raise DamagedInput(
            f"{where}: {name} is {array.dtype}, not integers.",
            steps="write indices of nodes, from 0",
        )
    outside = array[(array < 0) | (array >= nodes)]
    if outside.size:
        problem = f"{outside[0]:.0f}, which is not an index of {nodes:,} nodes"
        remedy = f"write indices from 0 to {nodes - 1}"
        if (outside == nodes).all() and array.min() > 0:
            problem = f"{nodes}, one beyond the last node: indices start at 0"
            remedy = "subtract 1 from it, and from the other parts, if they count from 1"
        raise DamagedInput(f"{where}: {name} has {problem}.", steps=remedy)
    return array.astype(np.int64)


def part_codes(masks: Mapping[str, Array], nodes: int, where: str) -> U8:
    """Return the part of each node, (N,) or (N, folds), from the result of :func:`masks_by_part`."""
    ordered_masks = [masks.get(part, np.zeros(nodes, bool)) for part in PARTS]
    folds = {mask.shape[1] for mask in ordered_masks if mask.ndim == 2} or {1}
    if len(folds) > 1:
        raise DamagedInput(f"{where}: masks of {sorted(folds)} splits.")
    codes = []
    for fold in range(max(folds)):
        fold_masks = [mask[:, fold] if mask.ndim == 2 else mask for mask in ordered_masks]
        codes.append(part_codes_from_masks(fold_masks, nodes, where))
    return codes[0] if len(codes) == 1 else np.stack(codes, axis=1)


def part_codes_from_masks(
    masks: Sequence[Array], nodes: int, where: str, dtype_kinds: str = "biu"
) -> U8:
    """Return the part of each node (N,) from its train, val and test masks; 255 is no part.

    Raises ``DamagedInput``, with a message that starts with ``where``, if a mask is not 0 and 1 for
    every node in a dtype of one of the kinds, or if a node is in two parts.
    """
    codes = np.full(nodes, NO_PART, np.uint8)
    for code, (part, mask) in enumerate(zip(PARTS, masks, strict=True)):
        is_binary = mask.dtype.kind in dtype_kinds and np.isin(mask, (0, 1)).all()
        if mask.shape != (nodes,) or not is_binary:
            raise DamagedInput(
                f"{where}: the mask of {part} is {mask.dtype} {mask.shape}, "
                f"not 0 and 1 of {nodes:,} nodes."
            )
        is_in_part = mask.astype(bool)
        duplicates = np.flatnonzero(is_in_part & (codes != NO_PART))
        if len(duplicates):
            raise DamagedInput(f"{where}: node {duplicates[0]} is in two parts.")
        codes[is_in_part] = code
    return codes
