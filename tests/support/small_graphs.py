"""Raw folders of small graphs for tests, their records by the pipeline alone, and PyG's own classes."""

from __future__ import annotations

import csv
import gzip
import pickle
import shutil
from pathlib import Path

import numpy as np
import torch
from support.shared import shared_data
from torch_geometric.datasets import GNNBenchmarkDataset, LRGBDataset, MalNetTiny

from kmip_data.format.writer import GraphRecord, Skipped
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import Pipeline, Prepared, RawFolder, load_pipeline

FUNC_TABLE = "peptide_multi_class_dataset.csv.gz"
FUNC_LISTS = "splits_random_stratified_peptide.pickle"


def prepare(name: str, folder: Path, work: Path, **parameters) -> tuple[Pipeline, object, Prepared]:
    """Run ``prepare`` on a raw folder."""
    pipeline = load_pipeline(load_manifest(name))
    params = pipeline.Params(**parameters)
    work.mkdir(parents=True, exist_ok=True)
    return pipeline, params, pipeline.prepare(RawFolder(folder, {}, ()), params, work)


def records_of_folder(
    name: str, folder: Path, work: Path, **parameters
) -> tuple[Pipeline, list[GraphRecord | Skipped]]:
    """All records of a raw folder, by the pipeline alone."""
    pipeline, params, prepared = prepare(name, folder, work, **parameters)
    units = pipeline.units(prepared, params)
    return pipeline, [record for unit in units for record in pipeline.records(prepared, unit, params)]


def real_rows(every: int = 1) -> list[dict[str, str]]:
    """Rows of the real table of peptides-func."""
    with gzip.open(shared_data("peptides_func", FUNC_TABLE), "rt") as file:
        return list(csv.DictReader(file))[::every]


def write_func(folder: Path, rows, lists=None) -> Path:
    """Write a table and split lists, by default rows in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / FUNC_TABLE, "wt", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["", "smiles", "peptide_seq", "labels", "identifier"])
        writer.writerows([i, row["smiles"], "", row["labels"], i] for i, row in enumerate(rows))
    if lists is None:
        lists = {part: np.arange(at, len(rows), 3) for at, part in enumerate(("train", "val", "test"))}
    (folder / FUNC_LISTS).write_bytes(pickle.dumps(lists, protocol=4))
    return folder


def pyg_peptides(root: Path, graphs, lists, part: str) -> LRGBDataset:
    """PyG's class on ``.pt`` lists of ``(x, edge_attr, edge_index, y)`` in the order of the split."""
    raw = root / "peptides-func" / "raw"
    if not raw.exists():
        raw.mkdir(parents=True)
        for name, rows in lists.items():
            torch.save([graphs[row] for row in rows.tolist()], raw / f"{name}.pt")
    return LRGBDataset(str(root), "peptides-func", split=part)


def pyg_malnet(root: Path, folder: Path, part: str | None) -> MalNetTiny:
    """PyG's class on a raw folder of ours."""
    if not (root / "raw").exists():
        shutil.copytree(folder, root / "raw" / "malnet-graphs-tiny")
        shutil.copytree(folder / "type", root / "raw" / "split_info_tiny" / "type")
    return MalNetTiny(str(root), split=part)


def pyg_cifar10(root: Path, file: Path, part: str) -> GNNBenchmarkDataset:
    """PyG's class on a raw file."""
    raw = root / "CIFAR10" / "raw"
    if not raw.exists():
        raw.mkdir(parents=True)
        shutil.copy(file, raw)
    return GNNBenchmarkDataset(str(root), "CIFAR10", split=part)
