"""Build times and sizes against the classes of PyTorch Geometric and OGB on the same raw files.

Raw files are generated and in the page cache; both sides read them and write files.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch_geometric.loader import DataLoader

from benchmarks.readers import compare_reading
from benchmarks.reading import SMALL_BATCH, reading_row
from benchmarks.table import Row, bytes_below, thread_count
from benchmarks.turns import compare, peak_bytes
from kmip_data.builds.home import Home
from kmip_data.files.atomic_writes import remove_tree
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import RawCopy, load_pipeline
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.engine.pool import BuildTask, build_unit, gc_frozen
from kmip_data.pipelines.parameters import check_params
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader

NUM_DISTINCT_GRAPHS = 200  #: generated graphs, which larger files repeat
PART_FRACTIONS = {"train": 0.9, "val": 0.05, "test": 0.05}


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Measure all datasets on generated data."""
    for topic, graphs, few in ((peptides, 8_000, 200), (malnet, 1_000, 50), (coco, 20_000, 400)):
        with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as folder:
            yield from topic(Path(folder), few if quick else graphs, quick=quick)
    for name in PUBLISHED:
        with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as folder:
            yield from published(Path(folder), name, quick=quick)


def build_shards(name: str, raw: Path, build: Path, **parameters: str) -> Path:
    """Run a pipeline and write its shards like a worker; return their folder."""
    pipeline: Any = load_pipeline(load_manifest(name))
    params = check_params(pipeline.Params, parameters, name)
    (build / "shards").mkdir(parents=True, exist_ok=True)
    with gc_frozen():
        prepared = pipeline.prepare(RawCopy(raw, {}, (), sample=True), params, build)
    for unit in pipeline.units(prepared, params):
        build_unit(
            BuildTask(pipeline, params, prepared, unit, build, build / "stop", "0" * 12, None)
        )
    return build / "shards"


def peptides(folder: Path, graphs: int, *, quick: bool) -> Iterator[Row]:
    """Build from SMILES, against serial smiles2graph and PyTorch Geometric's collate."""
    raw, home = folder / "raw", folder / "home"
    raw.mkdir()
    load_pipeline(load_manifest("peptides-func")).write_sample(raw, limit=graphs)

    def ours(jobs: int) -> Any:
        remove_tree(home)
        return build_dataset(
            "peptides-func", home=Home(home), archives=[raw], unpinned=True, jobs=jobs, quiet=True
        )

    build = ours(1)
    for jobs, target in ((1, 1.2), (2, 2.0)):
        theirs = partial(peptides_as_pyg, raw, folder / "data.pt")
        times = compare(partial(ours, jobs), theirs, repeats=1 if quick else 3, warmup=0)
        what = f"peptides-func build, {graphs:,} peptides, {jobs} process{'es' * (jobs > 1)}"
        yield Row.from_times(
            what, "serial smiles2graph, PyG collate and save", times, target=target
        )
    size, pyg = bytes_below(build.path), (folder / "data.pt").stat().st_size
    what, against = "bytes on disk a graph, peptides-func", "PyG InMemoryDataset.save"
    yield Row.from_figures(
        what,
        against,
        size / graphs,
        pyg / graphs,
        "B",
        target=5,
        note="peptides: the whole build folder",
    )


def peptides_as_pyg(raw: Path, file: Path) -> None:
    """Process the raw files like LRGB's loader: convert SMILES with OGB, save one list."""
    import csv
    import gzip
    import json

    from ogb.utils import smiles2graph
    from torch_geometric.data import Data, InMemoryDataset

    from kmip_data.pipelines.datasets.peptides import PeptidesFuncPipeline

    graphs = []
    with gzip.open(raw / PeptidesFuncPipeline.table_file, "rt") as table:
        for row in csv.DictReader(table):
            graph = smiles2graph(row["smiles"])
            names = {"x": "node_feat", "edge_index": "edge_index", "edge_attr": "edge_feat"}
            tensors = {name: torch.from_numpy(graph[key]) for name, key in names.items()}
            graphs.append(
                Data(**tensors, y=torch.tensor([json.loads(row["labels"])], dtype=torch.float32))
            )
    InMemoryDataset.save(graphs, str(file))


def malnet(folder: Path, graphs: int, *, quick: bool) -> Iterator[Row]:
    """Build from edge lists, against PyTorch Geometric's class."""
    from torch_geometric.datasets import MalNetTiny

    raw = folder / "raw"
    raw.mkdir()
    load_pipeline(load_manifest("malnet-tiny")).write_sample(raw, limit=graphs)
    shutil.copytree(raw, folder / "pyg/raw/malnet-graphs-tiny")
    shutil.copytree(raw / "type", folder / "pyg/raw/split_info_tiny/type")
    keys = {"isolated": "keep", "label_order": "first-seen"}

    def theirs() -> None:
        remove_tree(folder / "pyg/processed")
        with contextlib.redirect_stderr(io.StringIO()):
            MalNetTiny(str(folder / "pyg"))

    ours = partial(build_shards, "malnet-tiny", raw, folder / "build", **keys)
    times = compare(ours, theirs, repeats=1 if quick else 7)
    note = f"malnet: {graphs:,} generated call graphs, one process"
    yield Row.from_times("MalNet-Tiny build", "PyG MalNetTiny.process", times, target=8, note=note)
    size, pyg = (
        bytes_below(folder / "build/shards"),
        (folder / "pyg/processed/data.pt").stat().st_size,
    )
    what, against = "bytes on disk a graph, malnet-tiny", "PyG MalNetTiny's data.pt"
    yield Row.from_figures(what, against, size / graphs, pyg / graphs, "B", target=3.5, note=note)


def coco(folder: Path, graphs: int, *, quick: bool) -> Iterator[Row]:
    """Build from pickles in the authors' layout; memory is the growth of the process."""
    from torch_geometric.datasets import LRGBDataset

    raw, made, pyg = folder / "coco-sp/raw", folder / "build", folder / "coco-sp/processed"
    raw.mkdir(parents=True)
    write_pickles(raw, graphs)
    memory = {made: 0, pyg: 0}

    def measured(folder_of: Path, build: Callable[[], object]) -> None:
        remove_tree(folder_of)
        with contextlib.redirect_stderr(io.StringIO()):
            memory[folder_of] = max(memory[folder_of], peak_bytes(build))

    ours = partial(measured, made, partial(build_shards, "coco-sp", raw, made))
    theirs = partial(measured, pyg, partial(LRGBDataset, str(folder), "coco-sp"))
    times = compare(ours, theirs, repeats=1 if quick else 3, warmup=0)
    note = f"coco-sp: {graphs:,} generated graphs of 441 to 529 superpixels"
    against = "PyG LRGBDataset.process"
    yield Row.from_times(
        f"COCO-SP-like pickle of {graphs:,} graphs", against, times, target=5, note=note
    )
    mebibytes = [size / 2**20 for size in memory.values()]
    yield Row.from_figures("peak memory of it", against, *mebibytes, "MiB", target=4, note=note)
    files = (made / "shards").iterdir(), (path for path in pyg.iterdir() if path.name[:3] != "pre")
    size = [sum(path.stat().st_size for path in each) / graphs for each in files]
    yield Row.from_figures(
        "bytes on disk a graph, coco-sp", against, *size, "B", target=2, note=note
    )


def write_pickles(raw: Path, graphs: int) -> None:
    """Write pictures of published size in upstream's pickles."""
    from kmip_data.pipelines.datasets.superpixel_graphs import COCO_IDS
    from kmip_data.pipelines.datasets.superpixel_graphs.sample import draw_picture_graph
    from kmip_data.pipelines.sample_writers import PickledTensor, write_pickle

    ids, random = np.array(COCO_IDS, np.uint8), np.random.Generator(np.random.PCG64(0))
    distinct = [
        draw_picture_graph(n, len(ids), random, side=(21, 23))
        for n in range(min(NUM_DISTINCT_GRAPHS, graphs))
    ]
    for part, fraction in PART_FRACTIONS.items():
        pictures = itertools.islice(itertools.cycle(distinct), int(graphs * fraction))
        rows = [(*map(PickledTensor, arrays), ids[y]) for *arrays, y in pictures]
        write_pickle(raw / f"{part}.pickle", rows)


class PublishedCase(NamedTuple):
    """Dataset of published size, and the peer's class that processes it."""

    size: int  #: graphs, or nodes of a single graph
    write: Callable[[str, Path, int], None]
    peer_dataset: Callable[[Path], Any]
    against: str
    raw: str = "."  #: raw folder, relative to the peer's root
    part: str | None = None  #: part in the peer's dataset; None for all
    turns: int = 5
    warmup: int = 1


def published(folder: Path, name: str, *, quick: bool) -> Iterator[Row]:
    """Time building a dataset, in CPU seconds of one process and thread, and reading it.

    Both sides read the same raw files and write files of tensors. First compare graphs of both
    sides bit by bit.
    """
    case = PUBLISHED[name]
    root = folder / name.upper()
    raw = root / case.raw
    raw.mkdir(parents=True)
    case.write(name, raw, 1_000 if quick else case.size)
    options = {"unpinned": True, "jobs": 1, "quiet": True}
    build = build_dataset(name, home=Home(folder), archives=[raw], **options)
    with silenced():
        peer_dataset = case.peer_dataset(root)
    dataset = ShardedDataset(build, case.part)
    check_equal(dataset, peer_dataset)

    def ours() -> None:
        remove_tree(folder / "build")
        build_shards(name, raw, folder / "build")

    turns = 1 if quick else case.turns
    with thread_count(1), silenced():
        times = compare(
            ours, peer_dataset.process, repeats=turns, warmup=case.warmup, clock=time.process_time
        )
    count = build.card.counts["graphs"]
    size = f"{count:,} graphs" if count > 1 else f"{build.card.counts['nodes']:,} nodes"
    note = "published sizes: generated files; CPU seconds of one process on one thread"
    yield Row.from_times(f"{name}, {size}", case.against, times, target=3, note=note)
    stored = sum(Path(path).stat().st_size for path in peer_dataset.processed_paths)
    sizes = bytes_below(build.path) / count, stored / count
    yield Row.from_figures(f"bytes a graph, {name}", case.against, *sizes, "B", target=3, note=note)
    if count > 1:
        with thread_count(1):
            yield from published_reading(name, dataset, peer_dataset, repeats=3 if quick else 7)


def published_reading(name: str, dataset: Any, peer_dataset: Any, *, repeats: int) -> Iterator[Row]:
    """Time reading random graphs and batches; theirs are in memory."""
    order = np.random.default_rng(0).permutation(len(dataset))[:4_000].tolist()

    def read_ours() -> None:
        deque(map(dataset.__getitem__, order), 0)

    def read_theirs() -> None:
        peer_dataset._data_list = None  # clears the cache of graphs
        deque(map(peer_dataset.__getitem__, order), 0)

    def read_theirs_cached() -> None:
        deque(map(peer_dataset.__getitem__, order), 0)

    memory = "PyG InMemoryDataset"
    sides = ((memory, read_theirs), (f"{memory}, a cached graph", read_theirs_cached))
    for against, theirs in sides:
        row = compare_reading(
            f"one graph at random, {name}", read_ours, theirs, len(order), repeats
        )
        yield reading_row(row, against, 3)
    loader = GraphLoader(dataset, SMALL_BATCH, shuffle=True, prefetch=0)
    other_loader = DataLoader(peer_dataset, SMALL_BATCH, shuffle=True)
    row = compare_reading(
        f"batches of {SMALL_BATCH}, shuffled, {name}",
        partial(deque, loader, 0),
        partial(deque, other_loader, 0),
        len(loader),
        repeats,
    )
    yield reading_row(row, f"{memory} and DataLoader", 3)


def check_equal(dataset: Any, peer_dataset: Any) -> None:
    """Compare two hundred graphs of both sides bit by bit, except for the shape of labels."""
    for index in range(0, len(peer_dataset), max(1, len(peer_dataset) // 200)):
        graph = dataset[index]
        for key, theirs in peer_dataset[index].items():
            if isinstance(theirs, torch.Tensor):
                ours = graph[key]
                if ours.dtype != theirs.dtype or not torch.equal(ours.ravel(), theirs.ravel()):
                    raise SystemExit(f"graph {index}: {key} differs from that of PyG or OGB.")


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Discard all printed output."""
    discarded = io.StringIO()
    with contextlib.redirect_stdout(discarded), contextlib.redirect_stderr(discarded):
        yield


def process_with_ogb(kind: Any, root: Path, **about: str) -> Any:
    """Return OGB's dataset of raw files, processed by its class.

    Skips its constructor, which asks for a download and fails on torch ≥ 2.6, where
    ``weights_only`` is the default.
    """
    about = {"additional node files": "None", "additional edge files": "None", **about}
    dataset = kind.__new__(kind)
    settings = {"binary": False, "is_hetero": False, "task_type": "classification"}
    absent = dict.fromkeys(("transform", "pre_transform", "_indices"))
    vars(dataset).update(root=str(root), meta_info=about, **settings, **absent)
    (root / "processed").mkdir()
    dataset.process()
    dataset.data, dataset.slices = torch.load(dataset.processed_paths[0], weights_only=False)
    return dataset


def ogb_graphs(root: Path) -> Any:
    """Process molecules with ``PygGraphPropPredDataset``."""
    from ogb.graphproppred import PygGraphPropPredDataset

    return process_with_ogb(PygGraphPropPredDataset, root, add_inverse_edge="True")


def ogb_nodes(root: Path) -> Any:
    """Process papers with ``PygNodePropPredDataset``."""
    from ogb.nodeproppred import PygNodePropPredDataset

    about = {"add_inverse_edge": "False", "additional node files": "node_year"}
    return process_with_ogb(PygNodePropPredDataset, root, **about)


def pyg_zinc(root: Path, *, subset: bool) -> Any:
    """Process molecules with ``ZINC``."""
    from torch_geometric.datasets import ZINC

    return ZINC(str(root), subset=subset)


def pyg_blocks(root: Path) -> Any:
    """Process graphs with ``GNNBenchmarkDataset``."""
    from torch_geometric.datasets import GNNBenchmarkDataset

    return GNNBenchmarkDataset(str(root.parent), root.name)


def write_sample(name: str, raw: Path, size: int) -> None:
    """Write a sample of this size."""
    load_pipeline(load_manifest(name)).write_sample(raw, limit=size)


def write_papers(name: str, raw: Path, size: int) -> None:
    """Write a graph with the published number of citations per paper."""
    from kmip_data.pipelines.datasets.ogb import sample

    sample.EDGES_PER_NODE = 7
    write_sample(name, raw, size)


def write_zinc(name: str, raw: Path, size: int) -> None:
    """Write the pickles of all molecules, and index files for 12,000 of them."""
    write_sample("zinc-full", raw, size)
    random = np.random.default_rng(0)
    for part, weight in {"train": 10, "val": 1, "test": 1}.items():
        rows = random.permutation(size * weight // 13)[: 1_000 * weight]
        positions = ",".join(map(str, rows.tolist()))
        (raw / f"{part}.index").write_text(f"{positions}\n", "ascii")


def write_blocks(name: str, raw: Path, size: int) -> None:
    """Write graphs of four blocks and of PATTERN's size, repeating a few graphs."""
    random = np.random.default_rng(0)
    graphs = itertools.cycle([_blocks(random) for _ in range(min(NUM_DISTINCT_GRAPHS, size))])
    parts = []
    for weight in (10, 2, 2):
        part = itertools.islice(graphs, size * weight // 14)
        # Give each tensor its own storage, as published.
        parts.append([{key: torch.tensor(array) for key, array in graph.items()} for graph in part])
    torch.save(parts, raw / load_manifest(name).content.anchor)


def _blocks(random: np.random.Generator) -> dict[str, Any]:
    block = random.permutation(np.repeat(np.arange(4), random.integers(10, 50, 4)))
    same_block = block[:, None] == block
    linked = np.triu(random.random(same_block.shape) < np.where(same_block, 0.55, 0.36), 1)
    signal = random.integers(0, 3, len(block))
    return {
        "x": np.eye(3, dtype=np.float32)[signal],
        "edge_index": np.stack((linked | linked.T).nonzero()),
        "y": (block == 0).astype(np.int64),
    }


_IN_PARTS = {"raw": "raw", "part": "train"}
PUBLISHED = {
    "ogbg-molhiv": PublishedCase(41_127, write_sample, ogb_graphs, "OGB PygGraphPropPredDataset"),
    "ogbn-arxiv": PublishedCase(169_343, write_papers, ogb_nodes, "OGB PygNodePropPredDataset"),
    "zinc": PublishedCase(
        249_456,
        write_zinc,
        partial(pyg_zinc, subset=True),
        "PyG ZINC",
        turns=3,
        warmup=0,
        **_IN_PARTS,
    ),
    "zinc-full": PublishedCase(
        249_456,
        write_zinc,
        partial(pyg_zinc, subset=False),
        "PyG ZINC",
        turns=3,
        warmup=0,
        **_IN_PARTS,
    ),
    "pattern": PublishedCase(
        14_000, write_blocks, pyg_blocks, "PyG GNNBenchmarkDataset", **_IN_PARTS
    ),
}
