"""Save any PyTorch Geometric dataset as a build, for your own graphs."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset as TorchDataset
from torch_geometric.data import Data, Dataset

from kmip_data.builds.home import Build
from kmip_data.errors import UsageError, located, writing
from kmip_data.files import changes as files
from kmip_data.format.card import NAME_WORDS, is_name
from kmip_data.format.writer import Compression
from kmip_data.manifest import dataset_names
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.saving.survey import PlainGraph, Spool, Survey, plain_graph
from kmip_data.saving.writing import Positions, write_build


def save(  # noqa: PLR0913 -- options, by keyword
    dataset: TorchDataset[Any] | Iterable[Data] | Data,
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    split: Mapping[str, Positions] | None = None,
    class_names: Sequence[str] = (),
    title: str = "",
    license: str = "",  # noqa: A002 -- its name on the card
    citation: str = "",
    compression: Compression = None,
) -> Build:
    """Write graphs as a build that :func:`kmip_data.open` gives back unchanged.

    Attributes, values and dtypes come back as they were; integers are stored in the narrowest dtype
    that holds them all. Graphs whose columns of ``edge_index`` are the k sources of node 0, then
    those of node 1 and so on (k-NN graphs) get a neighbour table, a quarter of the bytes, and can be
    loaded with ``compact=True``. Memory holds one shard (at most about 64 MiB) at a time. The folder
    appears when all is written; nothing is left of what was written before an error.

    Parameters
    ----------
    dataset
        A PyTorch Geometric dataset, another iterable of ``Data``, or one ``Data``. What can be read
        only once (a generator, a dataset with a transform) is cached in a temporary file next to
        ``folder`` until all graphs are known.
    folder
        A new folder.
    name
        Name of the dataset; default: the folder's.
    split
        Positions of the graphs of each part; for a single graph, of its nodes. The boolean
        ``train_mask``, ``val_mask`` and ``test_mask`` of a single graph become its split by themselves.
    class_names, title, license, citation
        For the card.
    compression
        ``None`` (mapped, fastest), ``"gzip"`` or ``"zstd"``.

    Raises
    ------
    UsageError
        A graph is not homogeneous, does not go with those before it, or has an attribute that has no
        place in the format (the graph is named); the folder is not new; the split does not fit.
    OutOfResources
        The disk is full.

    Examples
    --------
    >>> import kmip_data
    >>> from torch_geometric.datasets import FakeDataset
    >>> build = kmip_data.save(FakeDataset(num_graphs=100), "my-graphs")  # doctest: +SKIP
    >>> dataset = kmip_data.open("my-graphs")  # doctest: +SKIP
    """
    folder = located(folder, "folder")
    name = name or folder.name
    _check_target(folder, name)
    partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")
    with writing(folder):
        partial.mkdir(parents=True)
    try:
        graphs = _readable_twice(dataset, partial / "spool")
        card = write_build(
            partial,
            graphs,
            Survey(graphs),
            split,
            compression,
            dataset=name,
            title=title or name,
            class_names=list(class_names),
            license={"name": license, "url": "", "notice": ""},
            citation=citation,
        )
        files.remove_file(partial / "spool")
        with writing(folder):
            files.move(partial, folder)
    except BaseException:
        files.remove_scratch(partial)
        raise
    return Build(folder, card)


def _check_target(folder: Path, name: str) -> None:
    files.refuse_link(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} already exists.", next="another folder, or remove this one first")
    if not is_name(name):
        raise UsageError(f"A dataset cannot be called {name!r}.", expected=NAME_WORDS, next="save(…, name=…)")
    if name in dataset_names():
        raise UsageError(f"The name {name!r} belongs to a dataset of this package.", next="save(…, name=…)")


def _readable_twice(dataset: Any, spool: Path) -> Iterable[PlainGraph]:
    """Return the graphs as an iterable that can be read twice."""
    if isinstance(dataset, Data):
        dataset = [dataset]
    graphs = _Named(dataset, dataset.keys if isinstance(dataset, ShardedDataset) else None)
    steady = isinstance(dataset, list | tuple) or (isinstance(dataset, Dataset) and dataset.transform is None)
    return graphs if steady else Spool(spool, graphs)


class _Named:
    """Graphs of a dataset with their keys."""

    def __init__(self, dataset: Iterable[Any], names: Sequence[str] | None) -> None:
        self._dataset, self._names = dataset, names

    def __iter__(self) -> Iterator[PlainGraph]:
        for number, data in enumerate(self._dataset):
            yield plain_graph(data, f"{number:08d}" if self._names is None else self._names[number])
