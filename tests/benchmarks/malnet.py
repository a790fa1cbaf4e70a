"""MalNet-Tiny: edge lists to a finished build, against PyTorch Geometric's own class."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.table import Row, compare

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
        params = check_params(
            pipeline.Params, {"isolated": "keep", "label_order": "first-seen"}, "malnet-tiny"
        )
        shards = folder / "build" / "shards"
        shards.mkdir(parents=True)

        def ours() -> None:
            _build(pipeline, params, RawFolder(raw, {}, (), sample=True), folder / "build")

        def theirs() -> None:
            remove_scratch(folder / "pyg" / "processed")
            _pyg(folder / "pyg")

        mine, other, ratio, spread = compare(ours, theirs, repeats=1 if quick else 7)
        size = sum(path.stat().st_size for path in shards.iterdir())
        pyg = (folder / "pyg" / "processed" / "data.pt").stat().st_size
    note = f"malnet: {graphs:,} generated call graphs, one process, files in the page cache"
    return [
        Row(
            what="MalNet-Tiny build, one process",
            against="PyG MalNetTiny.process",
            ours=mine,
            theirs=other,
            unit="s",
            ratio=ratio,
            spread=spread,
            target="≥ 8×",
            met=ratio >= 8,
            note=note,
        ),
        Row(
            what="bytes on disk a graph, malnet-tiny",
            against="PyG MalNetTiny's data.pt",
            ours=size / graphs,
            theirs=pyg / graphs,
            unit="B",
            ratio=pyg / size,
            target="≥ 3.5×",
            met=pyg / size >= 3.5,
            note=note,
        ),
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
