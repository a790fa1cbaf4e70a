"""GraphLoader (kernel: gather) against PyTorch Geometric's DataLoader, bit for bit, and its order."""

import itertools
import pickle
import threading
import weakref

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from support.builds.same import assert_same_data
from support.builds.written import numbered_build, s3dis_records, s3dis_schema, write_build
from support.cases import wait_until
from torch.utils.data import DistributedSampler, Subset, random_split
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader, DynamicBatchSampler, ImbalancedSampler

from kmip_data.errors import UsageError
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader, batch_neighbors, expand_edges

ORDER = [4, 0, 29, 7, 7, 12, 3, 28, 1, 2, 11]


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return write_build(
        tmp_path_factory.mktemp("loader") / "build",
        s3dis_records(30),
        s3dis_schema(),
        parts={"train": [5, 3, 1, *range(10, 20)], "val": [0], "test": [2]},
        per_shard=4,
    )


@pytest.fixture(scope="module")
def dataset(build):
    return ShardedDataset(build)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    return ShardedDataset(numbered_build(tmp_path_factory.mktemp("loader") / "numbers", 50))


def numbers_of(loader):
    return [batch.number.tolist() for batch in loader]


def flat(batches):
    return [number for batch in batches for number in batch]


def threads():
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("kmip-data-")}


# -- the batches
# ------------------------------------------------------------------------------------


def assert_batches(batches, wanted):
    for batch, other in zip(batches, wanted, strict=True):
        assert_same_data(batch, other)


def test_batches_equal_pyg_at_any_prefetch_depth(dataset, subtests):
    wanted = list(DataLoader(dataset, 3, sampler=ORDER))
    for prefetch in (0, 1, 5):
        with subtests.test(f"{prefetch} ahead"):
            loader = GraphLoader(dataset, 3, sampler=ORDER, prefetch=prefetch)
            assert_batches(loader, wanted)


def test_arguments_of_pygs_loader_give_its_batches(dataset, subtests):
    for options in (
        {"follow_batch": ["x", "edge_index"]},
        {"exclude_keys": ["y", "pos"]},
        {"exclude_keys": ["edge_index"]},
        {"exclude_keys": ["x", "pos"], "follow_batch": ["y"]},
        {"drop_last": True},
        {"batch_size": 100},
    ):
        with subtests.test(str(options)):
            arguments = {"batch_size": 4, **options}
            assert_batches(GraphLoader(dataset, **arguments), DataLoader(dataset, **arguments))


def test_a_batch_is_not_kept_while_the_next_one_is_made(dataset):
    yielded = []

    def positions():
        yield [0, 1]
        yielded.append(yielded[0]() is None)  # the loader makes the second batch now
        yield [2]

    for batch in GraphLoader(dataset, batch_sampler=positions(), prefetch=0):
        yielded.append(weakref.ref(batch))
        del batch
    assert yielded[1]


def test_selections_parts_and_subsets_can_be_loaded(build, dataset):
    train = ShardedDataset(build, "train")
    for chosen in (train, train[::2], Subset(train, [3, 0, 1]), random_split(dataset, [20, 10])[1]):
        assert_batches(GraphLoader(chosen, 4), DataLoader(chosen, 4))


def test_compact_batches_expand_to_pygs(dataset):
    loader = GraphLoader(dataset, 7, compact=True)
    for batch, wanted in zip(loader, DataLoader(dataset, 7), strict=True):
        assert "edge_index" not in batch
        assert (batch.neighbor.dtype, batch.neighbor.shape) == (torch.uint16, (batch.num_nodes, 4))
        before = {name: value.clone() for name, value in batch.to_dict().items()}
        table = batch_neighbors(batch)
        assert table.dtype == torch.int32
        assert torch.equal(table.flatten().long(), wanted.edge_index[0])
        assert_same_data(expand_edges(batch), wanted)
        assert all(torch.equal(batch[name], value) for name, value in before.items())
        for item, other in zip(batch.to_data_list(), wanted.to_data_list(), strict=True):
            assert torch.equal(batch_neighbors(item).flatten().long(), other.edge_index[0])


def test_neighbour_tables_of_large_graphs_are_correct(tmp_path):
    """Above 65,536 nodes the table is uint32; indices above 32,767 have no sign."""
    from dataclasses import replace

    for nodes, limit, dtype in ((66_000, 100_000, torch.uint32), (65_536, 65_536, torch.uint16)):
        records = s3dis_records(2, nodes=(nodes, nodes))
        if limit > 65_536:
            records = [
                replace(r, neighbor=(r.neighbor.astype("u4") + 464) % nodes) for r in records
            ]
        schema = replace(s3dis_schema(), max_nodes=limit)
        dataset = ShardedDataset(write_build(tmp_path / str(nodes), records, schema))
        (batch,) = GraphLoader(dataset, 2, compact=True)
        (wanted,) = DataLoader(dataset, 2)
        assert batch.neighbor.dtype == dtype
        assert int(wanted.edge_index.max()) > 65_536
        assert_same_data(expand_edges(batch), wanted)


def test_neighbour_tables_of_other_batches_are_expanded(dataset):
    batch = next(iter(GraphLoader(dataset, 3, compact=True)))
    wanted = next(iter(DataLoader(dataset, 3)))
    for bare in (
        Batch(batch=batch.batch, ptr=batch.ptr, neighbor=batch.neighbor),
        Batch(ptr=batch.ptr, neighbor=batch.neighbor),
    ):
        assert torch.equal(expand_edges(bare).edge_index, wanted.edge_index)
    for dtype in (torch.int32, torch.int64):  # numbered over the batch already
        batch.neighbor = wanted.edge_index[0].view(-1, 4).to(dtype)
        assert batch_neighbors(batch) is batch.neighbor
        assert torch.equal(expand_edges(batch).edge_index, wanted.edge_index)
    for function in (batch_neighbors, expand_edges):
        with pytest.raises(UsageError):
            function(wanted)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_pinned_compact_batches_expand_on_a_gpu(dataset):
    loader = GraphLoader(dataset, 5, compact=True, pin_memory=True)
    for batch, wanted in zip(loader, DataLoader(dataset, 5), strict=True):
        assert batch.x.is_pinned()
        assert batch.neighbor.is_pinned()
        moved = expand_edges(batch.to("cuda", non_blocking=True))
        assert moved.edge_index.is_cuda
        assert_same_data(moved.cpu(), wanted)


def test_transform_takes_the_slow_path(build):
    dataset = ShardedDataset(build)
    options = {"sampler": ORDER, "follow_batch": ["x"], "exclude_keys": ["y"]}
    loader = GraphLoader(dataset, 4, **options)
    list(loader)
    dataset.transform = T.Compose(
        [T.NormalizeFeatures(), T.Distance(norm=False)]
    )  # after the loader was made
    assert_batches(loader, DataLoader(dataset, 4, **options))


def test_seed_fixes_the_order_for_any_number_of_batches_ahead(numbers):
    epochs = []
    for prefetch in (0, 2, 9):
        loader = GraphLoader(numbers, 4, shuffle=True, seed=9, prefetch=prefetch)
        epochs.append([numbers_of(loader) for _ in range(3)])
    assert epochs[0] == epochs[1] == epochs[2]
    assert epochs[0][0] != epochs[0][1]
    assert sorted(flat(epochs[0][0])) == sorted(flat(epochs[0][1])) == list(range(50))
    assert numbers_of(GraphLoader(numbers, 4, shuffle=True, seed=8)) != epochs[0][0]


def test_an_epoch_can_be_repeated_by_its_number(numbers):
    loader = GraphLoader(numbers, 4, shuffle=True)
    epochs = [numbers_of(loader) for _ in range(3)]
    loader.set_epoch(1)
    assert numbers_of(loader) == epochs[1]
    assert numbers_of(loader) == epochs[2]
    loader.sampler.set_epoch(0)  # as Lightning does
    assert numbers_of(loader) == epochs[0]
    iterator = iter(loader)
    loader.set_epoch(2)  # before the first batch
    assert [batch.number.tolist() for batch in iterator] == epochs[2]


RESUMED = [
    {"batch_size": 4, "prefetch": 3},
    {"max_nodes": 40, "bucket": 10, "prefetch": 0},
    {"batch_size": 2, "rank": 1, "world_size": 3, "even": True},
]


@pytest.mark.parametrize("options", RESUMED)
def test_resumes_after_every_batch(numbers, options):
    def make():
        return GraphLoader(numbers, shuffle=True, seed=4, **options)

    whole = make()
    epochs = [numbers_of(whole) for _ in range(3)]
    for stop in range(1, len(epochs[1]) + 1):
        loader = make()
        numbers_of(loader)
        iterator = iter(loader)
        for _ in range(stop):
            next(iterator)
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        resumed = make()
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert numbers_of(resumed) == epochs[1][stop:]
        assert numbers_of(resumed) == epochs[2]


def test_a_restored_state_keeps_its_epoch(numbers):
    whole, loader, resumed = (GraphLoader(numbers, 4, shuffle=True) for _ in range(3))
    first, second = numbers_of(whole), numbers_of(whole)
    numbers_of(loader)
    next(iter(loader))
    # An epoch that is set after loading: the position stays, or another begins.
    for epoch, wanted in ((1, second[1:]), (0, first)):
        resumed.load_state_dict(loader.state_dict())
        resumed.set_epoch(epoch)
        assert numbers_of(resumed) == wanted


def test_a_state_of_another_order_is_refused(numbers):
    loader = GraphLoader(numbers, 4, shuffle=True)
    before, iterator = loader.state_dict(), iter(loader)
    next(iterator)
    within = loader.state_dict()
    for _ in range(12):
        next(iterator)
    after = loader.state_dict()  # all batches given out, but the iterator not asked for another
    for other in (
        GraphLoader(numbers, 5, shuffle=True),
        GraphLoader(numbers, 4, shuffle=True, seed=1),
        GraphLoader(numbers[:40], 4, shuffle=True),
        GraphLoader(numbers, 4, shuffle=True, even=True),
    ):
        with pytest.raises(UsageError):
            other.load_state_dict(within)
        first, second = numbers_of(other), numbers_of(other)
        other.load_state_dict(before)
        assert numbers_of(other) == first
        other.load_state_dict(after)
        GraphLoader(numbers, 4, shuffle=True).load_state_dict(other.state_dict())
        assert (numbers_of(other), numbers_of(other)) == ([], second)
    # Batches ahead and columns do not change the order.
    other = GraphLoader(numbers, 4, shuffle=True, prefetch=0, exclude_keys=["number"])
    other.load_state_dict(within)


RULES = {
    "batches": {"batch_size": 3},
    "divided": {"batch_size": 6, "divide": True},
    "buckets": {"batch_size": 2, "bucket": 11},
    "nodes": {"max_nodes": 40},
    "full": {"batch_size": 3, "drop_last": True},
    "even": {"batch_size": 3, "even": True},
}


@pytest.mark.parametrize("options", RULES.values(), ids=RULES)
def test_an_epoch_is_resumed_on_other_numbers_of_ranks(numbers, options):
    """Each graph once over three numbers of ranks, but those that drop_last or even concern."""

    def loaders(ranks):
        return [
            GraphLoader(numbers, shuffle=True, seed=2, rank=rank, world_size=ranks, **options)
            for rank in range(ranks)
        ]

    rng = np.random.default_rng(0)
    for first, second, third in itertools.product((1, 2, 3, 5), (1, 2, 4), (1, 3)):
        yielded = []
        state = None
        for ranks, is_last in ((first, False), (second, False), (third, True)):
            stop = None if is_last else int(rng.integers(1, 3))
            states = []
            for loader in loaders(ranks):
                if state is not None:
                    loader.load_state_dict(state)
                iterator = iter(loader)
                if stop is not None:
                    stop = max(1, min(stop, len(loader) - 1))  # a whole epoch has no rest
                for batch in itertools.islice(iterator, stop):
                    yielded += batch.number.tolist()
                states.append(loader.state_dict())
                iterator.close()
            assert is_last or len({state["position"] for state in states}) == 1
            state = pickle.loads(pickle.dumps(states[0]))

        lost = len(numbers) - len(set(yielded))
        repeated = len(yielded) - len(set(yielded))
        assert repeated < third if options.get("even") else not repeated
        # The second stretch may end the epoch, with what it dropped.
        assert lost < 3 * max(second, third) if options.get("drop_last") else not lost


def test_a_resumed_epoch_is_followed_by_a_whole_one(numbers):
    two = GraphLoader(numbers, 4, shuffle=True, rank=0, world_size=2)
    iterator = iter(two)
    next(iterator)
    iterator.close()
    one = GraphLoader(numbers, 4, shuffle=True)
    whole = [numbers_of(one) for _ in range(2)]
    one.load_state_dict(two.state_dict())
    assert sorted(flat(numbers_of(one))) == sorted(flat(whole[0][2:]))
    assert numbers_of(one) == whole[1]
    one.set_epoch(0)
    assert numbers_of(one) == whole[0]


def test_workers_are_one_thread_ahead(numbers):
    wanted = numbers_of(GraphLoader(numbers, 4, shuffle=True))
    before = threads()
    for workers, prefetch in ((0, 0), (1, 2), (9, 2)):
        loader = GraphLoader(numbers, 4, shuffle=True, num_workers=workers)
        assert loader.prefetch == prefetch
        iterator = iter(loader)
        next(iterator)
        assert len(threads() - before) == min(workers, 1)
        iterator.close()
        assert_no_more_threads(before)
        loader.set_epoch(0)
        assert loader.num_workers == workers
        assert numbers_of(loader) == wanted


def test_a_generator_gives_the_order_of_torch(numbers):
    def both(**options):
        generators = [torch.Generator().manual_seed(3) for _ in range(2)]
        ours = GraphLoader(numbers, 6, generator=generators[0], **options)
        theirs = DataLoader(numbers, 6, generator=generators[1], **options)
        epochs = [[numbers_of(loader) for _ in range(2)] for loader in (ours, theirs)]
        return epochs, [generator.get_state() for generator in generators]

    for options in ({"shuffle": True}, {"shuffle": True, "drop_last": True}, {}):
        (ours, theirs), states = both(**options)
        assert ours == theirs
        assert not options or torch.equal(*states)  # ours draws for workers only with a sampler


def test_a_loader_is_a_dataloader_that_shows_its_rule(numbers):
    loader = GraphLoader(
        numbers, 4, shuffle=True, seed=2, compact=False, num_workers=3, persistent_workers=True
    )
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert repr(loader) == f"GraphLoader({numbers!r}, {loader.rule!r})"
    assert "batch_size=4, shuffle=True, seed=2" in repr(loader)
    copy = pickle.loads(pickle.dumps(loader))
    assert numbers_of(copy) == numbers_of(loader)


RULES = [
    {},
    {"drop_last": True},
    {"bucket": 10, "batch_size": 4},
    {"max_nodes": 40, "batch_size": 1},
]


@pytest.mark.parametrize("rule", RULES)
def test_accelerate_divides_the_batches_of_the_epoch(numbers, rule):
    from accelerate.data_loader import prepare_data_loader

    options = {"batch_size": 4, "shuffle": True, "seed": 6, **rule}
    wanted = [numbers_of(GraphLoader(numbers, **options)) for _ in range(1)]
    alone = prepare_data_loader(GraphLoader(numbers, **options), num_processes=1, process_index=0)
    whole = GraphLoader(numbers, **options)
    assert [numbers_of(alone) for _ in range(3)] == [numbers_of(whole) for _ in range(3)]
    shares = [
        numbers_of(
            prepare_data_loader(
                GraphLoader(numbers, **options),
                num_processes=2,
                process_index=rank,
                even_batches="bucket" not in rule,
            )
        )
        for rank in range(2)
    ]
    dealt = [wanted[0][rank::2] for rank in range(2)]
    for share, dealt_batches in zip(shares, dealt, strict=True):
        assert (
            share[: len(dealt_batches) - 1] == dealt_batches[:-1]
        )  # the last batches are made equally long


def test_accelerate_makes_the_same_batches(dataset):
    import accelerate

    for options in ({"compact": True}, {"follow_batch": ["x"], "exclude_keys": ["pos"]}):
        loader = GraphLoader(dataset, 4, shuffle=True, **options)
        prepared = accelerate.Accelerator(cpu=True).prepare(loader)
        wanted = GraphLoader(dataset, 4, shuffle=True, **options)
        for batch, other in zip(prepared, wanted, strict=True):
            # PyTorch Geometric's keys of one item are a set, whose order the hash seed changes.
            assert_same_data(batch, other, ordered=False)


def test_fabric_divides_by_its_sampler(numbers):
    from lightning.fabric import Fabric
    from lightning.fabric.utilities.data import _update_dataloader
    from lightning.fabric.utilities.distributed import DistributedSamplerWrapper

    fabric = Fabric(accelerator="cpu", devices=1)
    loader = GraphLoader(numbers, 4, shuffle=True, seed=6)
    wanted = [numbers_of(GraphLoader(numbers, 4, shuffle=True, seed=6)) for _ in range(1)]
    prepared = fabric.setup_dataloaders(loader)
    first, second = numbers_of(prepared), numbers_of(prepared)
    assert first == wanted[0] != second
    # The part of setup_dataloaders that needs more than one process.
    shares = []
    for rank in range(2):
        whole = GraphLoader(numbers, 4, shuffle=True, seed=6, num_workers=2, exclude_keys=["x"])
        assert not isinstance(whole.sampler, torch.utils.data.DistributedSampler)
        sampler = DistributedSamplerWrapper(whole.sampler, num_replicas=2, rank=rank, shuffle=False)
        share = _update_dataloader(whole, sampler)
        assert (share.prefetch, share.exclude_keys) == (2, ("x",))
        shares.append(numbers_of(share))
        ours = GraphLoader(numbers, 4, shuffle=True, seed=6, rank=rank, world_size=2)
        assert shares[-1] == numbers_of(ours)
    assert sorted(flat(shares[0]) + flat(shares[1])) == list(range(50))
    for options in (
        {"even": True},
        {"rank": 0, "world_size": 2},
        {"max_nodes": 40},
    ):  # these are left to the loader
        loader = GraphLoader(numbers, **options)
        assert isinstance(loader.sampler, torch.utils.data.DistributedSampler)


def test_samplers_of_pyg_draw_the_same_batches(dataset, numbers):
    by_class = ImbalancedSampler(torch.arange(50) % 3, num_samples=20)
    torch.manual_seed(1)
    ours = numbers_of(GraphLoader(numbers, 6, sampler=by_class))
    torch.manual_seed(1)
    assert ours == [batch.number.tolist() for batch in DataLoader(numbers, 6, sampler=by_class)]
    batches = DynamicBatchSampler(dataset, max_num=70, num_steps=5)
    assert_batches(
        GraphLoader(dataset, batch_sampler=batches), DataLoader(dataset, batch_sampler=batches)
    )
    assert len(GraphLoader(dataset, batch_sampler=batches)) == 5


class ShuffledByEpoch:
    """Sampler with ``set_epoch`` and no epoch that others can read."""

    def __init__(self, count: int) -> None:
        self.count, self._seed = count, 0

    def set_epoch(self, epoch: int) -> None:
        self._seed = epoch

    def __iter__(self):
        generator = torch.Generator().manual_seed(self._seed)
        return iter(torch.randperm(self.count, generator=generator).tolist())

    def __len__(self) -> int:
        return self.count


class BatchesByEpoch(ShuffledByEpoch):
    def __iter__(self):
        order = list(super().__iter__())
        return iter([order[start : start + 4] for start in range(0, len(order), 4)])


SAMPLERS = {
    "distributed": lambda: DistributedSampler(range(50), num_replicas=2, rank=1, seed=3),
    "without an epoch": lambda: ShuffledByEpoch(50),
    "of batches": lambda: BatchesByEpoch(50),
}


def sampler_options(sampler) -> dict[str, object]:
    if isinstance(sampler, BatchesByEpoch):
        return {"batch_sampler": sampler}
    return {"batch_size": 4, "sampler": sampler}


@pytest.mark.parametrize("make_sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_the_epoch_of_a_sampler_is_set_by_its_user_as_in_torch(numbers, make_sampler):
    """A script that resumes at any epoch sets the sampler's; the loader passes on only its own."""
    ours, theirs, through_loader = make_sampler(), make_sampler(), make_sampler()
    loader = GraphLoader(numbers, **sampler_options(ours))
    expected = DataLoader(numbers, **sampler_options(theirs))
    loader_that_sets = GraphLoader(numbers, **sampler_options(through_loader))
    orders = []
    for epoch in (3, 3, 4, 0):
        ours.set_epoch(epoch)
        theirs.set_epoch(epoch)
        loader_that_sets.set_epoch(epoch)
        orders.append(numbers_of(expected))
        assert numbers_of(loader) == orders[-1]
        assert numbers_of(loader_that_sets) == orders[-1]
    assert orders[0] == orders[1] != orders[2] != orders[3]
    assert numbers_of(loader) == numbers_of(expected)  # none set it: the same once more


def test_a_state_has_the_epoch_that_the_users_sampler_yields(numbers):
    make_sampler = SAMPLERS["distributed"]
    sampler = make_sampler()
    loader = GraphLoader(numbers, 4, sampler=sampler)
    sampler.set_epoch(3)
    batches = numbers_of(loader)
    iterator = iter(loader)
    next(iterator)
    resumed = GraphLoader(numbers, 4, sampler=make_sampler())
    resumed.load_state_dict(loader.state_dict())
    assert numbers_of(resumed) == batches[1:]
    resumed.sampler.set_epoch(5)
    sampler.set_epoch(5)
    assert numbers_of(resumed) == numbers_of(loader)


def test_any_sampler_can_be_used(numbers):
    for sampler in (np.array([3, 1, 2]), torch.tensor([3, 1, 2]), (3, 1, 2)):
        assert numbers_of(GraphLoader(numbers, 2, sampler=sampler)) == [[3, 1], [2]]
    assert numbers_of(GraphLoader(numbers, 2, sampler=[])) == []
    assert numbers_of(GraphLoader(numbers, batch_sampler=[torch.tensor([1, 2]), [3]])) == [
        [1, 2],
        [3],
    ]
    loader = GraphLoader(numbers, 2, sampler=(n for n in [4, 5, 6]))
    assert loader.state_dict()["batches"] is None
    assert numbers_of(loader) == [[4, 5], [6]]


def test_batches_have_at_most_max_nodes(numbers):
    batches = list(GraphLoader(numbers, max_nodes=64, shuffle=True))
    assert sorted(n for batch in batches for n in batch.number.tolist()) == list(range(50))
    assert all(batch.num_nodes <= 64 for batch in batches)
    larger = GraphLoader(numbers, max_nodes=20)
    assert all(batch.num_nodes <= 20 or batch.num_graphs == 1 for batch in larger)
    assert flat(numbers_of(GraphLoader(numbers, max_nodes=40, sampler=range(10, 30)))) == list(
        range(10, 30)
    )
    with pytest.raises(TypeError):
        len(GraphLoader(numbers, max_nodes=40, sampler=range(10)))
    for options in (
        {"max_nodes": 33, "shuffle": True},
        {"batch_size": 7, "sampler": range(15)},
        {"batch_size": 7, "sampler": range(15), "drop_last": True},
        {"batch_size": 7, "rank": 1, "world_size": 3},
    ):
        loader = GraphLoader(numbers, **options)
        assert len(loader) == len(list(loader))


def assert_no_more_threads(before):
    wait_until(lambda: not threads() - before)


def test_threads_end_with_the_iteration(dataset):
    before = threads()
    iterator = iter(GraphLoader(dataset, 2))
    next(iterator)
    assert threads() - before
    del iterator
    assert_no_more_threads(before)
    list(GraphLoader(dataset, 2))
    assert_no_more_threads(before)


WRONG = [
    *(
        {"batch_size": 0},
        {"batch_size": None},
        {"batch_size": 2.0},
        {"prefetch": -1},
    ),
    *({"seed": -1}, {"max_nodes": 0}, {"batch_size": 2, "max_nodes": 10}, {"compact": True}),
    *({"shuffle": True, "sampler": [1]}, {"batch_sampler": [[1]], "batch_size": 2}),
    *({"batch_sampler": [[1]], "sampler": [1]}, {"sampler": [1], "rank": 0, "world_size": 2}),
    *({"rank": 1}, {"rank": 2, "world_size": 2}, {"num_workers": -1}, {"num_workers": 1.5}),
    *(
        {"shuffle": True, "generator": torch.Generator(), **how}
        for how in ({"seed": 1}, {"even": True})
    ),
]


def test_wrong_arguments_of_the_loader_are_refused(numbers, build, subtests):
    for arguments in WRONG:
        with subtests.test(str(arguments)), pytest.raises(UsageError):
            GraphLoader(numbers, **arguments)
    with pytest.raises(UsageError) as error:
        GraphLoader("assay")
    assert error.value.steps == ["GraphLoader(kmip_data.open('assay'))"]
    with pytest.raises(UsageError):
        GraphLoader([1, 2, 3])
    with pytest.raises(UsageError):
        GraphLoader(ShardedDataset(build, transform=T.NormalizeFeatures()), compact=True)


def test_pinning_needs_no_gpu(numbers):
    assert len(list(GraphLoader(numbers, 10, pin_memory=True))) == 5


def test_ranks_of_torch_distributed_share_the_graphs_out(numbers, monkeypatch):
    by_rank = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    for rank in range(2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        loader = GraphLoader(numbers, batch_size=4, shuffle=True, seed=3)
        by_rank.append(numbers_of(loader))
        assert len(by_rank[-1]) == len(loader)
    assert sorted(flat(by_rank[0]) + flat(by_rank[1])) == list(range(50))


def test_worker_processes_of_pyg_give_what_one_process_gives(tmp_path):
    dataset = ShardedDataset(
        write_build(tmp_path / "b", s3dis_records(24), s3dis_schema(), per_shard=3)
    )
    list(dataset[:5])  # some shards are mapped before the workers start
    loader = DataLoader(dataset, 5, num_workers=2, multiprocessing_context="fork", timeout=600)
    assert_batches(loader, DataLoader(dataset, 5))
