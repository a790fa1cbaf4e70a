"""Files with the arrays of one graph: ``.npz`` of numpy and scipy, and ``.mtx`` of Matrix Market.

A ``.npz`` has adjacency, features and labels; a ``.mtx`` has only the adjacency matrix.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from kmip_data.arrays import I64, Array, format_shape_pattern
from kmip_data.columns.labels import mask_changed_by_float32
from kmip_data.columns.part_masks import PART_ARRAYS
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.small_files import first_problem
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import (
    Attributes,
    Findings,
    Notices,
    register_part_masks,
)
from kmip_data.pipelines.datasets.graphs.graph_format import COMMON_PARAMETERS, GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.formats.file_heads import decompressed_head, first_member
from kmip_data.pipelines.formats.npz import NpzFile
from kmip_data.pipelines.graph_arrays.graph_checks import check_raw_edges, count_nodes

_EXPECTED = (
    "npz of scipy's save_npz, or with adj_data, adj_indices, …, attr_* and labels; "
    "or .mtx of Matrix Market"
)
#: First bytes of files.
_MATRIX_MARKET = b"%%MatrixMarket"
_NPY = b"\x93NUMPY"
_REMEDY = (
    "numpy.savez({file!r}, edge_index=edges, x=features, labels=labels), of (2, edges), (nodes, columns) "
    "and (nodes,) numbers"
)
#: Array names: prefix of the parts of a sparse matrix, or name of a dense matrix.
_ADJACENCY = ("adj_matrix.", "adj_matrix_", "adj_", "")
_FEATURES = ("attr_matrix.", "attr_matrix_", "attr_", "x", "features", "node_features")
#: Name of the edges -> axis of the two ends: (2, E) of PyTorch Geometric, (E, 2) of Platonov et al.
_EDGES = {"edge_index": 0, "edges": 1}
_EDGE_ATTRIBUTES = ("edge_attr", "edge_weight", "edge_features")
_CLASS_NAMES = "class_names"
#: Memory per array byte: features as stored, as coordinates, and dense.
_BYTES_PER_ARRAY_BYTE = 6
#: Memory per stored entry of a .mtx: both halves of a symmetric matrix, and its edges.
_BYTES_PER_ENTRY = 48


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True if all files are zips of arrays or Matrix Market; also ``.npy``, to refuse it."""
    return all(
        first_member(head).endswith(b".npy") or head.startswith((_MATRIX_MARKET, _NPY))
        for head in heads.values()
    )


def read(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graph of each file."""
    for file in files:
        path = folder / file
        try:
            head = decompressed_head(path)
            if head.startswith(_NPY):
                raise _array_error(path)
            if head.startswith(_MATRIX_MARKET):
                yield _read_matrix_market(path, file, options)
            else:
                has_many_graphs = len(files) > 1
                yield _read_npz(
                    NpzFile(path), file, options, findings, has_many_graphs=has_many_graphs
                )
        except DamagedInput as error:
            error.steps = error.steps or [_REMEDY.format(file=path.name)]
            raise
        except UsageError:
            raise
        # scipy raises these for invalid matrices, and numpy for values beyond float32.
        except (ValueError, TypeError, ArithmeticError, OSError) as error:
            remedy = _REMEDY.format(file=path.name)
            if path.suffix == ".mtx":
                remedy = (
                    f"scipy.io.mmwrite({path.name!r}, matrix), square and real; "
                    "of two kinds of nodes: "
                    "matrix = scipy.sparse.block_array([[None, matrix], [matrix.T, None]])"
                )
            raise DamagedInput(
                f"{file} has no graph: {first_problem(error)}.", expected=_EXPECTED, steps=remedy
            ) from error


def _array_error(path: Path) -> DamagedInput:
    """Return the error for a single array, with the code that converts it."""
    return DamagedInput(
        f"{path.name} is a single array.",
        expected=_EXPECTED,
        steps="an adjacency matrix: scipy.sparse.save_npz('graph.npz', scipy.sparse.coo_array("
        f"numpy.load({path.name!r}))); edges: numpy.savez('graph.npz', edge_index=numpy.load({path.name!r}))",
    )


def _read_matrix_market(path: Path, name: str, options: ReadOptions) -> GraphRecord:
    """Read an adjacency matrix; a symmetric one has each edge in both directions."""
    from scipy import io, sparse

    rows, columns, entries, _, values, _ = io.mminfo(path)
    if rows != columns or values == "complex":
        raise ValueError(f"{rows:,} x {columns:,} {values} values")
    options.check_memory(_BYTES_PER_ENTRY * entries + 8 * rows, name)
    source: Path | BytesIO = path
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            # scipy's parser reads past a number that is cut at the end of a file, and crashes.
            options.check_memory(2 * path.stat().st_size, name)
            source = BytesIO(path.read_bytes() + b"\n")
    edges, weights = _edges_and_weights(sparse.coo_array(io.mmread(source, spmatrix=False)))
    check_raw_edges(edges, rows, name)
    key = str(Path(name).with_suffix(""))
    return GraphRecord(key=key, num_nodes=rows, columns=weights, edge_index=edges.astype(np.int64))


@np.errstate(over="raise")
def _read_npz(
    file: NpzFile, name: str, options: ReadOptions, findings: Findings, *, has_many_graphs: bool
) -> GraphRecord:
    """Read the graph in a ``.npz``."""
    options.check_memory(_BYTES_PER_ARRAY_BYTE * file.size, name)

    # 1. Edges, and features that are still sparse: a small file may declare any shape.
    edge_list = next((key for key in _EDGES if key in file.names), None)
    columns: dict[str, Array] = {}
    nodes = 0
    if edge_list:
        edges = _read_edge_list(file, edge_list)
    else:
        edges, nodes, columns = _read_adjacency(file)
    features = _read_matrix(file, _FEATURES)
    if features is not None:
        nodes = nodes or features.shape[0]
        if features.shape[0] != nodes:
            raise ValueError(f"features have the shape {features.shape} for {nodes:,} nodes")

    # 2. The number of nodes: labels also count nodes without edges, but in one of many graphs they
    # may be targets of the graph.
    label = options.find_label(file.names, known_names.ARRAY_LABELS, name)
    y = np.atleast_1d(file.read_array(label, "biufSU")) if label else np.empty(0)
    if y.dtype.kind in "SU":
        y = y.astype(str).astype(object)
    nodes = nodes or max(count_nodes(edges), 0 if has_many_graphs else len(y))
    check_raw_edges(edges, nodes, name)

    # 3. Columns.
    if features is not None:
        options.check_memory(12 * math.prod(features.shape), name)
        columns["node/x"] = _as_floats(features.toarray()).reshape(nodes, -1)
    if edge_list:
        columns |= _read_edge_attributes(file, edges)
    if label:
        level = "node" if len(y) == nodes else "graph"
        targets = y if level == "node" else y.reshape(1, -1)
        columns |= findings.attributes.add_targets(label, targets, level, options.params.task)
    masks = {key: file.read_array(key) for key in PART_ARRAYS if key in file.names}
    columns |= register_part_masks(
        masks, nodes, name, options, findings, masks_are_flags=has_many_graphs
    )
    _read_class_names(file, findings.attributes)

    has_weights = not edge_list or "edge/edge_attr" in columns
    absent = {
        "x": nodes if features is None else 0,
        "edge_weight": 0 if has_weights else edges.shape[1],
    }
    _note_ignored_arrays(file, absent, findings.notices)
    key = str(Path(name).with_suffix(""))
    return GraphRecord(key=key, num_nodes=nodes, columns=columns, edge_index=edges)


def _read_edge_list(file: NpzFile, key: str) -> Array:
    """Return the edges (2, E) of an array of either orientation."""
    edges = file.read_array(key, "iu")
    if edges.ndim != 2 or 2 not in edges.shape:
        raise ValueError(f"{key} has the shape {edges.shape}")
    axis = _EDGES[key]
    if edges.shape[axis] != 2:  # only the other axis can hold the ends
        axis = 1 - axis
    return edges.T if axis else edges


def _read_adjacency(file: NpzFile) -> tuple[Array, int, dict[str, Array]]:
    """Return the edges (2, E), number of nodes and weights of an adjacency matrix."""
    matrix = _read_matrix(file, _ADJACENCY)
    if matrix is None:
        raise ValueError(f"no adjacency among its arrays {', '.join(file.names)}")
    nodes = matrix.shape[0]
    if matrix.shape != (nodes, nodes):
        raise ValueError(f"the adjacency has the shape {matrix.shape}")
    edges, weights = _edges_and_weights(matrix)
    return edges, nodes, weights


def _read_edge_attributes(file: NpzFile, edges: Array) -> dict[str, Array]:
    """Return the attributes of listed edges (2, E), if there are any."""
    key = next((key for key in _EDGE_ATTRIBUTES if key in file.names), None)
    if key is None:
        return {}
    rows = file.read_array(key)
    if rows.shape[:1] != edges.shape[1:]:
        raise ValueError(f"{key} has the shape {rows.shape} for {edges.shape[1]:,} edges")
    return {"edge/edge_attr": _as_floats(rows.reshape(len(rows), -1))}


def _read_class_names(file: NpzFile, attributes: Attributes) -> None:
    """Read the strings ``class_names``, (C,), which must be equal in all files."""
    if _CLASS_NAMES not in file.names:
        return
    names = tuple(file.read_array(_CLASS_NAMES, "SU").astype(str).reshape(-1).tolist())
    if attributes.class_names not in {(), names}:
        raise ValueError(f"{_CLASS_NAMES} differs from the previous file")
    attributes.class_names = names


def _note_ignored_arrays(file: NpzFile, absent: Mapping[str, int], notices: Notices) -> None:
    """Note the arrays that are not read; warn of an array that may be an ``absent`` one.

    ``absent`` has the number of rows that ``x`` or ``edge_weight`` would have.
    """
    for key in [key for key in file.names if key not in file.read]:
        notices.ignored[key] = "no array of this format"
        with contextlib.suppress(DamagedInput):
            array = file.open_array(key, "biufcSUmM")
            for name, rows in absent.items():
                axes = 2 if name == "x" else 1
                fits = len(array.shape) == axes and array.shape[0] == rows > 0
                if array.dtype.kind in "biuf" and fits:
                    notices.warnings.append(
                        f"{key} {format_shape_pattern(array.shape)} is not read: if it is {name}, rename it so"
                    )


def _edges_and_weights(adjacency: Any) -> tuple[I64, dict[str, Array]]:
    """Return the edges (2, E) of a sparse matrix, and its values as ``edge_attr`` unless all are 1."""
    edges = np.stack([adjacency.row, adjacency.col])
    if (adjacency.data == 1).all():
        return edges, {}
    return edges, {"edge/edge_attr": _as_floats(adjacency.data)[:, None]}


def _as_floats(values: Array) -> Array:
    """Return numbers as float32, or as float64 if float32 would change integers."""
    return values.astype(np.float64 if mask_changed_by_float32(values).any() else np.float32)


def _read_matrix(file: NpzFile, names: Sequence[str]) -> Any:
    """Return the first existing matrix of these names, in COO format; ``None`` if there is none."""
    from scipy import sparse

    for name in names:
        if name in file.names:
            return sparse.coo_array(file.read_array(name))
        if f"{name}data" not in file.names or f"{name}shape" not in file.names:
            continue
        shape = tuple(file.read_array(f"{name}shape", "iu").tolist())
        data = file.read_array(f"{name}data")
        if f"{name}row" in file.names:
            ends = [file.read_array(f"{name}{axis}", "iu") for axis in ("row", "col")]
            return sparse.coo_array((data, tuple(ends)), shape)
        form = "csr"
        if f"{name}format" in file.names:
            form = file.read_array(f"{name}format", "SU").astype(str).item()
        if form == "dia":
            return sparse.dia_array((data, file.read_array(f"{name}offsets", "iu")), shape).tocoo()
        if form not in {"csr", "csc", "bsr"}:
            raise ValueError(f"the sparse format {form!r}")
        parts = [file.read_array(f"{name}{part}", "iu") for part in ("indices", "indptr")]
        matrix = getattr(sparse, f"{form}_array")((data, *parts), shape)
        matrix.check_format(full_check=True)
        matrix = matrix.tocoo()
        if form == "bsr":  # blocks hold zeros where no entry is
            matrix.eliminate_zeros()
        return matrix
    return None


FORMAT = GraphFormat(
    name="files of arrays",
    expected=_EXPECTED,
    recognises=recognises,
    read=read,
    parameters=COMMON_PARAMETERS | {"undirected"},
)
