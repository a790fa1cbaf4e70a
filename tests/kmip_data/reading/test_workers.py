"""PyG's DataLoader with worker processes of every kind, and GraphLoader in distributed processes."""

import multiprocessing

import pytest
from support.builds import numbered_build, s3dis_records, s3dis_schema, write_build
from support.loading import add_open_shards, run_rank
from support.same import assert_same
from torch_geometric.loader import DataLoader

from kmip_data.reading.dataset import ShardedDataset


@pytest.mark.parametrize(
    ("workers", "method", "compression"),
    [
        (4, "fork", None),
        (1, "fork", "gzip"),
        pytest.param(1, "spawn", None, marks=pytest.mark.slow),
        pytest.param(1, "forkserver", "gzip", marks=pytest.mark.slow),
    ],
)
def test_workers_give_what_one_process_gives(tmp_path, workers, method, compression):
    build = write_build(
        tmp_path / "b", s3dis_records(24), s3dis_schema(), compression=compression, per_shard=3
    )
    dataset = ShardedDataset(build)
    list(dataset[:5])  # some shards are mapped, or open, before the workers start
    wanted = list(DataLoader(dataset, batch_size=5))
    loader = DataLoader(
        dataset,
        batch_size=5,
        num_workers=workers,
        multiprocessing_context=method,
        timeout=600,
    )
    for batch, other in zip(loader, wanted, strict=True):
        assert_same(batch, other)


@pytest.mark.parametrize(("compression", "most"), [(None, 0), ("gzip", 8)])
def test_workers_do_not_gather_open_files(tmp_path, compression, most):
    records = s3dis_records(24)
    build = write_build(tmp_path / "b", records, s3dis_schema(), per_shard=3, compression=compression)
    dataset = ShardedDataset(build, transform=add_open_shards)
    loader = DataLoader(dataset, batch_size=4, num_workers=1, persistent_workers=True)
    for _ in range(3):
        assert max(int(batch.open_shards.max()) for batch in loader) == most


SHUFFLED = {"batch_size": 4, "shuffle": True, "seed": 3}
BY_NODES = {"max_nodes": 60, "bucket": 12, "shuffle": True}
EVEN = {"batch_size": 8, "even": True}


@pytest.mark.slow
def test_ranks_share_the_graphs_out(tmp_path):
    graphs, ranks, cases = 33, 2, [SHUFFLED, BY_NODES, EVEN]
    build = numbered_build(tmp_path / "b", graphs)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    rendezvous = str(tmp_path / "rendezvous")
    processes = [
        context.Process(target=run_rank, args=(rank, ranks, rendezvous, str(build.path), cases, queue))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    found = dict(sorted(queue.get(timeout=600) for _ in processes))
    for process in processes:
        process.join(timeout=600)
        assert process.exitcode == 0
    for number, case in enumerate(cases):
        lengths = [found[rank][number][0] for rank in range(ranks)]
        epochs = [found[rank][number][1] for rank in range(ranks)]
        assert lengths == [len(epoch[0]) for epoch in epochs]
        for epoch in range(2):
            shares = [[graph for batch in epochs[rank][epoch] for graph in batch] for rank in range(ranks)]
            assert set(shares[0]) | set(shares[1]) == set(range(graphs))
            assert len(shares[0]) + len(shares[1]) - graphs == (1 if case is EVEN else 0)
        if case is EVEN:
            assert lengths == [3, 3]
        else:
            assert epochs[0][0] != epochs[0][1]
