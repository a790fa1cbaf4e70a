"""Read point clouds as named columns, and labels from a file next to the cloud."""

from __future__ import annotations

import csv
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from tokenize import TokenError  # raised for a damaged .npy header

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput, OpenQuestions, Setting
from kmip_data.files.small_files import first_problem
from kmip_data.pipelines.datasets.points.las import read_las
from kmip_data.pipelines.datasets.points.pcd import read_pcd
from kmip_data.pipelines.datasets.points.ply import read_ply
from kmip_data.pipelines.domains.cloud_columns import (
    CloudColumns,
    CloudOptions,
    check_column_count,
    default_names,
    split_vector_columns,
)
from kmip_data.pipelines.domains.text_clouds import read_labels, read_text

#: Column layouts of laser scans: nuScenes, KITTI, and others.
_SCAN_COLUMNS = ("x,y,z,intensity,ring", "x,y,z,intensity", "x,y,z,red,green,blue", "x,y,z")
_MAX_LASER_METRES = 10_000
_MAX_BYTE_VALUE = 255  #: largest intensity, ring or colour
#: Two or three rows with more columns are taken for a transposed array.
_MAX_COLUMNS_OF_FEW_ROWS = 16
LABEL = "label"  #: column name of labels from a separate file
TEXT_SUFFIXES = (".asc", ".csv", ".pts", ".tsv", ".txt", ".xyz")
LABEL_SUFFIXES = (".label", ".labels", ".seg")
_LABEL_STEM_SUFFIXES = ("_label", "_labels", "-label", "-labels", ".label", ".labels")
_READ_ERRORS = (
    OSError, ValueError, EOFError, LookupError, TypeError, ArithmeticError, TokenError, struct.error,
    csv.Error,
)  # fmt: skip


def read_point_columns(path: Path, name: str, options: CloudOptions | None = None) -> CloudColumns:
    """Return the columns of a cloud in file order.

    Unnamed columns are called x, y, z, then ``3``, ``4``, … Raises ``DamagedInput`` if the file is
    damaged, empty or ambiguous.
    """
    try:
        suffix = path.suffix.lower()
        if suffix in _READERS:
            columns = _READERS[suffix](path)
        else:
            columns = _READERS_WITH_OPTIONS[suffix](path, name, options or CloudOptions())
    except _READ_ERRORS as error:
        problem = first_problem(error)
        raise DamagedInput(f"{name} cannot be read as a point cloud: {problem}") from error
    if not columns.points:
        raise DamagedInput(f"{name} holds no points.")
    return columns


def read_annotations(paths: Sequence[Path], name: str, options: CloudOptions) -> CloudColumns:
    """Return the columns of a cloud whose files hold the points of one class each.

    The class, in the column ``label``, is the file's name without its last number: ``chair`` of
    ``chair_12.txt``. Raises ``DamagedInput`` if the files have different columns.
    """
    parts = [read_point_columns(path, f"{name}/{path.name}", options) for path in paths]
    names = list(parts[0].values)
    class_column = LABEL if LABEL not in names else "class"
    values: dict[str, list[Array]] = {column: [] for column in [*names, class_column]}
    for path, part in zip(paths, parts, strict=True):
        if list(part.values) != names:
            raise DamagedInput(
                f"{name}/{path.name} has the columns {', '.join(part.values)}, but {paths[0].name} has "
                f"{', '.join(names)}."
            )
        for column in names:
            values[column].append(part.values[column])
        annotated = re.sub(r"_\d+$", "", path.stem)
        values[class_column].append(np.full(part.points, annotated, object))
    columns = {column: np.concatenate(arrays) for column, arrays in values.items()}
    return replace(parts[0], values=columns, lines=None)


def is_annotation(name: str) -> bool:
    """True for a file of a folder ``Annotations``."""
    return PurePosixPath(name).parent.name.lower() == "annotations"


def add_labels(columns: CloudColumns, path: Path, name: str, options: CloudOptions) -> CloudColumns:
    """Add the labels of a separate file to the columns of a cloud.

    Raises ``DamagedInput`` if the file is damaged or does not have one label per point.
    """
    try:
        labels = _read_labels(path, name, columns.points, options)
    except _READ_ERRORS as error:
        problem = first_problem(error)
        raise DamagedInput(f"{name} cannot be read as labels of points: {problem}") from error
    if len(labels) != columns.points:
        raise DamagedInput(
            f"{name} has {len(labels):,} labels, but its cloud has {columns.points:,} points."
        )
    column = LABEL if LABEL not in columns.values else f"{LABEL} of the file"
    return replace(columns, values={**columns.values, column: labels})


def label_files(names: Iterable[str]) -> dict[str, str]:
    """Return the label file of each cloud that has one.

    The label file has the cloud's name with ``_labels`` or the suffix ``.labels``, in the same
    folder or in a label folder inside or next to it.
    """
    sorted_names = sorted(names)
    clouds = {str(PurePosixPath(name).with_suffix("")): name for name in sorted_names}
    files: dict[str, str] = {}
    for name in sorted_names:
        path = PurePosixPath(name)
        stem = str(path.with_suffix(""))
        suffix = next((end for end in _LABEL_STEM_SUFFIXES if stem.endswith(end)), "")
        cloud = clouds.get(stem.removesuffix(suffix)) if suffix else None
        if cloud is None and path.suffix.lower() in LABEL_SUFFIXES:
            cloud = next(
                (other for other in sorted_names if _labels_match(path, PurePosixPath(other))),
                None,
            )
        if cloud is not None and cloud != name:
            files[cloud] = name
    return files


def _labels_match(labels: PurePosixPath, cloud: PurePosixPath) -> bool:
    """Return True if a cloud has the label file's name, in its folder or a label folder near it."""
    if cloud.suffix.lower() in LABEL_SUFFIXES or cloud.stem != labels.stem:
        return False
    if labels.parent == cloud.parent:
        return True
    is_label_folder = "label" in labels.parent.name.lower()
    return is_label_folder and labels.parent.parent in {cloud.parent, cloud.parent.parent}


def _read_labels(path: Path, name: str, points: int, options: CloudOptions) -> Array:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        labels: Array = np.load(path, allow_pickle=False)
        if labels.size != len(labels):
            raise ValueError(f"an array of shape {labels.shape}, not one label per point")
        labels = labels.reshape(-1)
        if labels.dtype.kind in "US":
            return labels.astype(str).astype(object)
        if labels.dtype.kind not in "fiub":
            raise ValueError(f"values of type {labels.dtype}")
        return labels
    # SemanticKITTI: the lower two bytes are the class, the upper two the instance.
    if suffix == ".label" and b"\0" in (data := path.read_bytes()):
        return np.frombuffer(data, "<u4").astype(np.int64) & 0xFFFF
    return read_labels(path, name, points, options)


def _read_npy(path: Path) -> CloudColumns:
    rows = np.load(path, mmap_mode="r", allow_pickle=False)
    if rows.dtype.names:
        check_column_count(len(rows.dtype.names))
        values: dict[str, Array] = {}
        for field in rows.dtype.names:
            column = rows[field]
            if column.dtype.kind not in "fiub":
                raise ValueError(f"the field {field!r} of type {column.dtype}")
            inner_shape = rows.dtype[field].shape
            if inner_shape:
                values |= split_vector_columns(field, column.reshape(-1, *inner_shape))
            else:
                values[field] = column.reshape(-1)
        return CloudColumns(values)
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise ValueError(
            f"{rows.ndim} axes of {rows.dtype} instead of one row of numbers per point"
        )
    check_column_count(rows.shape[1])
    if len(rows) in {2, 3} and rows.shape[1] > _MAX_COLUMNS_OF_FEW_ROWS:
        raise DamagedInput(
            f"{path.name} has {len(rows)} rows of {rows.shape[1]:,} numbers; a point must be a row.",
            steps=f"numpy.save({path.name!r}, numpy.load({path.name!r}).T), if a point is a column",
        )
    return CloudColumns(dict(zip(default_names(rows.shape[1]), rows.T, strict=True)))


def _read_bin(path: Path, name: str, options: CloudOptions) -> CloudColumns:
    """Return the float32 columns of a binary file, named by the options."""
    size = path.stat().st_size
    if not options.bin:
        fitting = [names for names in _SCAN_COLUMNS if size % (4 * len(names.split(","))) == 0]
        if not fitting:
            raise ValueError(f"{size:,} bytes are not rows of float32")
        likely = [names for names in fitting if _can_be_scan(path, names)]
        if not likely:
            raise DamagedInput(
                f"{name} does not state its columns of float32.",
                steps="name them with bin, such as bin=x,y,z,intensity",
            )
        answers = [Setting(bin=names) for names in likely]
        listed = ", or ".join(map(str, answers))
        question = f"{name} does not state its columns of float32: {listed}"
        raise OpenQuestions({question: answers[0]})
    width = len(options.bin)
    if size % (4 * width):
        raise ValueError(
            f"{size:,} bytes are not rows of {width} float32 ({', '.join(options.bin)})"
        )
    check_column_count(width)
    rows = np.fromfile(path, "<f4").reshape(-1, width)
    return CloudColumns(dict(zip(options.bin, rows.T, strict=True)))


def _can_be_scan(path: Path, names: str) -> bool:
    """Return True if the first rows are plausible for a scan with these columns."""
    width = len(names.split(","))
    rows = np.fromfile(path, "<f4", 1_000 * width).reshape(-1, width)
    if not np.isfinite(rows).all() or np.abs(rows[:, :3]).max(initial=0) > _MAX_LASER_METRES:
        return False
    if width < 4:
        return False  # any numbers can be positions
    features = rows[:, 3:]
    # Rings and colours are integers.
    last_valid = width == 4 or bool((features[:, -1] == np.rint(features[:, -1])).all())
    return last_valid and bool(((features >= 0) & (features <= _MAX_BYTE_VALUE)).all())


_READERS: Mapping[str, Callable[[Path], CloudColumns]] = {
    ".npy": _read_npy,
    ".ply": read_ply,
    ".pcd": read_pcd,
    **dict.fromkeys((".las", ".laz"), read_las),
}
#: Readers that need options, because their files may be ambiguous.
_READERS_WITH_OPTIONS: Mapping[str, Callable[[Path, str, CloudOptions], CloudColumns]] = {
    ".bin": _read_bin,
    **dict.fromkeys(TEXT_SUFFIXES, read_text),
}
CLOUD_SUFFIXES = (*_READERS, *_READERS_WITH_OPTIONS)
