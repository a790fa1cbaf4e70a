"""Batches straight from the shards, as PyTorch Geometric's ``DataLoader`` would make them."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Batch

from kmip_data.errors import UsageError
from kmip_data.reading.assemble import Assembler
from kmip_data.reading.batching import batch_neighbors, expand_edges, make_batch
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.order import BatchRule, cut_by_nodes
from kmip_data.runtime.threads import HelperThreads, ahead

__all__ = ["GraphLoader", "batch_neighbors", "expand_edges"]

_WHILE_WAITING: Final = 4  #: batches made at a time where each waits for a network


class GraphLoader:
    """Load a :class:`ShardedDataset` in batches, gathered from the mapped shards into one ``Batch``.

    The batches equal those of ``torch_geometric.loader.DataLoader`` for the same sampler bit for bit, with
    ``batch``, ``ptr``, ``num_graphs``, ``get_example`` and ``to_data_list``. Their order depends on ``seed``
    and the epoch alone, not on the number of threads. A dataset with a ``transform`` takes the slow path:
    graph by graph in Python, in background threads.

    Parameters
    ----------
    dataset
        A dataset of this package, whole or selected from (also a ``torch.utils.data.Subset`` of it).
    batch_size
        Graphs per batch.
    shuffle, seed
        A new order every epoch, fixed by ``seed``. Epochs count up with each ``iter(loader)``;
        :meth:`set_epoch` sets the next one.
    num_threads
        Threads that share the gathering of a batch, where it is large enough to be worth it.
    prefetch
        Batches made ahead in the background; 0 makes each on request, in the calling thread too.
    drop_last
        Leave out the last batch where it is not full.
    pin_memory
        Gather into page-locked memory, for transfers to a GPU with ``non_blocking=True``.
    max_nodes
        Instead of ``batch_size``: as many graphs per batch as fit into this number of nodes. A larger
        graph makes a batch by itself.
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
        Let ``batch_size`` count the graphs of all ranks together: each batch is that of a single process,
        dealt to the ranks in turn.
    compact
        Yield ``neighbor`` (ΣN, k) instead of ``edge_index``: the stored neighbour table, uint16 or uint32,
        an eighth of the bytes. Row i holds the sources of node i, nearest first, numbered within its graph.
        :func:`batch_neighbors` numbers them over the batch, and :func:`expand_edges` makes the usual batch,
        both on the batch's device. Requires a stored neighbour table and no transform.
    follow_batch, exclude_keys
        As in PyTorch Geometric's ``DataLoader``.

    Raises
    ------
    UsageError
        An argument is invalid, or contradicts another.
    """

    def __init__(  # noqa: PLR0913 -- the arguments of PyTorch's DataLoader, and ours
        self,
        dataset: ShardedDataset | torch.utils.data.Subset[Any],
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        *,
        num_threads: int = 1,
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
    ) -> None:
        self.dataset = _sharded_dataset(dataset)
        self.batch_size, self.num_threads, self.prefetch = batch_size, num_threads, prefetch
        self.compact, self.follow_batch = compact, tuple(follow_batch or ())
        self.exclude_keys = tuple(exclude_keys or ())
        self.rule = BatchRule(
            batch_size, bool(shuffle), seed, max_nodes, bucket, drop_last, even, divide
        )
        self._sampler, self.batch_sampler = sampler, batch_sampler
        self._share = (rank, world_size)
        sizes = {"max_nodes": max_nodes, "bucket": bucket, "world_size": world_size}
        given = {name: size for name, size in sizes.items() if size is not None}
        _check_numbers(1, batch_size=batch_size, num_threads=num_threads, **given)
        _check_numbers(0, prefetch=prefetch, seed=seed, rank=0 if rank is None else rank)
        _refuse_contradictions(self.rule, sampler, batch_sampler, rank, world_size)
        self._pin = pin_memory and torch.cuda.is_available()
        if pin_memory and not self._pin:
            warnings.warn("pin_memory=True has no effect: there is no GPU", stacklevel=2)
        self._records, self._nodes = self.dataset.records, self.dataset.nodes
        self._assembler = self._fast_path()
        self._epoch, self._position = 0, 0  # of the next iteration
        self._running: list[int] | None = (
            None  # the same of the iteration started last, until it ends
        )

    def _fast_path(self) -> Assembler | None:
        """Return the assembler of whole batches; ``None`` if each graph must be made individually."""
        assembler = self.dataset.assembler
        table = self.dataset.schema.edges == "neighbor"
        if self.compact and (assembler is None or not assembler.edges or not table):
            what = f"compact=True needs a neighbour table, and no transform: {self.dataset!r}"
            raise UsageError(
                what, next="leave out compact=True, or apply the transform to the batch"
            )
        return None if assembler is None else assembler.without(self.exclude_keys)

    @property
    def sampler(self) -> Any:
        """The sampler that was passed, else the loader itself (for ``set_epoch``)."""
        return self if self._sampler is None else self._sampler

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; a position loaded for that epoch is kept."""
        if epoch != self._epoch:
            self._epoch, self._position = epoch, 0
        self._running = None

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, how many of its batches were yielded, and the settings they depend on."""
        epoch, position = self._running or (self._epoch, self._position)
        batches = None
        with contextlib.suppress(TypeError):  # a sampler without a length
            batches = len(self)
            position = min(position, batches)
        about = {"batches": batches, "depends_on": self._fingerprint()}
        return {"epoch": epoch, "position": position, **about}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume after the last batch yielded before :meth:`state_dict` was called.

        A ``sampler`` must yield the batches so far again, which are skipped. All ranks have the same state. A
        state from between two epochs fits a loader of any order, for example on more GPUs. One from the
        middle of an epoch in another order (other data, batch size, seed, ranks …) is a UsageError.
        """
        wanted, found = self._fingerprint(), state.get("depends_on")
        epoch, position, batches = state["epoch"], state["position"], state["batches"]
        if found != wanted and position not in {0, batches}:
            what, again = "The loader's state does not fit this loader.", f"set_epoch({epoch + 1})"
            raise UsageError(what, expected=str(wanted), found=str(found), next=again)
        self._epoch, self._running = epoch, None
        self._position = position if found == wanted or not position else sys.maxsize

    def _fingerprint(self) -> dict[str, Any]:
        data = {"graphs": len(self.dataset), "split_digest": self.dataset.split_digest}
        return {**asdict(self.rule), **data, "world_size": self.ranks()[1]}

    def ranks(self) -> tuple[int, int]:
        """Return the rank of this process and the number of processes."""
        rank, world_size = self._share
        if rank is not None and world_size is not None:
            return rank, world_size
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

    def keys(self, epoch: int, batch: int) -> list[str]:
        """Return the record keys of batch number ``batch`` of ``epoch``; not defined for a ``sampler``."""
        positions = next(islice(self._batches(epoch), batch, None))
        keys = self.dataset.keys
        return [keys[position] for position in positions.tolist()]

    def __len__(self) -> int:
        """Return the number of batches of this rank in the next epoch."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type] # as PyTorch: its own TypeError
        if self._sampler is not None and self.rule.max_nodes is None:
            graphs = len(self._sampler)  # type: ignore[arg-type]
            return (
                graphs // self.batch_size if self.rule.drop_last else -(-graphs // self.batch_size)
            )
        if self._sampler is not None:
            raise TypeError("the number of batches depends on what the sampler will draw")
        epoch = self._running[0] if self._running else self._epoch
        return len(self.rule.batches(self._nodes, epoch, *self.ranks()))

    def __iter__(self) -> Iterator[Batch]:
        # Batches ahead, step by step. A generator starts with the first next(), so the epoch is read then:
        # trainers call iter() before set_epoch().
        self._assembler = self._fast_path()  # the transform may have changed since
        epoch, start = self._epoch, self._position
        at = self._running = [epoch, start]
        self._epoch, self._position = epoch + 1, 0
        batches = islice(self._batches(epoch), start, None)
        # With an assembler, num_threads share the copying inside one batch, and one more thread makes it
        # ahead. Without, each batch is made by one thread, num_threads of them at a time.
        by_graph = self._assembler is None
        helpers = HelperThreads(0 if by_graph else self.num_threads - 1)
        make = partial(self._make, helpers)
        try:
            if self.prefetch:
                waiting = _WHILE_WAITING if self.dataset.build.waits else 1
                makers = self.num_threads if by_graph else waiting
                made = ahead(batches, make, threads=makers, depth=max(self.prefetch, makers))
            else:
                made = map(make, batches)
            for batch in made:
                at[1] += 1
                yield batch
        finally:
            helpers.close()
        if self._running is at:
            self._running = None

    def _batches(self, epoch: int) -> Iterator[NDArray[np.int64]]:
        """Yield the positions of the graphs of each batch of this rank."""
        if self.batch_sampler is None and self._sampler is None:
            return iter(self.rule.batches(self._nodes, epoch, *self.ranks()))
        # PyTorch's loader draws a seed for its workers here. So do we: a sampler that draws from the global
        # generator then yields the same order after the same manual_seed.
        torch.empty((), dtype=torch.int64).random_()
        if self.batch_sampler is not None:
            return (np.asarray(batch, np.int64) for batch in self.batch_sampler)
        return self._sampled(epoch)

    def _sampled(self, epoch: int) -> Iterator[NDArray[np.int64]]:
        set_epoch = getattr(self._sampler, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)
        positions = iter(self._sampler)  # type: ignore[arg-type] # never None here
        if self.rule.max_nodes is not None:
            batches = cut_by_nodes(
                np.fromiter(positions, np.int64), self._nodes, self.rule.max_nodes
            )
            yield from batches[: len(batches) - self.rule.drop_last]
            return
        while len(batch := np.fromiter(islice(positions, self.batch_size), np.int64)):
            if len(batch) == self.batch_size or not self.rule.drop_last:
                yield batch

    def _make(self, helpers: HelperThreads, positions: NDArray[np.int64]) -> Batch:
        if self._assembler is not None:
            records, options = self._records[positions], {"compact": self.compact, "pin": self._pin}
            return make_batch(
                self._assembler, records, follow=self.follow_batch, helpers=helpers, **options
            )
        items = [self.dataset[position] for position in positions.tolist()]
        batch = Batch.from_data_list(items, list(self.follow_batch), list(self.exclude_keys))
        return batch.pin_memory() if self._pin else batch


def _sharded_dataset(dataset: Any) -> ShardedDataset:
    """Return the sharded dataset that ``dataset`` is, or is a subset of."""
    if isinstance(dataset, torch.utils.data.Subset):
        return _sharded_dataset(dataset.dataset).index_select(list(dataset.indices))  # type: ignore[no-any-return]
    if isinstance(dataset, ShardedDataset):
        return dataset
    what = f"GraphLoader reads datasets of this package, not {type(dataset).__name__}."
    raise UsageError(what, next="kmip_data.save(dataset, folder), then kmip_data.open(folder)")


def _check_numbers(least: int, **arguments: Any) -> None:
    """Refuse anything but whole numbers of at least ``least``."""
    for name, value in arguments.items():
        if not isinstance(value, int | np.integer) or value < least:
            raise UsageError(f"{name} must be a whole number of at least {least}, not {value!r}.")


def _refuse_contradictions(
    rule: BatchRule, sampler: Any, batch_sampler: Any, rank: int | None, world_size: int | None
) -> None:
    """Refuse arguments that contradict each other."""
    ordered = rule.shuffle or rule.bucket is not None
    cut = rule.batch_size != 1 or rule.max_nodes is not None or rule.drop_last
    distributed = rank is not None or world_size is not None or rule.even or rule.divide
    sampled, batched = sampler is not None, batch_sampler is not None
    clashes = {
        "batch_size or divide with max_nodes": rule.max_nodes
        and (rule.batch_size != 1 or rule.divide),
        "shuffle or bucket with a sampler": ordered and sampled,
        "anything that orders or cuts with a batch_sampler": batched
        and (ordered or cut or sampled),
        "rank, world_size, even or divide with a sampler": distributed and (sampled or batched),
        "rank without world_size, or world_size without rank": (rank is None)
        != (world_size is None),
        "a rank that is not below world_size": rank is not None and rank >= (world_size or 1),
    }
    for clash in (clash for clash, clashing in clashes.items() if clashing):
        raise UsageError(f"Arguments of GraphLoader contradict each other: {clash}.")
