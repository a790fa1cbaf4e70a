"""Line of Python that writes the graph of a MATLAB file as ``.npz``; its arrays are found by names and shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput
from kmip_data.format.split_files import PARTS, part_name

#: Names of labels, in small letters.
_LABELS = {"y", "label", "labels", "gnd", "group", "groups", "class", "classes"}
_EDGES = ("edge_index", "edges")
#: Names of positions or flags of the nodes of a part, in small letters: trainIdx, test_mask.
_OF_PART = re.compile(r"(.+?)_?(?:idx|ids?|index|indices|inds?|masks?|set|nodes)")
_MOST_VALUES = 10**7  #: values of a variable that is looked at


def matlab_variables(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the variables of a file."""
    from scipy import io

    try:
        return {variable: tuple(shape) for variable, shape, _ in io.whosmat(path)}
    except Exception as error:  # a parser of untrusted bytes
        raise DamagedInput(f"{path.name} is a damaged file of MATLAB: {error}.") from error


def matlab_recipe(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return the line that writes edges, features, labels, split and class names as ``.npz``.

    MATLAB counts from 1: 1 is subtracted from positions without a 0, and from labels that begin with 1.
    """
    # 1. An array of edges, or the first square matrix; then what has a value for each of its nodes.
    square = [variable for variable, shape in shapes.items() if len({*shape}) == 1 < max(shape)]
    listed = [key for key in _EDGES if 2 in shapes.get(key, ())]
    nodes = shapes[square[0]][0] if square else 0
    if listed:
        edges = f"edges = mat[{listed[0]!r}]{_index_shift(path, shapes, listed)}"
        arrays = f"{listed[0]}=edges"
        nodes = next((max(shape) for shape in shapes.values() if 1 in shape and max(shape) > 1), 0)
    else:
        edges = f"edges = scipy.sparse.coo_array(mat[{(square or ['NAME'])[0]!r}])"
        arrays = "edge_index=[edges.row, edges.col], edge_weight=edges.data"
    parts: dict[str, str] = {}
    for name in shapes:
        part = _part_of(name)
        if part and part not in parts.values():
            parts[name] = part
    used = {*square, *listed, *parts}
    of_nodes = [name for name in shapes if nodes in shapes[name] and name not in used]
    flat = [name for name in of_nodes if math.prod(shapes[name]) == nodes]
    labels = [name for name in of_nodes if name.lower() in _LABELS] or flat
    labels.sort(key=lambda name: name not in flat)
    features = [name for name in of_nodes if name not in {*labels, *flat}]

    # 2. Features and labels, dense.
    for variable in features[:1]:
        arrays += f", x=scipy.sparse.coo_array(mat[{variable!r}]).toarray()"
    for variable in labels[:1]:
        dense = f"scipy.sparse.coo_array(mat[{variable!r}]).toarray()"
        values = _read_values(path, shapes, variable)
        arrays += f", labels={dense}" + ".ravel()" * (variable in flat)
        if variable in flat and values.size and np.nanmin(values) == 1:
            arrays += " - 1"
        classes = np.unique(values[~np.isnan(values)]).size

        # 3. A cell array with a text for each class.
        for name, shape in shapes.items():
            if (
                name not in {*used, *of_nodes}
                and math.prod(shape) == classes
                and "name" in name.lower()
            ):
                arrays += f", class_names=[str(name.item()) for name in mat[{name!r}].ravel()]"

    # 4. Flags or positions of each part.
    flags = [name for name in parts if math.prod(shapes[name]) == nodes]
    positions = [name for name in parts if name not in flags]
    shift = _index_shift(path, shapes, positions)
    for name, part in parts.items():
        if name in flags:
            arrays += f", {part}_mask=mat[{name!r}].ravel().astype(bool)"
        else:
            arrays += f", {part}_idx=mat[{name!r}].ravel(){shift}"
    name = path.with_suffix(".npz").name
    return f"mat = scipy.io.loadmat({path.name!r}); {edges}; numpy.savez({name!r}, {arrays})"


def _part_of(name: str) -> str:
    """Return the part whose nodes a variable chooses by its name; empty for other variables."""
    match = _OF_PART.fullmatch(name.lower())
    part = part_name(match.group(1)) if match else None
    return part if part in PARTS else ""


def _index_shift(path: Path, shapes: Mapping[str, tuple[int, ...]], names: list[str]) -> str:
    """Return the text that makes positions count from 0, where no variable has a 0."""
    values = [_read_values(path, shapes, name) for name in names]
    has_zero = any((array == 0).any() for array in values)
    return "" if has_zero or not sum(array.size for array in values) else " - 1"


def _read_values(path: Path, shapes: Mapping[str, tuple[int, ...]], name: str) -> Array:
    """Return the numbers of a variable, float64; none of a large one, or of other values."""
    from scipy import io, sparse

    nothing = np.empty(0)
    if math.prod(shapes[name]) > _MOST_VALUES:
        return nothing
    try:
        values = io.loadmat(path, variable_names=[name])[name]
        dense: Array = sparse.coo_array(values).toarray().astype(np.float64)
    except Exception:  # noqa: BLE001 -- a parser of untrusted bytes
        return nothing
    return dense
