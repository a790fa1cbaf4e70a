"""Lightning data module with the train, validation and test loaders of a dataset."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
from torch_geometric.data import Dataset

from kmip_data.datasets.opening import open as open_build
from kmip_data.errors import UsageError
from kmip_data.format.split_files import PARTS
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader, LoaderState
from kmip_data.runtime.extras import require_extra

require_extra("lightning", "GraphDataModule")
from lightning.pytorch import LightningDataModule  # noqa: E402 -- without it, the error above


class GraphDataModule(LightningDataModule):
    """Train, validation and test loaders of a dataset.

    Missing data are built once per node. In a distributed run, every process trains on the same
    number of batches, and each validation or test graph is read by exactly one process. A run that
    resumes from a checkpoint within an epoch continues with the next batch.

    Parameters
    ----------
    dataset
        A dataset class (``S3DIS``) or another callable with the argument ``split``; or a build
        folder, name or address, as for ``kmip_data.open``.
    batch_size, eval_batch_size
        Graphs per training batch, and per validation or test batch (default: ``batch_size``).
    shuffle, seed
        Order of the training batches.
    loader_options
        Other arguments of every :class:`~kmip_data.reading.loader.GraphLoader`: ``compact``,
        ``prefetch``, ``pin_memory`` (default: True if there is a GPU) …
    **dataset_options
        Arguments of ``dataset``: ``k``, ``root``, ``build`` …
    """

    def __init__(
        self,
        dataset: Callable[..., ShardedDataset] | str | os.PathLike[str],
        *,
        batch_size: int = 1,
        eval_batch_size: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        loader_options: dict[str, Any] | None = None,
        **dataset_options: Any,
    ) -> None:
        super().__init__()
        if isinstance(dataset, Dataset):
            raise UsageError(
                f"{dataset} is one part of a split; a data module needs all parts.",
                steps=f"GraphDataModule({type(dataset).__name__}, …)",
            )
        # Reject wrong arguments before the dataset is opened.
        if callable(dataset):
            inspect.signature(dataset).bind_partial(**dataset_options)
        self._dataset = dataset
        self._dataset_options = dataset_options
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size or batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.loader_options = {"pin_memory": torch.cuda.is_available(), **(loader_options or {})}
        self.parts: dict[str, ShardedDataset] = {}
        self._train_loader: GraphLoader | None = None
        self._train_state: LoaderState | None = None

    def __str__(self) -> str:
        """Return a summary; Lightning's default reads every loader, which would advance the epoch."""
        return f"GraphDataModule({', '.join([*self.parts, f'batch_size={self.batch_size}'])})"

    __repr__ = __str__

    def prepare_data(self) -> None:
        """Build missing data; Lightning calls it in one process per node."""
        self._open_part("train")

    def setup(self, stage: str | None = None) -> None:
        """Open the parts, except missing and empty ones."""
        if self.parts:
            return
        train = self._open_part("train")
        split = train.card.splits[train.split_name].parts if train.split_name else {}
        for name in PARTS:
            if name in split and split[name].graphs:
                self.parts[name] = train if name == "train" else self._open_part(name)

    @property
    def num_features(self) -> int:
        """Number of features per node."""
        return self._require_part("train").num_node_features

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self._require_part("train").num_classes)

    def train_dataloader(self) -> GraphLoader:
        """Return the loader of the training split, which has a new order every epoch."""
        loader = GraphLoader(
            self._require_part("train"),
            self.batch_size,
            self.shuffle,
            self.seed,
            even=True,
            **self.loader_options,
        )
        if self._train_state is not None:
            loader.load_state_dict(self._train_state)
        self._train_loader = loader
        self._train_state = None
        return loader

    def val_dataloader(self) -> GraphLoader | list[GraphLoader]:
        """Return the loader of the validation split, in order; an empty list if there is none."""
        return self._ordered_loader("val")

    def test_dataloader(self) -> GraphLoader | list[GraphLoader]:
        """Return the loader of the test split, in order; an empty list if there is none."""
        return self._ordered_loader("test")

    predict_dataloader = test_dataloader

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the training split, for a checkpoint."""
        return {} if self._train_loader is None else {"train": self._train_loader.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next train loader resume at the position of a checkpoint."""
        self._train_state = state_dict.get("train")

    def _open_part(self, part: str) -> ShardedDataset:
        if callable(self._dataset):
            return self._dataset(split=part, **self._dataset_options)
        return open_build(self._dataset, part, **self._dataset_options)

    def _require_part(self, name: str) -> ShardedDataset:
        self.setup()
        if name not in self.parts:
            raise UsageError(f"The split has no {name} part: {', '.join(self.parts) or 'none'}.")
        return self.parts[name]

    def _ordered_loader(self, part: str) -> GraphLoader | list[GraphLoader]:
        if part not in self.parts:
            return []
        options = self.loader_options
        loader = GraphLoader(self.parts[part], self.eval_batch_size, **options)
        rank, world_size = loader.rank_and_world_size()
        if world_size > 1 and "rank" not in options:
            # An explicit rank keeps Lightning from adding its own sampler, which repeats graphs.
            options = {**options, "rank": rank, "world_size": world_size}
            loader = GraphLoader(self.parts[part], self.eval_batch_size, **options)
        return loader
