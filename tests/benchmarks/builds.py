"""Builds and their bytes: peptides, MalNet-Tiny and COCO-SP against PyTorch Geometric's classes.

Raw files are generated and in the page cache; both sides begin with them and end with files on
disk.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.table import Row, bytes_below

from kmip_data.builds.home import Home
from kmip_data.files.changes import remove_made
from kmip_data.manifest import load_manifest
from kmip_data.models.profiling.measuring import Peak
from kmip_data.models.profiling.turns import compare
from kmip_data.pipelines.base import RawFolder, check_params, load_pipeline
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.engine.pool import BuildTask, build_unit

PICTURES = 200  #: that are made; the files of COCO-SP repeat them
SHARES = {"train": 0.9, "val": 0.05, "test": 0.05}


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Measure each on generated data."""
    for topic, graphs, few in ((peptides, 8_000, 200), (malnet, 1_000, 50), (coco, 20_000, 400)):
        with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as place:
            yield from topic(Path(place), few if quick else graphs, quick=quick)


def build_shards(name: str, raw: Path, build: Path, **parameters: str) -> Path:
    """Run a pipeline and write its shards, as a worker does; return their folder."""
    pipeline: Any = load_pipeline(load_manifest(name))
    params = check_params(pipeline.Params, parameters, name)
    (build / "shards").mkdir(parents=True, exist_ok=True)
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
        remove_made(home)
        return build_dataset(
            "peptides-func", home=Home(home), archives=[raw], jobs=jobs, quiet=True
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
        remove_made(folder / "pyg/processed")
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
        remove_made(folder_of)
        peak = Peak(torch.device("cpu"))
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
    from kmip_data.pipelines.datasets.superpixel_graphs.sample import make_picture
    from kmip_data.pipelines.shared.sample_files import write_pickled_list

    ids, random = np.array(COCO_IDS, np.uint8), np.random.Generator(np.random.PCG64(0))
    made = [make_picture(n, len(ids), random, side=(21, 23)) for n in range(min(PICTURES, graphs))]
    for part, share in SHARES.items():
        pictures = itertools.islice(itertools.cycle(made), int(graphs * share))
        write_pickled_list(raw / f"{part}.pickle", ((*tensors, ids[y]) for *tensors, y in pictures))
