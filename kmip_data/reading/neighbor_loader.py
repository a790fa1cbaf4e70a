"""Batches of sampled neighbourhoods, compatible with PyTorch Geometric's ``NeighborLoader``."""

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

SUBGRAPH_TYPES = ("directional", "bidirectional", "induced")


class NeighborLoader(NodeLoader):  # type: ignore[misc] # torch-geometric has no types
    """Load a graph in batches with sampled neighbours, like ``torch_geometric.loader.NeighborLoader``.

    Needs neither pyg-lib nor torch-sparse. Batches have PyG's attributes (``n_id``, ``e_id``,
    ``input_id``, ``batch_size``, ``num_sampled_nodes``, ``num_sampled_edges``), with seed nodes
    first. Only the random choice differs: it depends on seed, epoch and nodes of the batch, but not
    on ``num_workers``.

    Parameters
    ----------
    data
        Homogeneous graph with ``edge_index``.
    num_neighbors
        Incoming edges sampled per node in each hop; −1 for all.
    input_nodes
        Seed nodes of the batches, int64 indices or a bool mask (N,); None for all nodes.
    replace
        Sample with replacement.
    subgraph_type
        ``directional``: the sampled edges; ``bidirectional``: also their reverse; ``induced``: all
        edges between the sampled nodes.
    transform, transform_sampler_output, filter_per_worker, is_sorted
        As in PyG; ``is_sorted`` has no effect.
    directed
        Deprecated in PyG: False means ``subgraph_type="induced"``.
    seed
        Seed of order and samples. Default: drawn from ``generator``, else from torch's global
        generator.
    **options
        Arguments of ``torch.utils.data.DataLoader``: ``batch_size``, ``shuffle``, ``drop_last``,
        ``num_workers``, ``generator`` …; ``persistent_workers`` has no effect.

    Raises
    ------
    UsageError
        The data is heterogeneous; an argument is unsupported (``disjoint``, ``time_attr``,
        ``input_time``, ``weight_attr``, ``neighbor_sampler``) or out of range.
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
        # PyG accepts an enumeration or its string value, and an older flag for the induced graph.
        type_name = str(getattr(subgraph_type, "value", subgraph_type)) if directed else "induced"
        _check_arguments(data, num_neighbors, type_name, options)
        _check_nodes("edge_index", data.edge_index, data, (2, data.num_edges))
        if input_nodes is not None:
            _check_nodes("input_nodes", torch.as_tensor(input_nodes), data, None)
        if seed is not None:
            if not isinstance(seed, (int, np.integer)) or not -(2**63) <= seed < 2**64:
                raise UsageError(f"seed must be a 64-bit integer, not {seed!r}.")
            options["generator"] = torch.Generator().manual_seed(int(seed))
        # Workers receive the epoch when they start, so they must not persist.
        options.pop("persistent_workers", None)
        fanouts = [int(fanout) for fanout in num_neighbors]
        sampler = _NeighborhoodSampler(data, fanouts, replace, type_name)
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
        # Draw in the main process: workers receive the seed with the sampler.
        seed = torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        self.node_sampler.epoch_seed = int(seed)
        return super()._get_iterator()


class _NeighborhoodSampler(BaseSampler):  # type: ignore[misc] # as above
    """Sampler of the neighbourhoods of one batch, for PyG's ``NodeLoader``."""

    def __init__(
        self,
        data: Data,
        fanouts: list[int],
        replace: bool,
        subgraph_type: str,
    ) -> None:
        self._graph = Neighborhoods(data.edge_index.cpu().numpy(), int(data.num_nodes or 0))
        self._fanouts = fanouts
        self._replace = replace
        self._subgraph_type = subgraph_type
        self.epoch_seed = 0  #: number drawn at the start of each epoch

    def sample_from_nodes(self, inputs: NodeSamplerInput, **_: object) -> SamplerOutput:
        """Return the sampled graph around the nodes of a batch."""
        seeds = inputs.node.cpu().numpy()
        # Seed by epoch and nodes, so that every worker draws the same sample for the same batch.
        key = [self.epoch_seed, zlib.crc32(seeds.tobytes())]
        sampled = self._graph.sample_around(
            seeds,
            self._fanouts,
            np.random.Generator(np.random.PCG64(key)),
            replace=self._replace,
            induced=self._subgraph_type == "induced",
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
        if self._subgraph_type == "bidirectional":
            return output.to_bidirectional()
        return output

    def sample_from_edges(self, *_: object, **__: object) -> SamplerOutput:
        """Raise an error: the batches of this loader start from nodes."""
        raise NotImplementedError


def _check_nodes(
    name: str,
    values: Tensor,
    data: Data,
    shape: tuple[int, int] | None,
) -> None:
    """Raise ``UsageError`` unless ``values`` are node indices of this shape; ``None`` allows a mask."""
    nodes = int(data.num_nodes or 0)
    if shape is None and values.dtype == torch.bool:
        is_valid = values.shape == (nodes,)
    else:
        has_integers = values.dtype in {torch.int32, torch.int64}
        is_valid = has_integers and values.shape == (shape or (values.numel(),))
        if is_valid and values.numel():
            is_valid = 0 <= int(values.min()) <= int(values.max()) < nodes
    if not is_valid:
        raise UsageError(
            f"{name} must be node indices, 0 to {nodes - 1}, or a mask of all nodes.",
            found=f"{values.dtype} of shape {tuple(values.shape)}",
        )


def _check_arguments(
    data: object, num_neighbors: object, subgraph_type: str, options: dict[str, object]
) -> None:
    """Raise an error for an unknown, unsupported or invalid argument."""
    unsupported_options = (
        "disjoint",
        "temporal_strategy",
        "time_attr",
        "input_time",
        "weight_attr",
        "neighbor_sampler",
    )
    for option in unsupported_options:
        value = options.pop(option, None)
        if value is not None and value is not False and str(value) != "uniform":
            raise UsageError(
                f"NeighborLoader does not support {option}.",
                steps="leave it out, or torch_geometric.loader.NeighborLoader, which needs pyg-lib",
            )
    supported_options: set[str] = set()
    for loader in (NeighborLoader, NodeLoader, DataLoader):
        supported_options |= inspect.signature(loader).parameters.keys()
    for option in options:
        if option not in supported_options:
            nearest = nearest_name(option, supported_options)
            hint = f" Did you mean {nearest!r}?" if nearest else ""
            raise TypeError(f"NeighborLoader has no argument {option!r}.{hint}")
    if not isinstance(data, Data) or data.edge_index is None:
        raise UsageError(
            f"NeighborLoader needs a Data with edge_index, not {type(data).__name__}.",
            steps="dataset[0], if the dataset is one graph",
        )
    are_fanouts = isinstance(num_neighbors, Sequence) and all(
        isinstance(n, (int, np.integer)) and n >= -1 for n in num_neighbors
    )
    if not are_fanouts or not num_neighbors:
        raise UsageError(
            f"num_neighbors must be integers of at least -1, one per hop, not {num_neighbors!r}."
        )
    if subgraph_type not in SUBGRAPH_TYPES:
        raise UsageError(
            f"subgraph_type must be one of {', '.join(SUBGRAPH_TYPES)}, not {subgraph_type!r}."
        )
