"""Files of ``torch.save``: a list of ``Data``, one, or the collated pair of an ``InMemoryDataset``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from kmip_data.arrays import Array, shape_matches
from kmip_data.columns.attribute_levels import AttributeLevels
from kmip_data.errors import DamagedInput
from kmip_data.format.split_files import NODE_PARTS, part_name
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import (
    Findings,
    MaskUse,
    Notices,
    key_columns_by_level,
)
from kmip_data.pipelines.datasets.graphs.graph_format import GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.formats.file_heads import first_member
from kmip_data.pipelines.formats.pickles import Unread, Value, refuse_calls
from kmip_data.pipelines.formats.tensors import (
    NUMPY,
    PYG,
    PickledData,
    separate_graphs,
    stream_items,
)
from kmip_data.pipelines.graph_arrays.graph_checks import check_raw_edges, count_nodes

_EXPECTED = ".pt of torch.save: Data, a list of them, or (data, slices)"
#: Besides Data: the dictionaries of a collated pair, and ``torch.Size``.
_ALLOWED = {
    **NUMPY,
    **PYG,
    "collections.defaultdict": lambda *_: {},
    "builtins.dict": refuse_calls("dict"),
    "__builtin__.dict": refuse_calls("dict"),
    "torch.Size": lambda sizes=(): sizes,
    "__builtin__.set": lambda *_: Unread("a set"),  # names that PyTorch Geometric caches
    "builtins.set": lambda *_: Unread("a set"),
}
#: Libraries whose objects are named by the attribute that holds them, and never made.
_LIBRARIES = frozenset(
    {"torch", "torch_geometric", "torch_sparse", "numpy", "scipy", "networkx", "dgl"}
)
_NEXT = (
    "save plain Data: torch.save([Data.from_dict(data.to_dict()) for data in graphs], 'graphs.pt')"
)
#: End of the name of a class that is not read -> what it is, and what to type where it is ``data``.
_OBJECTS = {
    "HeteroData": (
        "HeteroData, of several types of nodes and edges",
        "with one width of x for all types: torch.save(data.to_homogeneous(), {file})",
    ),
    "DynamicInheritanceGetter": (
        "a Batch, several graphs as one",
        "torch.save(data.to_data_list(), {file})",
    ),
    "TemporalData": (
        "TemporalData, which has no edge_index",
        "torch.save(Data(edge_index=torch.stack([data.src, data.dst]), edge_attr=data.msg, t=data.t), {file})",
    ),
    "Graph": (
        "a graph of networkx or DGL",
        "torch.save(torch_geometric.utils.from_networkx(data), {file}), or from_dgl(data)",
    ),
}
_MATRIX_REMEDY = (
    "an adjacency matrix: "
    "torch.save(Data(edge_index=data.nonzero().t(), num_nodes=len(data)), {file})"
)
_OBJECT_REMEDY = "torch.save(Data.from_dict(data.to_dict()), {file})"
#: End of the name behind a tensor that is not read -> what it is, and what to type before torch.save.
_TENSORS = {
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
#: Attributes that have a row for each node, in PyTorch Geometric's words.
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
    """Yield the graphs of all files; arrays are views of a file until the next graph is requested.

    Files called train, val and test are parts.
    """
    # Levels of attributes are known once all graphs have been seen.
    inferred = options.inferred
    if inferred is None:
        levels, graphs = _levels_of(folder, files, options, findings)
    else:
        levels = {column.attribute: column.level for column in inferred.schema.columns}
        graphs = inferred.graphs
    mask_use: MaskUse = "flags" if graphs > 1 else "split"

    parts = [NODE_PARTS.get(part_name(Path(file).stem) or "") for file in files]
    if None not in parts:
        findings.attributes.part_keys.append("graph/file")
    for file, where, graph in _read_graphs(folder, files, options, findings):
        record = key_columns_by_level(graph, levels, where, options, findings, mask_use=mask_use)
        if None not in parts:
            code = np.array([parts[files.index(file)]], np.uint8)
            record = replace(record, columns={**record.columns, "graph/file": code})
        yield record


def _levels_of(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> tuple[dict[str, str], int]:
    """Return the level of each attribute by its rows in all graphs, and the number of graphs."""
    levels = AttributeLevels()
    for _, where, graph in _read_graphs(folder, files, options, findings):
        levels.add(
            graph.columns, graph.num_nodes, graph.num_edges, where, findings.attributes.forms
        )
    for name in options.params.ignore:
        if name not in findings.notices.ignored:
            raise DamagedInput(
                f"No graph has an attribute {name!r}.",
                found=", ".join(levels.shapes)[:500],
                next="--set ignore= and one of these",
            )
    return levels.levels_by_attribute(), levels.graphs


def _read_graphs(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[tuple[str, str, GraphRecord]]:
    """Yield file, place and arrays by attribute of each graph."""
    for file in files:
        stem = f"{Path(file).with_suffix('')}/" if len(files) > 1 else ""
        number = 0
        try:
            for value in stream_items(folder / file, _ALLOWED, libraries=_LIBRARIES):
                for item in _attributes_by_graph(value, file, findings.notices):
                    where = f"{file}, graph {number} (from 0)"
                    yield (
                        file,
                        where,
                        _graph_arrays(item, f"{stem}{number:08d}", where, options, findings),
                    )
                    number += 1
        except DamagedInput as error:
            if "before PyTorch 1.6" in (error.found or ""):
                error.next = f"if you trust it: torch.save(torch.load({file!r}, weights_only=False), {file!r})"
            error.next = error.next or _NEXT
            raise


def _attributes_by_graph(value: Value, file: str, notices: Notices) -> Iterator[dict[str, object]]:
    """Yield the attributes of each graph of an item, a tuple of items or a collated pair."""
    slices = None  # None also in the collated pair of a single graph
    if isinstance(value, tuple) and len(value) in {2, 3} and isinstance(value[1], dict | None):
        value, slices = value[:2]
    elif isinstance(value, tuple | list):  # such as the three graphs of RandomLinkSplit
        for item in value:
            yield from _attributes_by_graph(item, file, notices)
        return
    item = value.mapping if isinstance(value, PickledData) else value
    if not isinstance(item, dict):
        name = _type_name(item)
        any_other = (name, _OBJECT_REMEDY if "." in name else _NEXT)
        what, remedy = _OBJECTS.get(name.rpartition(".")[2], any_other)
        if isinstance(item, np.ndarray):
            remedy = _MATRIX_REMEDY
        raise DamagedInput(
            f"{file} holds {what}.", expected=_EXPECTED, next=remedy.format(file=repr(file))
        )
    parts = [name for name, part in item.items() if isinstance(part, PickledData | list)]
    if "edge_index" not in item and parts:
        raise DamagedInput(
            f"{file} holds a dict with {', '.join(map(str, parts))[:200]}, not the attributes of a graph.",
            expected=_EXPECTED,
            next=f"a file for each in one folder: torch.save(data[{parts[0]!r}], '{parts[0]}.pt')",
        )
    if slices is None:
        yield item
        return
    shared = [name for name in item if name not in slices and not name.startswith("_")]
    for name in shared:
        if item[name] is not None and name != "num_nodes":
            notices.ignored[name] = "of all graphs together"
    yield from separate_graphs(item, slices, file)


def _type_name(value: Value) -> str:
    """Return what a value is, for a message."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    if isinstance(value, PickledData):
        return "a Data"
    name: str = getattr(value, "name", type(value).__name__)
    return name


def _graph_arrays(
    item: dict[str, object], name: str, where: str, options: ReadOptions, findings: Findings
) -> GraphRecord:
    """Return the arrays of an item."""
    item = dict(item)
    # PyTorch Geometric wrote __num_nodes__ before version 2.
    nodes = item.pop("num_nodes", item.pop("__num_nodes__", None))
    item = {attribute: value for attribute, value in item.items() if value is not None}
    for attribute in item.keys() & set(options.params.ignore):
        findings.notices.ignored[attribute] = "by --set ignore="
        del item[attribute]
    label = options.label_of(item, ("y",), where)
    if label:
        item["y"] = item.pop(label)
    edges = _attribute_array("edge_index", item.pop("edge_index", None), where, findings, item)
    if edges is None or edges.dtype.kind not in "iu" or not shape_matches(edges.shape, (2, None)):
        raise DamagedInput(
            f"{where}: edge_index is {'missing' if edges is None else _type_name(edges)}.",
            expected="integers of shape (2, any)",
            next="data.edge_index = data.edge_index.long(), of shape [2, E]; without edges: "
            "torch.empty(2, 0, dtype=torch.long)",
        )
    arrays: dict[str, Array] = {}
    for attribute, value in item.items():
        array = _attribute_array(attribute, value, where, findings, item)
        if array is not None:
            arrays[attribute] = array

    if isinstance(nodes, np.ndarray | np.generic) and nodes.size == 1 and nodes.dtype.kind in "iu":
        nodes = int(nodes.reshape(()))
    if not isinstance(nodes, int | None):
        raise DamagedInput(
            f"{where}: num_nodes is {_type_name(nodes)}.",
            next="data.num_nodes = a number before torch.save",
        )
    if nodes is None:
        node_arrays = [
            array for key, array in arrays.items() if key in _NODE_ATTRIBUTES and array.ndim
        ]
        node_arrays += [array for key, array in arrays.items() if "node" in key and array.ndim]
        nodes = len(node_arrays[0]) if node_arrays else count_nodes(edges)
    try:
        check_raw_edges(edges, nodes, where)
    except DamagedInput as error:
        error.next = (
            f"data.num_nodes = {count_nodes(edges)} before torch.save, where edges are right"
        )
        raise
    for what, names, rows in (
        ("nodes", _NODE_ATTRIBUTES, nodes),
        ("edges", _EDGE_ATTRIBUTES, edges.shape[1]),
    ):
        for attribute in names:
            array = arrays.get(attribute)
            if array is not None and array.ndim and len(array) != rows:
                raise DamagedInput(
                    f"{where}: {attribute} has {len(array):,} rows for {rows:,} {what}.",
                    next=f"give data.{attribute} a row for each, or correct data.num_nodes",
                )
    batch = arrays.get("batch")
    if batch is not None and batch.size and (batch != batch.flat[0]).any():
        raise DamagedInput(
            f"{where} is several graphs, by its batch.",
            next="save the graphs that it was made of, as a list: torch.save([data, …], 'graphs.pt')",
        )
    return GraphRecord(key=name, num_nodes=nodes, columns=arrays, edge_index=edges)


def _attribute_array(
    name: str, value: Value, where: str, findings: Findings, item: Mapping[str, object]
) -> Array | None:
    """Return an attribute as numbers; ``None`` for what is ignored with a reason, or missing."""
    if value is None:
        if name == "edge_index" and "adj_t" in item:
            raise DamagedInput(f"{where} has adj_t in place of edge_index.", next=_ADJ_T_REMEDY)
        return None
    if name == "y" and (isinstance(value, str) or _are_texts(value)):
        return np.array([value] if isinstance(value, str) else value, object)
    if isinstance(value, str) and not value.endswith("\0"):  # shorter texts are padded with zeros
        findings.attributes.forms[f"graph/{name}"] = "text"
        return np.frombuffer(value.encode(), np.uint8)
    if isinstance(value, str) or _are_texts(value):
        findings.notices.ignored[name] = "text"
        return None
    if isinstance(value, dict):
        findings.notices.ignored[name] = "a dict"
        return None
    array = value
    if isinstance(value, bool | int | float | np.generic):
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

    kind, remedy = _type_name(value), "--set ignore={name}; or del data.{name}"
    if isinstance(array, np.ndarray) and array.dtype.kind == "c":
        remedy = "data.{name} = torch.view_as_real(data.{name}).flatten(1)"
    elif isinstance(value, Unread):
        kind, remedy = _TENSORS.get(kind.rpartition(".")[2], (kind, remedy))
    raise DamagedInput(
        f"{where}: {name} is {kind}, not a dense tensor of real numbers.",
        next=f"{remedy.format(name=name)} before torch.save",
    )


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(text, str) for text in value)


def _are_numbers(values: Sequence[object]) -> bool:
    """True if a list has numbers alone, or lists of numbers of one length."""
    if all(isinstance(value, bool | int | float) for value in values):
        return True
    rows = [row for row in values if isinstance(row, list | tuple)]
    if len(rows) < len(values) or len({len(row) for row in rows}) > 1:
        return False
    return all(isinstance(value, bool | int | float) for row in rows for value in row)


FORMAT = GraphFormat(_EXPECTED, recognises, read)
