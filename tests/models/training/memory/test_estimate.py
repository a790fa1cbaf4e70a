"""A step that will not fit is refused before any work, with what would make it fit."""

from __future__ import annotations

import pytest
from support.city_data import streets_build
from support.cli import kmip
from support.training_data import learnable_build, tiny_config

from kmip_data.builds.home import Home
from kmip_data.errors import OutOfResources
from kmip_data.models.kinds import Size
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.data.obtain import open_data
from kmip_data.models.training.memory import estimate as memory
from kmip_data.models.training.memory.counting import count_kept
from kmip_data.models.training.memory.machine import Device

GIB = 2**30
BATCH = Size(8, 8 * 4096, 8 * 4096 * 3)
CPU = Device("cpu", "cpu", "asked for")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    build = learnable_build(folder / "build")
    return open_data(tiny_config(build, training={"batch_size": 8}), home=Home(folder))


def test_more_of_anything_needs_more_memory(data):
    def peak(*changes, size=BATCH, recompute=False):
        config = apply_overrides(data.config, list(changes))
        return memory.estimate(count_kept(config, data, size), recompute=recompute).new

    need = peak()
    assert peak(size=Size(4, BATCH.nodes // 2, BATCH.edges // 2)) == pytest.approx(need / 2, rel=0.02)
    assert peak("model.layers=9") > need
    assert peak("model.attention.k=10") > need
    assert peak("model.layers=9", recompute=True) < peak("model.layers=9")


def test_an_average_and_several_best_epochs_are_counted(data, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda _: 64 * GIB)
    plain, more = (
        memory.plan_memory(apply_overrides(data.config, list(changes)), data, CPU).parameters
        for changes in ((), ("training.ema=0.9", "training.keep_best=4"))
    )
    assert more == plain // memory.COPIES * (memory.COPIES + 5)


def test_layers_are_recomputed_where_nothing_else_fits(data, monkeypatch):
    monkeypatch.setattr(data.__class__, "largest_batch", BATCH)
    config = apply_overrides(data.config, ["model.layers=8"])
    kept = count_kept(config, data, BATCH)
    plain, lean = (memory.estimate(kept, recompute=recompute).new for recompute in (False, True))
    chosen = {}
    for free in (plain, int(0.9 * lean)):
        monkeypatch.setattr(memory, "free_bytes", lambda _, free=free: free)
        chosen[free] = memory.plan_memory(config, data, CPU).recompute
    assert list(chosen.values()) == [False, True]
    fixed = apply_overrides(config, ["model.checkpoint_layers=false"])
    with pytest.raises(OutOfResources, match="checkpoint_layers=true"):
        memory.plan_memory(fixed, data, CPU)


def test_a_step_that_does_not_fit_is_refused_with_ways_out(data, monkeypatch):
    monkeypatch.setattr(data.__class__, "largest_batch", BATCH)
    monkeypatch.setattr(memory, "free_bytes", lambda _: 2**26)
    config = apply_overrides(data.config, ["model.layers=8", "model.hidden_dim=64"])
    with pytest.raises(OutOfResources) as caught:
        memory.plan_memory(config, data, CPU)
    text = str(caught.value)
    assert "8 graphs, 32,768 nodes, 98,304 edges" in text
    assert "64 MiB free" in text
    assert "--set training.batch_size=4 --set training.accumulate=4" in text
    assert caught.value.exit_code == 6


@pytest.mark.parametrize(
    ("model", "free", "ways"),
    [
        ("gps-transformer", 64 * GIB, ["--set model.attention.dropout=0 (the weights of all pairs"]),
        ("gps-bigbird", GIB // 2, []),
    ],
)
def test_the_command_line_refuses_a_graph_that_does_not_fit(tmp_path, monkeypatch, model, free, ways):
    """Full attention with dropout by the pairs of its nodes, BigBird by what it gathers."""
    build = streets_build(tmp_path / "build", nodes=60_000)
    monkeypatch.setattr(memory, "free_bytes", lambda _: free)
    changes = ["layers=16", "hidden_dim=64", *(["attention.dropout=0.5"] if ways else [])]
    options = [part for change in changes for part in ("--set", f"model.{change}")]
    arguments = ["train", "--dataset", build.path, "--model", model, *options, "--device", "cpu"]
    done = kmip(*arguments, "--home", tmp_path / "home", "--quiet")
    assert done.code == OutOfResources.exit_code
    assert "A training step will not fit into memory" in done.err
    assert "1 graph, 60,000 nodes" in done.err
    for way in (*ways, "--neighbor-sampling 10,10"):
        assert way in done.err
    assert not list((tmp_path / "home").glob("runs/*/*/*"))


def test_a_control_group_limits_what_is_free(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    monkeypatch.setattr(memory, "Path", lambda _: tmp_path)
    assert memory.free_bytes() == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_bytes() > 10**6
