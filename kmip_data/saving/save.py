"""Save any PyTorch Geometric dataset as a build: shards, given split, page and, last, the card."""

from __future__ import annotations

import os
import pickle
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch_geometric.data import Data, HeteroData

from kmip_data import __version__
from kmip_data.arrays import I64, U8, Array, Bools
from kmip_data.builds.home import Build
from kmip_data.builds.verify import feature_problems
from kmip_data.errors import UsageError
from kmip_data.files import atomic_writes as files
from kmip_data.files.path_errors import located
from kmip_data.files.reading import json_digest
from kmip_data.format.build_files import finish, write_split_file
from kmip_data.format.card import NAME_WORDS, Card, ShardEntry, SplitEntry, is_name
from kmip_data.format.schema import FORMAT_VERSION, bytes_per
from kmip_data.format.split_files import NO_PART, NODE_PARTS, parts_problem
from kmip_data.format.writer import MAX_SHARD_BYTES, GraphRecord, write_shard
from kmip_data.graphs.statistics import UnitStatistics, summarise
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.saving.survey import DenseGraph, Survey, dense_graph, to_record

Positions = Sequence[int] | Array | Tensor  #: indices or a boolean mask

RULE = "given"  #: name of the split and its rule
MASKS = {f"{part}_mask": part for part in NODE_PARTS}  #: attribute of a single graph to part
_LIBRARIES = ("numpy", "h5py", "torch-geometric")  #: packages with versions on the card


def save(
    dataset: TorchDataset[object] | Iterable[Data] | Data,
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    split: Mapping[str, Positions] | None = None,
    class_names: Sequence[str] = (),
    title: str = "",
    license: str = "",  # noqa: A002 -- its name on the card
    citation: str = "",
) -> Build:
    """Write graphs as a build that :func:`kmip_data.open` gives back unchanged.

    Attributes, values and dtypes come back as they were; integers are stored in the narrowest dtype
    that holds them all. Graphs whose columns of ``edge_index`` are the k sources of node 0, then
    the edges of node 1 and so on (k-NN graphs) get a neighbour table, a quarter of the bytes, and can
    be loaded with ``compact=True``. Memory holds one shard (at most about 64 MiB) at a time. The
    folder appears when complete; an error leaves nothing behind.

    Parameters
    ----------
    dataset
        A PyTorch Geometric dataset, another iterable of ``Data``, or one ``Data``. It is read once;
        all but a list lies in a temporary file next to ``folder`` until the last graph is known.
    folder
        A new folder, relative to the current one. In ``built/`` of the home folder a build is found
        by its name from anywhere.
    name
        Name of the dataset; default: the folder's.
    split
        Positions of the graphs of each part; for a single graph, of its nodes. The boolean
        ``train_mask``, ``val_mask`` and ``test_mask`` of a single graph become its split by
        themselves. Given masks [N, F] become F splits: ``data.split.fold`` is 0 to F - 1.
    class_names, title, license, citation
        For the card.

    Raises
    ------
    UsageError
        A graph that is not homogeneous, does not match previous graphs, or has an attribute that
        the format cannot store (the graph is named); an existing folder; an invalid split.
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
    check_target(folder, name)
    about = {
        "title": title or name,
        "citation": citation,
        "class_names": list(class_names),
        "license": {"name": license, "url": "", "notice": ""},
    }
    # A folder that appears is complete.
    with (
        files.new_folder(folder, "unfinished build") as partial,
        tempfile.TemporaryFile(dir=partial) as spool,
    ):
        survey, graphs = _survey(dataset, spool)
        card = _write_build(partial, graphs, survey, split, name, about)
    build = Build(folder, card)
    for problem in feature_problems(build):
        warnings.warn(problem, stacklevel=2)
    return build


def check_target(folder: Path, name: str) -> None:
    """Refuse an existing folder, and invalid names of saved datasets."""
    files.refuse_link(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} already exists.", next="use another folder, or remove this one first"
        )
    if not is_name(name):
        raise UsageError(
            f"A dataset cannot be called {name!r}.",
            expected=NAME_WORDS,
            next="use another name: save(…, name=…), build pyg --name NAME",
        )
    # The name of a recipe, such as graphs, is free, as its builds have their own names.
    if name in dataset_names() and not load_manifest(name).recipe:
        raise UsageError(
            f"The name {name!r} belongs to a dataset of this package.",
            next="use another name: save(…, name=…), build pyg --name NAME",
        )


def _survey(dataset: Any, spool: IO[bytes]) -> tuple[Survey, Iterator[DenseGraph]]:
    """Survey every graph once, and return all again, as the schema is known after the last."""
    names = dataset.keys if isinstance(dataset, ShardedDataset) else None
    dataset = [dataset] if isinstance(dataset, Data | HeteroData) else dataset
    survey = Survey()
    in_memory = []
    for number, data in enumerate(dataset):
        name = f"{number:08d}" if names is None else names[number]
        graph = dense_graph(data, name)
        survey.add(graph)
        # A generator cannot be read twice, so its graphs wait on disk for their schema.
        if isinstance(dataset, list | tuple):
            in_memory.append(graph)  # the caller has the tensors, and these are views of them
        else:
            pickle.dump(graph, spool, pickle.HIGHEST_PROTOCOL)
    if not survey.keys:
        raise UsageError("There is nothing to save: no graph.")
    spool.seek(0)
    if in_memory:
        return survey, iter(in_memory)
    return survey, (pickle.load(spool) for _ in survey.keys)  # noqa: S301 -- written above


def _masks_of(graph: DenseGraph) -> dict[str, Bools] | None:
    """Return the parts by the masks of a graph, ``None`` unless all three exist and are disjoint."""
    masks = {}
    for name, part in MASKS.items():
        mask = graph.values.get(name)
        if mask is None or mask.dtype != np.bool_ or mask.shape != (graph.num_nodes,):
            return None
        masks[part] = mask
    # A node in two masks belongs to no split that could be stored.
    parts_of_node = np.sum(list(masks.values()), axis=0)
    return masks if parts_of_node.max(initial=0) <= 1 else None


def _write_splits(
    folder: Path, split: Mapping[str, Positions], keys: Sequence[str], sizes: I64
) -> dict[str, SplitEntry]:
    """Write the split, or one for each column of its masks; masks of one column are in all."""
    masks = {part: np.asarray(chosen) for part, chosen in split.items()}
    columns = {mask.shape[1] for mask in masks.values() if mask.ndim == 2}
    if not columns:
        return {RULE: _write_split(folder, RULE, split, keys, sizes, {})}
    if len(columns) > 1:
        raise UsageError(f"The masks have {sorted(columns)} columns, not equally many.")
    entries = {}
    for fold in range(columns.pop()):
        chosen = {part: mask[:, fold] if mask.ndim == 2 else mask for part, mask in masks.items()}
        name = f"{RULE}-fold{fold}"
        entries[name] = _write_split(folder, name, chosen, keys, sizes, {"fold": fold})
    return entries


def _write_split(
    folder: Path,
    name: str,
    split: Mapping[str, Positions],
    keys: Sequence[str],
    sizes: I64,
    parameters: Mapping[str, int],
) -> SplitEntry:
    """Write the split of graphs of these ``keys`` and nodes and edges (G, 2).

    The split of a single graph is one of its nodes.
    """
    # A single graph is split by its nodes, several by themselves.
    count = int(sizes[0, 0]) if len(keys) == 1 else len(keys)
    parts = {part: _positions(chosen, count, part) for part, chosen in split.items()}
    if problem := parts_problem(parts, count):
        raise UsageError(f"The split does not fit: {problem}.")
    written: dict[str, I64] | U8 = parts
    if len(keys) == 1:
        code = np.full(count, NO_PART, np.uint8)
        for part, rows in parts.items():
            code[rows] = NODE_PARTS[part]
        written = code
    return write_split_file(folder, name, written, keys, sizes, rule=RULE, parameters=parameters)


def _positions(chosen: Positions, count: int, part: str) -> I64:
    """Return indices, given as such or as a boolean mask."""
    array = np.asarray(chosen)
    if array.dtype == np.bool_ and array.shape == (count,):
        array = np.flatnonzero(array)
    if part not in NODE_PARTS or array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UsageError(
            f"The part {part!r} of the split does not fit.",
            expected=(
                f"train, val or test: positions from 0 to {count - 1}, or a boolean mask [{count}]"
            ),
            found=f"{array.dtype} {list(array.shape)}: {array.reshape(-1)[:8].tolist()}",
        )
    return array.astype(np.int64)


def _write_build(
    folder: Path,
    graphs: Iterator[DenseGraph],
    survey: Survey,
    split: Mapping[str, Positions] | None,
    name: str,
    about: Mapping[str, object],
) -> Card:
    """Write a build of ``graphs`` into an empty folder; ``about`` are fields of the card.

    The build key is made of the name, the content of the graphs and how they are stored: the same
    graphs give the same bytes. Shards have at most MAX_SHARD_BYTES, but for one of a single larger
    graph.
    """
    first = next(graphs)
    masks = _masks_of(first) if len(survey.keys) == 1 and split is None else None
    schema = survey.schema(without=frozenset(MASKS if masks else ()))
    content = survey.content_digest()
    identity = {
        "dataset": name,
        "content": content,
        "schema": schema.to_json(),
        "format_version": FORMAT_VERSION,
    }
    key = json_digest(identity)[:12]
    per_graph, per_node, per_edge = bytes_per(schema)
    shards: list[ShardEntry] = []
    waiting: list[GraphRecord] = []
    counted = UnitStatistics(schema)
    used = 0

    def write() -> None:
        file = f"shards/{len(shards):05d}.h5"
        facts = write_shard(
            folder / file,
            waiting,
            schema,
            root=folder,
            dataset=name,
            build_key=key,
        )
        shards.append(ShardEntry(file=file, **facts))
        for record in waiting:
            counted.add(record)
        waiting.clear()

    # Shards of at most MAX_SHARD_BYTES, graph by graph.
    (folder / "shards").mkdir()
    for graph, (nodes, edges) in zip(chain([first], graphs), survey.sizes, strict=True):
        size = per_graph + nodes * per_node + edges * per_edge
        if waiting and used + size > MAX_SHARD_BYTES:
            write()
            used = 0
        waiting.append(to_record(graph, schema))
        used += size
    write()

    splits = {}
    chosen = masks or split
    if chosen:
        (folder / "splits").mkdir()
        sizes = np.array(survey.sizes, np.int64)
        splits = _write_splits(folder, chosen, survey.keys, sizes)

    versions = {library: metadata.version(library) for library in _LIBRARIES}
    return finish(
        folder,
        schema,
        shards,
        splits,
        summarise([counted.to_json()]),
        {},
        dataset=name,
        key=key,
        content_digest=content,
        notes=["Written by kmip_data.save."],
        sample=False,
        complete=None,
        pipeline_version=1,
        receipts=[],
        parameters={"k": schema.k, "limit": None},
        versions={"kmip-data": __version__} | versions,
        **about,
    )
