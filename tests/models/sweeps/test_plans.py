"""Plans, what they must not say, and every run of theirs, with the command that trains it."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path

import click
import pytest
from support.builds.learnable import learnable_build
from support.cases import check_each
from support.raises import raises
from support.runs.sweeps import write_plan

from kmip_data.builds.home import Home
from kmip_data.cli.main import root
from kmip_data.errors import Command, Setting, UsageError
from kmip_data.models.sweeps.plans import (
    add_grid,
    changed_keys_digest,
    expand_plan,
    read_sweep_plan,
    sweep_names,
)
from kmip_data.models.sweeps.runs_by_name import select_runs
from kmip_data.models.training.config.compose import SAMPLE_EPOCHS, compose_configuration
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for_data

CHANGES = [
    {"name": "as-it-is"},
    {"name": "k5", "set": ["model.attention.k=5"], "models": ["gps-kmip"]},
    {"name": "deep", "set": ["model.layers=20"], "datasets": ["paris"]},
]
AXES = {"datasets": ["helsinki", "paris"], "models": ["gps-kmip", "gcn"], "seeds": "0..2"}


@pytest.fixture
def home(tmp_path) -> Home:
    return Home.locate(tmp_path / "home")


def plan_of(tmp_path, **keys):
    return read_sweep_plan(str(write_plan(tmp_path / "plan.toml", **keys)))


def test_runs_equal_nested_loops_over_the_axes(tmp_path, home):
    expected = [
        (dataset, model, change["name"], seed)
        for dataset in AXES["datasets"]
        for model in AXES["models"]
        for change in CHANGES
        if change["name"] != "k5" or model == "gps-kmip"
        if change["name"] != "deep" or dataset == "paris"
        for seed in range(3)
    ]
    runs = expand_plan(plan_of(tmp_path, **AXES, changes=CHANGES), home)
    assert [(run.dataset, run.model, run.change, run.seed) for run in runs] == expected
    assert len({run.folder for run in runs}) == len(runs)


def test_the_command_of_a_run_has_its_configuration(tmp_path, home):
    settings = ["optimizer.lr=3e-3", "model.dropout=0.3"]
    keys = {**AXES, "set": settings, "epochs": 7, "variant": "text", "changes": CHANGES}
    runs = expand_plan(plan_of(tmp_path, **keys), home)
    sample = learnable_build(tmp_path / "sample", sample=True)
    [short] = expand_plan(
        plan_of(tmp_path, datasets=[str(sample.path)], models=["gcn"], seeds=[0]), home
    )
    assert short.config.training.epochs == SAMPLE_EPOCHS
    for run in (*runs, short):
        words = list(run.command[1:])
        context = root.get_command(None, "train").make_context("train", words)
        params = context.params
        options = {name: params[name] for name in ("model", "variant", "epochs", "overrides")}
        with click.Context(context.command):
            config = compose_configuration(params["positional"], {}, {}, home=home, **options)
        assert config.with_seed(int(params["seeds"])) == run.config
        assert params["name"] == run.folder.name
        assert params["home"] == home


#: Runs of the paper's searches: upstream's linear_hp_search has as many, without the combinations.
SEARCHES = {"paper-search": 4 * (13 + 3 * 11), "paper-search-city": 12 + 7 * 10}


def test_the_shipped_plans_are_right_in_every_run(home):
    def check(name):
        plan = read_sweep_plan(name)
        assert (plan.name, plan.about[-1]) == (name, ".")
        runs = expand_plan(plan, home)
        assert len(runs) == SEARCHES.get(name, len(runs))
        assert not home.path.exists()

    check_each(check, sweep_names())
    assert set(read_sweep_plan("small-cities").models) == {
        *read_sweep_plan("paper-city").models,
        "mlp",
        "gps-none",
    }


def test_settings_of_a_dataset_and_a_model_apply_to_their_runs(tmp_path, home):
    of = {"gps-kmip": ["model.attention.k=5"], "paris": ["model.layers=3"]}
    for run in expand_plan(plan_of(tmp_path, **AXES, set=["model.layers=4"], set_of=of), home):
        assert run.config.model.layers == (3 if run.dataset == "paris" else 4)
        assert getattr(run.config.model.attention, "k", 5) == 5


def test_seeds_of_a_model_and_exclusions_are_applied(tmp_path, home):
    of = {"gcn": [5], "paris/gcn": "1..2"}
    plan = plan_of(tmp_path, **AXES, seeds_of=of, leave_out=["helsinki/gps-kmip"])
    runs = [(run.dataset, run.model, run.seed) for run in expand_plan(plan, home)]
    paris = [
        *(("paris", "gps-kmip", seed) for seed in range(3)),
        *(("paris", "gcn", s) for s in (1, 2)),
    ]
    assert runs == [("helsinki", "gcn", 5), *paris]
    without = plan_of(tmp_path, **AXES, leave_out=["gcn"])
    assert {run.model for run in expand_plan(without, home)} == {"gps-kmip"}


def test_a_digest_depends_on_changed_settings_but_not_on_the_preset_name():
    config = config_for_data("helsinki", "gps-kmip")
    other = config.with_seed(0).model_copy(update={"preset": "another"})
    assert changed_keys_digest(config) == changed_keys_digest(other)
    changes = (
        "model.layers=3",
        "optimizer.lr=1",
        "training.epochs=3",
        "model.attention.kind=performer",
    )
    others = {changed_keys_digest(apply_overrides(config, [change])) for change in changes}
    assert len(others | {changed_keys_digest(config)}) == 5


def test_a_plan_accepts_user_builds_as_datasets(tmp_path, home):
    build = learnable_build(home.built / "clouds")
    sample = learnable_build(tmp_path / "elsewhere", sample=True)
    datasets = ["clouds", str(build.path), str(sample.path)]
    runs = expand_plan(plan_of(tmp_path, datasets=datasets, models=["gps-kmip"], seeds=[0]), home)
    assert [run.folder.parents[1].name for run in runs] == ["clouds", "clouds", "clouds-sample"]
    assert [run.config.data.dataset for run in runs] == datasets


def test_every_run_is_checked_before_any_starts(tmp_path, home):
    def check(case):
        keys, value = case
        with raises(UsageError, naming=value):
            expand_plan(plan_of(tmp_path, **keys), home)

    helsinki = {"datasets": ["helsinki"]}
    cases = [
        ({"datasets": ["helsinki", "city"]}, "city"),
        (helsinki | {"variant": "txt"}, "'text'"),
        (helsinki | {"set": ["optimizer.lr=much"]}, "much"),
        ({"datasets": ["s3dis"], "set": ["data.parameters.kk=1"]}, "kk"),
        ({"datasets": ["/nowhere/at-all"]}, "nowhere"),
    ]
    check_each(check, cases)
    only = plan_of(tmp_path, **helsinki, models=["gcn"], changes=[{"name": "a", "models": ["gcn"]}])
    with raises(UsageError, steps=Command("kmip-data sweep --dataset helsinki --model gat")):
        expand_plan(only.model_copy(update={"models": ("gat",)}), home)
    assert (
        len(expand_plan(plan_of(tmp_path, **helsinki, models=["gcn", "gcn"], seeds=[0, 0]), home))
        == 1
    )


def test_malformed_plan_values_are_named(tmp_path):
    def check(case):
        keys, named = case
        with raises(UsageError, naming=named):
            read_sweep_plan(str(write_plan(tmp_path / "wrong.toml", **keys)))

    twice = [{"name": "a"}, {"name": "a"}]
    cases = [
        ({"modelz": ["gcn"]}, "'models'"),
        ({"changes": [{"name": "a", "sets": []}]}, "sets"),
        ({"set": {"lr": 1}}, "set"),
        ({"changes": twice}, "changes"),
        ({"set_of": {"gin": []}}, ["set_of", "gin"]),
        ({"then": "best-of-each", "changes": [{"name": "a", "variant": "text"}]}, "then"),
        ({"changes": [{"name": "a", "models": ["gin"]}]}, ["a", "gin"]),
        ({"seeds_of": {"clouds/gin": [0]}}, ["seeds_of", "clouds/gin"]),
        ({"seeds_of": {"gps-kmip": "3..1"}}, "seeds_of.gps-kmip"),
        ({"leave_out": ["gin"]}, ["leave_out", "gin"]),
        ({"changes": [{"name": "a/b"}]}, "changes.0.name"),
        ({"seeds": "3..1"}, "seeds"),
        ({"seeds": "many"}, "seeds"),
        ({"seeds": [-1]}, "seeds.0"),
        ({"epochs": 0}, "epochs"),
        ({"choose": "test"}, "choose"),
    ]
    check_each(check, cases)


def test_file_without_plan_is_refused(tmp_path: Path):
    (tmp_path / "no.toml").write_text("about = ")
    for path in (tmp_path / "no.toml", tmp_path / "absent.toml"):
        with raises(UsageError, naming=path):
            read_sweep_plan(str(path))


GRIDS = [
    ["optimizer.lr=0.01,0.001"],
    ["optimizer.lr=0.01, 0.001", "model.layers=2,3,4", "training.epochs=7"],
    ["model.attention.k=5,10", "optimizer.name=adam,sgd"],
    ["model.attention.k=[5,6],7", "model.layers=2"],
    ["model.dropout=0.1,0.2", "optimizer.betas=0.8,0.9"],
    ["training.precision=32"],
]


@pytest.mark.parametrize("settings", GRIDS, ids=" ".join)
def test_a_grid_trains_each_combination_of_values(home, settings):
    values = {
        "optimizer.lr=0.01, 0.001": ["0.01", "0.001"],
        "model.attention.k=[5,6],7": ["[5,6]", "7"],
        "optimizer.betas=0.8,0.9": ["0.8,0.9"],
    }
    axes = []
    for setting in settings:
        key, _, text = setting.partition("=")
        axes.append([f"{key}={value}" for value in values.get(setting, text.split(","))])
    plan = read_sweep_plan(None).model_copy(update={"datasets": ("helsinki",), "seeds": (0, 1)})
    runs = expand_plan(add_grid(plan, settings), home)

    base = config_for_data("helsinki", "gps-kmip", None)
    expected = [apply_overrides(base, combination) for combination in product(*axes)]
    assert [run.config for run in runs if run.seed == 0] == [
        config.with_seed(0) for config in expected
    ]
    assert len({run.folder for run in runs}) == len(runs) == 2 * len(expected)
    for run in runs:  # the command of a run sets the same values
        words = run.command
        overrides = [value for option, value in pairwise(words) if option == "--set"]
        assert apply_overrides(base, overrides).with_seed(run.seed) == run.config


@pytest.mark.parametrize("settings", GRIDS, ids=" ".join)
def test_runs_of_a_grid_are_found_by_the_name_of_their_sweep(tmp_path, home, settings):
    expected = {}
    for name in ("sweep", "sweep-two", "small-cities"):
        values = {"name": name, "datasets": ("helsinki",), "seeds": (0,)}
        plan = read_sweep_plan(None).model_copy(update=values)
        (home.path / "sweeps" / name).mkdir(parents=True)
        expected[name] = sorted(run.folder for run in expand_plan(add_grid(plan, settings), home))
        for folder in expected[name]:
            folder.mkdir(parents=True)
            (folder / "config.toml").touch()
    for name, folders in expected.items():
        assert select_runs([name], home) == folders


def test_a_grid_that_means_nothing_is_refused(tmp_path, home):
    plan = read_sweep_plan(None).model_copy(update={"datasets": ("helsinki",)})
    with pytest.raises(UsageError) as error:
        add_grid(plan, ["training.precision=32,32"])
    assert error.value.steps[-1] == Setting({"training.precision": "[32,32]"})
    many = [f"model.layers={','.join(map(str, range(1, 101)))}"]
    with raises(UsageError, naming=100**3):
        add_grid(plan, [*many, many[0].replace("layers", "heads"), many[0].replace("layers", "k")])
    with raises(UsageError, steps=Setting({"optimizer.lr": "0.01"})):
        add_grid(plan_of(tmp_path, **AXES, changes=CHANGES), ["optimizer.lr=0.01,0.001"])
    with raises(UsageError, naming="much"):
        expand_plan(add_grid(plan, ["optimizer.lr=0.01,much"]), home)
