"""Presets against upstream's configuration files and the paper's tables; they load and name their source."""

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

from kmip_data.errors import UsageError
from kmip_data.manifest import dataset_names
from kmip_data.models.config import models
from kmip_data.models.network import build_model, count_parameters, fit_hidden_dim
from kmip_data.models.training.config.overrides import documented_keys, key_value
from kmip_data.models.training.config.presets import (
    config_for,
    load_preset,
    origin,
    preset_names,
    presets_of,
    read_preset,
)

UPSTREAM = {"s3dis": "S3DIS", "shapenet-part": "ShapeNet"}
LRGB = {
    "pascalvoc-sp": "PascalVOC-SP",
    "coco-sp": "COCO-SP",
    "peptides-func": "Peptides-func",
    "peptides-struct": "Peptides-struct",
}
INFLUENCE = {
    ("cifar10", "code"): "Influence-of-k/Cifar10",
    ("malnet-tiny", "code"): "Influence-of-k/MalNet-Tiny",
    ("pascalvoc-sp", "influence-of-k"): "Influence-of-k/PascalVOC-SP",
    ("peptides-func", "influence-of-k"): "Influence-of-k/Peptides-Func",
}
CITIES = {"paris": "Paris", "shanghai": "Shanghai", "la": "LA", "london": "London"}


NODE_ENCODERS = {
    "LinearNode": "linear",
    "CityNetworkNode": "linear",  # its standardisation and sinusoids are kmip_data.graphs.city_columns
    "LinearNode+EquivStableLapPE": "linear",
    "VOCNode": "voc",
    "VOCNode+LapPE": "voc",
    "COCONode": "coco",
    "Atom": "atom",
    "Atom+LapPE": "atom",
}
EDGE_ENCODERS = {
    "DummyEdge": "dummy",
    "LinearEdge": "linear",
    "VOCEdge": "linear",  # of the paper's code
    "COCOEdge": "coco",
    "Bond": "bond",
}

ENCODINGS = {"LapPE": "lappe", "RWSE": "rwse", "EquivStableLapPE": "equivstable"}

# Upstream's key -> ours, and how its value reads here.
KEYS = {
    "metric_best": ("training.metric", lambda name: name.lower()),
    "train.batch_size": ("training.batch_size", int),
    "train.eval_period": ("training.eval_every", int),
    "train.shuffle": ("training.shuffle", bool),
    "gt.layers": ("model.layers", int),
    "gt.n_heads": ("model.attention.heads", int),
    "gt.dim_hidden": ("model.hidden_dim", int),
    "gt.dropout": ("model.dropout", float),
    "gt.attn_dropout": ("model.attention.dropout", float),
    "gt.layer_norm": ("model.norm", lambda on: "graph-layer" if on else "batch"),
    "gt.sparse.k": ("model.attention.k", lambda k: 10 if str(k).startswith("swept") else k),
    "gt.sparse.kq_dim": ("model.attention.key_dim", int),
    "gt.sparse.head_agg": ("model.attention.output_projection", lambda name: name != "none"),
    "gnn.layers_post_mp": ("model.head_layers", int),
    "gnn.act": ("model.ffn_activation", str),
    "dataset.node_encoder_name": ("model.node_encoder", NODE_ENCODERS.get),
    "dataset.edge_encoder_name": ("model.edge_encoder", EDGE_ENCODERS.get),
    "posenc": ("model.positional", str),
    "optim.clip_grad_norm": ("training.clip_norm", lambda on: 1.0 if on else 0.0),
    "optim.batch_accumulation": ("training.accumulate", int),
    "optim.weight_decay": ("optimiser.weight_decay", float),
    "optim.base_lr": ("optimiser.lr", float),
    "optim.max_epoch": ("training.epochs", int),
    "optim.scheduler": ("schedule.kind", str),
    "optim.num_warmup_epochs": ("schedule.warmup_epochs", int),
}


def upstream_config(name):
    path = ROOT.parent / "shared" / "reference" / "upstream_configs.json"
    if not path.exists():
        pytest.skip(f"upstream's configurations are not here: {path}")
    config = json.loads(path.read_text("utf-8"))[name]["GPS+kmip"]
    encodings = [key for key in ENCODINGS if config.get(f"posenc_{key}.enable")]
    return config | {"posenc": ENCODINGS[encodings[0]] if encodings else "none"}


#: Upstream's keys that say nothing here: ours differ on purpose (ADR and docs/fidelity.md), or the
#: parameter budget replaces them.
BUDGETED = {"gt.dim_hidden"}
IGNORED = {"gt.attn_dropout", "gnn.act"}  # set, and without effect on k-MIP attention and its FFN


ALL = {(name, "code"): theirs for name, theirs in {**UPSTREAM, **CITIES, **LRGB}.items()} | INFLUENCE


def check_presets_equal_upstream_configs(dataset, variant):
    upstream = upstream_config(ALL[dataset, variant])
    preset = load_preset(dataset, as_=variant)
    budgeted = upstream.get("model.auto_satisfy_param_budget", False)
    other = dataset not in UPSTREAM  # than point clouds
    left_out = {"optim.batch_accumulation", "train.shuffle", "gt.sparse.head_agg"} - upstream.keys()
    for theirs, (ours, read) in KEYS.items():
        if theirs not in left_out | (BUDGETED if budgeted else set()) | (IGNORED if other else set()):
            expected = read(upstream[theirs])
            if (variant, expected) == ("influence-of-k", "voc"):
                expected = "linear"  # as VOCNode of the thesis's code is
            assert key_value(preset, ours) == expected, f"{theirs} -> {ours}"
    if "gt.sparse.head_agg" not in upstream:
        assert preset.model.attention.output_projection
    if other:
        assert preset.model.input_layers == upstream["gnn.layers_pre_mp"]
    graph = upstream["dataset.task"] == "graph" and upstream["gnn.head"] != "inductive_node"
    assert preset.model.head == ("graph" if graph else "node")
    if graph:
        assert preset.model.pooling == upstream["model.graph_pooling"]
        mlp = upstream["gnn.head"] == "mlp_graph"
        assert preset.model.head_l2norm is not mlp
        assert preset.model.head_dropout == (upstream["gnn.dropout"] if mlp else 0.0)
        assert preset.model.head_activation == (upstream["gnn.act"] if mlp else "relu")
    assert preset.model.parameter_budget == (upstream["model.param_budget"] if budgeted else None)
    if not budgeted:
        value_dim = (
            preset.model.attention.value_dim or preset.model.hidden_dim // preset.model.attention.heads
        )
        assert upstream["gt.sparse.val_dim"] == value_dim
    loss = upstream["model.loss_fun"]
    if upstream["dataset.task_type"] == "classification_multilabel":
        loss = {"cross_entropy": "binary_cross_entropy"}[loss]  # as upstream's cross_entropy decides itself
    assert preset.training.loss == loss
    assert preset.model.attention.dropout == 0.0
    assert preset.model.ffn_activation == "relu"
    assert upstream["gt.layer_type"] == "CustomGatedGCN+SparseAttention"
    assert upstream["optim.optimizer"] == "adamW"


def test_presets_equal_upstream_configs():
    check_each(lambda case: check_presets_equal_upstream_configs(*case), ALL)


def check_text_changes_exactly_the_listed_keys(name):
    dataset, model = name.split("/")
    code, text, preset = (
        load_preset(dataset, model),
        load_preset(dataset, model, "text"),
        read_preset(dataset, model),
    )
    changed = {
        key.name
        for key in documented_keys()
        if key.name != "variant" and key_value(code, key.name) != key_value(text, key.name)
    }
    assert changed == {difference.key for difference in preset.text}
    assert (code.variant, text.variant) == ("code", "text")
    assert code.preset == text.preset == name
    for difference in preset.text:
        read = key_value(text, difference.key)
        assert (read, type(read)) == (difference.value, type(difference.value)), difference.key
        assert difference.paper
        assert difference.code


def test_text_changes_exactly_the_listed_keys():
    check_each(check_text_changes_exactly_the_listed_keys, preset_names())


def test_a_run_says_which_preset_it_is_of():
    first = (
        "preset s3dis/gps-kmip as the paper's {} has it; its {} differs in 6 keys"
        " (kmip-data info s3dis --model gps-kmip)"
    )
    assert origin(load_preset("s3dis")) == first.format("code", "text")
    assert origin(load_preset("s3dis", as_="text")) == first.format("text", "code")
    assert origin(config_for("mine")) == ""


def test_sizes_keep_the_budget_of_the_paper():
    for dataset in UPSTREAM:
        for as_ in ("code", "text"):
            used = {**shape(dataset), **({"in_channels": 6} if as_ == "text" else {})}
            model = load_preset(dataset, as_=as_).model
            assert fit_hidden_dim(model, **used, budget=300_000).hidden_dim == model.hidden_dim
            assert 250_000 < count_parameters(build_model(model, **used)) <= 300_000


def test_the_papers_results():
    for dataset, metric, mean, std, runs in (
        ("s3dis", "miou", 67.99, 1.51, 3),
        ("london", "accuracy", 56.05, None, 1),
        ("peptides-struct", "mae", 0.2562, 0.0037, 4),
        ("malnet-tiny", "accuracy", 93.52, 0.49, 5),
    ):
        result = read_preset(dataset, "gps-kmip").paper
        assert (result.metric, result.mean, result.std, result.runs) == (metric, mean, std, runs)
        assert load_preset(dataset).training.metric == metric


def test_networks_have_the_sizes_of_the_paper():
    for dataset, variant, layers, dim, parameters in (
        ("pascalvoc-sp", "code", 8, 72, 475_213),
        ("peptides-struct", "code", 6, 84, 497_519),
        ("london", "paper-depth", 7, 76, 469_414),
        ("cifar10", "code", 5, 36, 101_419),
        ("malnet-tiny", "code", 5, 64, 286_725),
    ):
        config, sizes = config_for(dataset, as_=variant), shape(dataset)
        model = fit_hidden_dim(config.model, **sizes)
        assert (model.layers, model.hidden_dim) == (layers, dim)
        assert count_parameters(build_model(config.model, **sizes)) == parameters


def test_cities_that_the_paper_did_not_have_take_the_preset_of_its_cities():
    config = config_for("helsinki")
    assert (config.preset, config.data.dataset) == ("city/gps-kmip", "helsinki")
    assert read_preset("city", "gps-kmip").paper is None
    assert origin(config).startswith("preset city/gps-kmip as the paper's code")
    assert config_for("helsinki", as_="text").data.coordinates == "append"


def test_a_preset_that_is_not_the_papers_names_its_source():
    config = config_for("pcqm-contact")
    assert (config.model.head, config.training.metric) == ("link", "mrr")
    assert read_preset("pcqm-contact", "gps-kmip").paper is None
    assert "not the paper's" in origin(config)
    assert load_preset("pcqm-contact", as_="text").model == config.model


def test_a_variant_of_ours_says_so():
    config = config_for("helsinki", as_="small-city")
    assert origin(config).startswith(
        "preset city/gps-kmip, variant small-city, ours and not the paper's; its text differs"
    )
    assert (config.model.layers, config.model.local.kind, config.training.epochs) == (6, "gcn", 60)
    assert all(
        "small-city" in read_preset("city", model).ours
        for model in models()
        if "none" not in model and "only" not in model
    )


def test_named_variants():
    variants = ["code", "text", "best-of-each", "search-start", "small-city", "paper-depth"]
    assert read_preset("london", "gps-kmip").variants == variants
    config = load_preset("london", as_="paper-depth")
    assert (config.variant, config.model.layers) == ("paper-depth", 7)
    assert load_preset("london", as_="text").model.layers == 7
    with pytest.raises(UsageError, match="Did you mean 'paper-depth'"):
        load_preset("london", as_="paper-deph")
    with pytest.raises(UsageError, match="no variant of paris/gps-kmip called 'paper-depth'"):
        load_preset("paris", as_="paper-depth")


def test_unknown_presets_are_named():
    with pytest.raises(UsageError, match="Did you mean 's3dis/gps-kmip'"):
        load_preset("s3dis", "gps-kmap")
    with pytest.raises(UsageError, match="no preset called 's3dis/gin'"):
        config_for("s3dis", "gin")


def test_a_dataset_the_paper_did_not_have_gets_the_defaults():
    config = config_for("my-graphs")
    assert config.preset == ""
    assert config.data.dataset == "my-graphs"
    assert config.data.parameters == {}


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
CITY_NAMES = ("Paris", "Shanghai", "LA", "London")
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
        for dataset in (*DATASETS, *CITY_NAMES)
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
