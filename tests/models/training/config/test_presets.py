"""Presets against upstream's files and the paper's tables; they load and name their source."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from support.cases import check_each
from support.datasets import datasets
from support.oracles.upstream import entries, preset_of, shape
from support.raises import raises

from kmip_data.errors import UsageError
from kmip_data.models.config import COMPONENT_SECTIONS, known_models
from kmip_data.models.network import build_model, count_parameters, fit_hidden_dim
from kmip_data.models.positional_encodings import find_positional_encoding
from kmip_data.models.training.config import presets
from kmip_data.models.training.config.overrides import documented_keys, value_of_key
from kmip_data.models.training.config.presets import (
    config_for_data,
    load_preset,
    models_with_preset,
    preset_names,
    preset_origin,
    preset_owner,
    read_preset,
)
from kmip_data.strict_model import read_shipped, shipped_names

UPSTREAM = {"s3dis": "S3DIS", "shapenet-part": "ShapeNet"}


def check_text_changes_exactly_the_listed_keys(name):
    dataset, model = name.split("/")
    code, text, preset = (
        load_preset(dataset, model, "code"),
        load_preset(dataset, model, "text"),
        read_preset(dataset, model),
    )
    changed = {
        key.name
        for key in documented_keys()
        if key.name != "variant" and value_of_key(code, key.name) != value_of_key(text, key.name)
    }
    assert changed == {*preset.text}
    assert (code.variant, text.variant) == ("code", "text")
    assert code.preset == text.preset == name
    for key, difference in preset.text.items():
        read = value_of_key(text, key)
        assert (read, type(read)) == (difference.value, type(difference.value)), key
        assert difference.paper
        assert difference.code


def test_text_changes_exactly_the_listed_keys():
    check_each(check_text_changes_exactly_the_listed_keys, preset_names())


def test_a_run_names_its_preset():
    line = (
        "preset s3dis/gps-kmip, variant {}; the paper's text and code differ in 6 keys"
        " (kmip-data info s3dis --model gps-kmip)"
    )
    assert preset_origin(load_preset("s3dis")) == line.format("code")
    assert preset_origin(load_preset("s3dis", variant="text")) == line.format("text")
    assert preset_origin(config_for_data("mine")) == ""


def test_sizes_keep_the_budget_of_the_paper():
    for dataset in UPSTREAM:
        for variant in ("code", "text"):
            used = {**shape(dataset), **({"in_channels": 6} if variant == "text" else {})}
            model = load_preset(dataset, variant=variant).model
            assert fit_hidden_dim(model, **used, budget=300_000).hidden_dim == model.hidden_dim
            assert 250_000 < count_parameters(build_model(model, **used)) <= 300_000


def test_presets_have_the_papers_results():
    for dataset, metric, mean, std, runs in (
        ("s3dis", "miou", 67.99, 1.51, 3),
        ("london", "accuracy", 56.05, None, 1),
        ("peptides-struct", "mae", 0.2562, 0.0037, 4),
        ("malnet-tiny", "accuracy", 93.52, 0.49, 5),
    ):
        result = read_preset(dataset, "gps-kmip").paper
        assert (result.metric, result.mean, result.std, result.runs) == (metric, mean, std, runs)
        assert load_preset(dataset).training.metric == metric


SIZED = [name for name in preset_names() if read_preset(*name.split("/")).size]


def check_published_size(name: str) -> None:
    dataset, model = name.split("/")
    sizes = shape(dataset)
    config = fit_hidden_dim(load_preset(dataset, model).model, **sizes)
    with torch.device("meta"):
        parameters = count_parameters(build_model(config, **sizes))
    assert (config.layers, config.hidden_dim, parameters) == read_preset(dataset, model).size


def test_networks_have_the_published_sizes():
    assert len(SIZED) >= 37
    check_each(check_published_size, SIZED)


def test_gnn_plus_is_not_the_papers():
    names = [name for name in preset_names() if name.endswith("-plus")]
    # PATTERN's have another number of outputs, which a note says. The counts follow the
    # published code; tables 8 to 13 of Luo et al. (arXiv 2502.09263) have the counts of the paper.
    assert {*names} - {*SIZED} == {name for name in names if name.startswith("pattern/")}
    for name in names:
        assert "not the paper's" in preset_origin(load_preset(*name.split("/")))


def test_cities_that_the_paper_did_not_have_take_the_preset_of_its_cities():
    config = config_for_data("helsinki")
    assert (config.preset, config.data.dataset) == ("city/gps-kmip", "helsinki")
    assert read_preset("city", "gps-kmip").paper is None
    assert preset_origin(config).startswith("preset city/gps-kmip, variant code; the paper's text")
    assert config_for_data("helsinki", variant="text").data.coordinates == "append"


def test_a_preset_that_is_not_the_papers_names_its_source():
    config = config_for_data("pcqm-contact")
    assert (config.model.head, config.training.metric) == ("link", "mrr")
    assert read_preset("pcqm-contact", "gps-kmip").paper is None
    assert "not the paper's" in preset_origin(config)
    assert load_preset("pcqm-contact", variant="text").model == config.model


def test_our_variants_are_labelled():
    config = config_for_data("helsinki", variant="small-city")
    line = "preset city/gps-kmip, variant small-city: our settings, not the paper's"
    assert preset_origin(config) == line
    assert (config.model.layers, config.model.local.kind, config.training.epochs) == (6, "gcn", 60)
    # A model needs no such variant; where there is one, it is nobody's published choice.
    presets = [read_preset("city", model) for model in models_with_preset("city")]
    assert all("small-city" in preset.ours for preset in presets if "small-city" in preset.variants)


def test_named_variants_of_a_preset_load():
    variants = ["code", "text", "best-of-each", "search-start", "small-city", "paper-depth"]
    assert read_preset("london", "gps-kmip").variants == variants
    config = load_preset("london")
    assert (config.variant, config.model.layers) == ("paper-depth", 7)
    assert load_preset("london", variant="paper-depth") == config
    assert load_preset("london", variant="text").model.layers == 7
    assert load_preset("london", variant="code").model.layers == 12  # upstream's file
    assert load_preset("london", "gps-performer").model.layers == 5
    assert load_preset("london", "gps-performer", "code").model.layers == 12
    with raises(UsageError, naming="'paper-depth'"):
        load_preset("london", variant="paper-deph")
    with raises(UsageError, naming="paris/gps-kmip"):
        load_preset("paris", variant="paper-depth")


def test_a_dataset_the_paper_did_not_have_gets_the_defaults():
    config = config_for_data("my-graphs")
    assert config.preset == ""
    assert config.data.dataset == "my-graphs"
    assert config.data.parameters == {}


LRGB = ("pascalvoc-sp", "coco-sp", "peptides-func", "peptides-struct")


def test_layers_and_encoders_are_those_of_the_published_code() -> None:
    """Settings as the code of LRGB, Exphormer, the thesis and GraphGym has them, which no file says.

    Formulas of these settings: ``tests/models/test_whole_networks.py``.
    """
    for dataset in LRGB:  # CustomGNN passes no activation to GatedGCNLayer, whose default is ReLU
        model = load_preset(dataset, "gated-gcn").model
        assert (model.local.residual, model.local.activation) == ("inside", "relu")
        assert (model.norm, model.feed_forward, model.attention.kind) == ("none", False, "none")
    for preset in (
        *product(LRGB[:2], ["exphormer"]),
        ("pascalvoc-sp", "gps-kmip", "influence-of-k"),
    ):
        model = load_preset(
            *preset
        ).model  # VOCNode and VOCEdge are linear layers; nothing is scaled
        assert (model.node_encoder, model.edge_encoder) == ("linear", "linear")
    malnet = load_preset("malnet-tiny").model  # its file leaves node_encoder_bn out, which is True
    assert (malnet.node_encoder_norm, malnet.input_layers, malnet.local.residual) == (
        True,
        1,
        "inside",
    )
    # The thesis's GatedGCNLayer adds its input, the layer of the paper's repository does not; which of
    # the two ran BigBird, Performer and eight layers of k-MIP is open.
    either = ("gps-kmip", "gps-bigbird", "gps-performer")
    certain = [("gps-none", "code"), ("gps-transformer", "code"), ("gps-kmip", "thesis-4-layers")]
    for dataset in ("s3dis", "shapenet-part"):
        for model, variant in (*certain, *product(either, ["thesis-code", "code"])):
            config = load_preset(dataset, model, variant).model
            inside = variant != "code" or model not in either
            assert config.local.residual == ("inside" if inside else "none"), (
                dataset,
                model,
                variant,
            )
            assert (config.norm, config.local.activation, config.ffn_activation) == (
                "batch",
                "relu",
                "relu",
            )


def test_text_variants_use_gelu_for_every_activation() -> None:
    """Its tables of LRGB and cities say GeLU: feed-forward block, message passing and head."""
    for name in preset_names():
        dataset, model = name.split("/")
        if dataset not in {*LRGB, "city"} or not read_preset(dataset, model).text:
            continue
        config = load_preset(dataset, model, "text").model
        used = [config.local.activation]
        used += [config.ffn_activation] if config.feed_forward else []
        used += [config.head_activation] if config.head_layers > 1 else []
        assert set(used) == {"gelu"}, name


OURS = {"mlp", "kmip-only"}  #: ablations, which nobody published


#: Our keys, by keys of upstream's files whose values mean the same.
SAME_VALUES = {
    "dataset.node_encoder_bn": "model.node_encoder_norm",
    "gt.dropout": "model.dropout",
    "gt.layers": "model.layers",
    "gt.n_heads": "model.attention.heads",
    "gt.sparse.k": "model.attention.k",
    "gt.sparse.kq_dim": "model.attention.key_dim",
    "gnn.dropout": "model.dropout",
    "gnn.layers_mp": "model.layers",
    "model.graph_pooling": "model.pooling",
    "model.param_budget": "model.parameter_budget",
    "optim.base_lr": "optimizer.lr",
    "optim.batch_accumulation": "training.accumulate",
    "optim.max_epoch": "training.epochs",
    "optim.num_warmup_epochs": "schedule.warmup_epochs",
    "optim.schedule_patience": "schedule.patience",
    "optim.scheduler": "schedule.kind",
    "optim.weight_decay": "optimizer.weight_decay",
    "prep.num_virt_node": "model.attention.virtual_nodes",
    "train.batch_size": "training.batch_size",
    "train.eval_period": "training.eval_every",
    "train.shuffle": "training.shuffle",
}


def check_values_of_upstreams_file(name: str) -> None:
    keys, config = entries()[name], load_preset(*preset_of(name))
    for theirs in SAME_VALUES.keys() & keys:
        ours, value = value_of_key(config, SAME_VALUES[theirs]), keys[theirs]
        # GPS networks do not read gnn.dropout; files name keys of parts that a network lacks.
        is_read = ours is not None and not (theirs == "gnn.dropout" and "gt.dropout" in keys)
        if is_read and not str(value).startswith("swept"):
            assert ours == value, theirs


def test_presets_have_the_values_of_upstreams_files() -> None:
    """All 132, of which two are dummies without a model."""
    check_each(
        check_values_of_upstreams_file, [n for n, k in entries().items() if "model.type" in k]
    )
    assert len(entries()) == 132


#: Parameters of GraphGPS's own networks, counted by its code.
GRAPHGPS_SIZES = {
    "chameleon": 465_673, "cluster": 502_054, "mnist": 115_394, "ogbg-molhiv": 558_673, "ogbg-molpcba": 9_744_860,
    "pattern": 337_266, "pcqm4mv2": 6_152_285, "squirrel": 200_537, "zinc": 423_717,
}  # fmt: skip


@pytest.mark.parametrize("dataset", GRAPHGPS_SIZES)
def test_presets_of_graphgps_have_its_parameters(dataset: str) -> None:
    preset = read_preset(dataset, "gps-transformer")
    assert preset.source.startswith("GraphGPS: ")
    with torch.device("meta"):
        model = build_model(load_preset(dataset, "gps-transformer").model, **shape(dataset))
    assert count_parameters(model) == GRAPHGPS_SIZES[dataset]


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(i, marks=pytest.mark.torture) for i in range(1, 12))]
)
def test_all_68_counts_of_upstream_are_exact(part: int) -> None:
    """And of a twelfth the widths, each of which takes a search among a dozen networks."""
    counted = [
        item for item in entries().items() if item[1].get("_effective_num_params") is not None
    ]
    assert len(counted) == 68
    for number, (name, entry) in enumerate(counted):
        config, sizes = load_preset(*preset_of(name)).model, shape(preset_of(name)[0])
        width = entry["_effective_hidden_dim"]
        if number % 12 == part:
            config = fit_hidden_dim(config, **sizes)
            assert config.hidden_dim == width, name
        elif part == 0:
            config = config.model_copy(update={"hidden_dim": width, "parameter_budget": None})
        else:
            continue
        with torch.device("meta"):
            assert (
                count_parameters(build_model(config, **sizes)) == entry["_effective_num_params"]
            ), name


def check_every_variant_loads(name: str) -> None:
    for variant in read_preset(*name.split("/")).variants:
        config = load_preset(*name.split("/"), variant)
        assert (config.preset, config.variant) == (name, variant)
        assert config.model.name == name.split("/")[1]


def test_every_variant_loads() -> None:
    check_each(check_every_variant_loads, preset_names())


def check_every_model_has_settings(case: tuple[str, str]) -> None:
    config, preset = load_preset(*case), read_preset(*case)
    dataset, model = case
    assert config.model.name == model
    if model in OURS or model not in models_with_preset(dataset):
        assert preset.source.startswith("ours, ")
        assert preset.paper is None
        assert "not the paper's" in preset_origin(config)


def test_every_model_has_settings_on_every_dataset() -> None:
    """Every dataset with presets, of its own or of its family, has settings for every model."""
    with_presets = [name for name in datasets() if preset_owner(name) is not None]
    check_each(check_every_model_has_settings, product(with_presets, sorted(known_models())))


def test_a_dataset_without_presets_has_the_defaults_and_no_other_variant(monkeypatch) -> None:
    names = [name for name in preset_names() if not name.startswith("s3dis/")]
    monkeypatch.setattr(presets, "preset_names", lambda: names)
    config = config_for_data("s3dis", "gcn", "code")
    assert (config.preset, config.variant, config.model.local.kind) == ("", "code", "gcn")
    for variant in ("nonsense", "text"):
        with raises(UsageError, naming=variant) as error:
            config_for_data("s3dis", "gcn", variant)
        assert error.value.expected == "code"


def test_every_shipped_model_names_its_parts() -> None:
    """A section that it left out would silently be the default's."""
    for name in shipped_names("models"):
        keys = read_shipped("models", name)
        assert all("kind" in keys[section] for section in COMPONENT_SECTIONS), name


def check_ours_keep_what_belongs_to_the_dataset(dataset: str) -> None:
    usual = load_preset(dataset).model
    stack = load_preset(dataset, "gcn").model
    for key in ("head", "pooling", "node_encoder"):
        assert getattr(stack, key) == getattr(usual, key), key
    assert (stack.norm, stack.feed_forward, stack.attention.kind) == ("none", False, "none")

    exphormer = load_preset(dataset, "exphormer").model
    assert exphormer.positional == usual.positional
    distances = find_positional_encoding(
        usual.positional
    ).adds_distances  # which gates alone can read
    assert stack.positional == ("none" if distances else usual.positional)


def test_our_presets_keep_settings_of_the_dataset() -> None:
    without = []
    for name in datasets():
        if preset_owner(name) is not None and not {"gcn", "exphormer"} & {
            *models_with_preset(name)
        }:
            without.append(name)
    check_each(check_ours_keep_what_belongs_to_the_dataset, without)
    assert any(
        find_positional_encoding(load_preset(name).model.positional).adds_distances
        for name in without
    )


def test_ours_on_sampled_neighborhoods_have_no_expander() -> None:
    preset = read_preset("ogbn-products", "exphormer")
    assert load_preset("ogbn-products", "exphormer").model.attention.expander == 0
    assert preset.source.endswith("without an expander: neighborhoods are sampled")
