"""Batches of sampled neighbourhoods, called as PyTorch Geometric's ``NeighborLoader``."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from kmip_data.errors import UsageError
from kmip_data.graphs.neighbor_sampling import Neighborhoods
from kmip_data.text import nearest_name

SUBGRAPHS = ("directional", "bidirectional", "induced")


class NeighborLoader(NodeLoader):  # type: ignore[misc] # torch-geometric has no types
    """Batches of a graph with sampled neighbours, as ``torch_geometric.loader.NeighborLoader``.

    Neither pyg-lib nor torch-sparse is needed. Batches have the attributes of PyG's (``n_id``,
    ``e_id``, ``input_id``, ``batch_size``, ``num_sampled_nodes``, ``num_sampled_edges``), seeds
    first. Only the random choice differs: it is a function of seed, epoch and nodes of the batch,
    whatever ``num_workers`` is.

    Parameters
    ----------
    data
        Homogeneous graph with ``edge_index``.
    num_neighbors
        Incoming edges drawn of each node in each hop; −1: all.
    input_nodes
        Nodes that the batches are made of, int64 indices or a bool mask (N,); None: all.
    replace
        Draw with replacement.
    subgraph_type
        ``directional``: the drawn edges; ``bidirectional``: also their reverse; ``induced``: all
        edges between the nodes drawn.
    transform, transform_sampler_output, filter_per_worker, is_sorted
        As in PyG; ``is_sorted`` changes nothing.
    directed
        Deprecated in PyG: False means ``subgraph_type="induced"``.
    seed
        Of order and draws; None: from torch's global generator, or ``generator`` where that is
        given.
    **options
        Of ``torch.utils.data.DataLoader``: ``batch_size``, ``shuffle``, ``drop_last``,
        ``num_workers``, ``generator`` …; ``persistent_workers`` changes nothing.

    Raises
    ------
    UsageError
        Heterogeneous or remote data; ``disjoint``, ``time_attr``, ``input_time``, ``weight_attr``
        or ``neighbor_sampler``, which this loader does not have; an argument out of range.
    """

    def __init__(  # noqa: PLR0913 -- PyTorch Geometric's arguments, and ours
        self,
        data: Data,
        num_neighbors: Sequence[int],
        input_nodes: Tensor | None = None,
        *,
        replace: bool = False,
        subgraph_type: str = "directional",
        transform: Callable[[Data], object] | None = None,
        transform_sampler_output: Callable[[SamplerOutput], SamplerOutput] | None = None,
        filter_per_worker: bool | None = None,
        is_sorted: bool = False,
        directed: bool = True,
        seed: int | None = None,
        **options: object,
    ) -> None:
        # PyG passes an enumeration or its text, and an older flag for the induced graph.
        name = str(getattr(subgraph_type, "value", subgraph_type)) if directed else "induced"
        _check_arguments(data, num_neighbors, name, options)
        _check_nodes("edge_index", data.edge_index, data, (2, data.num_edges))
        if input_nodes is not None:
            _check_nodes(
                "input_nodes",
                torch.as_tensor(input_nodes),
                data,
                None,
            )
        if seed is not None:
            if not isinstance(seed, (int, np.integer)) or not -(2**63) <= seed < 2**64:
                raise UsageError(f"seed must be an integer of 64 bits, not {seed!r}.")
            options["generator"] = torch.Generator().manual_seed(int(seed))
        # Workers get the number of an epoch when they start.
        options.pop("persistent_workers", None)
        sampler = _Sampler(
            data,
            [int(fanout) for fanout in num_neighbors],
            replace,
            name,
        )
        super().__init__(
            data,
            sampler,
            input_nodes,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            **options,
        )

    def _get_iterator(self) -> object:
        # Drawn here, in the process that iterates: workers get it with the sampler.
        number = torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        self.node_sampler.epoch = int(number)
        return super()._get_iterator()


class _Sampler(BaseSampler):  # type: ignore[misc] # as above
    """The draw of one batch, in the form that PyG's ``NodeLoader`` takes."""

    def __init__(
        self,
        data: Data,
        fanouts: list[int],
        replace: bool,
        name: str,
    ) -> None:
        self._graph = Neighborhoods(data.edge_index.cpu().numpy(), int(data.num_nodes or 0))
        self._fanouts = fanouts
        self._replace = replace
        self._name = name
        self.epoch = 0  #: number drawn at the start of the epoch

    def sample_from_nodes(self, inputs: NodeSamplerInput, **_: object) -> SamplerOutput:
        """Return the sampled graph around the nodes of a batch."""
        seeds = inputs.node.cpu().numpy()
        # Seeded by epoch and nodes: any worker draws the same for the same batch.
        key = [self.epoch, zlib.crc32(seeds.tobytes())]
        sampled = self._graph.sample_around(
            seeds,
            self._fanouts,
            np.random.Generator(np.random.PCG64(key)),
            replace=self._replace,
            induced=self._name == "induced",
        )
        output = SamplerOutput(
            node=torch.from_numpy(sampled.nodes),
            edge=torch.from_numpy(sampled.edges),
            row=torch.from_numpy(sampled.source),
            col=torch.from_numpy(sampled.target),
            batch=None,
            num_sampled_nodes=sampled.hop_nodes,
            num_sampled_edges=sampled.hop_edges or None,
            metadata=(inputs.input_id, inputs.time),
        )
        if self._name == "bidirectional":
            return output.to_bidirectional()
        return output

    def sample_from_edges(self, *_: object, **__: object) -> SamplerOutput:
        """Not for this loader, whose batches are made of nodes."""
        raise NotImplementedError


def _check_nodes(
    name: str,
    values: Tensor,
    data: Data,
    shape: tuple[int, int] | None,
) -> None:
    """Raise UsageError for anything but numbers of nodes of this shape, or a mask without one."""
    nodes = int(data.num_nodes or 0)
    if shape is None and values.dtype == torch.bool:
        fits = values.shape == (nodes,)
    else:
        whole = values.dtype in {torch.int32, torch.int64}
        fits = whole and values.shape == (shape or (values.numel(),))
        if fits and values.numel():
            fits = 0 <= int(values.min()) <= int(values.max()) < nodes
    if not fits:
        raise UsageError(
            f"{name} must be numbers of nodes, 0 to {nodes - 1}, or a mask of all nodes.",
            found=f"{values.dtype} of shape {tuple(values.shape)}",
        )


def _check_arguments(
    data: object, num_neighbors: object, name: str, options: dict[str, object]
) -> None:
    missing = (
        "disjoint",
        "temporal_strategy",
        "time_attr",
        "input_time",
        "weight_attr",
        "neighbor_sampler",
    )
    # Options that PyG would need pyg-lib for are refused, not ignored.
    for option in missing:
        value = options.pop(option, None)
        if value is not None and value is not False and str(value) != "uniform":
            raise UsageError(
                f"NeighborLoader cannot do {option}.",
                next="leave it out, or torch_geometric.loader.NeighborLoader, which needs pyg-lib",
            )
    known: set[str] = set()
    for loader in (NeighborLoader, NodeLoader, DataLoader):
        known |= inspect.signature(loader).parameters.keys()
    for option in options:
        if option not in known:
            close = nearest_name(option, known)
            hint = f" Did you mean {close!r}?" if close else ""
            raise TypeError(f"NeighborLoader has no argument {option!r}.{hint}")
    if not isinstance(data, Data) or data.edge_index is None:
        raise UsageError(
            f"NeighborLoader needs a Data with edge_index, not {type(data).__name__}.",
            next="dataset[0], where a dataset has one graph",
        )
    whole = isinstance(num_neighbors, Sequence) and all(
        isinstance(n, (int, np.integer)) and n >= -1 for n in num_neighbors
    )
    if not whole or not num_neighbors:
        raise UsageError(
            f"num_neighbors must be numbers of at least -1, one a hop, not {num_neighbors!r}."
        )
    if name not in SUBGRAPHS:
        raise UsageError(f"subgraph_type must be one of {', '.join(SUBGRAPHS)}, not {name!r}.")
