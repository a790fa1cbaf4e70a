"""Read graphs of PyTorch Geometric from files of ``torch.save``, without either library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.formats.pickles import Allowed, Pending, RefusedError, never_called
from kmip_data.pipelines.formats.tensors import NUMPY, stream_torch_list


class PickledData(Pending):
    """A ``Data`` object or its storage, whose attributes are taken for data."""

    __slots__ = ("mapping",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        if arguments:
            raise RefusedError("a Data object made with arguments")
        self.mapping: Any = None

    def finish(self, state: Any) -> None:
        """Take the attributes: those of ``Data`` lie in its storage, those of a storage in a mapping."""
        store = state.get("_store", state) if isinstance(state, dict) else None
        store = store.mapping if isinstance(store, PickledData) else store
        self.mapping = store.get("_mapping", store) if isinstance(store, dict) else None
        self.value = self


#: Classes that may be named where a ``Data`` object was saved.
PYG: Final[Allowed] = {
    "torch_geometric.data.data.Data": PickledData,
    "torch_geometric.data.storage.GlobalStorage": PickledData,
    "torch_geometric.data.data.DataTensorAttr": never_called("a class of PyTorch Geometric"),
    "torch_geometric.data.data.DataEdgeAttr": never_called("a class of PyTorch Geometric"),
}


def stream_graphs(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the attributes of each graph of a saved list of ``Data``; tensors as numpy arrays.

    Arrays are views of the file, valid until the next graph is asked for. Raises ``DamagedInput`` where the
    file holds something else, or asks for anything but data.
    """
    for number, graph in enumerate(stream_torch_list(path, {**NUMPY, **PYG})):
        mapping = graph.mapping if isinstance(graph, PickledData) else None
        if not isinstance(mapping, dict):
            raise DamagedInput(f"{path.name}, item {number}: {type(graph).__name__} instead of a graph.")
        yield mapping
