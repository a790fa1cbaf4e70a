"""Batches straight from the shards, as PyTorch Geometric's ``DataLoader`` would make them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import TypedDict

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler
from torch_geometric.data import Batch, Data

from kmip_data.arrays import I64
from kmip_data.errors import UsageError
from kmip_data.reading.assemble import Assembler
from kmip_data.reading.batch_rule import BatchRule, cut_by_nodes
from kmip_data.reading.batching import DataBatch, batch_neighbors, expand_edges, make_batch
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.samplers import EpochBatches, EpochSampler, SharedSampler, is_from_a_loader
from kmip_data.runtime.parallel import close_at_exit, prepare_ahead

__all__ = ["GraphLoader", "batch_neighbors", "expand_edges"]

_WHILE_WAITING = 4  #: batches made at a time if each waits for the network


class LoaderState(TypedDict):
    """Position of a loader in its epochs."""

    epoch: int
    position: int  #: batches yielded
    batches: int | None  #: batches of the epoch; ``None`` if unknown
    depends_on: dict[str, object]  #: settings that decide the order


class GraphLoader(DataLoader[Data]):
    """Load a :class:`ShardedDataset` in batches, gathered from the mapped shards into one ``Batch``.

    The batches equal the batches of ``torch_geometric.loader.DataLoader`` for the same sampler bit for
    bit, with ``batch``, ``ptr``, ``num_graphs``, ``get_example`` and ``to_data_list``. Their order
    depends on ``seed`` and the epoch alone. A dataset with a ``transform`` takes the slow path:
    graph by graph in Python.

    A ``torch.utils.data.DataLoader`` by type, so Fabric, Lightning and accelerate take it; one
    background thread does the work of its worker processes. In several processes Fabric and Lightning divide
    the graphs by a sampler, and accelerate by its own loader around the same batches; with
    ``even``, ``divide`` or ``rank`` Fabric and Lightning leave the division to this loader.

    Parameters
    ----------
    dataset
        A dataset of this package, whole or selected from (also a ``torch.utils.data.Subset`` of
        it).
    batch_size
        Graphs per batch.
    shuffle, seed
        A new order every epoch, fixed by ``seed``. Epochs count up with each ``iter(loader)``;
        :meth:`set_epoch` sets the next one.
    num_workers, persistent_workers
        PyTorch's word for ``prefetch``: 0 makes each batch on request, as ``prefetch=0``; any other
        number leaves ``prefetch`` as it is. No process is started.
    generator
        Draws the order of ``shuffle`` instead of ``seed``: the order of PyTorch's own
        ``DataLoader``. As with a ``sampler``, it is the same on every rank.
    prefetch
        Batches made ahead by a background thread; 0 makes each on request, in the calling thread.
    drop_last
        Leave out the last batch where it is not full.
    pin_memory
        Gather into page-locked memory, for transfers to a GPU with ``non_blocking=True``; without
        a GPU no effect.
    max_nodes
        Instead of ``batch_size``: as many graphs per batch as fit into this number of nodes. A
        larger graph makes a batch by itself.
    bucket
        Sort by size within windows of this many graphs, so that a batch has graphs of similar size.
    sampler
        Yields the positions of one epoch, instead of ``shuffle``; its ``set_epoch`` is called if it
        has one.
    batch_sampler
        Yields the positions of each batch, instead of all of the above.
    rank, world_size
        Share of this process: ranks get disjoint batches that together cover the dataset. Default:
        from ``torch.distributed`` if it is initialised. A ``sampler`` divides the data itself.
    even
        Give each rank the same number of batches by repeating up to ``world_size`` − 1 graphs (with
        ``max_nodes``: batches). DDP training needs it; evaluation must not use it.
    divide
        Let ``batch_size`` count the graphs of all ranks together: each batch is as in a single
        process, distributed over the ranks in turn.
    compact
        Yield ``neighbor`` (ΣN, k) instead of ``edge_index``: the stored neighbour table, uint16 or
        uint32, an eighth of the bytes. Row i holds the sources of node i, nearest first, numbered
        within its graph. :func:`batch_neighbors` numbers them over the batch, and
        :func:`expand_edges` makes the usual batch, both on the batch's device. Requires a stored
        neighbour table and no transform.
    follow_batch, exclude_keys
        As in PyTorch Geometric's ``DataLoader``.

    Raises
    ------
    UsageError
        An argument is invalid, or contradicts another.
    """

    dataset: ShardedDataset

    def __init__(  # noqa: PLR0913 -- the arguments of PyTorch's DataLoader, and ours
        self,
        dataset: ShardedDataset | torch.utils.data.Subset[Data],
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        *,
        prefetch: int = 2,
        drop_last: bool = False,
        pin_memory: bool = False,
        max_nodes: int | None = None,
        bucket: int | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        even: bool = False,
        divide: bool = False,
        compact: bool = False,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
        num_workers: int | None = None,
        persistent_workers: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        # Long: every argument is checked, and kept as an attribute.
        graphs = _sharded_dataset(dataset)
        _check_numbers(1, batch_size=batch_size)
        _check_numbers(0, prefetch=prefetch, seed=seed)
        optional = {"max_nodes": max_nodes, "bucket": bucket, "world_size": world_size}
        for name, size in optional.items():
            if size is not None:
                _check_numbers(1, **{name: size})
        _check_numbers(0, rank=rank or 0, num_workers=num_workers or 0)

        if num_workers == 0:
            prefetch = 0
        # passed by Lightning when it makes a loader again, for predictions
        if is_from_a_loader(batch_sampler):
            max_nodes = bucket = rank = world_size = None
            even = divide = False
        rule = BatchRule(
            batch_size=batch_size,
            shuffle=bool(shuffle),
            seed=seed,
            max_nodes=max_nodes,
            bucket=bucket,
            drop_last=drop_last,
            even=even,
            divide=divide,
        )
        _refuse_contradictions(
            rule,
            sampler,
            batch_sampler,
            rank,
            world_size,
            generator,
        )
        if generator is not None and shuffle:
            sampler = RandomSampler(graphs, generator=generator)

        # Arguments are attributes of the same name: Fabric and Lightning make the loader again from
        # them.
        self.seed = seed
        self.prefetch = prefetch
        self.max_nodes = max_nodes
        self.bucket = bucket
        self.rank = rank
        self.world_size = world_size
        self.even = even
        self.divide = divide
        self.compact = compact
        self.follow_batch = tuple(follow_batch or ())
        self.exclude_keys = tuple(exclude_keys or ())
        self.rule = rule

        divided = even or divide or rank is not None
        irregular = max_nodes is not None or bucket is not None
        sampler_type = SharedSampler if divided or irregular else EpochSampler
        self._nodes = graphs.nodes
        self._order = sampler_type(
            rule,
            self._nodes,
            rank=rank,
            world_size=world_size,
            divided=divided,
        )
        self._sampled = sampler is not None or batch_sampler is not None
        table_dtype = graphs.schema.index_dtype if compact else None
        super().__init__(
            graphs,
            batch_size,
            sampler=sampler if self._sampled else self._order,
            batch_sampler=batch_sampler,  # type: ignore[arg-type]
            num_workers=num_workers or 0,
            collate_fn=partial(
                _collate,
                follow=self.follow_batch,
                exclude=self.exclude_keys,
                table_dtype=table_dtype,
            ),
            pin_memory=pin_memory and torch.cuda.is_available(),
            drop_last=drop_last,
            generator=generator,
        )
        if irregular and not self._sampled:
            self.__dict__["batch_sampler"] = EpochBatches(self._order)  # torch's setter forbids it
        self._records = graphs.records
        self._assembler = self._batch_assembler()

    def check_worker_number_rationality(self) -> None:
        """Do nothing: PyTorch would warn of more processes than cores, and there are none."""

    def __repr__(self) -> str:
        """Return the dataset and the rule of its batches."""
        return f"GraphLoader({self.dataset!r}, {self.rule})"

    def _batch_assembler(self) -> Assembler | None:
        """Return the assembler of whole batches.

        Returns ``None`` if each graph must be made individually.
        """
        assembler = self.dataset.assembler
        table = self.dataset.schema.edges == "neighbor"
        if self.compact and (assembler is None or not assembler.edges or not table):
            raise UsageError(
                f"compact=True needs a neighbour table, and no transform: {self.dataset!r}",
                next="leave out compact=True, or apply the transform to the batch",
            )
        return assembler and assembler.without_attributes(self.exclude_keys)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; a position loaded for that epoch is kept."""
        self._order.set_epoch(epoch)

    def state_dict(self) -> LoaderState:
        """Return the epoch, how many of its batches were yielded, and the settings they depend on."""
        epoch, position = self._order.running or (self._order.epoch, self._order.position)
        batches = None
        with contextlib.suppress(TypeError):  # a sampler without a length
            batches = len(self)
            position = min(position, batches)
        return {
            "epoch": epoch,
            "position": position,
            "batches": batches,
            "depends_on": self._fingerprint(),
        }

    def load_state_dict(self, state: LoaderState) -> None:
        """Resume after the last batch yielded before :meth:`state_dict` was called.

        A ``sampler`` must yield the batches so far again, which are skipped. All ranks have the
        same state. A state from between two epochs fits a loader of any order, for example on more
        GPUs. One from the middle of an epoch in another order (other data, batch size, seed, ranks
        …) is a UsageError.
        """
        fingerprint = self._fingerprint()
        same_order = state.get("depends_on") == fingerprint
        epoch = state["epoch"]
        position = state["position"]
        if not same_order and position not in {0, state["batches"]}:
            raise UsageError(
                "The loader's state does not fit this loader.",
                expected=str(fingerprint),
                found=str(state.get("depends_on")),
                next=f"set_epoch({epoch + 1})",
            )
        if position and not same_order:
            position = sys.maxsize  # the epoch is over, however many batches it has here
        self._order.epoch = epoch
        self._order.running = None
        self._order.position = position

    def _fingerprint(self) -> dict[str, object]:
        return {
            **asdict(self.rule),
            "graphs": len(self.dataset),
            "split_digest": self.dataset.split_digest,
            "world_size": self.rank_and_world_size()[1],
        }

    def rank_and_world_size(self) -> tuple[int, int]:
        """Return the rank of this process and the number of processes."""
        return self._order.rank_and_world_size()

    def __len__(self) -> int:
        """Return the number of batches of this rank in the next epoch."""
        if not self._sampled:
            running = self._order.running
            return len(self._order.batches(running[0] if running else self._order.epoch))
        if self.batch_size is None:
            return len(self.batch_sampler)  # type: ignore[arg-type] # as PyTorch: its own TypeError
        if self.max_nodes is not None:
            raise TypeError("the number of batches depends on what the sampler will draw")
        graphs = len(self.sampler)  # type: ignore[arg-type]
        return graphs // self.batch_size if self.rule.drop_last else -(-graphs // self.batch_size)

    def __iter__(self) -> Iterator[DataBatch]:  # type: ignore[override] # threads, not processes
        return close_at_exit(self._yield_batches())

    def _yield_batches(self) -> Generator[DataBatch, None, None]:
        # Batches ahead, step by step. A generator starts with the first next(), so the epoch is
        # read then: trainers call iter() before set_epoch().
        self._assembler = self._batch_assembler()  # the transform may have changed since
        progress = self._order.begin_epoch()
        epoch, start = progress
        batches = islice(self._batches(epoch), start, None)

        made: Iterable[DataBatch] = map(self._make_batch, batches)
        if self.prefetch:
            waits = self._assembler is not None and self.dataset.build.waits
            threads = _WHILE_WAITING if waits else 1
            depth = max(self.prefetch, threads)
            made = prepare_ahead(batches, self._make_batch, threads=threads, depth=depth)
        for batch in made:
            progress[1] += 1
            yield batch
            # Free its memory for the next batch: twice 17 MB exceed the cache.
            del batch
        if self._order.running is progress:
            self._order.running = None

    def _batches(self, epoch: int) -> Iterator[I64]:
        """Yield the positions of the graphs of each batch of this rank."""
        if not self._sampled:
            return iter(self._order.batches(epoch))
        # PyTorch's loader draws a seed for its workers here. So do we: a sampler that draws from
        # the global generator, or from ours, then yields the same order after the same manual_seed.
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        if self.batch_size is None:
            return (np.asarray(batch, np.int64) for batch in self.batch_sampler)  # type: ignore[union-attr]
        return self._drawn_batches(epoch)

    def _drawn_batches(self, epoch: int) -> Iterator[I64]:
        """Yield the positions of each batch that the sampler draws."""
        set_epoch = getattr(self.sampler, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)
        positions = iter(self.sampler)
        if self.max_nodes is not None:
            drawn = np.fromiter(positions, np.int64)
            batches = cut_by_nodes(drawn, self._nodes, self.max_nodes)
            yield from batches[: len(batches) - self.rule.drop_last]
            return
        size = self.rule.batch_size
        while len(batch := np.fromiter(islice(positions, size), np.int64)):
            if len(batch) == size or not self.rule.drop_last:
                yield batch

    def _make_batch(self, positions: I64) -> DataBatch:
        if self._assembler is not None:
            return make_batch(
                self._assembler,
                self._records[positions],
                compact=self.compact,
                pin=self.pin_memory,
                follow=self.follow_batch,
            )
        items = [self.dataset[position] for position in positions.tolist()]
        batch: DataBatch = self.collate_fn(items)
        if self.pin_memory:
            batch = batch.pin_memory()
        return batch


def _collate(
    items: list[Data],
    *,
    follow: tuple[str, ...],
    exclude: tuple[str, ...],
    table_dtype: str | None,
) -> Batch:
    """Make a batch for libraries that read the items themselves, as accelerate's loader does.

    With ``table_dtype`` it has neighbour tables instead of the edges that were made from them.
    """
    if table_dtype is not None:
        dtype = getattr(torch, table_dtype)
        for item in items:
            item.neighbor = item.edge_index[0].view(item.num_nodes, -1).to(dtype)
            del item.edge_index
    return Batch.from_data_list(items, list(follow), list(exclude))


def _sharded_dataset(dataset: object) -> ShardedDataset:
    """Return the sharded dataset that ``dataset`` is, or is a subset of."""
    if isinstance(dataset, torch.utils.data.Subset):
        graphs = _sharded_dataset(dataset.dataset)
        return graphs.index_select(list(dataset.indices))  # type: ignore[no-any-return]
    if isinstance(dataset, ShardedDataset):
        return dataset
    step = "kmip_data.save(dataset, folder), then kmip_data.open(folder)"
    if isinstance(dataset, str | os.PathLike):
        step = f"GraphLoader(kmip_data.open({os.fspath(dataset)!r}))"
    raise UsageError(
        f"GraphLoader reads datasets of this package, not {type(dataset).__name__}.",
        next=step,
    )


def _check_numbers(least: int, **arguments: object) -> None:
    """Refuse anything but integers of at least ``least``."""
    for name, value in arguments.items():
        if not isinstance(value, int | np.integer) or value < least:
            raise UsageError(f"{name} must be an integer of at least {least}, not {value!r}.")


def _refuse_contradictions(
    rule: BatchRule,
    sampler: object,
    batch_sampler: object,
    rank: int | None,
    world_size: int | None,
    generator: torch.Generator | None,
) -> None:
    """Refuse arguments that contradict each other."""
    by_nodes = rule.max_nodes is not None
    sized = rule.batch_size != 1
    ordered = rule.shuffle or rule.bucket is not None
    cut = sized or by_nodes or rule.drop_last
    distributed = rank is not None or world_size is not None or rule.even or rule.divide
    sampled = sampler is not None
    batched = batch_sampler is not None
    drawn = generator is not None and rule.shuffle
    seeded = rule.seed != 0 or rule.bucket is not None
    clashes = {
        "batch_size or divide with max_nodes": by_nodes and (sized or rule.divide),
        "shuffle or bucket with a sampler": ordered and sampled,
        "anything that orders or cuts with a batch_sampler": (ordered or cut or sampled)
        and batched,
        "rank, world_size, even or divide with a sampler": distributed and (sampled or batched),
        "seed, bucket, rank, world_size, even or divide with a generator": drawn
        and (seeded or distributed),
        "rank without world_size, or world_size without rank": (rank is None)
        != (world_size is None),
        "a rank that is not below world_size": rank is not None and rank >= (world_size or 1),
    }
    for clash, clashing in clashes.items():
        if clashing:
            raise UsageError(f"Arguments of GraphLoader contradict each other: {clash}.")
