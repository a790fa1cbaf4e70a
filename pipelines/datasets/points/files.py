"""Your own point clouds as named columns, by the suffix of the file; labels in a file next to it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from tokenize import TokenError  # raised for the header of an .npy file

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.points.columns import (
    Columns,
    ReadOptions,
    check_count,
    columns_of_values,
    names_by_position,
)
from kmip_data.pipelines.datasets.points.las import read_las
from kmip_data.pipelines.datasets.points.pcd import read_pcd
from kmip_data.pipelines.datasets.points.ply import read_ply
from kmip_data.pipelines.datasets.points.text import read_labels, read_text

#: Columns of laser scans: of nuScenes, of KITTI, and others.
_SCANS = ("x,y,z,intensity,ring", "x,y,z,intensity", "x,y,z,red,green,blue", "x,y,z")
_FAR = 10_000  #: metres that no laser reaches
_BRIGHT = 255  #: largest intensity, ring or colour
_MOST_OF_FEW = 16  #: columns of two or three points; with more, the axes are exchanged
LABEL = "label"  #: column of the labels in a file next to a cloud
LABEL_SUFFIXES = (".label", ".labels", ".seg")
_LABEL_ENDINGS = ("_label", "_labels", "-label", "-labels", ".label", ".labels")
_FAULTS = (
    OSError, ValueError, EOFError, LookupError, TypeError, ArithmeticError, TokenError, struct.error
)  # fmt: skip


def read_points(path: Path, name: str, options: ReadOptions | None = None) -> Columns:
    """Return the columns of a cloud in file order.

    Columns without names are called x, y, z, and then by their place from 0: ``3``, ``4``, … Raises
    ``DamagedInput`` for a damaged or empty file, or a question that it leaves open.
    """
    try:
        suffix = path.suffix.lower()
        asking = _ASKING.get(suffix)
        columns = asking(path, options or ReadOptions()) if asking else _READERS[suffix](path)
    except _FAULTS as error:
        problem = next(iter(str(error).splitlines()), type(error).__name__)
        raise DamagedInput(f"{name} cannot be read as a point cloud: {problem}") from error
    if not columns.points:
        raise DamagedInput(f"{name} holds no points.")
    return columns


def with_labels(columns: Columns, path: Path, name: str, options: ReadOptions) -> Columns:
    """Return the columns of a cloud with the labels of another file, one for each point.

    Raises ``DamagedInput`` where the file is damaged or has other points.
    """
    try:
        labels = _read_labels(path, options.encoding)
    except _FAULTS as error:
        problem = next(iter(str(error).splitlines()), type(error).__name__)
        raise DamagedInput(f"{name} cannot be read as labels of points: {problem}") from error
    if len(labels) != columns.points:
        raise DamagedInput(
            f"{name} has {len(labels):,} labels, and its cloud {columns.points:,} points."
        )
    column = LABEL if LABEL not in columns.values else f"{LABEL} of the file"
    return replace(columns, values={**columns.values, column: labels})


def label_files(names: Iterable[str]) -> dict[str, str]:
    """Return the file of labels of each cloud that has one, by name.

    It is named after the cloud, with ``_labels`` or the suffix ``.labels``; or it lies in a folder of
    labels next to the cloud's file.
    """
    sorted_names = sorted(names)
    clouds = {str(PurePosixPath(name).with_suffix("")): name for name in sorted_names}
    owners: dict[str, str] = {}
    for name in sorted_names:
        path = PurePosixPath(name)
        stem = str(path.with_suffix(""))
        ending = next((end for end in _LABEL_ENDINGS if stem.endswith(end)), "")
        cloud = clouds.get(stem.removesuffix(ending)) if ending else None
        if cloud is None and path.suffix.lower() in LABEL_SUFFIXES:
            cloud = next(
                (other for other in sorted_names if _are_labels_of(path, PurePosixPath(other))),
                None,
            )
        if cloud is not None and cloud != name:
            owners[cloud] = name
    return owners


def _are_labels_of(labels: PurePosixPath, cloud: PurePosixPath) -> bool:
    """True if a cloud has the name of a file of labels, in the same folder or one next to it."""
    if cloud.suffix.lower() in LABEL_SUFFIXES or cloud.stem != labels.stem:
        return False
    beside = "label" in labels.parent.name.lower() and labels.parent.parent == cloud.parent.parent
    return labels.parent == cloud.parent or beside


def _read_labels(path: Path, encoding: str) -> Array:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        labels: Array = np.load(path, allow_pickle=False)
        if labels.size != len(labels):
            raise ValueError(f"an array of shape {labels.shape}, not a label for each point")
        labels = labels.reshape(-1)
        if labels.dtype.kind in "US":
            return labels.astype(str).astype(object)
        if labels.dtype.kind not in "fiub":
            raise ValueError(f"values of type {labels.dtype}")
        return labels
    data = path.read_bytes()
    # SemanticKITTI: the class in the lower half of four bytes, the instance in the upper.
    if suffix == ".label" and b"\0" in data:
        return np.frombuffer(data, "<u4").astype(np.int64) & 0xFFFF
    return read_labels(data, path.name, encoding)


def _read_npy(path: Path) -> Columns:
    rows = np.load(path, mmap_mode="r", allow_pickle=False)
    if rows.dtype.names:
        check_count(len(rows.dtype.names))
        values: dict[str, Array] = {}
        for field in rows.dtype.names:
            column = rows[field]
            if column.dtype.kind not in "fiub":
                raise ValueError(f"the field {field!r} of type {column.dtype}")
            inner = rows.dtype[field].shape
            values |= (
                columns_of_values(field, column.reshape(-1, *inner))
                if inner
                else {field: column.reshape(-1)}
            )
        return Columns(values)
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise ValueError(f"{rows.ndim} axes of {rows.dtype} instead of numbers, one row per point")
    check_count(rows.shape[1])
    if len(rows) in {2, 3} and rows.shape[1] > _MOST_OF_FEW:
        raise DamagedInput(
            f"{path.name} has {len(rows)} rows of {rows.shape[1]:,} numbers, and a point is a row.",
            next=f"numpy.save({path.name!r}, numpy.load({path.name!r}).T), if a point is a column",
        )
    return Columns(dict(zip(names_by_position(rows.shape[1]), rows.T, strict=True)))


def _read_bin(path: Path, options: ReadOptions) -> Columns:
    """Return the float32 columns of a binary file, whose names are given."""
    size = path.stat().st_size
    if not options.bin:
        fitting = [names for names in _SCANS if size % (4 * len(names.split(","))) == 0]
        if not fitting:
            raise ValueError(f"{size:,} bytes are no rows of float32")
        likely = [names for names in fitting if _looks_like(path, names)]
        hints = [f"--set bin={names}" for names in likely or fitting]
        raise DamagedInput(
            f"{path.name} holds bytes, and nothing says of what.",
            expected="float32 columns, with their names",
            next=f"{'; or '.join(hints)}, if these are its columns",
        )
    width = len(options.bin)
    if size % (4 * width):
        raise ValueError(
            f"{size:,} bytes are no rows of {width} float32 ({', '.join(options.bin)})"
        )
    check_count(width)
    rows = np.fromfile(path, "<f4").reshape(-1, width)
    return Columns(dict(zip(options.bin, rows.T, strict=True)))


def _looks_like(path: Path, names: str) -> bool:
    """True if the first rows can be a scan with such columns."""
    width = len(names.split(","))
    rows = np.fromfile(path, "<f4", 1_000 * width).reshape(-1, width)
    if not np.isfinite(rows).all() or np.abs(rows[:, :3]).max(initial=0) > _FAR:
        return False
    if width < 4:
        return False  # any numbers can be positions
    others = rows[:, 3:]
    whole = width == 4 or bool((others[:, -1] == np.rint(others[:, -1])).all())  # rings, colours
    return whole and bool(((others >= 0) & (others <= _BRIGHT)).all())


_READERS: Mapping[str, Callable[[Path], Columns]] = {
    ".npy": _read_npy,
    ".ply": read_ply,
    ".pcd": read_pcd,
    **dict.fromkeys((".las", ".laz"), read_las),
}
#: Readers of files that leave questions open.
_ASKING: Mapping[str, Callable[[Path, ReadOptions], Columns]] = {
    ".bin": _read_bin,
    **dict.fromkeys((".asc", ".csv", ".pts", ".tsv", ".txt", ".xyz"), read_text),
}
SUFFIXES = (*_READERS, *_ASKING)
