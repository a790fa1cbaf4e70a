"""Files of ``torch.save``: a ``Data``, a list of them, or the collated pair of an ``InMemoryDataset``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from kmip_data.arrays import Array, shape_matches
from kmip_data.columns.attribute_levels import check_attribute_name
from kmip_data.errors import DamagedInput, Setting
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.split_files import PART_CODES, part_name
from kmip_data.pipelines.datasets.graphs.findings import (
    Findings,
    Notices,
)
from kmip_data.pipelines.datasets.graphs.graph_format import COMMON_PARAMETERS, GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.formats.file_heads import first_member
from kmip_data.pipelines.formats.pickles import SkippedObject, Value, refuse_calls
from kmip_data.pipelines.formats.tensors import (
    NUMPY_GLOBALS,
    PYG_GLOBALS,
    OldTorchFile,
    PickledData,
    separate_graphs,
    stream_items,
)
from kmip_data.pipelines.graph_arrays.graph_checks import check_raw_edges, count_nodes
from kmip_data.text import list_names

_EXPECTED = ".pt of torch.save: Data, a list of them, or (data, slices)"
#: Globals that a pickle may name: Data, dictionaries of a collated pair, and ``torch.Size``.
_ALLOWED_GLOBALS = {
    **NUMPY_GLOBALS,
    **PYG_GLOBALS,
    "collections.defaultdict": lambda *_: {},
    "builtins.dict": refuse_calls("dict"),
    "__builtin__.dict": refuse_calls("dict"),
    "torch.Size": lambda sizes=(): sizes,
    "__builtin__.set": lambda *_: SkippedObject("a set"),  # names that PyTorch Geometric caches
    "builtins.set": lambda *_: SkippedObject("a set"),
}
#: Libraries whose objects are never created; errors name the attribute that holds them.
_PLACEHOLDER_MODULES = frozenset(
    {"torch", "torch_geometric", "torch_sparse", "numpy", "scipy", "networkx", "dgl"}
)
_REMEDY = (
    "save plain Data: torch.save([Data.from_dict(data.to_dict()) for data in graphs], 'graphs.pt')"
)
#: Unsupported class, without its module -> what it is, and the code that converts ``data``.
_UNSUPPORTED_CLASSES = {
    "HeteroData": (
        "HeteroData, of several types of nodes and edges",
        "with one width of x for all types: torch.save(data.to_homogeneous(), {file!r})",
    ),
    "DynamicInheritanceGetter": (
        "a Batch, several graphs as one",
        "torch.save(data.to_data_list(), {file!r})",
    ),
    "TemporalData": (
        "TemporalData, which has no edge_index",
        "torch.save(Data(edge_index=torch.stack([data.src, data.dst]), edge_attr=data.msg, t=data.t), {file!r})",
    ),
    "Graph": (
        "a graph of networkx or DGL",
        "torch.save(torch_geometric.utils.from_networkx(data), {file!r}), or from_dgl(data)",
    ),
}
_MATRIX_REMEDY = (
    "an adjacency matrix: "
    "torch.save(Data(edge_index=data.nonzero().t(), num_nodes=len(data)), {file!r})"
)
_OBJECT_REMEDY = "torch.save(Data.from_dict(data.to_dict()), {file!r})"
#: Function of torch that rebuilds an unsupported tensor -> what it is, and the code that converts it.
_UNSUPPORTED_TENSORS = {
    "_rebuild_sparse_tensor": ("a sparse tensor", "data.{name} = data.{name}.to_dense()"),
    "_rebuild_nested_tensor": ("a nested tensor", "data.{name} = data.{name}.to_padded_tensor(0)"),
    "_rebuild_from_type_v2": ("a subclass of Tensor", "data.{name} = data.{name}.as_tensor()"),
    "_rebuild_qtensor": ("a quantized tensor", "data.{name} = data.{name}.dequantize()"),
    "_rebuild_tensor_v3": ("of a rare dtype", "data.{name} = data.{name}.to(torch.float64)"),
}
_ADJ_T_REMEDY = (
    "data.edge_index, data.edge_weight = torch_geometric.utils.to_edge_index(data.adj_t.t()); "
    "del data.adj_t"
)
#: Attributes that have a row for each node in PyTorch Geometric.
_NODE_ATTRIBUTES = ("x", "feat", "pos", "batch", "node_type", "n_id")
_EDGE_ATTRIBUTES = ("edge_attr", "edge_weight")


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True if a file is a zip with a pickle, or a bare pickle."""
    return any(
        first_member(head).endswith(b"data.pkl") or head.startswith(b"\x80")
        for head in heads.values()
    )


def read(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graphs of all files; arrays may be views of a file until the next graph.

    Files called train, val and test are parts.
    """
    parts = [PART_CODES.get(part_name(Path(file).stem) or "") for file in files]
    if None not in parts:
        findings.attributes.part_keys.append("graph/file")
    names: set[str] = set()
    for file, graph in _read_graphs(folder, files, options, findings):
        names |= graph.columns.keys()
        if None in parts:
            yield graph
        else:
            code = np.array([parts[files.index(file)]], np.uint8)
            yield replace(graph, columns={**graph.columns, "graph/file": code})
    for name in options.params.ignore:
        if name not in findings.notices.ignored:
            raise DamagedInput(
                f"No graph has an attribute {name!r}.",
                found=list_names(sorted(names), 500),
                steps="ignore one of these attributes",
            )


def _read_graphs(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[tuple[str, GraphRecord]]:
    """Yield the file and the graph, whose columns are attributes."""
    for file in files:
        prefix = f"{Path(file).with_suffix('')}/" if len(files) > 1 else ""
        number = 0
        try:
            for value in stream_items(
                folder / file, _ALLOWED_GLOBALS, placeholder_modules=_PLACEHOLDER_MODULES
            ):
                for item in _split_into_graphs(value, file, findings.notices):
                    where = f"{file}, graph {number} (from 0)"
                    graph = _convert_graph(item, f"{prefix}{number:08d}", where, options, findings)
                    yield file, graph
                    number += 1
        except DamagedInput as error:
            if isinstance(error, OldTorchFile):
                error.steps = [
                    f"if you trust it: torch.save(torch.load({file!r}, weights_only=False), {file!r})"
                ]
            error.steps = error.steps or [_REMEDY]
            raise


def _split_into_graphs(value: Value, file: str, notices: Notices) -> Iterator[dict[str, object]]:
    """Yield the attributes of each graph in a Data, a sequence of them, or a collated pair."""
    slices = None  # also None in the collated pair of a single graph
    if isinstance(value, tuple) and len(value) in {2, 3} and isinstance(value[1], dict | None):
        value, slices = value[:2]
    elif isinstance(value, tuple | list):  # such as the three graphs of RandomLinkSplit
        for item in value:
            yield from _split_into_graphs(item, file, notices)
        return
    item = value.mapping if isinstance(value, PickledData) else value
    if not isinstance(item, dict):
        name = _type_name(item)
        default = (name, _OBJECT_REMEDY if "." in name else _REMEDY)
        content, remedy = _UNSUPPORTED_CLASSES.get(name.rpartition(".")[2], default)
        if isinstance(item, np.ndarray):
            remedy = _MATRIX_REMEDY
        step = remedy.format(file=file)
        raise DamagedInput(f"{file} holds {content}.", expected=_EXPECTED, steps=step)
    parts = [name for name, part in item.items() if isinstance(part, PickledData | list)]
    if "edge_index" not in item and parts:
        raise DamagedInput(
            f"{file} holds a dict with {list_names(map(str, parts), 200)}, not the attributes of a graph.",
            expected=_EXPECTED,
            steps="a file for each in one folder: torch.save(data[NAME], 'NAME.pt')",
        )
    if slices is None:
        yield item
        return
    shared = [name for name in item if name not in slices and not name.startswith("_")]
    for name in shared:
        if item[name] is not None and name != "num_nodes":
            notices.ignored[name] = "shared by all graphs"
    yield from separate_graphs(item, slices, file)


def _type_name(value: Value) -> str:
    """Name the type of a value, for a message."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    if isinstance(value, PickledData):
        return "a Data"
    name: str = getattr(value, "name", type(value).__name__)
    return name


def _convert_graph(
    attributes: Mapping[str, object],
    key: str,
    where: str,
    options: ReadOptions,
    findings: Findings,
) -> GraphRecord:
    """Return a graph whose columns are the attributes that are arrays."""
    item = dict(attributes)
    # PyTorch Geometric wrote __num_nodes__ before version 2.
    nodes = item.pop("num_nodes", item.pop("__num_nodes__", None))
    item = {attribute: value for attribute, value in item.items() if value is not None}
    for attribute in item.keys() & set(options.params.ignore):
        findings.notices.ignored[attribute] = "by ignore"
        del item[attribute]
    label = options.find_label(item, ("y",), where)
    if label:
        item["y"] = item.pop(label)
    edges = _convert_attribute("edge_index", item.pop("edge_index", None), where, findings, item)
    if edges is None or edges.dtype.kind not in "iu" or not shape_matches(edges.shape, (2, None)):
        raise DamagedInput(
            f"{where}: edge_index is {'missing' if edges is None else _type_name(edges)}.",
            expected="integers of shape (2, any)",
            steps="data.edge_index = data.edge_index.long(), of shape [2, E]; without edges: "
            "torch.empty(2, 0, dtype=torch.long)",
        )
    arrays: dict[str, Array] = {}
    for attribute, value in item.items():
        array = _convert_attribute(attribute, value, where, findings, item)
        if array is not None:
            check_attribute_name(attribute)
            arrays[attribute] = array
    num_nodes = _count_nodes(nodes, arrays, edges, where)
    try:
        check_raw_edges(edges, num_nodes, where)
    except DamagedInput as error:
        error.steps = [
            f"data.num_nodes = {count_nodes(edges)} before torch.save, if the edges are right"
        ]
        raise
    _check_rows(arrays, num_nodes, edges.shape[1], where)
    return GraphRecord(key=key, num_nodes=num_nodes, columns=arrays, edge_index=edges)


def _count_nodes(num_nodes: object, arrays: Mapping[str, Array], edges: Array, where: str) -> int:
    """Return the number of nodes: ``num_nodes``, or the rows of a node attribute, or counted in the edges."""
    if (
        isinstance(num_nodes, np.ndarray | np.generic)
        and num_nodes.size == 1
        and num_nodes.dtype.kind in "iu"
    ):
        num_nodes = int(num_nodes.reshape(()))
    if not isinstance(num_nodes, int | None):
        raise DamagedInput(
            f"{where}: num_nodes is {_type_name(num_nodes)}.",
            steps="data.num_nodes = a number before torch.save",
        )
    if num_nodes is not None:
        return num_nodes
    with_rows = {name: array for name, array in arrays.items() if array.ndim}
    node_arrays = [array for name, array in with_rows.items() if name in _NODE_ATTRIBUTES]
    node_arrays += [array for name, array in with_rows.items() if "node" in name]
    return len(node_arrays[0]) if node_arrays else count_nodes(edges)


def _check_rows(arrays: Mapping[str, Array], nodes: int, edges: int, where: str) -> None:
    """Refuse node and edge attributes with another number of rows, and several graphs in one."""
    for noun, names, rows in (
        ("nodes", _NODE_ATTRIBUTES, nodes),
        ("edges", _EDGE_ATTRIBUTES, edges),
    ):
        for attribute in names:
            array = arrays.get(attribute)
            if array is not None and array.ndim and len(array) != rows:
                raise DamagedInput(
                    f"{where}: {attribute} has {len(array):,} rows for {rows:,} {noun}.",
                    steps=f"give data.{attribute} a row for each, or correct data.num_nodes",
                )
    batch = arrays.get("batch")
    if batch is not None and batch.size and (batch != batch.flat[0]).any():
        raise DamagedInput(
            f"{where} is several graphs, by its batch.",
            steps="save the original graphs as a list: torch.save([data, …], 'graphs.pt')",
        )


def _convert_attribute(
    name: str, value: Value, where: str, findings: Findings, item: Mapping[str, object]
) -> Array | None:
    """Return an attribute as an array; ``None`` if it is missing, or ignored with a reason."""
    if value is None:
        if name == "edge_index" and "adj_t" in item:
            raise DamagedInput(f"{where} has adj_t in place of edge_index.", steps=_ADJ_T_REMEDY)
        return None
    if name == "y" and has_strings(value):
        return np.array(value, object, ndmin=1)
    if isinstance(value, str) and not value.endswith("\0"):  # stored strings are padded with zeros
        findings.attributes.forms[f"graph/{name}"] = "text"
        return np.frombuffer(value.encode(), np.uint8)
    if has_strings(value):
        findings.notices.ignored[name] = "text"
        return None
    if isinstance(value, dict):
        findings.notices.ignored[name] = "a dict"
        return None
    array = value
    if isinstance(value, int | float | np.generic):
        array = np.asarray(value)
        if not isinstance(value, np.generic):
            findings.attributes.forms[f"graph/{name}"] = "number"
    elif isinstance(value, list | tuple) and _are_numbers(value):
        array = np.array(value)
    if isinstance(array, np.ndarray) and array.dtype == "V2":
        # bfloat16 is the upper half of a float32.
        array = (array.view("<u2").astype("<u4") << 16).view("<f4")
    if isinstance(array, np.ndarray) and array.dtype.kind in "biuf":
        return array

    type_name = _type_name(value)
    remedy = None
    if isinstance(array, np.ndarray) and array.dtype.kind == "c":
        remedy = "data.{name} = torch.view_as_real(data.{name}).flatten(1)"
    elif isinstance(value, SkippedObject):
        class_name = type_name.rpartition(".")[2]
        type_name, remedy = _UNSUPPORTED_TENSORS.get(class_name, (type_name, None))
    code = (remedy or "del data.{name}").format(name=name)
    raise DamagedInput(
        f"{where}: {name} is {type_name}, not a dense tensor of real numbers.",
        steps=[f"{code} before torch.save", *([] if remedy else [Setting(ignore=name)])],
    )


def has_strings(value: object) -> bool:
    """True if a value is a string, or a list with one."""
    values = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(item, str) for item in values)


def _are_numbers(values: Sequence[object]) -> bool:
    """True if a list has only numbers, or lists of numbers of equal length."""
    if all(isinstance(value, int | float) for value in values):
        return True
    rows = [row for row in values if isinstance(row, list | tuple)]
    if len(rows) < len(values) or len({len(row) for row in rows}) > 1:
        return False
    return all(isinstance(value, int | float) for row in rows for value in row)


FORMAT = GraphFormat(
    name="files of tensors",
    expected=_EXPECTED,
    recognises=recognises,
    read=read,
    parameters=COMMON_PARAMETERS | {"group", "ignore", "undirected"},
)
