"""Whether the arguments of a loader are valid and go together; every mistake says what to use instead."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from kmip_data.errors import UsageError
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.order import BatchRule

#: Arguments of PyTorch's ``DataLoader`` that have no meaning here, and what to use instead.
_REFUSED: Final = {
    "num_workers": "num_threads and prefetch: batches are gathered by threads, not by processes",
    "collate_fn": "a transform of the dataset, or torch_geometric.loader.DataLoader",
    "worker_init_fn": "nothing: there are no worker processes",
    "multiprocessing_context": "nothing: there are no worker processes",
    "persistent_workers": "nothing: there are no worker processes",
    "timeout": "nothing: there are no worker processes",
    "prefetch_factor": "prefetch, the number of batches made ahead",
    "generator": "seed, which fixes the order of every epoch",
    "pin_memory_device": "pin_memory=True",
    "in_order": "nothing: batches always come in order",
}


def refuse_others(arguments: dict[str, Any]) -> None:
    """Refuse arguments that the loader does not have."""
    for name in arguments:
        if name not in _REFUSED:
            raise TypeError(f"GraphLoader() got an unexpected keyword argument {name!r}")
        raise UsageError(
            f"GraphLoader does not take {name}.", expected=f"use {_REFUSED[name]}", found=f"{name}=…"
        )


def sharded_dataset(dataset: Any) -> ShardedDataset:
    """Return the sharded dataset that ``dataset`` is, or is a subset of."""
    if isinstance(dataset, torch.utils.data.Subset):
        whole = sharded_dataset(dataset.dataset)
        return whole.index_select(list(dataset.indices))  # type: ignore[no-any-return]
    if isinstance(dataset, ShardedDataset):
        return dataset
    raise UsageError(
        "GraphLoader reads datasets of this package.",
        expected="S3DIS, ShapeNetPart, kmip_data.open(…) or another ShardedDataset",
        found=type(dataset).__name__,
        next="kmip_data.save(dataset, folder), then kmip_data.open(folder)",
    )


def check_numbers(least: int, **arguments: Any) -> None:
    """Refuse what is not a whole number, or too small."""
    for name, value in arguments.items():
        if not isinstance(value, int | np.integer) or value < least:
            expected = f"a whole number of at least {least}"
            raise UsageError(f"{name} is not valid.", expected=expected, found=repr(value))


def refuse_contradictions(
    rule: BatchRule, sampler: Any, batch_sampler: Any, rank: int | None, world_size: int | None
) -> None:
    """Refuse arguments that contradict each other."""
    own_order = rule.shuffle or rule.bucket is not None
    cut = rule.batch_size != 1 or rule.max_nodes is not None or rule.drop_last
    shared_out = rank is not None or world_size is not None or rule.even or rule.divide
    clashes = {
        "batch_size with max_nodes": rule.batch_size != 1 and rule.max_nodes is not None,
        "shuffle or bucket with a sampler": own_order and sampler is not None,
        "a sampler, shuffle, bucket, batch_size, max_nodes or drop_last with a batch_sampler": (
            batch_sampler is not None and (own_order or cut or sampler is not None)
        ),
        "divide with max_nodes": rule.divide and rule.max_nodes is not None,
        "rank, world_size, even or divide with a sampler, which shares out by itself": (
            shared_out and (sampler is not None or batch_sampler is not None)
        ),
        "rank without world_size, or world_size without rank": (rank is None) != (world_size is None),
        "a rank that is not below world_size": rank is not None and rank >= (world_size or 1),
    }
    for clash, found in clashes.items():
        if found:
            raise UsageError("Arguments of GraphLoader contradict each other.", found=clash)
