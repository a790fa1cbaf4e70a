"""Graphs out of a store as tensors: one as ``Data``, or several at once as one ``Batch``."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Batch, Data

from kmip_data import buffers, gather
from kmip_data.errors import OutOfResources
from kmip_data.fields import Field, counts_nodes, item_order
from kmip_data.schema import EDGE_INDEX, NEIGHBOR
from kmip_data.store import Rows, ShardStore

#: PyTorch Geometric treats attributes with these in their names in its own ways when batching.
_SPECIAL: Final = ("index", "batch", "ptr", "adj", "face")

_LARGEST_TABLE: Final = 2**31


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
    """

    def __init__(self, store: ShardStore, fields: Sequence[Field], *, edges: bool, lengths: bool) -> None:
        self.store, self.fields, self.edges, self.lengths = store, tuple(fields), edges, lengths
        schema = store.schema
        names = [field.attribute for field in fields]
        names += [name for name, given in (("edge_index", edges), ("edge_attr", lengths)) if given]
        self.names = item_order(names)
        self.adds_num_nodes = "num_nodes" not in names and not counts_nodes(fields)
        self._k = schema.k or 0
        index = np.dtype(schema.index_dtype)
        self._like = np.empty(0, index)
        self._copied = self.fields
        if lengths and "pos" not in names:
            self._copied += (_position(store),)
        rows: list[Rows] = [(f.key, f.row_bytes, gather.LEVELS[f.level], 0) for f in self._copied]
        if (edges or lengths) and schema.edges == "neighbor":
            rows.append((NEIGHBOR, self._k * index.itemsize, gather.NODE, 0))
        elif (edges or lengths) and schema.edges == "index":
            rows += [(EDGE_INDEX, index.itemsize, gather.EDGE, plane) for plane in (0, 1)]
        self._rows = tuple(rows)
        self._level = np.array([gather.LEVELS[f.level] for f in self._copied], np.int64)
        self._row_bytes = np.array([f.row_bytes for f in self._copied], np.int64)
        self._offset = np.array([f.offset for f in self._copied], np.int64)
        self._width = np.array([f.width for f in self._copied], np.int64)

    @property
    def collates_plainly(self) -> bool:
        """Whether :meth:`batch` can join these attributes; no name has a meaning of its own to PyG."""
        return not any(part in field.attribute for field in self.fields for part in _SPECIAL)

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

    def data(self, graph: int) -> Data:
        """Return one graph as ``Data``."""
        values, counts = self._values(np.array([graph], np.int64), compact=False, pin=False)
        data = copy.copy(_template(Data))
        mapping = data._store._mapping  # noqa: SLF001
        for field in self.fields:
            if field.level == "graph":
                values[field.attribute] = _of_one(field, values[field.attribute])
        for name in self.names:
            mapping[name] = values[name]
        if self.adds_num_nodes:
            mapping["num_nodes"] = int(counts[gather.NODE, 0])
        return data

    def batch(
        self,
        graphs: NDArray[np.int64],
        *,
        compact: bool = False,
        pin: bool = False,
        follow: Sequence[str] = (),
    ) -> Batch:
        """Return several graphs as the ``Batch`` that ``Batch.from_data_list`` would make of them.

        Parameters
        ----------
        graphs
            (B,) numbers of graphs in source order, at least one.
        compact
            Put ``neighbor``, int32 (ΣN, k), numbered over the batch, in the place of ``edge_index``.
        pin
            Copy straight into page-locked memory.
        follow
            Attributes that get ``<name>_batch`` and ``<name>_ptr``.
        """
        values, counts = self._values(graphs, compact=compact, pin=pin)
        size = len(graphs)
        pointers = np.zeros((3, size + 1), np.int64)
        np.cumsum(counts, axis=1, out=pointers[:, 1:])
        shared = torch.from_numpy(pointers)
        slices = dict(zip(("graph", "node", "edge"), shared, strict=True))
        none = torch.zeros(size, dtype=torch.int64)
        batch = copy.copy(_template(Batch))
        store = batch._store  # noqa: SLF001
        mapping, slice_dict, inc_dict = store._mapping, {}, {}  # noqa: SLF001
        levels = {field.attribute: field for field in self.fields}
        for name in self.names:
            field = levels.get(name)
            if field is None:
                edges = name == "edge_index"
                name = "neighbor" if edges and compact else name  # noqa: PLW2901
                slice_dict[name] = slices["node" if name == "neighbor" else "edge"]
                inc_dict[name] = slices["node"][:-1] if edges else none
            elif name == "num_nodes" and field.form == "number":
                self._count_nodes(store, counts)
                continue
            else:
                slice_dict[name], inc_dict[name] = slices[field.level], none
                if field.level == "graph":
                    values[name], slice_dict[name], inc_dict[name] = _of_many(
                        field, values[name], slices, none
                    )
            mapping[name] = values[name]
            if name in follow:
                _follow(mapping, name, slice_dict[name])
        if self.adds_num_nodes:
            self._count_nodes(store, counts)
        mapping["batch"] = _numbered(counts[gather.NODE], pin=pin)
        mapping["ptr"] = slices["node"].clone()
        batch._num_graphs = size  # noqa: SLF001
        batch._slice_dict, batch._inc_dict = slice_dict, inc_dict  # noqa: SLF001
        return batch

    @staticmethod
    def _count_nodes(store: Any, counts: NDArray[np.int64]) -> None:
        store._num_nodes = counts[gather.NODE].tolist()  # noqa: SLF001
        store.num_nodes = sum(store._num_nodes)  # noqa: SLF001

    def _values(
        self, graphs: NDArray[np.int64], *, compact: bool, pin: bool
    ) -> tuple[dict[str, Any], NDArray[np.int64]]:
        """Tensors of all attributes, rows of one graph after the other, and their counts (3, B)."""
        address, counts, held = self.store.sources(self._rows, graphs)
        totals = counts.sum(axis=1).tolist()
        values: dict[str, Any] = {}
        outputs, copies = [], []
        for field in self._copied:
            shape = (totals[gather.LEVELS[field.level]], *field.shape)
            array, values[field.attribute] = _empty(shape, field.presented, pin=pin)
            same = field.presented in {field.stored, np.dtype(np.bool_)}
            copied = array if same else np.empty(shape, field.stored)
            copies.append(copied)
            if not same:
                outputs.append((array, copied))
        fields = len(self._copied)
        target = np.array([copied.__array_interface__["data"][0] for copied in copies], np.int64)
        gather.copy_rows(
            address[:fields], counts, self._level, self._row_bytes, self._offset, self._width, target
        )
        for array, copied in outputs:
            np.copyto(array, copied, casting="unsafe")
        if self.edges or self.lengths:
            self._connect(address[fields:], counts, totals, values, compact=compact, pin=pin)
        del held  # the copies of compressed rows were needed until here
        return values, counts

    def _connect(
        self,
        address: NDArray[np.int64],
        counts: NDArray[np.int64],
        totals: Sequence[int],
        values: dict[str, Any],
        *,
        compact: bool,
        pin: bool,
    ) -> None:
        """Add ``edge_index`` or ``neighbor``, and the lengths of the edges."""
        nodes = counts[gather.NODE]
        total_nodes, total_edges = totals[gather.NODE], totals[gather.EDGE]
        if compact:
            if total_nodes >= _LARGEST_TABLE:
                raise OutOfResources(
                    "A batch is too large for a neighbour table.",
                    expected=f"fewer than {_LARGEST_TABLE:,} nodes",
                    found=f"{total_nodes:,} nodes",
                    next="use a smaller batch_size or max_nodes, or compact=False",
                )
            table, values["neighbor"] = _empty((total_nodes, self._k), np.dtype(np.int32), pin=pin)
            gather.neighbors_to_table(address[0], nodes, self._k, self._like, table)
            ends = (table.reshape(-1), np.repeat(np.arange(total_nodes), self._k)) if self.lengths else None
        else:
            index, values["edge_index"] = _empty((2, total_edges), np.dtype(np.int64), pin=pin)
            if self._k and len(address) == 1:
                gather.neighbors_to_edges(address[0], nodes, self._k, self._like, index)
            else:
                gather.pairs_to_edges(address, nodes, counts[gather.EDGE], self._like, index)
            ends = (index[0], index[1])
        if self.lengths and ends is not None:
            lengths, values["edge_attr"] = _empty((total_edges, 1), np.dtype(np.float32), pin=pin)
            gather.edge_lengths(values["pos"].numpy(), *ends, lengths)


def _position(store: ShardStore) -> Field:
    from kmip_data.fields import item_fields

    (field,), _ = item_fields(store.schema, ["pos"])
    return field


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any], *, pin: bool) -> tuple[NDArray[Any], torch.Tensor]:
    """Return an array and the tensor that shares its memory."""
    if pin:
        torch_dtype = torch.from_numpy(np.empty(0, dtype)).dtype
        tensor = torch.empty(shape, dtype=torch_dtype, pin_memory=True)
        return tensor.numpy(), tensor
    array = buffers.empty(shape, dtype)
    return array, torch.from_numpy(array)


def _numbered(nodes: NDArray[np.int64], *, pin: bool) -> torch.Tensor:
    array, tensor = _empty((int(nodes.sum()),), np.dtype(np.int64), pin=pin)
    gather.number_nodes(nodes, array)
    return tensor


def _of_one(field: Field, rows: torch.Tensor) -> Any:
    """Give the form of ``field`` to the one row of a graph column."""
    if field.form == "axis":
        return rows
    return rows[0] if field.form == "row" else _plain(field, rows)[0]


def _of_many(
    field: Field, rows: torch.Tensor, slices: dict[str, torch.Tensor], none: torch.Tensor
) -> tuple[Any, torch.Tensor, torch.Tensor | None]:
    """Value, slices and increments of a graph column over a batch, as PyG's ``collate`` gives them."""
    if field.form == "text":
        return _plain(field, rows), slices["graph"], None
    if field.form == "number":
        return torch.tensor(_plain(field, rows)), slices["graph"], none
    if field.form == "row" and field.shape:
        return rows.flatten(0, 1), slices["graph"] * field.shape[0], none
    return rows, slices["graph"], none


def _plain(field: Field, rows: torch.Tensor) -> list[Any]:
    """Python numbers or strings of a graph column."""
    if field.form == "number":
        return rows.tolist()  # type: ignore[no-any-return]
    return [bytes(row).rstrip(b"\0").decode("utf-8") for row in rows.numpy()]


def _follow(mapping: dict[str, Any], name: str, slices: torch.Tensor) -> None:
    sizes = slices[1:] - slices[:-1]
    mapping[f"{name}_batch"] = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    mapping[f"{name}_ptr"] = slices.clone()


@functools.cache
def _template(kind: type[Any]) -> Any:
    """Return an empty one to copy: making a batch inspects signatures, which takes longer than a gather."""
    return kind()


def expand_edges(batch: Batch) -> Batch:
    """Put ``edge_index`` in the place of the neighbour table of a compact batch, on its device.

    Parameters
    ----------
    batch
        With ``neighbor`` (ΣN, k), numbered over the batch; it is not changed.

    Returns
    -------
    A copy of the batch (other attributes are shared) that equals the batch of
    ``GraphLoader(…, compact=False)``.
    """
    neighbor = batch.neighbor
    nodes, k = neighbor.shape
    index = torch.empty((2, nodes * k), dtype=torch.int64, device=neighbor.device)
    index[0].copy_(neighbor.reshape(-1))
    index[1].view(nodes, k).copy_(torch.arange(nodes, device=neighbor.device)[:, None])
    out = copy.copy(batch)
    store = out._store  # noqa: SLF001
    store._mapping = {**_renamed(store._mapping), "edge_index": index}  # noqa: SLF001
    if hasattr(store, "_slice_dict"):
        slices = _renamed(store._slice_dict)  # noqa: SLF001
        store._slice_dict = {**slices, "edge_index": slices["edge_index"] * k}  # noqa: SLF001
        store._inc_dict = _renamed(store._inc_dict)  # noqa: SLF001
    return out


def _renamed(values: dict[str, Any]) -> dict[str, Any]:
    return {("edge_index" if name == "neighbor" else name): value for name, value in values.items()}
