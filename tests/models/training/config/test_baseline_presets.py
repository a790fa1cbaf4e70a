"""Presets of all models: they load, have upstream's numbers, and say where they are from."""

from __future__ import annotations

import functools
import itertools
import json
import re

import pytest
import torch
from support.cases import check_each
from support.paper_networks import shape
from support.shared import ROOT

from kmip_data.manifest import dataset_names
from kmip_data.models.config import models
from kmip_data.models.network import build_model, count_parameters, fit_hidden_dim
from kmip_data.models.training.config.overrides import key_value
from kmip_data.models.training.config.presets import (
    load_preset,
    origin,
    preset_names,
    presets_of,
    read_preset,
)

OURS = {"mlp", "kmip-only"}  #: ablations, which nobody published
PAPER = sorted(set(models()) - OURS - {"gps-none"})
MODELS = {
    "GPS+kmip": "gps-kmip",
    "GPS+Transformer": "gps-transformer",
    "GPS+Performer": "gps-performer",
    "GPS+BigBird": "gps-bigbird",
    "GPS+None": "gps-none",
    "Exphormer": "exphormer",
    "GCN": "gcn",
    "GINE": "gine",
    "GAT": "gat",
    "GatedGCN": "gated-gcn",
}
DATASETS = ("PascalVOC-SP", "COCO-SP", "Peptides-func", "Peptides-struct", "ShapeNet", "S3DIS")
CITIES = ("Paris", "Shanghai", "LA", "London")
NAMES = {"ShapeNet": "shapenet-part"}
#: Upstream's keys and ours, in either kind of network, with what upstream's value becomes.
ALIKE = {
    "optim.base_lr": "optimiser.lr",
    "optim.weight_decay": "optimiser.weight_decay",
    "optim.max_epoch": "training.epochs",
    "optim.scheduler": "schedule.kind",
    "optim.num_warmup_epochs": "schedule.warmup_epochs",
    "optim.schedule_patience": "schedule.patience",
    "optim.batch_accumulation": "training.accumulate",
    "train.batch_size": "training.batch_size",
    "train.eval_period": "training.eval_every",
    "train.shuffle": "training.shuffle",
    "gnn.layers_post_mp": "model.head_layers",
    "gt.layers": "model.layers",
    "gt.dropout": "model.dropout",
    "gt.n_heads": "model.attention.heads",
    "gnn.layers_mp": "model.layers",
    "prep.num_virt_node": "model.attention.virtual_nodes",
    "prep.add_edge_index": "model.attention.real_edges",
}


@functools.cache
def entries() -> dict[tuple[str, str], dict]:
    path = ROOT.parent / "shared" / "reference" / "upstream_configs.json"
    if not path.exists():
        pytest.skip(f"upstream's configurations are not here: {path}")
    configs = json.loads(path.read_text("utf-8"))
    return {
        (dataset, name): entry
        for dataset in (*DATASETS, *CITIES)
        for name, entry in configs[dataset].items()
        if "model.type" in entry
    }


def preset_of(dataset: str, name: str) -> tuple[str, str, str]:
    """Our dataset, model and variant of upstream's file ``name``."""
    base = re.sub(r"(-\d+|@.*|-4layer.*)$", "", name)
    dataset, model = NAMES.get(dataset, dataset.lower()), MODELS[base]
    named = {"@best-of-each": "best-of-each", "@defaults": "search-start"}
    variant = next((ours for theirs, ours in named.items() if name.endswith(theirs)), "code")
    if depth := re.search(r"-(\d+)$", name):
        variant = f"depth-{depth[1]}"
    if "4layer" in name:
        variant = "thesis-4-layers"
    return dataset, model, variant if variant in read_preset(dataset, model).variants else "code"


def test_every_file_of_upstream_is_a_preset_or_a_variant() -> None:
    """All 130 but two dummies, which docs/fidelity.md names; four are the influence of k."""
    found = {key: preset_of(*key) for key in entries()}
    assert len(found) == 126
    for (dataset, name), (ours, model, variant) in found.items():
        config, upstream = load_preset(ours, model, variant), entries()[dataset, name]
        for theirs, key in ALIKE.items():
            expected = upstream.get(theirs)
            if expected is None or (
                theirs.startswith("gt.") and upstream["model.type"] in {"gnn", "custom_gnn"}
            ):
                continue
            if theirs == "gt.n_heads" and config.model.attention.kind == "none":
                continue
            assert key_value(config, key) == expected, (dataset, name, key)
        clip = 1.0 if upstream.get("optim.clip_grad_norm") else 0.0
        assert config.training.clip_norm == clip, (dataset, name)
        encoding = next((pe for pe in ("LapPE", "RWSE") if upstream.get(f"posenc_{pe}.enable")), "none")
        assert config.model.positional == encoding.lower(), (dataset, name)
        searched = upstream.get("model.auto_satisfy_param_budget") and upstream["model.type"] != "MultiModel"
        assert config.model.parameter_budget == (500_000 if searched else None), (dataset, name)
        if not searched:
            width = upstream.get("gt.dim_hidden") or upstream["gnn.dim_inner"]
            assert config.model.hidden_dim == width, (dataset, name)


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, *(pytest.param(i, marks=pytest.mark.torture) for i in range(1, 6))])
def test_all_68_counts_of_upstream_are_exact(part: int) -> None:
    counted = [item for item in entries().items() if item[1].get("_effective_num_params") is not None]
    assert len(counted) == 68
    for (dataset, name), entry in counted[part::6]:
        config = load_preset(*preset_of(dataset, name)).model
        sizes = shape(dataset)
        fitted = fit_hidden_dim(config, **sizes)
        with torch.device("meta"):
            found = count_parameters(build_model(fitted, **sizes))
        assert (fitted.hidden_dim, found) == (
            entry["_effective_hidden_dim"],
            entry["_effective_num_params"],
        ), (dataset, name)


def check_every_variant_loads(name: str) -> None:
    for variant in read_preset(*name.split("/")).variants:
        config = load_preset(*name.split("/"), variant)
        assert (config.preset, config.variant) == (name, variant)
        assert config.model.name == name.split("/")[1]


def test_every_variant_loads() -> None:
    check_each(check_every_variant_loads, preset_names())


SHIPPED = [name for name in dataset_names() if name not in {"city", "points", "superpixels"}]


def check_every_model_has_settings(case: tuple[str, str]) -> None:
    config, preset = load_preset(*case), read_preset(*case)
    dataset, model = case
    assert config.model.name == model
    if model in OURS or model not in presets_of(dataset):
        assert preset.source.startswith("ours, ")
        assert preset.paper is None
        assert "not the paper's" in origin(config)


def test_every_model_has_settings_on_every_dataset() -> None:
    check_each(check_every_model_has_settings, itertools.product(SHIPPED, sorted(models())))


def test_ours_keep_what_belongs_to_the_dataset() -> None:
    usual, stack = load_preset("cifar10").model, load_preset("cifar10", "gcn").model
    assert (stack.head, stack.pooling, stack.node_encoder) == (usual.head, usual.pooling, usual.node_encoder)
    assert (stack.norm, stack.feed_forward, stack.attention.kind) == ("none", False, "none")
    assert (usual.positional, stack.positional) == ("equivstable", "none")  # which gates alone can read
    assert load_preset("cifar10", "exphormer").model.positional == "equivstable"


def test_results_taken_from_others_say_so() -> None:
    for dataset in ("pascalvoc-sp", "coco-sp", "peptides-func", "peptides-struct"):
        for model in PAPER:
            result = read_preset(dataset, model).paper
            borrowed = model in {"gcn", "gine", "gated-gcn", "gps-transformer", "exphormer"}
            assert ("takes it from" in result.source) is borrowed
            assert ("Tönshoff" in result.source) is (borrowed and model != "exphormer")


def test_each_city_has_its_result() -> None:
    assert read_preset("paris", "gat").paper.mean == 55.83
    assert read_preset("london", "gat").paper.mean == 57.19
    assert read_preset("london", "gps-performer").paper.runs == 1
    assert read_preset("london", "gps-bigbird").paper is None  # out of memory in the paper
    assert load_preset("london", "gps-performer", "paper-depth").model.layers == 5
    assert read_preset("helsinki", "gat").paper is None
