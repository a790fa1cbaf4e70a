"""MalNet-Tiny: edge lists to a finished build, against PyTorch Geometric's own class."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.table import Row, bytes_below, compare

from kmip_data.files.changes import remove_scratch

GRAPHS, QUICK_GRAPHS = 1_000, 50


def rows(*, quick: bool = False) -> list[Row]:
    """Measure on sample call graphs, raw files in the page cache, from edge lists to files on disk.

    Both sides begin with the unpacked files. Ours runs the pipeline and the shard writer in this
    process; the time to start a worker is not in it, as little as that to start Python is in theirs.
    """
    from kmip_data.manifest import load_manifest
    from kmip_data.pipelines.base import RawFolder, check_params, load_pipeline

    graphs = QUICK_GRAPHS if quick else GRAPHS
    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as place:
        folder = Path(place)
        raw = folder / "raw"
        raw.mkdir()
        pipeline = load_pipeline(load_manifest("malnet-tiny"))
        pipeline.sample(raw, limit=graphs)
        shutil.copytree(raw, folder / "pyg" / "raw" / "malnet-graphs-tiny")
        shutil.copytree(raw / "type", folder / "pyg" / "raw" / "split_info_tiny" / "type")
        keys = {"isolated": "keep", "label_order": "first-seen"}
        params = check_params(pipeline.Params, keys, "malnet-tiny")
        shards = folder / "build" / "shards"
        shards.mkdir(parents=True)

        def ours() -> None:
            _build(pipeline, params, RawFolder(raw, {}, (), sample=True), folder / "build")

        def theirs() -> None:
            remove_scratch(folder / "pyg" / "processed")
            _pyg(folder / "pyg")

        times = compare(ours, theirs, repeats=1 if quick else 7)
        size, pyg = bytes_below(shards), (folder / "pyg" / "processed" / "data.pt").stat().st_size
    note = f"malnet: {graphs:,} generated call graphs, one process, files in the page cache"
    what, against = "bytes on disk a graph, malnet-tiny", "PyG MalNetTiny's data.pt"
    return [
        Row.compared("MalNet-Tiny build, one process", "PyG MalNetTiny.process", times, target=8, note=note),
        Row.of(what, against, size / graphs, pyg / graphs, "B", 3.5, note=note),
    ]


def _build(pipeline: Any, params: Any, raw: Any, folder: Path) -> None:
    """Run the pipeline and write its shards, as a worker does."""
    from kmip_data.pipelines.engine.workers import BuildTask, build_unit

    prepared = pipeline.prepare(raw, params, folder)
    for unit in pipeline.units(prepared, params):
        build_unit(BuildTask(pipeline, params, prepared, unit, folder, folder / "stop", "0" * 12, None))


def _pyg(root: Path) -> None:
    from torch_geometric.datasets import MalNetTiny

    with contextlib.redirect_stderr(io.StringIO()):
        MalNetTiny(str(root))
