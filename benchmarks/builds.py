"""Builds and their bytes against the classes of PyTorch Geometric and OGB on the same raw files.

Raw files are generated and in the page cache; both sides begin with them and end with files on
disk.
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

from benchmarks.readers import compared
from benchmarks.reading import SMALL_BATCH, row_of
from benchmarks.table import Row, bytes_below, thread_count
from benchmarks.turns import compare
from kmip_data.builds.home import Home
from kmip_data.files.atomic_writes import remove_tree
from kmip_data.manifest import load_manifest
from kmip_data.models.profiling.measuring import PeakMemory
from kmip_data.pipelines.base import RawFolder, check_params, load_pipeline
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.engine.pool import BuildTask, build_unit, gc_frozen
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader

PICTURES = 200  #: that are made; the files of COCO-SP repeat them
SHARES = {"train": 0.9, "val": 0.05, "test": 0.05}


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Measure each on generated data."""
    for topic, graphs, few in ((peptides, 8_000, 200), (malnet, 1_000, 50), (coco, 20_000, 400)):
        with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as place:
            yield from topic(Path(place), few if quick else graphs, quick=quick)
    for name in PUBLISHED:
        with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as place:
            yield from published(Path(place), name, quick=quick)


def build_shards(name: str, raw: Path, build: Path, **parameters: str) -> Path:
    """Run a pipeline and write its shards, as a worker does; return their folder."""
    pipeline: Any = load_pipeline(load_manifest(name))
    params = check_params(pipeline.Params, parameters, name)
    (build / "shards").mkdir(parents=True, exist_ok=True)
    with gc_frozen():
        prepared = pipeline.prepare(RawFolder(raw, {}, (), sample=True), params, build)
    for unit in pipeline.units(prepared, params):
        build_unit(
            BuildTask(pipeline, params, prepared, unit, build, build / "stop", "0" * 12, None)
        )
    return build / "shards"


def peptides(folder: Path, graphs: int, *, quick: bool) -> Iterator[Row]:
    """Build from SMILES, against serial smiles2graph and PyTorch Geometric's collate."""
    raw, home = folder / "raw", folder / "home"
    raw.mkdir()
    load_pipeline(load_manifest("peptides-func")).sample(raw, limit=graphs)

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
        yield Row.compared(what, "serial smiles2graph, PyG collate and save", times, target=target)
    size, pyg = bytes_below(build.path), (folder / "data.pt").stat().st_size
    what, against = "bytes on disk a graph, peptides-func", "PyG InMemoryDataset.save"
    yield Row.of(
        what,
        against,
        size / graphs,
        pyg / graphs,
        "B",
        target=5,
        note="peptides: the whole build folder",
    )


def peptides_as_pyg(raw: Path, file: Path) -> None:
    """Do the work of LRGB's loader: every SMILES by OGB, one list, one file."""
    import csv
    import gzip
    import json

    from ogb.utils import smiles2graph
    from torch_geometric.data import Data, InMemoryDataset

    from kmip_data.pipelines.datasets.peptides import PeptidesFuncPipeline

    graphs = []
    with gzip.open(raw / PeptidesFuncPipeline.table, "rt") as table:
        for row in csv.DictReader(table):
            graph = smiles2graph(row["smiles"])
            names = {"x": "node_feat", "edge_index": "edge_index", "edge_attr": "edge_feat"}
            tensors = {name: torch.from_numpy(graph[key]) for name, key in names.items()}
            graphs.append(
                Data(**tensors, y=torch.tensor([json.loads(row["labels"])], dtype=torch.float32))
            )
    InMemoryDataset.save(graphs, str(file))


def malnet(folder: Path, graphs: int, *, quick: bool) -> Iterator[Row]:
    """Build from edge lists, against PyTorch Geometric's own class."""
    from torch_geometric.datasets import MalNetTiny

    raw = folder / "raw"
    raw.mkdir()
    load_pipeline(load_manifest("malnet-tiny")).sample(raw, limit=graphs)
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
    yield Row.compared("MalNet-Tiny build", "PyG MalNetTiny.process", times, target=8, note=note)
    size, pyg = (
        bytes_below(folder / "build/shards"),
        (folder / "pyg/processed/data.pt").stat().st_size,
    )
    what, against = "bytes on disk a graph, malnet-tiny", "PyG MalNetTiny's data.pt"
    yield Row.of(what, against, size / graphs, pyg / graphs, "B", target=3.5, note=note)


def coco(folder: Path, graphs: int, *, quick: bool) -> Iterator[Row]:
    """Build from the authors' pickles; memory is what the process grows by."""
    from torch_geometric.datasets import LRGBDataset

    raw, made, pyg = folder / "coco-sp/raw", folder / "build", folder / "coco-sp/processed"
    raw.mkdir(parents=True)
    write_pickles(raw, graphs)
    memory = {made: 0, pyg: 0}

    def measured(folder_of: Path, build: Callable[[], object]) -> None:
        remove_tree(folder_of)
        peak = PeakMemory(torch.device("cpu"))
        peak.start(())
        with contextlib.redirect_stderr(io.StringIO()):
            build()
        peak.stop()
        memory[folder_of] = max(memory[folder_of], peak.bytes or 0)

    ours = partial(measured, made, partial(build_shards, "coco-sp", raw, made))
    theirs = partial(measured, pyg, partial(LRGBDataset, str(folder), "coco-sp"))
    times = compare(ours, theirs, repeats=1 if quick else 3, warmup=0)
    note = f"coco-sp: {graphs:,} generated graphs of 441 to 529 superpixels"
    against = "PyG LRGBDataset.process"
    yield Row.compared(
        f"COCO-SP-like pickle of {graphs:,} graphs", against, times, target=5, note=note
    )
    mebibytes = [size / 2**20 for size in memory.values()]
    yield Row.of("peak memory of it", against, *mebibytes, "MiB", target=4, note=note)
    files = (made / "shards").iterdir(), (path for path in pyg.iterdir() if path.name[:3] != "pre")
    size = [sum(path.stat().st_size for path in each) / graphs for each in files]
    yield Row.of("bytes on disk a graph, coco-sp", against, *size, "B", target=2, note=note)


def write_pickles(raw: Path, graphs: int) -> None:
    """Write pictures of published size as upstream's pickles."""
    import numpy as np

    from kmip_data.pipelines.datasets.superpixel_graphs import COCO_IDS
    from kmip_data.pipelines.datasets.superpixel_graphs.sample import sample_picture_graph
    from kmip_data.pipelines.sample_writers import Tensor, write_pickle

    ids, random = np.array(COCO_IDS, np.uint8), np.random.Generator(np.random.PCG64(0))
    made = [
        sample_picture_graph(n, len(ids), random, side=(21, 23))
        for n in range(min(PICTURES, graphs))
    ]
    for part, share in SHARES.items():
        pictures = itertools.islice(itertools.cycle(made), int(graphs * share))
        rows = [(*map(Tensor, arrays), ids[y]) for *arrays, y in pictures]
        write_pickle(raw / f"{part}.pickle", rows)


class Published(NamedTuple):
    """A published dataset in its full size, and the class that others process it with."""

    size: int  #: graphs, or nodes of a single graph
    write: Callable[[str, Path, int], None]
    others: Callable[[Path], Any]
    against: str
    raw: str = "."  #: folder of the raw files, below the root of the class
    part: str | None = None  #: that the class has; None: all
    turns: int = 5
    warmup: int = 1


def published(folder: Path, name: str, *, quick: bool) -> Iterator[Row]:
    """Build a dataset, in processor seconds of one process and thread, and read it.

    Both sides begin with the same raw files and end with files of tensors. Before they are timed,
    graphs of both are compared bit by bit.
    """
    case = PUBLISHED[name]
    root = folder / name.upper()
    raw = root / case.raw
    raw.mkdir(parents=True)
    case.write(name, raw, 1_000 if quick else case.size)
    options = {"unpinned": True, "jobs": 1, "quiet": True}
    build = build_dataset(name, home=Home(folder), archives=[raw], **options)
    with silent():
        others = case.others(root)
    dataset = ShardedDataset(build, case.part)
    check_equal(dataset, others)

    def ours() -> None:
        remove_tree(folder / "build")
        build_shards(name, raw, folder / "build")

    turns = 1 if quick else case.turns
    with thread_count(1), silent():
        times = compare(
            ours, others.process, repeats=turns, warmup=case.warmup, clock=time.process_time
        )
    count = build.card.counts["graphs"]
    size = f"{count:,} graphs" if count > 1 else f"{build.card.counts['nodes']:,} nodes"
    note = "published sizes: generated files; processor seconds of one process on one thread"
    yield Row.compared(f"{name}, {size}", case.against, times, target=3, note=note)
    stored = sum(Path(path).stat().st_size for path in others.processed_paths)
    sizes = bytes_below(build.path) / count, stored / count
    yield Row.of(f"bytes a graph, {name}", case.against, *sizes, "B", target=3, note=note)
    if count > 1:
        with thread_count(1):
            yield from published_reading(name, dataset, others, repeats=3 if quick else 7)


def published_reading(name: str, dataset: Any, others: Any, *, repeats: int) -> Iterator[Row]:
    """Read graphs at random, and batches; theirs lie in memory."""
    order = np.random.default_rng(0).permutation(len(dataset))[:4_000].tolist()

    def made_anew() -> None:
        others._data_list = None  # graphs that were made before, and are given out again
        deque(map(others.__getitem__, order), 0)

    def mine() -> None:
        deque(map(dataset.__getitem__, order), 0)

    def given_again() -> None:
        deque(map(others.__getitem__, order), 0)

    memory = "PyG InMemoryDataset"
    for against, theirs in ((memory, made_anew), (f"{memory}, a graph again", given_again)):
        row = compared(f"one graph at random, {name}", mine, theirs, len(order), repeats)
        yield row_of(row, against, 3)
    loader = GraphLoader(dataset, SMALL_BATCH, shuffle=True, prefetch=0)
    other_loader = DataLoader(others, SMALL_BATCH, shuffle=True)
    row = compared(
        f"batches of {SMALL_BATCH}, shuffled, {name}",
        partial(deque, loader, 0),
        partial(deque, other_loader, 0),
        len(loader),
        repeats,
    )
    yield row_of(row, f"{memory} and DataLoader", 3)


def check_equal(dataset: Any, others: Any) -> None:
    """Compare two hundred graphs of both sides, every bit but the shape of the labels."""
    for index in range(0, len(others), max(1, len(others) // 200)):
        graph = dataset[index]
        for key, theirs in others[index].items():
            if isinstance(theirs, torch.Tensor):
                mine = graph[key]
                same = mine.dtype == theirs.dtype and torch.equal(mine.ravel(), theirs.ravel())
                if not same:
                    raise SystemExit(f"graph {index}: {key} is not what PyG or OGB make of it.")


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Show nothing of what is printed inside."""
    nowhere = io.StringIO()
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


def of_ogb(kind: Any, root: Path, **about: str) -> Any:
    """Return OGB's class over raw files, processed by its own method.

    Its constructor asks for a download and fails on torch ≥ 2.6, which loads no objects unasked.
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
    """Process molecules as ``PygGraphPropPredDataset`` does."""
    from ogb.graphproppred import PygGraphPropPredDataset

    return of_ogb(PygGraphPropPredDataset, root, add_inverse_edge="True")


def ogb_nodes(root: Path) -> Any:
    """Process papers as ``PygNodePropPredDataset`` does."""
    from ogb.nodeproppred import PygNodePropPredDataset

    about = {"add_inverse_edge": "False", "additional node files": "node_year"}
    return of_ogb(PygNodePropPredDataset, root, **about)


def pyg_zinc(root: Path, *, subset: bool) -> Any:
    """Process molecules as ``ZINC`` does."""
    from torch_geometric.datasets import ZINC

    return ZINC(str(root), subset=subset)


def pyg_blocks(root: Path) -> Any:
    """Process graphs as ``GNNBenchmarkDataset`` does."""
    from torch_geometric.datasets import GNNBenchmarkDataset

    return GNNBenchmarkDataset(str(root.parent), root.name)


def write_sample(name: str, raw: Path, size: int) -> None:
    """Write a sample of that size."""
    load_pipeline(load_manifest(name)).sample(raw, limit=size)


def write_papers(name: str, raw: Path, size: int) -> None:
    """Write a graph with as many citations of a paper as the published one."""
    from kmip_data.pipelines.datasets.ogb import sample

    sample.EDGES = 7
    write_sample(name, raw, size)


def write_zinc(name: str, raw: Path, size: int) -> None:
    """Write the pickles of all molecules, and index files of 12,000 of them."""
    write_sample("zinc-full", raw, size)
    random = np.random.default_rng(0)
    for part, share in {"train": 10, "val": 1, "test": 1}.items():
        rows = random.permutation(size * share // 13)[: 1_000 * share]
        listed = ",".join(map(str, rows.tolist()))
        (raw / f"{part}.index").write_text(f"{listed}\n", "ascii")


def write_blocks(name: str, raw: Path, size: int) -> None:
    """Write graphs of four blocks, of PATTERN's size, as ``torch.save`` does; a few repeat."""
    random = np.random.default_rng(0)
    graphs = itertools.cycle([_blocks(random) for _ in range(min(PICTURES, size))])
    parts = []
    for share in (10, 2, 2):
        part = itertools.islice(graphs, size * share // 14)
        # Each with a storage of its own, as published.
        parts.append([{key: torch.tensor(array) for key, array in graph.items()} for graph in part])
    torch.save(parts, raw / load_manifest(name).content.anchor)


def _blocks(random: np.random.Generator) -> dict[str, Any]:
    block = random.permutation(np.repeat(np.arange(4), random.integers(10, 50, 4)))
    inside = block[:, None] == block
    linked = np.triu(random.random(inside.shape) < np.where(inside, 0.55, 0.36), 1)
    signal = random.integers(0, 3, len(block))
    return {
        "x": np.eye(3, dtype=np.float32)[signal],
        "edge_index": np.stack((linked | linked.T).nonzero()),
        "y": (block == 0).astype(np.int64),
    }


_IN_PARTS = {"raw": "raw", "part": "train"}
PUBLISHED = {
    "ogbg-molhiv": Published(41_127, write_sample, ogb_graphs, "OGB PygGraphPropPredDataset"),
    "ogbn-arxiv": Published(169_343, write_papers, ogb_nodes, "OGB PygNodePropPredDataset"),
    "zinc": Published(
        249_456,
        write_zinc,
        partial(pyg_zinc, subset=True),
        "PyG ZINC",
        turns=3,
        warmup=0,
        **_IN_PARTS,
    ),
    "zinc-full": Published(
        249_456,
        write_zinc,
        partial(pyg_zinc, subset=False),
        "PyG ZINC",
        turns=3,
        warmup=0,
        **_IN_PARTS,
    ),
    "pattern": Published(14_000, write_blocks, pyg_blocks, "PyG GNNBenchmarkDataset", **_IN_PARTS),
}
