"""Functions that worker processes of reading tests import."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import torch
import torch.distributed as dist

from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader


def add_open_shards(data):
    """Transform: how many shards the reading process holds open (as files, not as maps)."""
    names = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile, by another thread or the listing
            names.append(entry.readlink().name)
    data.open_shards = torch.tensor([sum(name.endswith(".h5") for name in names)])
    return data


def run_rank(rank, world_size, rendezvous, folder, cases, queue):
    """One process of a gloo group: send, for each case, len and the graphs of each batch of two epochs."""
    os.environ["OMP_NUM_THREADS"] = "1"
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world_size)
    try:
        dataset = ShardedDataset(folder)
        found = []
        for arguments in cases:
            loader = GraphLoader(dataset, **arguments)
            length = len(loader)
            found.append((length, [[batch.number.tolist() for batch in loader] for _ in range(2)]))
        queue.put((rank, found))
        dist.barrier()
    finally:
        dist.destroy_process_group()
