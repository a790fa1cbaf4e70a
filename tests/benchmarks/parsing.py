"""Parsing: shapes of ShapeNet-Part from text, against PyTorch Geometric's reader."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.table import Row, compare
from numpy.typing import NDArray


def rows(*, quick: bool = False) -> list[Row]:
    """Measure on sample shapes (about 2,500 points of seven numbers), from the file to the array."""
    from torch_geometric.io import read_txt_array

    from kmip_data.pipelines.formats.point_text import parse_points
    from kmip_data.pipelines.samples.shapenet_part import write_sample

    shapes, repeats = (8, 3) if quick else (32, 15)

    def ours(path: Path) -> NDArray[np.float32]:
        return parse_points(path.read_bytes(), 7, name=path.name)

    def pyg(path: Path) -> NDArray[np.float32]:
        array: NDArray[np.float32] = read_txt_array(str(path)).numpy()
        return array

    def numpy(path: Path) -> NDArray[np.float32]:
        return np.loadtxt(path).astype(np.float32)

    found = []
    with tempfile.TemporaryDirectory() as folder:
        write_sample(Path(folder), limit=shapes)
        paths = sorted(Path(folder).glob("[0-9]*/*.txt"))
        for path in paths:
            if ours(path).tobytes() != pyg(path).tobytes():
                msg = "the two sides do not agree"
                raise AssertionError(msg)
        for against, theirs, target in (("PyG read_txt_array", pyg, 5.0), ("numpy.loadtxt", numpy, None)):
            mine, other, ratio, spread = compare(
                partial(_each, ours, paths), partial(_each, theirs, paths), repeats=repeats
            )
            found.append(
                Row(
                    what="ShapeNet-Part text to float32",
                    against=against,
                    ours=mine / len(paths),
                    theirs=other / len(paths),
                    unit="s",
                    ratio=ratio,
                    spread=spread,
                    target="" if target is None else f"≥ {target:g}×",
                    met=None if target is None else ratio >= target,
                    note=f"parsing: {shapes} sample shapes, a shape at a time, files in the page cache",
                )
            )
    return found


def _each(function: Callable[[Path], object], paths: list[Path]) -> None:
    for path in paths:
        function(path)
