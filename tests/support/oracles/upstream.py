"""Configurations of the paper's repositories, as far as they are at hand, presets made from them, and sizes
of the paper's datasets."""

from __future__ import annotations

import functools
import json
import re

import pytest
from support.shared import ROOT

from kmip_data.models.training.config.presets import read_preset

MODELS = {"GPS+None": "gps-none", "GatedGCN": "gated-gcn"}
DATASETS = {"ShapeNet": "shapenet-part", "Influence-of-k/Cifar10": "cifar10"}
VARIANTS = {"@best-of-each": "best-of-each", "@defaults": "search-start"}


@functools.cache
def entries() -> dict[str, dict]:
    """Dotted keys of each file by ``DATASET/NAME``; what begins with ``_`` is about the file."""
    path = ROOT.parent / "shared" / "reference" / "upstream_configs.json"
    if not path.exists():
        pytest.skip(f"upstream's configurations are not here: {path}")
    found = json.loads(path.read_text("utf-8"))
    return {
        f"{dataset}/{name}": keys
        for dataset, files in found.items()
        for name, keys in files.items()
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


SHAPES = {  # columns, outputs, columns of edges
    "voc": (14, 21, 2),
    "coco": (14, 81, 2),
    "func": (9, 10, 3),
    "struct": (9, 11, 3),
    "city": (67, 10, None),
    "shapenet": (6, 50, None),
    "s3dis": (9, 13, None),
    "cifar10": (5, 10, 1),
    "malnet": (5, 5, None),
}


def shape(dataset: str) -> dict[str, int | None]:
    """Arguments of ``build_model`` for a dataset, whose name has one of the names in it.

    Else a city.
    """
    found = next(
        (sizes for name, sizes in SHAPES.items() if name in dataset.lower()), SHAPES["city"]
    )
    return dict(zip(("in_channels", "num_classes", "edge_channels"), found, strict=True))
