"""Configurations of the paper's repositories, as far as they are at hand, presets made from them, and sizes
of the paper's datasets."""

from __future__ import annotations

import functools
import json
import re

import pytest
from support.shared import ROOT

from kmip_data.graphs.city_columns import dataset_family
from kmip_data.manifest import load_manifest
from kmip_data.models.training.config.presets import read_preset
from kmip_data.pipelines.base import load_pipeline

MODELS = {"GPS+None": "gps-none", "GatedGCN": "gated-gcn"}
DATASETS = {"ShapeNet": "shapenet-part"}
VARIANTS = {"@best-of-each": "best-of-each", "@defaults": "search-start"}


@functools.cache
def entries() -> dict[str, dict]:
    """Dotted keys of each file by ``DATASET/NAME``; what begins with ``_`` is about the file."""
    path = ROOT.parent / "shared" / "reference" / "upstream_configs.json"
    if not path.exists():
        pytest.skip(f"upstream's configurations are not here: {path}")
    data = json.loads(path.read_text("utf-8"))
    return {
        f"{dataset}/{name}": keys for dataset, files in data.items() for name, keys in files.items()
    }


def preset_of(name: str) -> tuple[str, str, str]:
    """Our dataset, model and variant of upstream's file."""
    dataset, _, file = name.rpartition("/")
    base = re.sub(r"(-\d+|@.*|-4layer.*)$", "", file)
    model = MODELS.get(base, base.lower().replace("+", "-"))
    ours = DATASETS.get(dataset, dataset.rpartition("/")[2].lower())
    variant = VARIANTS.get(file.removeprefix(base), "code")
    if depth := re.search(r"-(\d+)$", file):
        variant = f"depth-{depth[1]}"
    variant = "thesis-4-layers" if "4layer" in file else variant
    variant = "influence-of-k" if dataset.startswith("Influence") else variant
    return ours, model, variant if variant in read_preset(ours, model).variants else "code"


PROFILE = 5  #: statistics of degrees, where a dataset has no features of nodes


def shape(dataset: str) -> dict[str, int | None]:
    """Arguments of ``build_model`` for the features of the published code."""
    if dataset_family(dataset) == "city":  # with sinusoids instead of the coordinates
        return {"in_channels": 67, "out_channels": 10, "edge_channels": None}
    manifest = load_manifest(dataset)
    pipeline = load_pipeline(manifest)
    columns = pipeline.schema(pipeline.Params()).columns
    widths = {column.attribute: (*column.shape, 1)[0] for column in columns}
    return {
        "in_channels": widths.get("x", PROFILE),
        "out_channels": manifest.expected.classes or 1,
        "edge_channels": widths.get("edge_attr"),
    }
