"""COCO-SP: the authors' pickles to a finished build, against PyTorch Geometric's own class."""

from __future__ import annotations

import contextlib
import io
import itertools
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.table import Row, apart

from kmip_data.files.changes import remove_scratch
from kmip_data.runtime.memory import peak_host_memory

GRAPHS, QUICK_GRAPHS = 20_000, 400
DISTINCT = 200  #: pictures that are made; the files repeat them
SHARES = {"train": 0.9, "val": 0.05, "test": 0.05}


def rows(*, quick: bool = False) -> list[Row]:
    """Measure on generated pictures of published size, raw files in the page cache, to files on disk.

    Each run is a process of its own, so that its peak memory is its own; the time begins when everything is
    imported. Ours runs the pipeline and the shard writer in one process, without the start of a worker.
    """
    graphs, repeats = (QUICK_GRAPHS, 1) if quick else (GRAPHS, 3)
    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as place:
        folder = Path(place)
        raw = folder / "coco-sp" / "raw"
        raw.mkdir(parents=True)
        _write(raw, graphs)
        runs: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
        for _ in range(repeats):
            for who, found in runs.items():
                found.append(apart("superpixel_sets", f"measured({who!r}, {str(folder)!r})"))
    seconds = {who: [run["seconds"] for run in found] for who, found in runs.items()}
    ratios = [b / a for a, b in zip(seconds["ours"], seconds["theirs"], strict=True)]
    times = (*map(statistics.median, seconds.values()), statistics.median(ratios), (min(ratios), max(ratios)))
    memory = [max(run["peak"] for run in found) for found in runs.values()]
    size = [found[0]["bytes"] / graphs for found in runs.values()]
    note = f"superpixel_sets: {graphs:,} generated graphs of 441 to 529 superpixels, one process each"
    against = "PyG LRGBDataset.process"
    return [
        Row.compared(f"COCO-SP-like pickle of {graphs:,} graphs", against, times, target=5, note=note),
        Row.of("peak memory of it", against, *memory, "MiB", 4, note=note),
        Row.of("bytes on disk a graph, coco-sp", against, *size, "B", 2, note=note),
    ]


def _write(raw: Path, graphs: int) -> None:
    import numpy as np

    from kmip_data.pipelines.samples.superpixel_graphs import make_picture
    from kmip_data.pipelines.samples.writers import write_pickled_list
    from kmip_data.pipelines.superpixel_graphs import COCO_IDS

    ids = np.array(COCO_IDS, np.uint8)
    random = np.random.Generator(np.random.PCG64(0))
    made = [make_picture(n, len(ids), random, side=(21, 23)) for n in range(min(DISTINCT, graphs))]
    for part, share in SHARES.items():
        pictures = itertools.islice(itertools.cycle(made), int(graphs * share))
        write_pickled_list(
            raw / f"{part}.pickle",
            ((*tensors, ids[y]) for *tensors, y in pictures),
        )


def _ours(folder: Path) -> Path:
    """Run the pipeline and write its shards, as a worker does."""
    from kmip_data.manifest import load_manifest
    from kmip_data.pipelines.base import RawFolder, load_pipeline
    from kmip_data.pipelines.engine.workers import BuildTask, build_unit

    pipeline = load_pipeline(load_manifest("coco-sp"))
    params = pipeline.Params()
    build = folder / "build"
    remove_scratch(build)
    (build / "shards").mkdir(parents=True)
    raw = RawFolder(folder / "coco-sp" / "raw", {}, (), sample=True)
    prepared = pipeline.prepare(raw, params, build)
    for unit in pipeline.units(prepared, params):
        build_unit(BuildTask(pipeline, params, prepared, unit, build, build / "stop", "0" * 12, None))
    return build / "shards"


def _theirs(folder: Path) -> Path:
    from torch_geometric.datasets import LRGBDataset

    remove_scratch(folder / "coco-sp" / "processed")
    with contextlib.redirect_stderr(io.StringIO()):
        LRGBDataset(str(folder), "coco-sp")
    return folder / "coco-sp" / "processed"


def measured(who: str, folder: str) -> dict[str, float]:
    """Seconds without imports, peak memory in MiB, and bytes of one side's build."""
    if who == "ours":
        from kmip_data.format import writer  # noqa: F401
        from kmip_data.pipelines import superpixel_graphs  # noqa: F401
    else:
        import torch_geometric.datasets  # noqa: F401
    start = time.perf_counter()
    made = {"ours": _ours, "theirs": _theirs}[who](Path(folder))
    seconds = time.perf_counter() - start
    size = sum(path.stat().st_size for path in made.iterdir() if path.name[:3] != "pre")
    return {"seconds": seconds, "peak": peak_host_memory() / 2**20, "bytes": size}
