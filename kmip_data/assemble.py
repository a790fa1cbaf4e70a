"""Chosen attributes of some graphs, copied out of the mapped shards into tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kmip_data import buffers, gather
from kmip_data.errors import DamagedInput
from kmip_data.fields import Field, counts_nodes, item_fields, item_order
from kmip_data.schema import EDGE_INDEX, NEIGHBOR
from kmip_data.store import Rows, ShardStore

_INT64, _FLOAT32 = np.dtype(np.int64), np.dtype(np.float32)


#: Attribute, level, shape of a row, presented dtype, stored dtype where it is another.
_Output = tuple[str, int, tuple[int, ...], np.dtype[Any], np.dtype[Any] | None]


class Assembler:
    """Copies chosen attributes of graphs out of the shards.

    Parameters
    ----------
    store
        The shards.
    fields
        Attributes to copy.
    edges
        Whether ``edge_index`` is among them.
    lengths
        Whether ``edge_attr``, the float32 Euclidean length [E, 1] of each edge, is computed.

    Attributes
    ----------
    names
        All attributes in the order in which an item has them.
    adds_num_nodes
        Whether items get ``num_nodes``, because none of their attributes tells it.
    """

    def __init__(self, store: ShardStore, fields: Sequence[Field], *, edges: bool, lengths: bool) -> None:
        self.store, self.fields, self.edges, self.lengths = store, tuple(fields), edges, lengths
        names = [field.attribute for field in fields]
        names += [name for name, given in (("edge_index", edges), ("edge_attr", lengths)) if given]
        self.names = item_order(names)
        self.adds_num_nodes = "num_nodes" not in names and not counts_nodes(fields)
        copied = list(self.fields)
        if lengths and "pos" not in names:
            copied += item_fields(store.schema, ["pos"])[0]
        rows: list[Rows] = [(f.key, f.row_bytes, gather.LEVELS[f.level], 0) for f in copied]
        index = np.dtype(store.schema.index_dtype)
        self._k = store.schema.k if store.schema.edges == "neighbor" else None
        if (edges or lengths) and self._k is not None:
            rows.append((NEIGHBOR, self._k * index.itemsize, gather.NODE, 0))
        elif edges or lengths:
            rows += [(EDGE_INDEX, index.itemsize, gather.EDGE, plane) for plane in (0, 1)]
        self._rows, self._like = tuple(rows), np.empty(0, index)
        self._outputs: list[_Output] = [
            (f.attribute, gather.LEVELS[f.level], f.shape, f.presented, None if _same(f) else f.stored)
            for f in copied
        ]
        layout = [(gather.LEVELS[f.level], f.row_bytes, f.offset, f.width) for f in copied]
        layout += [(level, row_bytes, 0, row_bytes) for _, row_bytes, level, _ in rows[len(copied) :]]
        self._layout: NDArray[np.int64] = np.array(layout, np.int64).reshape(-1, 4).T.copy()

    def without(self, names: Sequence[str]) -> Assembler:
        """Return an assembler that leaves out some attributes, as PyG's ``exclude_keys`` does."""
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
        self, graphs: NDArray[np.int64], *, compact: bool = False, pin: bool = False
    ) -> tuple[dict[str, torch.Tensor], NDArray[np.int64]]:
        """Copy the rows of some graphs, one graph after the other.

        Parameters
        ----------
        graphs
            (B,) numbers of graphs in source order.
        compact
            Copy the neighbour table, (ΣN, k) as it is stored, in the place of ``edge_index``.
        pin
            Copy straight into page-locked memory.

        Returns
        -------
        values
            Attribute to tensor. Graph columns are (B, …). In ``edge_index`` nodes are numbered over all
            graphs, in ``neighbor`` inside each.
        counts
            int64 (3, B), rows of each graph on the graph, node and edge level.
        """
        address, counts, held = self.store.sources(self._rows, graphs)
        totals = counts.sum(axis=1).tolist()
        values: dict[str, torch.Tensor] = {}
        targets, converted = [], []
        outputs = self._outputs
        if compact and self._k is not None:
            outputs = [*outputs, ("neighbor", gather.NODE, (self._k,), self._like.dtype, None)]
        for attribute, rows, shape, presented, stored in outputs:
            array, tensor = empty((totals[rows], *shape), presented, pin=pin)
            values[attribute] = tensor
            if stored is not None:
                copied = np.empty(array.shape, stored)
                converted.append((array, copied))
                tensor = torch.from_numpy(copied)
            targets.append(tensor.data_ptr())
        level, row_bytes, offset, width = self._layout
        gather.copy_rows(address, counts, level, row_bytes, offset, width, np.array(targets, np.int64))
        for array, copied in converted:
            np.copyto(array, copied, casting="unsafe")
        if self.lengths or (self.edges and not compact):
            self._connect(address[len(self._outputs) :], counts, totals, values, pin=pin)
        del held  # the copies of compressed rows were needed until here
        return values, counts

    def _connect(
        self,
        address: NDArray[np.int64],
        counts: NDArray[np.int64],
        totals: Sequence[int],
        values: dict[str, torch.Tensor],
        *,
        pin: bool,
    ) -> None:
        """Add ``edge_index`` and the lengths of the edges."""
        _, nodes, edges = counts
        total_nodes, total_edges = totals[gather.NODE], totals[gather.EDGE]
        index, values["edge_index"] = empty((2, total_edges), _INT64, pin=pin)
        if self._k is not None:
            gather.neighbors_to_edges(address[0], nodes, self._k, self._like, index)
        else:
            gather.pairs_to_edges(address, nodes, edges, self._like, index)
        if self.lengths:
            lengths, values["edge_attr"] = empty((total_edges, 1), _FLOAT32, pin=pin)
            wrong = gather.edge_lengths(values["pos"].numpy(), index[0], index[1], lengths)
            if wrong >= 0:
                raise DamagedInput(
                    f"A shard of {self.store.build.path} is damaged: an edge leads out of its graph.",
                    expected=f"nodes below {total_nodes}",
                    found=f"{index[0, wrong]} to {index[1, wrong]}",
                    left="the files are as they were",
                    next=f"kmip-data verify {self.store.build.path} --repair",
                )


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], *, pin: bool) -> tuple[NDArray[Any], torch.Tensor]:
    """Return an array and the tensor that shares its memory."""
    if pin:
        torch_dtype = torch.from_numpy(np.empty(0, dtype)).dtype
        tensor = torch.empty(shape, dtype=torch_dtype, pin_memory=True)
        return tensor.numpy(), tensor
    array = buffers.empty(shape, dtype)
    return array, torch.from_numpy(array)


def _same(field: Field) -> bool:
    """Whether presented bytes are stored bytes; a boolean is stored as 0 or 1."""
    return field.presented in {field.stored, np.dtype(np.bool_)}
