"""Save any PyTorch Geometric dataset as a build: shards, given split, page and, last, the card."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset as TorchDataset
from torch_geometric.data import Data, Dataset

from kmip_data import __version__
from kmip_data.arrays import I64
from kmip_data.builds.home import Build
from kmip_data.errors import UsageError, located, writing
from kmip_data.files import changes as files
from kmip_data.files.reading import json_digest
from kmip_data.format.build_files import finish, write_split_file
from kmip_data.format.card import NAME_WORDS, Card, ShardEntry, SplitEntry, is_name
from kmip_data.format.schema import FORMAT_VERSION, Schema, bytes_per
from kmip_data.format.splits import NO_PART, NODE_PARTS, encode_node_split, encode_split, parts_fault
from kmip_data.format.writer import MAX_SHARD_BYTES, Compression, GraphRecord, encode_shard
from kmip_data.graphs.statistics import UnitStatistics, summarise
from kmip_data.manifest import dataset_names
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.saving.survey import PlainGraph, Spool, Survey, plain_graph, to_record

Positions = Sequence[int] | NDArray[Any] | Any  #: indices or a boolean mask; a torch tensor too

RULE: Final = "given"  #: name of the split and its rule
MASKS: Final = {f"{part}_mask": part for part in NODE_PARTS}  #: attribute of a single graph to part


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


def masks_of(graph: PlainGraph) -> dict[str, NDArray[np.bool_]] | None:
    """Return the parts that the masks of a graph give, ``None`` unless all three exist and are disjoint."""
    masks = {part: graph.values[name] for name, part in MASKS.items() if name in graph.values}
    plain = len(masks) == len(MASKS) and all(
        mask.dtype == np.bool_ and mask.shape == (graph.num_nodes,) for mask in masks.values()
    )
    return masks if plain and np.sum(list(masks.values()), axis=0).max(initial=0) <= 1 else None


def write_node_split(folder: Path, split: Mapping[str, Positions], nodes: int, edges: int) -> SplitEntry:
    """Write the split of the nodes of a single graph and describe it; raises as :func:`write_split`."""
    code = np.full(nodes, NO_PART, np.uint8)
    for part, chosen in split.items():
        rows = _positions(chosen, nodes, part)
        if (code[rows] != NO_PART).any() or len(np.unique(rows)) != len(rows):
            raise UsageError(f"The split has a node of {part!r} twice.")
        code[rows] = NODE_PARTS[part]
    encoded = encode_node_split(code, rule=RULE, parameters={})
    sizes = {part: (1, int((code == value).sum()), edges) for part, value in NODE_PARTS.items()}
    return write_split_file(folder, RULE, encoded, sizes, rule=RULE, parameters={})


def write_split(folder: Path, split: Mapping[str, Positions], keys: Sequence[str], sizes: I64) -> SplitEntry:
    """Write the split of several graphs, of these ``keys`` and nodes and edges (G, 2), and describe it.

    Raises ``UsageError`` where a part has a name other than train, val or test, a position is out of range,
    or a graph is in two parts.
    """
    parts = {part: _positions(chosen, len(keys), part) for part, chosen in split.items()}
    if fault := parts_fault(parts, len(keys)):
        raise UsageError(f"The parts of the split overlap: {fault}.")
    encoded = encode_split(parts, rule=RULE, parameters={}, keys=keys)
    counts = {part: (len(rows), *sizes[rows].sum(axis=0).tolist()) for part, rows in parts.items()}
    return write_split_file(folder, RULE, encoded, counts, rule=RULE, parameters={})


def _positions(chosen: Positions, count: int, part: str) -> I64:
    """Return indices, given as such or as a boolean mask."""
    array = np.asarray(chosen)
    if array.dtype == np.bool_ and array.shape == (count,):
        array = np.flatnonzero(array)
    whole = array.ndim == 1 and (array.dtype.kind in "iu" or not array.size)
    if part not in NODE_PARTS or not whole or (array.size and (array.min() < 0 or array.max() >= count)):
        raise UsageError(
            f"The part {part!r} of the split does not fit.",
            expected=f"train, val or test: positions from 0 to {count - 1}, or a boolean mask [{count}]",
            found=f"{array.dtype} {list(array.shape)}: {array.reshape(-1)[:8].tolist()}",
        )
    return array.astype(np.int64)


_LIBRARIES: Final = ("numpy", "h5py", "torch-geometric")  #: whose versions the card has


def write_build(
    folder: Path,
    graphs: Iterable[PlainGraph],
    survey: Survey,
    split: Mapping[str, Positions] | None,
    compression: Compression,
    *,
    dataset: str,
    **about: Any,
) -> Card:
    """Write a build of ``graphs``, which ``survey`` has seen all of, into an empty folder.

    The build key is made of the name, the content of the graphs and how they are stored: the same
    graphs give the same bytes. ``about`` are other fields of the card.
    """
    masks = masks_of(next(iter(graphs))) if survey.graphs == 1 and split is None else None
    schema = survey.schema(without=frozenset(MASKS if masks else ()))
    content = survey.content_digest()
    identity = {"dataset": dataset, "content": content, "schema": schema.to_json()}
    key = json_digest({**identity, "compression": compression, "format_version": FORMAT_VERSION})[:12]
    seen: list[tuple[str, int, int]] = []  # key, nodes, edges

    def records() -> Iterator[GraphRecord]:
        for graph in graphs:
            record = to_record(graph, schema)
            seen.append((record.key, record.num_nodes, record.num_edges))
            yield record

    shards, statistics = write_shards(
        folder, records(), schema, dataset=dataset, build_key=key, compression=compression
    )
    splits = {}
    if chosen := masks or split:
        (folder / "splits").mkdir()
        if survey.graphs == 1:
            splits[RULE] = write_node_split(folder, chosen, *seen[0][1:])
        else:
            sizes = np.array([size for _, *size in seen], np.int64)
            splits[RULE] = write_split(folder, chosen, [key for key, *_ in seen], sizes)
    return finish(
        folder,
        schema,
        shards,
        splits,
        statistics,
        {},
        dataset=dataset,
        key=key,
        sample=False,
        complete=None,
        parameters={"k": schema.k, "limit": None, "compression": compression},
        pipeline_version=1,
        receipts=[],
        content_digest=content,
        versions={"kmip-data": __version__, **{name: metadata.version(name) for name in _LIBRARIES}},
        notes=["Written by kmip_data.save."],
        **about,
    )


def write_shards(
    folder: Path, records: Iterable[GraphRecord], schema: Schema, **options: Any
) -> tuple[list[ShardEntry], dict[str, Any]]:
    """Write records as shards of at most MAX_SHARD_BYTES (a larger graph is a shard of its own).

    ``options`` are those of :func:`~kmip_data.format.writer.encode_shard`; what is returned, shards and
    statistics, is for the card.
    """
    (folder / "shards").mkdir(parents=True)
    per_graph, per_node, per_edge = bytes_per(schema)
    shards: list[ShardEntry] = []
    counted = UnitStatistics(schema)
    waiting: list[GraphRecord] = []
    used = 0

    def write() -> None:
        done = encode_shard(waiting, schema, **options)
        file = f"shards/{len(shards):05d}.h5"
        files.write_file(folder / file, done.data)
        shards.append(ShardEntry(file=file, **done.facts))
        waiting.clear()

    for record in records:
        size = per_graph + record.num_nodes * per_node + record.num_edges * per_edge
        if waiting and used + size > MAX_SHARD_BYTES:
            write()
            used = 0
        waiting.append(record)
        counted.add(record)
        used += size
    write()
    return shards, summarise([counted.to_json()])
