"""Wrap gathered tensors in PyTorch Geometric objects: ``Data`` for one graph, ``Batch`` for several."""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch_geometric.data import Batch, Data

from kmip_data.arrays import I64
from kmip_data.errors import UsageError
from kmip_data.graphs.knn_and_radius_graphs import pointers_from_numbers
from kmip_data.reading import gather
from kmip_data.reading.assemble import BatchAssembler, ItemField

if TYPE_CHECKING:

    class DataBatch(Batch, Data):  # type: ignore[misc] # PyTorch Geometric is untyped
        """A ``Batch`` of ``Data``: type checkers cannot see that it inherits from its items' class."""

else:
    DataBatch = Batch

#: PyTorch Geometric has special collation rules for attributes with these strings in their names.
_SPECIAL_NAMES = ("index", "batch", "ptr", "adj", "face")

_INT64 = np.dtype(np.int64)


def collates_by_rows(fields: Sequence[ItemField]) -> bool:
    """True if PyG collates all these attributes by concatenating rows, like :func:`make_batch`."""
    names = " ".join(field.attribute for field in fields)
    return not any(reserved in names for reserved in _SPECIAL_NAMES)


def make_data(assembler: BatchAssembler, graph: int) -> Data:
    """Return one graph of the store as ``Data``."""
    values, nodes = assembler.gather_one(graph)
    data, mapping = _blank_data()
    for name in assembler.names:
        mapping[name] = values[name]
    for field in assembler.fields:
        if field.level == "graph" and field.form != "axis":
            rows = values[field.attribute]
            is_row = field.form == "row"
            mapping[field.attribute] = rows[0] if is_row else _python_values(field, rows)[0]
    if assembler.adds_num_nodes:
        mapping["num_nodes"] = nodes
    return data


def make_batch(
    assembler: BatchAssembler,
    graphs: I64,
    *,
    compact: bool = False,
    pin: bool = False,
    follow: Sequence[str] = (),
) -> DataBatch:
    """Return several graphs as a ``Batch`` equal to the result of ``Batch.from_data_list``.

    ``graphs`` (B,) are record numbers in source order, at least one. Attributes in ``follow`` get
    ``<name>_batch`` and ``<name>_ptr``; for the other arguments see :meth:`BatchAssembler.gather`.
    """
    values, pointers = assembler.gather(graphs, compact=compact, batch_vector=True, pin=pin)
    size = len(graphs)
    slices = dict(zip(gather.LEVELS, torch.from_numpy(pointers).unbind(), strict=True))
    zeros = torch.from_numpy(np.zeros(size, _INT64))
    fields = {field.attribute: field for field in assembler.fields}

    batch: DataBatch = copy.copy(_empty_instance(Batch))
    store = batch._store  # noqa: SLF001
    mapping: dict[str, object] = store._mapping  # noqa: SLF001
    slice_dict = {}
    inc_dict = {}
    for attribute in assembler.names:
        field = fields.get(attribute)
        is_table = compact and attribute == "edge_index"
        name = "neighbor" if is_table else attribute
        value: object = values[name]
        increment: torch.Tensor | None = zeros
        if is_table:
            rows = slices["node"]
        elif field is None:  # edges or their lengths
            rows = slices["edge"]
            if name == "edge_index":
                increment = slices["node"][:-1]
        elif name == "num_nodes" and field.level == "graph":
            _set_node_counts(store, pointers)
            continue
        elif field.level == "graph":
            value, rows, increment = _collate_graph_column(
                field, values[name], slices["graph"], zeros
            )
        else:
            rows = slices[field.level]

        slice_dict[name] = rows
        inc_dict[name] = increment
        mapping[name] = value
        if name in follow:
            mapping[f"{name}_batch"] = torch.arange(size).repeat_interleave(rows.diff())
            mapping[f"{name}_ptr"] = rows.clone()

    if assembler.adds_num_nodes:
        _set_node_counts(store, pointers)
    mapping["batch"] = values["batch"]
    mapping["ptr"] = torch.from_numpy(pointers[gather.NODE].copy())
    store.__dict__.update(
        _num_graphs=size,
        _slice_dict=slice_dict,
        _inc_dict=inc_dict,
    )
    return batch


def graph_pointers(batch: Batch | Data, rows: int) -> torch.Tensor | None:
    """Return the first node of each graph, from ``ptr`` or else ``batch``; ``None`` for a single graph.

    Raises ``UsageError`` if ``batch`` is not a sorted vector of ``rows`` graph numbers.
    """
    ptr = getattr(batch, "ptr", None)
    graph_numbers = getattr(batch, "batch", None)
    if ptr is not None or graph_numbers is None:
        return ptr
    return pointers_from_numbers(graph_numbers, rows)


def pointers_on_cpu(batch: Batch | Data, rows: int) -> list[int] | None:
    """Return the first node of each graph from CPU memory, without synchronising with a GPU.

    A ``Batch`` keeps the offsets of each attribute on the CPU. Returns ``None`` if they do not cover
    ``rows`` nodes.
    """
    slices = getattr(batch, "_slice_dict", {}).get("x")
    if slices is None or "ptr" not in batch or len(slices) != len(batch.ptr):
        return None
    starts: list[int] = slices.tolist()
    return starts if starts[-1] == rows else None


def batch_neighbors(batch: Batch | Data) -> torch.Tensor:
    """Return the neighbour table of a compact batch with its nodes numbered over the batch.

    The stored table ``neighbor`` (N, k) is unsigned and numbered within each graph. Graphs start at
    ``ptr``, or else where ``batch`` changes; without either, there is one graph. A signed table is
    already numbered over the batch and returned unchanged.

    Returns int32 (N, k) on the batch's device: row i holds the sources of node i, nearest first, so
    that ``x[batch_neighbors(batch)]`` is (N, k, d). Raises ``UsageError`` if the batch has no
    neighbour table or ``batch`` is not sorted.
    """
    if "neighbor" not in batch:
        raise UsageError("The batch has no neighbour table.", steps="GraphLoader(…, compact=True)")
    table: torch.Tensor = batch.neighbor
    # torch has few operations on unsigned integers: reinterpret them as signed, then widen.
    if table.dtype == torch.uint16:
        table = table.view(torch.int16).to(torch.int32).bitwise_and_(0xFFFF)
    elif table.dtype == torch.uint32:
        table = table.view(torch.int32).clone()
    else:
        return table
    ptr = graph_pointers(batch, len(table))
    if ptr is None:
        return table
    first = ptr[:-1].to(torch.int32)
    # ``output_size`` spares torch a wait for the GPU to compute it.
    return table.add_(first.repeat_interleave(ptr.diff(), output_size=len(table))[:, None])


def expand_edges(batch: Batch) -> DataBatch:
    """Replace the neighbour table of a compact batch by ``edge_index``, on the batch's device.

    Returns a copy that shares the other attributes and equals the batch of ``GraphLoader(…,
    compact=False)``. Raises ``UsageError`` if the batch has no neighbour table.
    """
    table = batch_neighbors(batch)
    nodes, k = table.shape
    index = torch.empty((2, nodes * k), dtype=torch.int64, device=table.device)
    index[0].copy_(table.reshape(-1))
    index[1].view(nodes, k).copy_(torch.arange(nodes, device=table.device)[:, None])
    out: DataBatch = copy.copy(batch)
    store = out._store.__dict__  # noqa: SLF001
    store["_mapping"] = _replace_table_by_edges(store["_mapping"], index)
    if "_slice_dict" in store:
        nodes_before = store["_slice_dict"]["neighbor"]
        store["_slice_dict"] = _replace_table_by_edges(store["_slice_dict"], nodes_before * k)
        store["_inc_dict"] = _replace_table_by_edges(store["_inc_dict"], nodes_before[:-1])
    return out


def _replace_table_by_edges(values: dict[str, object], edges: torch.Tensor) -> dict[str, object]:
    """Return the dict with ``edge_index`` in the position of ``neighbor``."""
    out: dict[str, object] = {}
    for name, value in values.items():
        if name == "neighbor":
            out["edge_index"] = edges
        else:
            out[name] = value
    return out


def _blank_data() -> tuple[Data, dict[str, object]]:
    """Return a new ``Data`` and the dict of its attributes; faster than the constructor."""
    template = _empty_instance(Data)
    data = Data.__new__(Data)
    store = object.__new__(type(template._store))  # noqa: SLF001
    mapping: dict[str, object] = {}
    store.__dict__.update(
        template._store.__dict__,  # noqa: SLF001
        _mapping=mapping,
        _parent=weakref.ref(data),
    )
    data.__dict__.update(template.__dict__, _store=store)
    return data, mapping


@functools.cache
def _empty_instance(data_class: type[object]) -> Any:
    """Return an empty instance to copy, because the constructor of a batch is slower than a gather."""
    return data_class()


def _set_node_counts(store: Any, pointers: I64) -> None:
    store._num_nodes = np.diff(pointers[gather.NODE]).tolist()  # noqa: SLF001
    store.num_nodes = sum(store._num_nodes)  # noqa: SLF001


def _collate_graph_column(
    field: ItemField,
    rows: torch.Tensor,
    slices: torch.Tensor,
    zeros: torch.Tensor,
) -> tuple[object, torch.Tensor, torch.Tensor | None]:
    """Return the batched value, slices and increments of a graph column, as PyG's ``collate`` does."""
    if field.form == "text":
        return _python_values(field, rows), slices, None
    if field.form == "number":
        return torch.tensor(rows.tolist()), slices, zeros
    if field.form == "row" and field.shape:
        return rows.flatten(0, 1), slices * field.shape[0], zeros
    return rows, slices, zeros


def _python_values(field: ItemField, rows: torch.Tensor) -> list[object]:
    """Convert a graph column to Python numbers or strings."""
    if field.form == "number":
        return rows.tolist()
    return [bytes(row).rstrip(b"\0").decode("utf-8", "replace") for row in rows.numpy()]
