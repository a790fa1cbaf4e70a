"""PyTorch Geometric's own S3DIS and ShapeNet classes on raw files of ours, without a network."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch_geometric.datasets import S3DIS, ShapeNet

from kmip_data.format.writer import GraphRecord
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import Pipeline, RawFolder, Records, load_pipeline


def unzip(archive: Path, target: Path) -> Path:
    """Unpack a trusted archive and return its root folder."""
    with zipfile.ZipFile(archive) as file:
        file.extractall(target)
    return next(path for path in target.iterdir() if path.is_dir())


def pipeline_records(name: str, folder: Path, **parameters) -> tuple[Pipeline, list[GraphRecord]]:
    """All records of a raw folder, by the pipeline alone."""
    pipeline = load_pipeline(load_manifest(name))
    params = pipeline.Params(**parameters)
    prepared = pipeline.prepare(RawFolder(folder, {}, ()), params, folder)
    units = pipeline.units(prepared, params)
    return pipeline, [record for unit in units for record in pipeline.records(prepared, unit, params)]


def _as_raw(folder: Path, root: Path) -> str:
    if not root.exists():
        shutil.copytree(folder, root / "raw")
        for synset in ShapeNet.category_ids.values():
            (root / "raw" / synset).mkdir(exist_ok=True)
    return str(root)


def pyg_s3dis(folder: Path, root: Path, *, test_area: int, train: bool) -> S3DIS:
    return S3DIS(_as_raw(folder, root), test_area=test_area, train=train)


def pyg_shapenet(folder: Path, root: Path, *, split: str, categories: list[str] | None = None) -> ShapeNet:
    return ShapeNet(_as_raw(folder, root), split=split, categories=categories)


def records_of(keys: Sequence[str]) -> Records:
    """Records with these keys and nothing else that rules of splits could go by."""
    none = np.zeros(len(keys), np.int64)
    return Records(list(keys), none, none, np.zeros((len(keys), 0), np.int64), None)
