"""Suggest Python code that converts a MATLAB graph to ``.npz``, by names and shapes of variables."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import first_problem
from kmip_data.format.split_files import PARTS, part_name
from kmip_data.pipelines import known_names

_EDGE_NAMES = ("edge_index", "edges")
#: Names of index or mask variables of a split part, in lower case: trainidx, test_mask.
_PART_VARIABLE = re.compile(r"(.+?)_?(?:idx|ids?|index|indices|inds?|masks?|set|nodes)")
_MAX_VALUES = 10**7  #: larger variables are not read


def matlab_variables(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each variable in a file."""
    from scipy import io

    try:
        return {variable: tuple(shape) for variable, shape, _ in io.whosmat(path)}
    except Exception as error:  # a parser of untrusted bytes
        raise DamagedInput(
            f"{path.name} is a damaged MATLAB file: {first_problem(error)}."
        ) from error


def matlab_conversion_code(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return Python code that writes edges, features, labels and split as ``.npz``.

    MATLAB counts from 1, so the code subtracts 1 from indices without a 0, and from labels from 1.
    """
    # 1. Find an edge array or the first square matrix, then the variables with a value per node.
    square = [variable for variable, shape in shapes.items() if len({*shape}) == 1 < max(shape)]
    edge_lists = [key for key in _EDGE_NAMES if 2 in shapes.get(key, ())]
    num_nodes = shapes[square[0]][0] if square else 0
    if edge_lists:
        edges = f"edges = mat[{edge_lists[0]!r}]{_index_shift_code(path, shapes, edge_lists)}"
        arrays = f"{edge_lists[0]}=edges"
        vectors = (max(shape) for shape in shapes.values() if 1 in shape and max(shape) > 1)
        num_nodes = next(vectors, 0)
    else:
        edges = f"edges = scipy.sparse.coo_array(mat[{(square or ['NAME'])[0]!r}])"
        arrays = "edge_index=[edges.row, edges.col], edge_weight=edges.data"
    parts: dict[str, str] = {}
    for name in shapes:
        part = _part_from_name(name)
        if part and part not in parts.values():
            parts[name] = part
    used = {*square, *edge_lists, *parts}
    node_variables = [name for name in shapes if num_nodes in shapes[name] and name not in used]
    node_vectors = [name for name in node_variables if math.prod(shapes[name]) == num_nodes]
    labels = [
        name for name in node_variables if name.lower() in known_names.MATLAB_LABELS
    ] or node_vectors
    labels.sort(key=lambda name: name not in node_vectors)
    features = [name for name in node_variables if name not in {*labels, *node_vectors}]

    # 2. Write features and labels as dense arrays.
    for variable in features[:1]:
        arrays += f", x=scipy.sparse.coo_array(mat[{variable!r}]).toarray()"
    for variable in labels[:1]:
        dense = f"scipy.sparse.coo_array(mat[{variable!r}]).toarray()"
        values = _read_values(path, shapes, variable)
        if variable in node_vectors:
            arrays += f", labels={dense}.ravel()"
            if values.size and np.nanmin(values) == 1:
                arrays += " - 1"
        else:
            arrays += f", labels={dense}"

    # 3. Write the mask or indices of each split part.
    masks = [name for name in parts if math.prod(shapes[name]) == num_nodes]
    indices = [name for name in parts if name not in masks]
    shift = _index_shift_code(path, shapes, indices)
    for name, part in parts.items():
        if name in masks:
            arrays += f", {part}_mask=mat[{name!r}].ravel().astype(bool)"
        else:
            arrays += f", {part}_idx=mat[{name!r}].ravel(){shift}"
    name = path.with_suffix(".npz").name
    return f"mat = scipy.io.loadmat({path.name!r}); {edges}; numpy.savez({name!r}, {arrays})"


def _part_from_name(name: str) -> str:
    """Return the split part that a variable is named after; empty for other variables."""
    match = _PART_VARIABLE.fullmatch(name.lower())
    part = part_name(match.group(1)) if match else None
    return part if part in PARTS else ""


def _index_shift_code(path: Path, shapes: Mapping[str, tuple[int, ...]], names: list[str]) -> str:
    """Return the code that makes indices zero-based; empty if a variable has a 0."""
    values = [_read_values(path, shapes, name) for name in names]
    has_zero = any((array == 0).any() for array in values)
    return "" if has_zero or not sum(array.size for array in values) else " - 1"


def _read_values(path: Path, shapes: Mapping[str, tuple[int, ...]], name: str) -> Array:
    """Return the numbers of a variable, float64; empty if it is large or not numeric."""
    from scipy import io, sparse

    empty = np.empty(0)
    if math.prod(shapes[name]) > _MAX_VALUES:
        return empty
    try:
        values = io.loadmat(path, variable_names=[name])[name]
        dense: Array = sparse.coo_array(values).toarray().astype(np.float64)
    except Exception:  # noqa: BLE001 -- a parser of untrusted bytes
        return empty
    return dense
