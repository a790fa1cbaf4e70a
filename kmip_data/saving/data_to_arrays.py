"""Convert PyTorch Geometric's ``Data`` to arrays."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Batch, Data

from kmip_data.arrays import Array
from kmip_data.columns.attribute_levels import check_attribute_name
from kmip_data.errors import UsageError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import ItemForm
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.readers.torch_files import has_strings
from kmip_data.text import count_with_noun

_NUMBER_DTYPES: dict[str, type[np.generic]] = {
    "int": np.int64,
    "float": np.float64,
    "bool": np.bool_,
}
#: Type of an object that is often saved by mistake -> its conversion to ``Data``.
_CONVERSIONS = {
    "HeteroData": "save data.to_homogeneous(), which stores the types of nodes as node_type",
    "Batch": "kmip_data.save(batch.to_data_list(), folder)",
    "DataBatch": "kmip_data.save(batch.to_data_list(), folder)",
    "DGLGraph": "kmip_data.save([torch_geometric.utils.from_dgl(graph) for graph in graphs], folder)",
    "tuple": "store the label of each graph as data.y, and save a list of the graphs; a graph of DGL is"
    " converted by torch_geometric.utils.from_dgl",
}


def record_from_data(
    data: object, name: str, options: ReadOptions
) -> tuple[GraphRecord, dict[str, ItemForm]]:
    """Return the arrays of a homogeneous ``Data`` of dense tensors, numbers and strings.

    The target is ``y``, and ignored attributes are left out. Also returns the forms of numbers, whose
    arrays have no axes, and of strings, whose arrays are their UTF-8 bytes; strings of ``y`` are
    classes. Anything else is a ``UsageError``.
    """
    problem = f"Graph {name} cannot be saved"
    type_name = type(data).__name__
    if not isinstance(data, Data) or isinstance(data, Batch):
        raise UsageError(
            f"{problem}: {type_name} is not a homogeneous graph (torch_geometric.data.Data).",
            steps=_CONVERSIONS.get(type_name, "save a list of torch_geometric.data.Data"),
        )
    for rule in ("__inc__", "__cat_dim__"):
        if inspect.getattr_static(type(data), rule) is not Data.__dict__[rule]:
            raise UsageError(
                f"{problem}: {type_name} has custom batching rules, which would be lost."
            )
    if isinstance(data.batch, torch.Tensor) and data.batch.unique().numel() > 1:  # type: ignore[no-untyped-call]
        raise UsageError(
            f"{problem}: it is a batch of graphs.", steps="save the original graphs, as a list"
        )

    values = {
        key: value for key, value in data.to_dict().items() if key not in options.params.ignore
    }
    edges = values.pop("edge_index", None)
    if edges is not None:
        edges = _array_of_value(edges, "edge_index", name)
    if target := options.find_label(values, ("y",), f"Graph {name}"):
        values["y"] = values.pop(target)
    arrays = {}
    forms: dict[str, ItemForm] = {}
    for attribute, value in values.items():
        check_attribute_name(attribute)
        if attribute == "y" and has_strings(value):
            arrays["y"] = np.array(value, object, ndmin=1)
            continue
        arrays[attribute] = _array_of_value(value, attribute, name)
        if isinstance(value, str):
            forms[f"graph/{attribute}"] = "text"
        elif type(value).__name__ in _NUMBER_DTYPES:
            forms[f"graph/{attribute}"] = "number"
    if edges is not None and (edges.dtype != np.int64 or edges.ndim != 2 or len(edges) != 2):
        raise UsageError(
            f"{problem}: its edge_index is not valid.",
            found=f"{edges.dtype} {list(edges.shape)}, not int64 [2, E]",
        )
    nodes = int(data.num_nodes or 0)
    if edges is not None and edges.size and not 0 <= edges.min() <= edges.max() < nodes:
        missing = edges[(edges < 0) | (edges >= nodes)][0]
        raise UsageError(
            f"{problem}: an edge leads to node {missing}, and it has {count_with_noun(nodes, 'node')}.",
            steps=f"correct its edge_index: nodes count from 0 to {nodes - 1:,}",
        )
    return GraphRecord(key=name, num_nodes=nodes, columns=arrays, edge_index=edges), forms


def _array_of_value(value: Any, attribute: str, name: str) -> Array:
    type_name = type(value).__name__
    try:
        if type_name in _NUMBER_DTYPES:
            return np.array(value, _NUMBER_DTYPES[type_name])
        if type_name == "str" and not value.endswith("\0"):  # zeros pad shorter strings
            return np.frombuffer(value.encode(), np.uint8)
        if type(value) in {torch.Tensor, torch.nn.Parameter} and value.layout == torch.strided:
            array: Array = value.detach().cpu().numpy()
            if array.dtype.kind in "biuf":
                return array
    except (OverflowError, TypeError, UnicodeError, NotImplementedError):
        pass  # more than 64 bits; bfloat16, which numpy lacks; a lone surrogate; a meta tensor
    if isinstance(value, torch.Tensor):
        type_name += f" ({value.dtype}, {value.layout})"
    raise UsageError(
        f"Attribute {attribute!r} of graph {name} cannot be saved: {type_name} is not a dense "
        "tensor of booleans, integers or floats of up to 64 bits, a number or a string.",
        steps=f"leave it out (del data.{attribute}) or turn it into a dense tensor",
    )
