"""Configuration: keys, overrides, TOML."""

from __future__ import annotations

import os

import pytest
from support.cases import check_each
from support.raises import raises
from support.shared import ROOT

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.models.training.config.overrides import (
    apply_overrides,
    config_from_mapping,
    config_to_toml,
    documented_keys,
    read_config,
    value_of_key,
    with_epochs,
)
from kmip_data.models.training.config.presets import load_preset, preset_names, read_preset
from kmip_data.models.training.config.run_config import is_compared
from kmip_data.models.training.losses import LOSSES
from kmip_data.models.training.metrics import METRICS
from kmip_data.models.training.optimizers import OPTIMIZERS
from kmip_data.models.training.schedules import SCHEDULES


def config(**sections):
    return config_from_mapping({"data": {"dataset": "s3dis"}, **sections}, "the test")


def choices(key):
    return {
        part.strip() for part in next(k for k in documented_keys() if k.name == key).type.split("|")
    }


def test_every_choice_has_its_implementation():
    assert choices("training.loss") == set(LOSSES)
    assert choices("training.metric") == set(METRICS)
    assert choices("schedule.kind") == set(SCHEDULES)
    assert choices("optimizer.name") == set(OPTIMIZERS)


def test_types_of_keys_have_the_forms_of_further_names():
    assert "typesN" in choices("model.node_encoder")
    assert {"typesN", "ENCODER+edge-rwseN"} <= choices("model.edge_encoder")
    assert {"ENCODING", "ENCODING+ENCODING"} <= choices("model.positional")


def test_every_key_is_documented():
    keys = documented_keys()
    assert {"optimizer.lr", "model.attention.k", "data.parameters", "system.device"} <= {
        key.name for key in keys
    }
    for key in keys:
        assert key.doc, key.name
        assert key.doc != key.name.rsplit(".", 1)[-1], f"{key.name} has no description"
        assert key.type, key.name


def test_overrides_take_the_type_of_their_key():
    for item, key, value in (
        ("optimizer.lr=1e-3", "optimizer.lr", 1e-3),
        ("optimizer.lr = 2", "optimizer.lr", 2.0),
        ("training.shuffle=true", "training.shuffle", True),
        ("training.precision=32", "training.precision", "32"),
        ("model.hidden_dim=64", "model.hidden_dim", 64),
        ("model.norm=layer", "model.norm", "layer"),
        ("model.attention.value_dim=none", "model.attention.value_dim", None),
        ("training.neighbors=10,10", "training.neighbors", (10, 10)),
        ("data.dataset=/tmp/a=b", "data.dataset", "/tmp/a=b"),
        (
            "data.parameters.category=['Bag', 'Cap']",
            "data.parameters",
            {"category": ["Bag", "Cap"]},
        ),
        (
            "data.split={split_rule='room', test_area=5}",
            "data.split",
            {"split_rule": "room", "test_area": 5},
        ),
    ):
        parsed = value_of_key(apply_overrides(config(), [item]), key)
        assert (parsed, type(parsed)) == (value, type(value)), item


@pytest.mark.parametrize("dim", [16, 56])
def test_given_width_replaces_the_parameter_budget(dim):
    """The preset's budget does not replace a given width."""
    begun = apply_overrides(config(), ["model.parameter_budget=300000"])
    asked = apply_overrides(begun, ["model.layers=1", f"model.hidden_dim={dim}"])
    assert (asked.model.hidden_dim, asked.model.parameter_budget) == (dim, None)
    assert apply_overrides(begun, "model.layers=1").model.parameter_budget == 300_000


def test_wrong_overrides_are_named():
    for items, named in (
        (["optimiser.lr=1e-3"], "optimizer.lr"),
        (["optimizer.learning_rate=1e-3"], "'optimizer.lr'"),
        (["lr=1e-3"], "optimizer.lr"),
        (["model.hiden_dim=3"], "model.hidden_dim"),
        (["optimizer.lr.x=3"], "optimizer.lr.x"),
        (["optimizer.lr"], "optimizer.lr"),
        (["optimizer=3"], "'optimizer'"),
        (["optimizer.lr=fast"], "fast"),
        (["optimizer.lr=-1"], -1),
        (["training.epochs=none"], "none"),
        (["model.attention.heads=5"], ["heads", 5]),
        (["training.metric=accurac"], "'accuracy'"),
        (["training.loss=cros_entropy"], "'cross_entropy'"),
        (["schedule.kind=cosine"], "'cosine_with_warmup'"),
        (["optimizer.name=adamv"], "'adam'"),
        (["model.attention.kind=k-mop"], "'k-mip'"),
        (["model.local.kind={a=1}"], "{a=1}"),
        (["model.attention.kind=none", "model.attention.k=3"], "model.attention.k"),
        (["model.attention.hads=3"], "model.attention.heads"),
        (["model.attention.kind=none", "model.local.kind=none"], ["attention", "local"]),
    ):
        with raises(UsageError, naming=named):
            apply_overrides(config(), items)


def test_errors_in_configuration_files_name_the_file(tmp_path):
    with raises(DamagedInput, naming="absent.toml"):
        read_config(tmp_path / "absent.toml")
    (tmp_path / "broken.toml").write_text("training = [")
    with raises(DamagedInput, naming="broken.toml"):
        read_config(tmp_path / "broken.toml")
    (tmp_path / "unknown.toml").write_text(
        '[data]\ndataset = "s3dis"\n[training]\nepoch = 3\nmetric = "miuo"\n[optimizer]\nlr = "fast"\n'
    )
    with raises(UsageError, naming=["training.epochs", "optimizer.lr", "'miou'"]):
        read_config(tmp_path / "unknown.toml")


def test_a_configuration_is_read_as_it_was_written(tmp_path):
    keys = {key.name for key in documented_keys()}

    def check(case):
        preset, variant = case
        changes = ["data.parameters.limit=3", "training.precision=bf16-mixed"]
        whole = apply_overrides(load_preset(*preset.split("/"), variant), changes)
        path = tmp_path / "config.toml"
        path.write_text(config_to_toml(whole), encoding="utf-8")
        assert read_config(path) == whole
        # Complete: every key that is not unset stands in the file.
        text = path.read_text("utf-8")
        for name in keys:
            if value_of_key(whole, name) is not None:
                leaf = name.rsplit(".", 1)[-1]
                assert f"{leaf} = " in text or f".{leaf}]" in text, name

    # A preset without text differences is the same configuration in both variants.
    variants = [
        (name, variant)
        for name in preset_names()
        for variant in ["code", *(["text"] if read_preset(*name.split("/")).text else [])]
    ]
    check_each(check, variants)


def test_a_configuration_of_another_layout_ends_in_one_error(tmp_path):
    path = tmp_path / "config.toml"
    data = 'version = 1\n[data]\ndataset = "s3dis"\n[model]\nheads = 2\nlocal_residual = "inside"\n'
    path.write_text(data)
    with raises(UsageError, naming=["model.attention.heads", "model.local_residual"]):
        read_config(path)


def test_another_kind_begins_with_its_own_keys():
    first = config(model={"attention": {"k": 7}, "local": {"residual": "inside"}})
    none = apply_overrides(first, ["model.attention.kind=none"])
    assert none.model.attention.model_dump() == {"kind": "none"}
    assert none.model.local == first.model.local
    again = apply_overrides(none, ["model.attention.kind=k-mip", "model.attention.heads=2"])
    assert (again.model.attention.k, again.model.attention.heads) == (10, 2)
    assert apply_overrides(first, ["model.attention.kind=k-mip"]) == first


def test_wrong_keys_of_parts_in_files_are_named():
    with raises(UsageError, naming=["model.attention.k", "model.local.residual"]):
        config(model={"attention": {"kind": "none", "k": 3}, "local": {"residual": "sideways"}})


def test_a_short_run_gets_a_short_warm_up():
    for epochs, warmup in ((5, 0), (10, 0), (11, 10), (300, 10)):
        run = with_epochs(load_preset("s3dis"), epochs)
        assert (run.training.epochs, run.schedule.warmup_epochs) == (epochs, warmup)


def test_another_seed_moves_the_split_where_it_follows_the_run():
    preset = load_preset("s3dis").with_seed(2)
    assert preset.training.seed == 2
    assert preset.data.split == {"split_rule": "upstream", "test_area": 6, "split_seed": 2}
    assert "split_seed" not in load_preset("shapenet-part").with_seed(2).data.split


def shown(value):
    """A default as TOML."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return repr(list(value) if isinstance(value, tuple) else value).replace("'", '"')


def test_the_page_has_every_key():
    page = ROOT / "docs" / "keys.md"
    text = page.read_text("utf-8")
    begin, end = text.index("-->", text.index("<!-- keys:")) + 3, text.index("<!-- end of keys -->")
    rows = ["| key | type | default | what |", "|---|---|---|---|"]
    kinds: dict[tuple[str, ...], list[str]] = {}  # of a row that several kinds share
    for key in documented_keys():
        default = "must be given" if key.default is ... else f"`{shown(key.default)}`"
        doc = key.doc.removeprefix(f"{key.kind}: ")
        kinds.setdefault((f"`{key.name}`", key.type, default, doc), []).append(key.kind)
    for (*first, doc), of in kinds.items():
        cells = (*first, f"{', '.join(of)}: {doc}" if any(of) else doc)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    table = "\n\n" + "\n".join(rows) + "\n\n"
    if os.environ.get("KMIP_DATA_WRITE_DOCS"):
        page.write_text(text[:begin] + table + text[end:], encoding="utf-8")
        return
    assert text[begin:end] == table, "run make docs-tables"


def test_a_fault_of_no_single_key_begins_with_its_value():
    with raises(UsageError, naming="foo") as caught:
        apply_overrides(config(), ["training.k_schedule=foo"])
    assert ": :" not in str(caught.value)


def test_keys_of_the_run_and_the_machine_are_not_compared():
    for key in ("preset", "training.seed", "data.split.fold", "data.parameters", "system.device"):
        assert not is_compared(key), key
    for key in ("training.epochs", "data.split_seed_follows_run", "system.nodes", "model.lappe.k"):
        assert is_compared(key), key
