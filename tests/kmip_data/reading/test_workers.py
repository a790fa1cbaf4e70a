"""PyG's DataLoader with worker processes of every kind, and GraphLoader by rank."""

import pytest
import torch
from support.builds import numbered_build, s3dis_records, s3dis_schema, write_build
from support.same import assert_same
from torch_geometric.loader import DataLoader

from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader


@pytest.mark.parametrize(
    ("method", "compression"),
    [("fork", None), ("fork", "gzip"), pytest.param("forkserver", "gzip", marks=pytest.mark.slow)],
)
def test_workers_give_what_one_process_gives(tmp_path, method, compression):
    options = {"compression": compression, "per_shard": 3}
    dataset = ShardedDataset(write_build(tmp_path / "b", s3dis_records(24), s3dis_schema(), **options))
    list(dataset[:5])  # some shards are mapped, or open, before the workers start
    loader = DataLoader(dataset, 5, num_workers=2, multiprocessing_context=method, timeout=600)
    for batch, other in zip(loader, DataLoader(dataset, 5), strict=True):
        assert_same(batch, other)


SHUFFLED = {"batch_size": 4, "shuffle": True, "seed": 3}
BY_NODES = {"max_nodes": 60, "bucket": 12, "shuffle": True}
EVEN = {"batch_size": 8, "even": True}


def test_ranks_of_torch_distributed_share_the_graphs_out(tmp_path, monkeypatch):
    graphs, ranks = 33, 2
    dataset = ShardedDataset(numbered_build(tmp_path / "b", graphs))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: ranks)
    for case in (SHUFFLED, BY_NODES, EVEN):
        found = []
        for rank in range(ranks):
            monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
            loader = GraphLoader(dataset, **case)
            batches = len(loader)
            found.append([[batch.number.tolist() for batch in loader] for _ in range(2)])
            assert len(found[-1][0]) == batches
        for epoch in range(2):
            shares = [[graph for batch in epochs[epoch] for graph in batch] for epochs in found]
            assert set(shares[0]) | set(shares[1]) == set(range(graphs))
            assert len(shares[0]) + len(shares[1]) - graphs == (1 if case is EVEN else 0)
        if case is EVEN:
            assert [len(epochs[0]) for epochs in found] == [3, 3]
        else:
            assert found[0][0] != found[0][1]
