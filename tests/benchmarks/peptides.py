"""Peptides: SMILES to a finished build, against serial smiles2graph and PyTorch Geometric's collate."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.table import Row, bytes_below, compare

from kmip_data.files.changes import remove_scratch

PEPTIDES, QUICK_PEPTIDES = 8_000, 200


def rows(*, quick: bool = False) -> list[Row]:
    """Measure on sample peptides (about 160 atoms), from the raw files to files on disk on both sides."""
    from kmip_data.builds.home import Home
    from kmip_data.manifest import load_manifest
    from kmip_data.pipelines.base import load_pipeline
    from kmip_data.pipelines.build import build_dataset

    peptides = QUICK_PEPTIDES if quick else PEPTIDES
    found = []
    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as place:
        folder = Path(place)
        raw = folder / "raw"
        raw.mkdir()
        load_pipeline(load_manifest("peptides-func")).sample(raw, limit=peptides)

        def ours(jobs: int) -> Any:
            remove_scratch(folder / "home")
            return build_dataset(
                "peptides-func", home=Home(folder / "home"), archives=[raw], jobs=jobs, quiet=True
            )

        def theirs() -> None:
            _as_pyg(raw, folder / "data.pt")

        build = ours(1)
        for jobs, target in ((1, 1.2), (2, 2.0)):
            times = compare(partial(ours, jobs), theirs, repeats=1 if quick else 3, warmup=0)
            what = f"peptides-func build, {peptides:,} peptides, {jobs} process{'es' * (jobs > 1)}"
            note = "peptides: ours from the archive to the card, workers started anew"
            against = "serial smiles2graph, PyG collate and save"
            found.append(Row.compared(what, against, times, target=target, note=note))
        size, pyg = bytes_below(build.path), (folder / "data.pt").stat().st_size
    what, note = "bytes on disk a graph, peptides-func", "peptides: the complete build folder"
    against = "PyG InMemoryDataset.save"
    return [*found, Row.of(what, against, size / peptides, pyg / peptides, "B", 5, note=note)]


def _as_pyg(raw: Path, file: Path) -> None:
    """Do the work of LRGB's loader: every SMILES by OGB, one list, one file."""
    import csv
    import gzip
    import json

    import torch
    from ogb.utils import smiles2graph
    from torch_geometric.data import Data, InMemoryDataset

    from kmip_data.pipelines.peptides import PeptidesFuncPipeline

    graphs = []
    with gzip.open(raw / PeptidesFuncPipeline.table, "rt") as table:
        for row in csv.DictReader(table):
            graph = smiles2graph(row["smiles"])
            graphs.append(
                Data(
                    x=torch.from_numpy(graph["node_feat"]),
                    edge_index=torch.from_numpy(graph["edge_index"]),
                    edge_attr=torch.from_numpy(graph["edge_feat"]),
                    y=torch.tensor([json.loads(row["labels"])], dtype=torch.float32),
                )
            )
    InMemoryDataset.save(graphs, str(file))
