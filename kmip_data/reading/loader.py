"""``GraphLoader``: a ``DataLoader`` that gathers whole batches from the shards."""

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
from kmip_data.errors import UsageError, answer_unknown_keywords
from kmip_data.reading.assemble import BatchAssembler
from kmip_data.reading.batch_rule import BatchRule, Stretch, cut_by_nodes
from kmip_data.reading.batching import DataBatch, batch_neighbors, expand_edges, make_batch
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.samplers import (
    EpochBatchSampler,
    EpochSampler,
    SelfShardingSampler,
    is_from_graph_loader,
)
from kmip_data.runtime.parallel import close_at_exit, prepare_ahead

__all__ = ["GraphLoader", "batch_neighbors", "expand_edges"]


class LoaderState(TypedDict):
    """Position of a loader in its epochs."""

    epoch: int
    position: int  #: batches yielded
    batches: int | None  #: batches of the epoch; ``None`` if unknown
    earlier: Sequence[Stretch]  #: earlier parts of the epoch, on other numbers of ranks
    depends_on: dict[str, object]  #: settings that determine the order


class GraphLoader(DataLoader[Data]):
    """Load a :class:`ShardedDataset` in batches, gathered from the mapped shards into one ``Batch``.

    Batches equal the batches of ``torch_geometric.loader.DataLoader`` for the same sampler bit for bit,
    with ``batch``, ``ptr``, ``num_graphs``, ``get_example`` and ``to_data_list``. Their order
    depends only on ``seed`` and the epoch. A dataset with a ``transform`` takes the slow path:
    graph by graph in Python.

    The loader is a ``torch.utils.data.DataLoader``, so Fabric, Lightning and accelerate accept it; a
    background thread replaces worker processes. In distributed runs, Fabric and Lightning shard the
    graphs by a sampler, and accelerate by its own loader around the same batches. With ``even``,
    ``divide`` or ``rank``, Fabric and Lightning leave the sharding to this loader.

    Parameters
    ----------
    dataset
        A dataset of this package, or a selection of its items (also as a
        ``torch.utils.data.Subset``).
    batch_size
        Graphs per batch.
    shuffle, seed
        Use a new order every epoch, determined by ``seed``. Each ``iter(loader)`` starts the next
        epoch; :meth:`set_epoch` sets it.
    num_workers, persistent_workers
        PyTorch's arguments, accepted without starting a process: ``num_workers=0`` means
        ``prefetch=0``, other values have no effect.
    generator
        Draws the order of ``shuffle`` instead of ``seed``: the order of PyTorch's own
        ``DataLoader``. As with a ``sampler``, the order is the same on every rank.
    prefetch
        Batches prepared ahead by a background thread; 0 gathers each one on request, in the calling
        thread.
    drop_last
        Omit the last batch if it is not full.
    pin_memory
        Gather into page-locked memory, for transfers to a GPU with ``non_blocking=True``. No effect
        without a GPU.
    max_nodes
        Maximum number of nodes per batch, instead of ``batch_size``. A larger graph is a batch by
        itself.
    bucket
        Sort by size within windows of this many graphs, so that a batch has graphs of similar size.
    sampler
        Yields the positions of one epoch, instead of ``shuffle``. As in PyTorch, its epoch is yours
        to set: the loader calls its ``set_epoch`` only to pass on an epoch that :meth:`set_epoch` or
        :meth:`load_state_dict` of the loader has set.
    batch_sampler
        Yields the positions of each batch, instead of all of the above.
    rank, world_size
        Rank of this process and number of processes: ranks get disjoint batches that together cover
        the dataset. Default: from ``torch.distributed`` if it is initialised. A ``sampler`` must
        shard the data itself.
    even
        Give each rank the same number of batches by repeating up to ``world_size`` − 1 graphs (with
        ``max_nodes``: batches). DDP training needs it; evaluation must not use it.
    divide
        Let ``batch_size`` count the graphs of all ranks together: each batch is the batch of a
        single process, with its graphs distributed over the ranks in turn.
    compact
        Yield ``neighbor`` (ΣN, k) instead of ``edge_index``: the stored neighbour table, uint16 or
        uint32, an eighth of the bytes. Row i holds the sources of node i, nearest first, numbered
        within its graph. :func:`batch_neighbors` numbers them over the batch, and
        :func:`expand_edges` converts to the default batch, both on the batch's device. Requires a
        stored neighbour table and no transform.
    follow_batch, exclude_keys
        As in PyTorch Geometric's ``DataLoader``.

    Raises
    ------
    UsageError
        An argument is invalid, or contradicts another.
    """

    dataset: ShardedDataset

    @answer_unknown_keywords(
        collate_fn="transform=… of the dataset, or torch_geometric.loader.DataLoader",
        prefetch_factor="prefetch=…",
        worker_init_fn="leave it out: no worker process is started",
    )
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
        # Long: every argument is checked and stored as an attribute.
        graphs = _require_sharded_dataset(dataset)
        _check_numbers(1, batch_size=batch_size)
        _check_numbers(0, prefetch=prefetch, seed=seed)
        optional_sizes = {"max_nodes": max_nodes, "bucket": bucket, "world_size": world_size}
        for name, size in optional_sizes.items():
            if size is not None:
                _check_numbers(1, **{name: size})
        _check_numbers(0, rank=rank or 0, num_workers=num_workers or 0)

        if num_workers == 0:
            prefetch = 0
        # Lightning passes the batch sampler when it recreates a loader for predictions.
        if is_from_graph_loader(batch_sampler):
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

        # Fabric and Lightning recreate the loader from attributes named like its arguments.
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

        yields_shard = even or divide or rank is not None
        has_varying_batches = max_nodes is not None or bucket is not None
        sampler_type = SelfShardingSampler if yields_shard or has_varying_batches else EpochSampler
        self._nodes = graphs.nodes
        self._epoch_sampler = sampler_type(
            rule,
            self._nodes,
            rank=rank,
            world_size=world_size,
            yields_shard=yields_shard,
        )
        self._has_user_sampler = sampler is not None or batch_sampler is not None
        self._has_new_epoch = False  # set by the user, and not yet passed on to their sampler
        table_dtype = graphs.schema.index_dtype if compact else None
        super().__init__(
            graphs,
            batch_size,
            sampler=sampler if self._has_user_sampler else self._epoch_sampler,
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
        if has_varying_batches and not self._has_user_sampler:
            # torch forbids setting the attribute.
            self.__dict__["batch_sampler"] = EpochBatchSampler(self._epoch_sampler)
        self._records = graphs.records
        self._assembler = self._batch_assembler()

    def check_worker_number_rationality(self) -> None:
        """Do nothing: PyTorch would warn about worker processes, and this loader has none."""

    def __repr__(self) -> str:
        """Return the dataset and the rule of its batches."""
        return f"GraphLoader({self.dataset!r}, {self.rule})"

    def _batch_assembler(self) -> BatchAssembler | None:
        """Return the assembler of whole batches; ``None`` if items must be read one by one."""
        assembler = self.dataset.assembler
        has_table = self.dataset.schema.edges == "neighbor"
        if self.compact and (assembler is None or not assembler.edges or not has_table):
            raise UsageError(
                f"compact=True needs a neighbour table, and no transform: {self.dataset!r}",
                steps="leave out compact=True, or apply the transform to the batch",
            )
        return assembler and assembler.without_attributes(self.exclude_keys)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; a position loaded for that epoch is kept."""
        self._epoch_sampler.set_epoch(epoch)
        self._has_new_epoch = True

    def state_dict(self) -> LoaderState:
        """Return the epoch, the number of its yielded batches, and the settings they depend on."""
        sampler = self._epoch_sampler
        epoch, position = sampler.progress or (sampler.epoch, sampler.position)
        batches = None
        with contextlib.suppress(TypeError):  # a sampler without a length
            batches = len(self)
            position = min(position, batches)
        return {
            "epoch": epoch,
            "position": position,
            "batches": batches,
            "earlier": sampler.earlier_stretches(epoch),
            "depends_on": self._fingerprint(),
        }

    def load_state_dict(self, state: LoaderState) -> None:
        """Resume after the last batch yielded before :meth:`state_dict` was called.

        All ranks have the same state. On another number of ranks, the graphs of the epoch that no
        rank has yielded are divided anew, each to one rank (``even`` may repeat some, ``drop_last``
        may drop some, once more). A ``sampler`` must yield the previous batches again; they are
        skipped. A state from between two epochs fits a loader of any order. Raises ``UsageError``
        for a state from within an epoch if the order differs (other data, batch size, seed …), or
        if the number of ranks differs and the order is the user's.
        """
        fingerprint = self._fingerprint()
        depends_on = state.get("depends_on", {})
        has_same_order = depends_on == fingerprint
        epoch = state["epoch"]
        position = state["position"]
        earlier = state.get("earlier", ())
        is_within_epoch = position not in {0, state["batches"]}
        if is_within_epoch and not has_same_order and not self._has_user_sampler:
            # The n-th batches of all ranks were yielded: what they left is cut by the new number.
            ranks = depends_on.get("world_size")
            if depends_on == {**fingerprint, "world_size": ranks} and isinstance(ranks, int):
                earlier = (*earlier, (ranks, position))
                position = 0
                has_same_order = True
        if not has_same_order and position not in {0, state["batches"]}:
            raise UsageError(
                "The loader's state does not fit this loader.",
                expected=str(fingerprint),
                found=str(state.get("depends_on")),
                steps=f"set_epoch({epoch + 1})",
            )
        if position and not has_same_order:
            position = sys.maxsize  # the epoch is complete, whatever its number of batches is here
        sampler = self._epoch_sampler
        sampler.epoch = epoch
        sampler.progress = None
        sampler.position = position
        sampler.earlier = (epoch, earlier)
        self._has_new_epoch = True

    def _fingerprint(self) -> dict[str, object]:
        return {
            **asdict(self.rule),
            "graphs": len(self.dataset),
            "split_digest": self.dataset.split_digest,
            "world_size": self.rank_and_world_size()[1],
        }

    def rank_and_world_size(self) -> tuple[int, int]:
        """Return the rank of this process and the number of processes."""
        return self._epoch_sampler.rank_and_world_size()

    def __len__(self) -> int:
        """Return the number of batches of this rank in the current or next epoch."""
        if not self._has_user_sampler:
            sampler = self._epoch_sampler
            epoch = sampler.progress[0] if sampler.progress else sampler.epoch
            return len(sampler.batches(epoch))
        if self.batch_size is None:
            return len(self.batch_sampler)  # type: ignore[arg-type] # without a length: TypeError, as in PyTorch
        if self.max_nodes is not None:
            raise TypeError("the number of batches depends on the graphs that the sampler draws")
        graphs = len(self.sampler)  # type: ignore[arg-type]
        return graphs // self.batch_size if self.rule.drop_last else -(-graphs // self.batch_size)

    def __iter__(self) -> Iterator[DataBatch]:  # type: ignore[override] # threads, not processes
        return close_at_exit(self._yield_batches())

    def _yield_batches(self) -> Generator[DataBatch, None, None]:
        # A generator runs from the first next(), so the epoch is read then: trainers call iter()
        # before set_epoch().
        self._assembler = self._batch_assembler()  # the transform may have changed
        if self._has_user_sampler:
            self._sync_epoch_with_sampler()
        progress = self._epoch_sampler.begin_epoch()
        epoch, start = progress
        positions = islice(self._positions(epoch), start, None)

        batches: Iterable[DataBatch] = map(self._make_batch, positions)
        if self.prefetch:
            batches = prepare_ahead(positions, self._make_batch, threads=1, depth=self.prefetch)
        for batch in batches:
            progress[1] += 1
            yield batch
            # Free its memory for the next batch: two batches of 17 MB exceed the cache.
            del batch
        if self._epoch_sampler.progress is progress:
            self._epoch_sampler.progress = None

    def _sync_epoch_with_sampler(self) -> None:
        """Pass a newly set epoch on to the user's sampler, or else count from the sampler's epoch.

        The loader's state then has the epoch whose order the sampler yields.
        """
        sampler = self.batch_sampler if self.batch_size is None else self.sampler
        set_epoch = getattr(sampler, "set_epoch", None)
        epoch = getattr(sampler, "epoch", None)
        if not self._has_new_epoch and isinstance(epoch, int):
            self._epoch_sampler.set_epoch(epoch)
        elif self._has_new_epoch and callable(set_epoch):
            set_epoch(self._epoch_sampler.epoch)
        self._has_new_epoch = False

    def _positions(self, epoch: int) -> Iterator[I64]:
        """Yield the positions of the graphs in each batch of this rank."""
        if not self._has_user_sampler:
            return iter(self._epoch_sampler.batches(epoch))
        # Draw a number, as PyTorch's loader draws a seed for its workers here. Samplers that use
        # the global generator, or ours, then yield PyTorch's order after the same manual_seed.
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        if self.batch_size is None:
            return (np.asarray(batch, np.int64) for batch in self.batch_sampler)  # type: ignore[union-attr]
        return self._positions_from_sampler()

    def _positions_from_sampler(self) -> Iterator[I64]:
        """Cut the positions that the user's sampler yields into batches."""
        positions = iter(self.sampler)
        if self.max_nodes is not None:
            order = np.fromiter(positions, np.int64)
            batches = cut_by_nodes(order, self._nodes, self.max_nodes)
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
    """Collate items for libraries that read them individually, such as accelerate.

    With ``table_dtype``, turn the edges back into neighbour tables of that dtype.
    """
    if table_dtype is not None:
        dtype = getattr(torch, table_dtype)
        for item in items:
            item.neighbor = item.edge_index[0].view(item.num_nodes, -1).to(dtype)
            del item.edge_index
    return Batch.from_data_list(items, list(follow), list(exclude))


def _require_sharded_dataset(dataset: object) -> ShardedDataset:
    """Return ``dataset``, or the same selection of it for a ``Subset``; ``UsageError`` for other types."""
    if isinstance(dataset, torch.utils.data.Subset):
        graphs = _require_sharded_dataset(dataset.dataset)
        return graphs.index_select(list(dataset.indices))  # type: ignore[no-any-return]
    if isinstance(dataset, ShardedDataset):
        return dataset
    remedy = "kmip_data.save(dataset, folder), then kmip_data.open(folder)"
    if isinstance(dataset, str | os.PathLike):
        remedy = f"GraphLoader(kmip_data.open({os.fspath(dataset)!r}))"
    raise UsageError(
        f"GraphLoader reads datasets of this package, not {type(dataset).__name__}.",
        steps=remedy,
    )


def _check_numbers(minimum: int, **arguments: object) -> None:
    """Raise ``UsageError`` unless all arguments are integers of at least ``minimum``."""
    for name, value in arguments.items():
        if not isinstance(value, int | np.integer) or value < minimum:
            raise UsageError(f"{name} must be an integer of at least {minimum}, not {value!r}.")


def _refuse_contradictions(
    rule: BatchRule,
    sampler: object,
    batch_sampler: object,
    rank: int | None,
    world_size: int | None,
    generator: torch.Generator | None,
) -> None:
    """Raise ``UsageError`` for arguments that contradict each other."""
    has_max_nodes = rule.max_nodes is not None
    has_batch_size = rule.batch_size != 1
    sets_order = rule.shuffle or rule.bucket is not None
    sets_batches = has_batch_size or has_max_nodes or rule.drop_last
    is_distributed = rank is not None or world_size is not None or rule.even or rule.divide
    has_sampler = sampler is not None
    has_batch_sampler = batch_sampler is not None
    has_generator = generator is not None and rule.shuffle
    is_seeded = rule.seed != 0 or rule.bucket is not None
    contradictions = {
        "batch_size or divide with max_nodes": has_max_nodes and (has_batch_size or rule.divide),
        "shuffle or bucket with a sampler": sets_order and has_sampler,
        "any other order or batch size with a batch_sampler": has_batch_sampler
        and (sets_order or sets_batches or has_sampler),
        "rank, world_size, even or divide with a sampler": is_distributed
        and (has_sampler or has_batch_sampler),
        "seed, bucket, rank, world_size, even or divide with a generator": has_generator
        and (is_seeded or is_distributed),
        "rank without world_size, or world_size without rank": (rank is None)
        != (world_size is None),
        "a rank that is not below world_size": rank is not None and rank >= (world_size or 1),
    }
    for contradiction, is_present in contradictions.items():
        if is_present:
            raise UsageError(f"Arguments of GraphLoader contradict each other: {contradiction}.")
