"""Assemble the attributes of graphs: copy fields from mapped shards to tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch

from kmip_data.arrays import I64, Array, DType
from kmip_data.errors import Command, unknown_name_error
from kmip_data.format.schema import EDGE_INDEX, NEIGHBOR, Column, ItemForm, Schema, View
from kmip_data.reading import gather
from kmip_data.reading.store import RowSource, ShardStore
from kmip_data.runtime import memory, reused_buffers
from kmip_data.runtime.paging import is_cold, request_pages

Level = Literal["graph", "node", "edge"]

#: Attribute order of PyTorch Geometric's ``Data``; other attributes follow in schema order.
_PYG_ORDER = ("x", "edge_index", "edge_attr", "y", "pos")


@dataclass(frozen=True)
class ItemField:
    """One attribute of an item, and its location in the rows of a stored column."""

    attribute: str
    column: Column
    key: str  #: HDF5 path of the source rows
    level: Level
    stored: DType
    presented: DType
    shape: tuple[int, ...]  #: shape of a presented row
    row_bytes: int  #: bytes of a complete stored row
    offset: int  #: offset in bytes of the copied part of each row
    width: int  #: bytes copied from each row; fewer than ``row_bytes`` for a view
    form: ItemForm
    num_classes: int | None


def item_fields(
    schema: Schema,
    columns: Sequence[str] | None = None,
    views: Sequence[View] = (),
) -> tuple[tuple[ItemField, ...], bool]:
    """Return the fields of an item in order, and True if it has ``edge_index``.

    ``columns`` selects attributes by name; an unknown name is a ``UsageError``. ``None`` selects all
    attributes except split columns. ``views`` are added to the schema's; a view with the name of a
    stored attribute replaces it.
    """
    fields = {column.attribute: _field_of_column(column) for column in schema.columns}
    for view in (*schema.views, *views):
        fields[view.attribute] = _view_field(_field_of_column(schema.column(view.source)), view)
    names = list(fields)
    if schema.edges != "none":
        names.append("edge_index")
    for name in columns or ():
        if name not in names:
            raise unknown_name_error(
                "column",
                name,
                sorted(names),
                command=Command("kmip-data info NAME"),
            )

    selected = set(names) - schema.split_attributes if columns is None else set(columns)
    ordered_names = sorted(fields, key=_attribute_rank)
    item = tuple(fields[name] for name in ordered_names if name in selected)
    return item, "edge_index" in selected


def _attribute_rank(name: str) -> int:
    """Return the sort key of an attribute; attributes that PyTorch Geometric lacks come last."""
    return _PYG_ORDER.index(name) if name in _PYG_ORDER else len(_PYG_ORDER)


def _field_of_column(column: Column) -> ItemField:
    stored = np.dtype(column.stored)
    row_bytes = stored.itemsize * math.prod(column.shape)
    return ItemField(
        attribute=column.attribute,
        column=column,
        key=column.key,
        level=column.level,  # type: ignore[arg-type] # the writer checks it
        stored=stored,
        presented=np.dtype(column.presented),
        shape=column.shape,
        row_bytes=row_bytes,
        offset=0,
        width=row_bytes,
        form=column.form,
        num_classes=column.num_classes,
    )


def _view_field(source: ItemField, view: View) -> ItemField:
    component_bytes = source.stored.itemsize * math.prod(source.shape[1:])
    count = view.stop - view.start
    return replace(
        source,
        attribute=view.attribute,
        shape=(count, *source.shape[1:]),
        offset=view.start * component_bytes,
        width=count * component_bytes,
        num_classes=None,
    )


PREFETCH_ROWS = 8192  #: rows per block: one is requested from disk while the previous is copied
_INT64 = np.dtype(np.int64)
_FLOAT32 = np.dtype(np.float32)
_NO_EDGES = np.empty((2, 0), _INT64)
_NO_GRAPH_NUMBERS = np.empty(0, _INT64)


class _Output(NamedTuple):
    """Tensor to allocate for an attribute."""

    attribute: str
    level: int
    row_shape: tuple[int, ...]
    presented: DType
    stored: DType | None  #: dtype of the copied rows if they are converted afterwards


_Conversion = tuple[Array, Array]  #: output array, and array of the rows as stored


class BatchAssembler:
    """Copy selected attributes of graphs from the shards.

    ``edges`` adds ``edge_index``; ``lengths`` computes ``edge_attr``, the float32 Euclidean length
    (E, 1) of each edge. ``names`` lists all attributes of an item in order. ``adds_num_nodes`` is
    True if items need ``num_nodes`` because PyTorch Geometric cannot infer it.
    """

    def __init__(
        self,
        store: ShardStore,
        fields: Sequence[ItemField],
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
        self._bounded_columns = [(field, _bounded_column(field)) for field in copied]
        self._is_unchecked = np.ones(len(store), np.bool_)

        # 1. Fields: location of rows, bytes to copy, and bytes to write.
        sources = []
        layout = []  # level, bytes per row, offset and number of copied bytes, bytes per widened value
        self._outputs: list[_Output] = []
        for field in copied:
            level = gather.LEVELS[field.level]
            stored = field.stored if _is_converted(field) else None
            sources.append(RowSource(field.key, field.row_bytes, level))
            layout.append(
                (level, field.row_bytes, field.offset, field.width, _widened_bytes(field))
            )
            self._outputs.append(
                _Output(field.attribute, level, field.shape, field.presented, stored)
            )

        # 2. Edges: a neighbour table, or a row of sources and one of targets.
        index = np.dtype(store.schema.index_dtype)
        self._index_like = np.empty(0, index)  # tells the kernels the dtype of stored edges
        self._k = store.schema.k if store.schema.edges == "neighbor" else None
        edge_sources = []
        if (edges or lengths) and self._k is not None:
            edge_sources = [RowSource(NEIGHBOR, self._k * index.itemsize, gather.NODE)]
        elif edges or lengths:
            edge_sources = [
                RowSource(EDGE_INDEX, index.itemsize, gather.EDGE, plane) for plane in (0, 1)
            ]
        layout += [
            (source.level, source.row_bytes, 0, source.row_bytes, 0) for source in edge_sources
        ]
        self._row_sources = (*sources, *edge_sources)
        self._max_row_bytes = max((field.row_bytes for field in self.fields), default=0)
        self._layout: I64 = np.array(layout, np.int64).reshape(-1, 5).T.copy()

    def without_attributes(self, names: Sequence[str]) -> BatchAssembler:
        """Return an assembler without the named attributes, as for PyG's ``exclude_keys``."""
        if not set(names) & set(self.names):
            return self
        out = BatchAssembler(
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
        batch_vector: bool = False,
        pin: bool = False,
    ) -> tuple[dict[str, torch.Tensor], I64]:
        """Copy the rows of ``graphs`` (B,), record numbers in source order, one graph after another.

        ``compact`` returns the stored neighbour table (ΣN, k) instead of ``edge_index``;
        ``batch_vector`` adds ``batch``, int64 (ΣN,), the position of each node's graph; ``pin``
        copies into page-locked memory.

        Returns a tensor for each attribute, and int64 (3, B + 1), the number of rows before each
        graph on the graph, node and edge level. Graph columns are (B, …). Nodes are numbered over
        all graphs in ``edge_index``, within each graph in ``neighbor``.
        """
        # Gather by address. The Python around the kernels takes 21 µs for a batch of 8 graphs;
        # PyTorch Geometric's ``Batch.from_data_list`` takes 240 µs (ADR 0010).

        # 1. Look up the address of each graph's rows: one table lookup per field, no Python slicing.
        # C order also for one graph, so that the kernels compile once.
        address = self.store.address_table(self._row_sources).take(graphs, axis=1)
        counts = self.store.row_count.take(graphs, axis=1)
        edge_address = address[len(self._outputs) :]
        pointers = np.zeros((3, len(graphs) + 1), np.int64)
        np.cumsum(counts, axis=1, out=pointers[:, 1:])
        totals = pointers[:, -1].tolist()

        # 2. Allocate every output at its final size.
        outputs = self._outputs
        if compact and self._k is not None:
            neighbor = _Output("neighbor", gather.NODE, (self._k,), self._index_like.dtype, None)
            outputs = [*outputs, neighbor]
        values, destinations, conversions = _allocate_outputs(outputs, totals, pin=pin)
        graph_of_node = _NO_GRAPH_NUMBERS
        if batch_vector:
            graph_of_node, values["batch"] = empty_array_and_tensor(
                (totals[gather.NODE],), _INT64, pin=pin
            )
        k = -1  # for the kernels: no edges; 0: pairs; else the width of the neighbour table
        index = _NO_EDGES
        if self.lengths or (self.edges and not compact):
            k = self._k or 0
            index, values["edge_index"] = empty_array_and_tensor(
                (2, totals[gather.EDGE]), _INT64, pin=pin
            )

        has_unchecked = bool(self._is_unchecked[graphs].any())
        if has_unchecked:
            self._check_record_edges(edge_address, counts, graphs)

        # 3. One compiled call copies everything.
        gather.copy_batch(
            address,
            pointers,
            self._layout,
            destinations,
            edge_address,
            k,
            self._index_like,
            index,
            graph_of_node,
        )
        self._convert_and_check(
            values,
            conversions,
            graphs if has_unchecked else None,
            index,
            pin=pin,
        )
        return values, pointers

    def gather_one(self, graph: int) -> tuple[dict[str, torch.Tensor], int]:
        """Return the attributes of one graph, at half the overhead of :meth:`gather`, and its node count.

        Graph columns are (1, …). Large columns that need no conversion are mapped privately instead
        of copied.
        """
        counts = self.store.row_count
        totals = counts[:, graph].tolist()
        if max(totals) * self._max_row_bytes >= memory.MIN_MAPPED_BYTES:
            large = self._mapped_fields(graph)
            if large:
                return self._gather_mapped(graph, large), totals[gather.NODE]

        table = self.store.address_table(self._row_sources)
        values, destinations, conversions = _allocate_outputs(self._outputs, totals)
        k = -1  # for the kernels: no edges; 0: pairs; else the width of the neighbour table
        index = _NO_EDGES
        if self.edges or self.lengths:
            k = self._k or 0
            index, values["edge_index"] = empty_array_and_tensor((2, totals[gather.EDGE]), _INT64)

        unchecked = None
        if self._is_unchecked[graph]:
            unchecked = np.array([graph], np.int64)
            edge_address = table[len(self._outputs) :].take(unchecked, axis=1)
            self._check_record_edges(edge_address, counts.take(unchecked, axis=1), unchecked)
        gather.copy_graph(
            table,
            counts,
            graph,
            self._layout,
            destinations,
            k,
            self._index_like,
            index,
        )
        self._convert_and_check(values, conversions, unchecked, index)
        return values, totals[gather.NODE]

    def _mapped_fields(self, graph: int) -> list[ItemField]:
        """Return the fields of a graph that are large enough to map rather than copy."""
        large = []
        for field in self.fields:
            is_unchanged = field.stored == field.presented and field.width == field.row_bytes
            rows = int(self.store.row_count[gather.LEVELS[field.level], graph])
            if is_unchanged and rows * field.row_bytes >= memory.MIN_MAPPED_BYTES:
                large.append(field)
        return large

    def _gather_mapped(self, graph: int, large: Sequence[ItemField]) -> dict[str, torch.Tensor]:
        small_assembler = self.without_attributes([field.attribute for field in large])
        values, _ = small_assembler.gather_one(graph)
        for field in large:
            rows = self.store.writable_rows(field.key, gather.LEVELS[field.level], graph)
            values[field.attribute] = torch.from_numpy(rows)
        return values

    def mapped_edges(self, graph: int) -> Array | None:
        """Return the checked edge index (2, E) of a graph, a view of the mapped file.

        Returns ``None`` if :meth:`select_rows` cannot read the graph: it supports only columns of
        nodes and edges, and edges stored as pairs.
        """
        has_pairs = self.edges and self._k is None
        has_graph_column = any(field.level == "graph" for field in self.fields)
        if not has_pairs or has_graph_column or self.lengths:
            return None

        graphs = np.array([graph])
        table = self.store.address_table(self._row_sources)
        edge_address = table[len(self._outputs) :].take(graphs, axis=1)
        self._check_record_edges(edge_address, self.store.row_count.take(graphs, axis=1), graphs)

        view = self.store.shards[self.store.shard_of_graph[graph]].mapped_view(EDGE_INDEX)
        first = self.store.first_row[gather.EDGE, graph]
        count = self.store.row_count[gather.EDGE, graph]
        edges_of_graph: Array = view[:, first : first + count]
        return edges_of_graph

    def select_rows(self, graph: int, nodes: I64, edges: I64) -> dict[str, torch.Tensor]:
        """Copy the rows of selected nodes and edges of a graph that has :meth:`mapped_edges`."""
        table = self.store.address_table(self._row_sources)
        totals = (1, len(nodes), len(edges))
        values, destinations, conversions = _allocate_outputs(self._outputs, totals)
        for level, rows in ((gather.NODE, nodes), (gather.EDGE, edges)):
            fields = np.flatnonzero(self._layout[0, : len(destinations)] == level)
            sources = table[fields, graph]
            layout = self._layout.take(fields, axis=1)
            # Read in file order: 745,000 rows take 53 ms, against 80 ms in the batch's order.
            order = np.argsort(rows)
            cold_columns = [
                (int(source), int(stride))
                for source, stride in zip(sources, layout[1], strict=True)
                if is_cold(source, stride, rows)
            ]
            # A batch may exceed the page cache, so request the pages of one block ahead.
            blocks = np.split(order, range(PREFETCH_ROWS, len(rows), PREFETCH_ROWS))
            for block, next_block in pairwise([order[:0], *blocks, order[:0]]):
                for source, stride in cold_columns:
                    request_pages(source, stride, stride, rows[next_block])
                gather.copy_selected_rows(sources, rows, block, layout, destinations[fields])
        self._convert_and_check(values, conversions, None, _NO_EDGES)
        self._check_values(values, graph)

        # Keep pages mapped while memory lasts: they stay in memory longer than unmapped pages, and
        # rereading them takes half the time of a draw.
        if memory.mapped_memory() > memory.free_host_memory():
            for shard in self.store.shards:
                shard.release_pages()
        return values

    def _convert_and_check(
        self,
        values: dict[str, torch.Tensor],
        conversions: Sequence[_Conversion],
        unchecked: I64 | None,
        index: I64,
        *,
        pin: bool = False,
    ) -> None:
        """Convert dtypes, check the values of ``unchecked`` graphs and compute edge lengths."""
        for array, stored in conversions:
            np.copyto(array, stored, casting="unsafe")
        if unchecked is not None:
            self._check_values(values, int(unchecked[0]))
            self._is_unchecked[unchecked] = False
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

    def _check_record_edges(self, edge_address: I64, counts: I64, graphs: I64) -> None:
        """Raise ``DamagedInput`` if an edge leaves its graph: compiled code follows edges unchecked."""
        if not len(edge_address):
            return
        position = gather.first_graph_with_outside_edge(
            edge_address, counts, self._k or 0, self._index_like
        )
        if position >= 0:
            nodes = counts[gather.NODE, position]
            problem = f"an edge leads out of its graph of {nodes:,} nodes"
            raise self.store.damaged_record_error(int(graphs[position]), problem)

    def _check_values(self, values: dict[str, torch.Tensor], graph: int) -> None:
        """Raise ``DamagedInput`` if values of a graph, or of one read with it, exceed the bounds."""
        for field, column in self._bounded_columns:
            if column is None:
                continue
            array = values[field.attribute].numpy()
            # A boolean is copied as the stored byte, which may be neither 0 nor 1.
            if array.dtype == np.bool_:
                array = array.view(np.uint8)
            problem = column.problem(array)
            if problem:
                problem = f"{field.attribute} {problem}, in this record or one read with it"
                raise self.store.damaged_record_error(graph, problem)


def _implies_num_nodes(field: ItemField) -> bool:
    """True if PyTorch Geometric infers the number of nodes from this attribute."""
    name = field.attribute
    return field.level == "node" and (name in {"x", "pos"} or "node" in name)


def _allocate_outputs(
    outputs: Sequence[_Output],
    totals: Sequence[int],
    *,
    pin: bool = False,
) -> tuple[dict[str, torch.Tensor], I64, list[_Conversion]]:
    """Return a tensor for each output, the addresses to copy to, and the pending conversions."""
    values = {}
    addresses = []
    conversions = []
    for attribute, level, shape, presented, stored in outputs:
        array, tensor = empty_array_and_tensor((totals[level], *shape), presented, pin=pin)
        values[attribute] = tensor
        if stored is not None:
            stored_rows = np.empty(array.shape, stored)
            conversions.append((array, stored_rows))
            tensor = torch.from_numpy(stored_rows)
        addresses.append(tensor.data_ptr())
    return values, np.array(addresses, np.int64), conversions


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
    array = reused_buffers.reused_array(shape, dtype)
    return array, torch.from_numpy(array)


def _bounded_column(field: ItemField) -> Column | None:
    """Return the column that bounds the integers of a field; ``None`` if they are not bounded."""
    column = field.column
    if field.presented.kind == "b":
        return replace(column, low=0, high=1)
    is_integer = field.stored.kind in "iu" and field.presented.kind != "f"
    has_bounds = column.low is not None or column.upper_bound is not None
    return column if is_integer and has_bounds else None


def _is_converted(field: ItemField) -> bool:
    """True if rows are copied as stored and converted afterwards; a boolean is stored as 0 or 1."""
    return field.presented not in {field.stored, np.dtype(np.bool_)} and not _widened_bytes(field)


def _widened_bytes(field: ItemField) -> int:
    """Return the bytes per value that the kernel widens ``uint8`` to; 0 if it copies bytes unchanged."""
    is_complete = field.width == field.row_bytes and field.stored == np.uint8
    return field.presented.itemsize if is_complete and field.presented in {_INT64, _FLOAT32} else 0
