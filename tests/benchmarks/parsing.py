"""Parsing: shapes of ShapeNet-Part from text, against PyTorch Geometric's reader."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.table import Row, check_equal, compare
from numpy.typing import NDArray


def rows(*, quick: bool = False) -> list[Row]:
    """Measure on sample shapes (about 2,500 points of seven numbers), from the file to the array."""
    from torch_geometric.io import read_txt_array

    from kmip_data.pipelines.formats.text import parse_points
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
        check_equal(all(ours(path).tobytes() == pyg(path).tobytes() for path in paths))
        note = f"parsing: {shapes} sample shapes, a shape at a time, files in the page cache"
        for against, theirs, target in (("PyG read_txt_array", pyg, 5.0), ("numpy.loadtxt", numpy, None)):
            times = compare(partial(_each, ours, paths), partial(_each, theirs, paths), repeats=repeats)
            what, each = "ShapeNet-Part text to float32", len(paths)
            found.append(Row.compared(what, against, times, per=each, target=target, note=note))
    return found


def _each(function: Callable[[Path], object], paths: list[Path]) -> None:
    for path in paths:
        function(path)
