"""Fields of an item, and their copies from mapped shards to tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import torch

from kmip_data.arrays import I64, Array, DType
from kmip_data.errors import unknown_name_error
from kmip_data.format.schema import EDGE_INDEX, NEIGHBOR, Column, ItemForm, Schema, View
from kmip_data.reading import gather
from kmip_data.reading.store import ShardStore
from kmip_data.runtime import memory
from kmip_data.runtime.paging import is_cold, request_pages

Level = Literal["graph", "node", "edge"]

#: Order of PyTorch Geometric's own ``Data``; other attributes follow in the order of the schema.
_ORDER = ("x", "edge_index", "edge_attr", "y", "pos")


@dataclass(frozen=True)
class Field:
    """One attribute of an item, and the bytes of the shards that it comes from."""

    attribute: str
    column: Column
    key: str  #: HDF5 path of the source rows
    level: Level
    stored: DType
    presented: DType
    shape: tuple[int, ...]  #: shape of a presented row
    row_bytes: int  #: bytes of a complete stored row
    offset: int  #: first byte that is copied from each row
    width: int  #: bytes that are copied from each row; fewer than ``row_bytes`` for a view
    form: ItemForm
    num_classes: int | None


def item_fields(
    schema: Schema,
    columns: Sequence[str] | None = None,
    views: Sequence[View] = (),
) -> tuple[tuple[Field, ...], bool]:
    """Return the fields of an item in its order, and True if it has ``edge_index``.

    ``columns`` selects attributes by name (``None``: all but parts; an unknown name is a
    ``UsageError``). ``views`` add to the schema's; one with the name of a stored attribute replaces it.
    """
    fields = {column.attribute: _field_of_column(column) for column in schema.columns}
    for view in (*schema.views, *views):
        fields[view.attribute] = _field_of_view(_field_of_column(schema.column(view.source)), view)
    names = list(fields)
    if schema.edges != "none":
        names.append("edge_index")
    for name in columns or ():
        if name not in names:
            raise unknown_name_error(
                "column",
                name,
                sorted(names),
                command="kmip-data info NAME",
            )

    chosen = set(names) - schema.split_attributes if columns is None else set(columns)
    ordered = sorted(fields, key=_attribute_rank)
    selected = tuple(fields[name] for name in ordered if name in chosen)
    return selected, "edge_index" in chosen


def _attribute_rank(name: str) -> int:
    """Return the position of an attribute in an item; those unknown to PyTorch Geometric come last."""
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _field_of_column(column: Column) -> Field:
    stored = np.dtype(column.stored)
    row_bytes = stored.itemsize * math.prod(column.shape)
    return Field(
        attribute=column.attribute,
        column=column,
        key=column.key,
        level=column.level,  # type: ignore[arg-type] # the writer accepts no other
        stored=stored,
        presented=np.dtype(column.presented),
        shape=column.shape,
        row_bytes=row_bytes,
        offset=0,
        width=row_bytes,
        form=column.form,
        num_classes=column.num_classes,
    )


def _field_of_view(source: Field, view: View) -> Field:
    component = source.stored.itemsize * math.prod(source.shape[1:])
    count = view.stop - view.start
    return replace(
        source,
        attribute=view.attribute,
        shape=(count, *source.shape[1:]),
        offset=view.start * component,
        width=count * component,
        num_classes=None,
    )


AHEAD = 8192  #: rows requested from disk while as many are copied
_INT64 = np.dtype(np.int64)
_FLOAT32 = np.dtype(np.float32)
_NO_EDGES = np.empty((2, 0), _INT64)
_NO_NUMBERS = np.empty(0, _INT64)

#: Attribute, level, shape of a row, presented dtype, stored dtype where it is another.
_Output = tuple[str, int, tuple[int, ...], DType, DType | None]
_Conversion = tuple[Array, Array]  #: an output, and its rows as they were stored


class Assembler:
    """Copy selected attributes of graphs from the shards.

    ``edges`` adds ``edge_index``; ``lengths`` computes ``edge_attr``, the float32 Euclidean length
    (E, 1) of each edge. ``names`` lists all attributes in the order of an item. ``adds_num_nodes``
    is True if PyTorch Geometric cannot infer the number of nodes from them, so that items need
    ``num_nodes``.
    """

    def __init__(
        self,
        store: ShardStore,
        fields: Sequence[Field],
        *,
        edges: bool,
        lengths: bool,
    ) -> None:
        self.store = store
        self.fields = tuple(fields)
        self.edges = edges
        self.lengths = lengths
        names = [field.attribute for field in fields]
        if edges:
            names.append("edge_index")
        if lengths:
            names.append("edge_attr")
        self.names = sorted(names, key=_attribute_rank)
        self.adds_num_nodes = "num_nodes" not in names and not any(map(_implies_num_nodes, fields))

        copied = list(self.fields)
        if lengths and "pos" not in names:
            copied += item_fields(store.schema, ["pos"])[0]
        self._bounded = [(field, _bounded_column(field)) for field in copied]
        self._unchecked = np.ones(len(store), np.bool_)

        # 1. The fields: location of rows, bytes to copy, and bytes to write.
        rows = []
        layout = []
        self._outputs: list[_Output] = []
        for field in copied:
            level = gather.LEVELS[field.level]
            stored = field.stored if _is_converted(field) else None
            rows.append((field.key, field.row_bytes, level, 0))
            layout.append(
                (level, field.row_bytes, field.offset, field.width, _widened_bytes(field))
            )
            self._outputs.append((field.attribute, level, field.shape, field.presented, stored))

        # 2. Then the edges: a neighbour table, or a row of sources and one of targets.
        index = np.dtype(store.schema.index_dtype)
        self._like = np.empty(0, index)
        self._k = store.schema.k if store.schema.edges == "neighbor" else None
        edge_rows = []
        if (edges or lengths) and self._k is not None:
            edge_rows = [(NEIGHBOR, self._k * index.itemsize, gather.NODE, 0)]
        elif edges or lengths:
            edge_rows = [(EDGE_INDEX, index.itemsize, gather.EDGE, plane) for plane in (0, 1)]
        layout += [(level, row_bytes, 0, row_bytes, 0) for _, row_bytes, level, _ in edge_rows]
        self._rows = (*rows, *edge_rows)
        self._widest = max((field.row_bytes for field in self.fields), default=0)
        self._layout: I64 = np.array(layout, np.int64).reshape(-1, 5).T.copy()

    def without_attributes(self, names: Sequence[str]) -> Assembler:
        """Return an assembler without some attributes, as for PyG's ``exclude_keys``."""
        if not set(names) & set(self.names):
            return self
        out = Assembler(
            self.store,
            [field for field in self.fields if field.attribute not in names],
            edges=self.edges and "edge_index" not in names,
            lengths=self.lengths and "edge_attr" not in names,
        )
        out.adds_num_nodes = self.adds_num_nodes and "num_nodes" not in names
        return out

    def gather(
        self,
        graphs: I64,
        *,
        compact: bool = False,
        numbers: bool = False,
        pin: bool = False,
    ) -> tuple[dict[str, torch.Tensor], I64]:
        """Copy the rows of the graphs with the given numbers (B,) in source order, graph after graph.

        ``compact`` takes the stored neighbour table (ΣN, k) instead of ``edge_index``; ``numbers``
        adds ``batch``, int64 (ΣN,), the position of its graph for each node; ``pin`` copies into
        page-locked memory.

        Returns a tensor for each attribute, with graph columns (B, …), nodes numbered over all
        graphs in ``edge_index`` and within each graph in ``neighbor``; and int64 (3, B + 1), the
        rows before each graph on the graph, node and edge level.
        """
        # Gather by address. The Python around the kernels takes 21 µs for a batch of 8 graphs;
        # PyTorch Geometric's ``Batch.from_data_list`` takes 240 µs (ADR 0010).

        # 1. Look up the address of each block of rows: one table lookup per field, no slicing in Python.
        address, counts, unmapped = self.store.row_addresses(self._rows, graphs)
        edges = address[len(self._outputs) :]
        pointers = np.zeros((3, len(graphs) + 1), np.int64)
        np.cumsum(counts, axis=1, out=pointers[:, 1:])
        totals = pointers[:, -1].tolist()

        # 2. Allocate every output at its final size.
        outputs = self._outputs
        if compact and self._k is not None:
            neighbor = ("neighbor", gather.NODE, (self._k,), self._like.dtype, None)
            outputs = [*outputs, neighbor]
        values, destinations, converted = _allocate_outputs(outputs, totals, pin=pin)
        graph_of_node = _NO_NUMBERS
        if numbers:
            graph_of_node, values["batch"] = empty_array_and_tensor(
                (totals[gather.NODE],), _INT64, pin=pin
            )
        width = -1
        index = _NO_EDGES
        if self.lengths or (self.edges and not compact):
            width = self._k or 0
            index, values["edge_index"] = empty_array_and_tensor(
                (2, totals[gather.EDGE]), _INT64, pin=pin
            )

        unchecked = bool(self._unchecked[graphs].any())
        if unchecked:
            self._check_record_edges(edges, counts, graphs)

        # 3. One compiled call copies everything.
        gather.copy_batch(
            address,
            pointers,
            self._layout,
            destinations,
            edges,
            width,
            self._like,
            index,
            graph_of_node,
        )
        self._convert_and_check(
            values,
            converted,
            graphs if unchecked else None,
            index,
            pin=pin,
        )
        del unmapped  # decompressed rows must live until they are copied
        return values, pointers

    def gather_one(self, graph: int) -> tuple[dict[str, torch.Tensor], int]:
        """Return what :meth:`gather` returns for one graph, at half the overhead, and its number of nodes.

        Graph columns are (1, …). Large columns presented as stored are not copied, but mapped
        privately.
        """
        counts = self.store.count
        totals = counts[:, graph].tolist()
        if max(totals) * self._widest >= memory.MAPPED:
            large = self._mapped_fields(graph)
            if large:
                return self._gather_mapped(graph, large), totals[gather.NODE]

        table, mapped = self.store.address_table(self._rows)
        if not mapped:
            values, pointers = self.gather(np.array([graph], np.int64))
            return values, int(pointers[gather.NODE, 1])

        values, destinations, converted = _allocate_outputs(self._outputs, totals)
        width = -1
        index = _NO_EDGES
        if self.edges or self.lengths:
            width = self._k or 0
            index, values["edge_index"] = empty_array_and_tensor((2, totals[gather.EDGE]), _INT64)

        unchecked = None
        if self._unchecked[graph]:
            unchecked = np.array([graph], np.int64)
            edges = table[len(self._outputs) :].take(unchecked, axis=1)
            self._check_record_edges(edges, counts.take(unchecked, axis=1), unchecked)
        gather.copy_graph(
            table,
            counts,
            graph,
            self._layout,
            destinations,
            width,
            self._like,
            index,
        )
        self._convert_and_check(values, converted, unchecked, index)
        return values, totals[gather.NODE]

    def _mapped_fields(self, graph: int) -> list[Field]:
        """Return the fields of a graph that are mapped rather than copied."""
        table, _ = self.store.address_table(self._rows)
        large = []
        for position, field in enumerate(self.fields):
            unchanged = field.stored == field.presented and field.width == field.row_bytes
            rows = int(self.store.count[gather.LEVELS[field.level], graph])
            is_mapped = table[position, graph] != 0
            if unchanged and is_mapped and rows * field.row_bytes >= memory.MAPPED:
                large.append(field)
        return large

    def _gather_mapped(self, graph: int, large: Sequence[Field]) -> dict[str, torch.Tensor]:
        others = self.without_attributes([field.attribute for field in large])
        values, _ = others.gather_one(graph)
        for field in large:
            rows = self.store.writable_rows(field.key, gather.LEVELS[field.level], graph)
            values[field.attribute] = torch.from_numpy(rows)
        return values

    def mapped_edges(self, graph: int) -> Array | None:
        """Return the checked edge index (2, E) of a graph in the map.

        Returns ``None`` where :meth:`select_rows` cannot read.

        It needs mapped columns (not remote) of nodes and edges, and edges stored as
        pairs.
        """
        table, mapped = self.store.address_table(self._rows)
        as_pairs = self.edges and self._k is None
        has_graph_column = any(field.level == "graph" for field in self.fields)
        if not mapped or not as_pairs or has_graph_column or self.lengths:
            return None

        only = np.array([graph])
        edges = table[len(self._outputs) :].take(only, axis=1)
        self._check_record_edges(edges, self.store.count.take(only, axis=1), only)

        view = self.store.shards[self.store.shard[graph]].mapped_view(EDGE_INDEX)
        if view is None:
            return None
        first = self.store.start[gather.EDGE, graph]
        count = self.store.count[gather.EDGE, graph]
        edges_of_graph: Array = view[:, first : first + count]
        return edges_of_graph

    def select_rows(self, graph: int, nodes: I64, edges: I64) -> dict[str, torch.Tensor]:
        """Copy the rows of some nodes and some edges of a graph that has :meth:`mapped_edges`."""
        table, _ = self.store.address_table(self._rows)
        totals = (1, len(nodes), len(edges))
        values, destinations, converted = _allocate_outputs(self._outputs, totals)
        for level, rows in ((gather.NODE, nodes), (gather.EDGE, edges)):
            fields = np.flatnonzero(self._layout[0, : len(destinations)] == level)
            sources = table[fields, graph]
            layout = self._layout.take(fields, axis=1)
            # In the order of the file: 745,000 rows take 53 ms, in the batch's order 80.
            order = np.argsort(rows)
            cold = [
                (int(source), int(stride))
                for source, stride in zip(sources, layout[1], strict=True)
                if is_cold(source, stride, rows)
            ]
            # A batch may exceed the page cache, so request pages a part ahead.
            blocks = np.split(order, range(AHEAD, len(rows), AHEAD))
            for block, following in pairwise([order[:0], *blocks, order[:0]]):
                for source, stride in cold:
                    request_pages(source, stride, stride, rows[following])
                gather.copy_chosen_rows(sources, rows, block, layout, destinations[fields])
        self._convert_and_check(values, converted, None, _NO_EDGES)
        self._check_values(values, graph)

        # Mapped pages stay in memory longer than unmapped ones. Reading them again takes half of
        # the time of a draw, so keep them mapped.
        if memory.mapped_memory() > memory.free_host_memory():
            for shard in self.store.shards:
                shard.release_pages()
        return values

    def _convert_and_check(
        self,
        values: dict[str, torch.Tensor],
        converted: Sequence[_Conversion],
        unchecked: I64 | None,
        index: I64,
        *,
        pin: bool = False,
    ) -> None:
        """Convert dtypes, check values and compute edge lengths.

        ``unchecked`` graphs are read for the first time.
        """
        for array, stored in converted:
            np.copyto(array, stored, casting="unsafe")
        if unchecked is not None:
            self._check_values(values, int(unchecked[0]))
            self._unchecked[unchecked] = False
        if self.lengths:
            lengths, values["edge_attr"] = empty_array_and_tensor(
                (index.shape[1], 1), _FLOAT32, pin=pin
            )
            gather.edge_lengths(
                values["pos"].numpy(),
                index[0],
                index[1],
                lengths,
            )

    def _check_record_edges(self, edges: I64, counts: I64, graphs: I64) -> None:
        """Refuse edges out of their graph, as compiled code follows edges without checking."""
        if not len(edges):
            return
        position = gather.first_graph_with_outside_edge(edges, counts, self._k or 0, self._like)
        if position >= 0:
            nodes = counts[gather.NODE, position]
            problem = f"an edge leads out of its graph of {nodes:,} nodes"
            raise self.store.damaged_record_error(int(graphs[position]), problem)

    def _check_values(self, values: dict[str, torch.Tensor], graph: int) -> None:
        """Refuse integers of a graph, or of those read with it, outside the bounds of the schema."""
        for field, column in self._bounded:
            if column is None:
                continue
            array = values[field.attribute].numpy()
            # A boolean is copied as the byte that is stored, which may be neither 0 nor 1.
            if array.dtype == np.bool_:
                array = array.view(np.uint8)
            problem = column.problem(array)
            if problem:
                problem = f"{field.attribute} {problem}, in this record or one read with it"
                raise self.store.damaged_record_error(graph, problem)


def _implies_num_nodes(field: Field) -> bool:
    """True if PyTorch Geometric infers the number of nodes from this attribute."""
    name = field.attribute
    return field.level == "node" and (name in {"x", "pos"} or "node" in name)


def _allocate_outputs(
    outputs: Sequence[_Output],
    totals: Sequence[int],
    *,
    pin: bool = False,
) -> tuple[dict[str, torch.Tensor], I64, list[_Conversion]]:
    """Return a tensor for each output, the addresses to copy to, and pairs to convert afterwards."""
    values = {}
    addresses = []
    converted = []
    for attribute, level, shape, presented, stored in outputs:
        array, tensor = empty_array_and_tensor((totals[level], *shape), presented, pin=pin)
        values[attribute] = tensor
        if stored is not None:
            as_stored = np.empty(array.shape, stored)
            converted.append((array, as_stored))
            tensor = torch.from_numpy(as_stored)
        addresses.append(tensor.data_ptr())
    return values, np.array(addresses, np.int64), converted


def empty_array_and_tensor(
    shape: tuple[int, ...],
    dtype: DType,
    *,
    pin: bool = False,
) -> tuple[Array, torch.Tensor]:
    """Return an array and the tensor that shares its memory."""
    if pin:
        torch_dtype = torch.from_numpy(np.empty(0, dtype)).dtype
        tensor = torch.empty(shape, dtype=torch_dtype, pin_memory=True)
        return tensor.numpy(), tensor
    array = memory.reused_array(shape, dtype)
    return array, torch.from_numpy(array)


def _bounded_column(field: Field) -> Column | None:
    """Return the column with the bounds of a field of integers; ``None`` if it has none."""
    column = field.column
    if field.presented.kind == "b":
        return replace(column, low=0, high=1)
    is_integer = field.stored.kind in "iu" and field.presented.kind != "f"
    has_bounds = column.low is not None or column.upper_bound is not None
    return column if is_integer and has_bounds else None


def _is_converted(field: Field) -> bool:
    """True if rows are copied as stored and converted afterwards; a boolean is stored as 0 or 1."""
    return field.presented not in {field.stored, np.dtype(np.bool_)} and not _widened_bytes(field)


def _widened_bytes(field: Field) -> int:
    """Return the bytes of the number to which the kernel widens each ``uint8``.

    Returns 0 if it widens none.
    """
    whole = field.width == field.row_bytes and field.stored == np.uint8
    return field.presented.itemsize if whole and field.presented in {_INT64, _FLOAT32} else 0
