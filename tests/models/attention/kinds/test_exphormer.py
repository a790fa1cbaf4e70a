"""Exphormer as a kind of attention: counts of parameters, estimate of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.city_data import streets_build

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.models import ModelConfig, build_model
from kmip_data.models.network import count_parameters
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.data.graphs import open_data

CITY = {"in_channels": 67, "num_classes": 10}
ATOMS = {
    "node_encoder": "atom", "edge_encoder": "bond", "positional": "lappe", "head": "graph", "head_layers": 1,
    "in_channels": 9, "edge_channels": 3,
}  # fmt: skip
PIXELS = {
    "node_encoder": "voc", "edge_encoder": "voc", "positional": "lappe", "head_layers": 3,
    "in_channels": 14, "edge_channels": 2,
}  # fmt: skip
#: Dataset: parameters, layers, hidden_dim, heads, permutations (0: configured and switched off), virtual
#: nodes, norm, others. The count of cities is that of upstream's model, those of the others are ours.
COUNTS: dict[str, tuple[int, int, int, int, int, int, str, dict[str, Any]]] = {
    "cities": (503_074, 8, 68, 4, 3, 3, "graph", CITY),
    "pascalvoc-sp": (509_013, 4, 96, 8, 5, 0, "batch", {**PIXELS, "num_classes": 21}),
    "coco-sp": (498_993, 7, 72, 4, 11, 0, "batch", {**PIXELS, "num_classes": 81}),
    "peptides-func": (445_914, 8, 64, 4, 0, 1, "batch", {**ATOMS, "num_classes": 10}),
    "peptides-struct": (425_971, 4, 88, 4, 0, 6, "batch", {**ATOMS, "num_classes": 11}),
    "shapenet-part": (295_046, 8, 52, 4, 3, 3, "batch", {"in_channels": 6, "num_classes": 50}),
    "s3dis": (293_241, 8, 52, 4, 3, 3, "batch", {"in_channels": 9, "num_classes": 13}),
}


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def count_by_hand(name: str) -> int:
    """From the formulas of one layer's parts and the sizes of the encoders."""
    _, layers, d, _, _, virtual, norm, more = COUNTS[name]
    norms, feed_forward = 3 * (3 if norm == "graph" else 2) * d, 4 * d * d + 3 * d
    layer = 5 * d * d + 9 * d + 4 * d * d + norms + feed_forward
    width = d - 16 if "positional" in more else d
    atoms = more.get("node_encoder") == "atom"
    nodes = 174 * width if atoms else linear(more["in_channels"], width)
    position = linear(2, 32) + linear(32, 16) if width < d else 0
    edges = 13 * d if atoms else linear(2, d) if "edge_channels" in more else d
    head = (more.get("head_layers", 2) - 1) * linear(d, d) + linear(d, more["num_classes"])
    return layers * layer + nodes + position + edges + (1 + 3 * virtual) * d + head


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_count_of(name: str) -> None:
    count, layers, dim, heads, expander, virtual, norm, more = COUNTS[name]
    attention = {"kind": "exphormer", "heads": heads, "expander": expander, "virtual_nodes": virtual}
    sizes = {key: more[key] for key in ("in_channels", "num_classes", "edge_channels") if key in more}
    options = {key: value for key, value in more.items() if key not in sizes}
    options |= {"layers": layers, "hidden_dim": dim, "norm": norm, "attention": attention}
    with torch.device("meta"):
        found = count_parameters(build_model(ModelConfig(name="exphormer", **options), **sizes))
    assert found == count_by_hand(name) == count


def test_sampled_neighbourhoods_have_no_expander(tmp_path: Path) -> None:
    build = streets_build(tmp_path / "build", nodes=60)
    training = {"neighbors": (3,), "batch_size": 8}
    sections = {"training": training, "model": {"name": "exphormer", "hidden_dim": 8}}
    given = {"data": {"dataset": str(build.path)}, "system": {"device": "cpu"}, **sections}
    with pytest.raises(UsageError, match="expander"):
        open_data(config_from_mapping(given, "the test"), home=Home(tmp_path))
    sections["model"]["attention"] = {"kind": "exphormer", "expander": 0}
    assert open_data(config_from_mapping(given, "the test"), home=Home(tmp_path)).label
