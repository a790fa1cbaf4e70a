"""Two processes learn what one does: batches divided, losses weighed, batch norms shared."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.training_data import OF_THE_MACHINE, learnable_build, read_history, tiny_config
from support.two_processes import free_port, on_two, train_on_two

from kmip_data.builds.home import Home
from kmip_data.cli.train import configuration
from kmip_data.errors import UsageError
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.run.checkpoint import LAST
from kmip_data.models.training.run.folder import read_result
from kmip_data.models.training.run.train import resume, train
from kmip_data.models.training.tasks import LOSSES

ORDER = list(range(16))
#: Train batches of 5: 3 and 2 graphs, twice as many nodes as another; the last batch has one graph for two.
PARTS = {"train": ORDER[:11], "val": ORDER[11:14], "test": ORDER[14:]}
PLAIN = {"norm": "graph-layer", "local": {"kind": "gcn"}, "dropout": 0.0}
NORMED = {"norm": "batch", "local": {"kind": "gated-gcn"}, "dropout": 0.0}
#: Biases before a batch norm, and of keys, have no gradient but rounding errors, which Adam would divide by
#: their own size.
SGD = {"name": "sgd", "momentum": 0.9, "lr": 0.05}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Configurations of one process; those of two have the same names and two devices."""
    build = learnable_build(tmp_path_factory.mktemp("build"), graphs=16, nodes=17, parts=PARTS)
    cases = {
        "plain": {"model": PLAIN, "optimiser": SGD},
        "normed": {"model": NORMED, "optimiser": SGD},
        "recomputed": {"model": {**NORMED, "checkpoint_layers": True}, "optimiser": SGD},
        "whole": {"model": {**NORMED, "dropout": 0.3}},
        "stopped": {"model": {**NORMED, "dropout": 0.3}},
        "stopped-within": {"model": {**NORMED, "dropout": 0.3}, "system": {"checkpoint_every": 1e-9}},
    }
    usual = {"epochs": 2, "batch_size": 5}
    found = {name: tiny_config(build, training=usual, **sections) for name, sections in cases.items()}
    links = configuration(
        "pcqm-contact",
        {},
        {},
        model="gcn",
        variant="code",
        epochs=1,
        sample=True,
        device="cpu",
        overrides=[
            *("model.layers=2", "model.hidden_dim=16", "model.parameter_budget=none", "model.dropout=0"),
            *("training.batch_size=3", "model.positional=none", "model.head_dropout=0"),
        ],
    )
    return {name: config.model_dump(mode="json") for name, config in {**found, "links": links}.items()}


@pytest.fixture(scope="module")
def losses() -> dict[str, Any]:
    """A loss, weights, and the rows and targets of each of two processes."""
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randn(n, 6, generator=draw) for n in (9, 4)]
    classes = [torch.randint(0, c, (len(r),), generator=draw) for r, c in zip(rows, (4, 2), strict=True)]
    values = [torch.randn(len(r), 4, generator=draw) for r in rows]
    values[0][:6, 1:] = math.nan
    labels = [torch.where(v.isnan(), v, (v > 0).float()) for v in values]
    weight = torch.randn(6, 4, generator=draw)
    none = [rows[0], rows[1][:0]]
    found = {name: (name, weight, rows, classes) for name in ("weighted_cross_entropy", "cross_entropy")}
    found |= {"binary_cross_entropy": ("binary_cross_entropy", weight, rows, labels)}
    found |= {"l1": ("l1", weight, rows, values)}
    found |= {"no rows in one": ("weighted_cross_entropy", weight, none, [classes[0], classes[1][:0]])}
    found |= {"one class": ("weighted_cross_entropy", weight, rows, [c * 0 + 2 for c in classes])}
    found |= {"nothing known": ("l1", weight, rows, [v * math.nan for v in values])}
    pairs = [torch.randint(-1, 2, (g, 4, 4), generator=draw).to(torch.int8) for g in (3, 2)]
    found["link_cross_entropy"] = (
        "link_cross_entropy",
        weight,
        [torch.randn(g, 4, 6, generator=draw) for g in (3, 2)],
        pairs,
    )
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, runs: Any, losses: Any) -> Path:
    """Every run by one process, then by two; the losses by two."""
    alone, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for name, values in runs.items():
        if name in {"whole", "stopped", "stopped-within"}:
            continue
        train(config_from_mapping(values, "the test"), home=Home(alone), name=name, quiet=True)
    (two / "built").symlink_to(alone / "built")
    divided = {
        name: {**values, "system": {**values["system"], "devices": 2}} for name, values in runs.items()
    }
    torch.save(train_on_two(two, divided, losses), alone / "losses.pt")
    (alone / "two").symlink_to(two)
    return alone


def _run(home: Path, name: str) -> Path:
    (run,) = (home / "runs").glob(f"*/*/{name}")
    return run


CASES = ["plain", "normed", "recomputed", "links"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_processes_learn_what_one_does(home: Path, name: str) -> None:
    one, two = _run(home, name), _run(home / "two", name)
    within = 1e-5 if name in {"normed", "recomputed"} else 1e-6
    last = [torch.load(run / LAST, weights_only=True)["model"] for run in (one, two)]
    assert last[0].keys() == last[1].keys()
    for key, value in last[0].items():
        torch.testing.assert_close(last[1][key], value, rtol=within, atol=within)
    pairs = [*zip(read_history(one), read_history(two), strict=True)]
    for rows in pairs:  # every graph is counted once
        nodes, also = (row["nodes_per_second"] / row["graphs_per_second"] for row in rows)
        assert nodes == pytest.approx(also)
    pairs += [(values, read_result(two).metrics[part]) for part, values in read_result(one).metrics.items()]
    for alone, shared in pairs:
        for column in alone.keys() - OF_THE_MACHINE:
            # Nodes that look alike have equal scores but for rounding, which decides their ranks.
            near = 0.02 if "mrr" in column or "hits" in column else 10 * within
            assert shared[column] == pytest.approx(alone[column], rel=near, abs=near), column


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stopped", "stopped-within"])
def test_each_process_goes_on_with_draws_of_its_own(home: Path, name: str) -> None:
    whole, stopped = (
        torch.load(_run(home / "two", name) / LAST, weights_only=True) for name in ("whole", name)
    )
    for one, two in zip(*(read_history(_run(home / "two", run)) for run in ("whole", name)), strict=True):
        assert {**one, **dict.fromkeys(OF_THE_MACHINE)} == {**two, **dict.fromkeys(OF_THE_MACHINE)}
    assert not torch.equal(*(process["random"]["torch"] for process in whole["processes"]))
    for name, value in whole["model"].items():
        assert torch.equal(stopped["model"][name], value), name


@pytest.mark.slow
def test_losses_of_rows_dealt_to_two_are_those_of_all(home: Path, losses: Any) -> None:
    found = torch.load(home / "losses.pt")
    for case, (name, begun, rows, targets) in losses.items():
        weight = begun.clone().requires_grad_()
        loss = LOSSES[name](torch.cat(rows) @ weight, torch.cat(targets))
        loss.backward()
        whole, gradient = found[case]
        torch.testing.assert_close(whole, loss.detach(), rtol=1e-6, atol=1e-7, msg=case)
        torch.testing.assert_close(gradient, weight.grad, rtol=1e-5, atol=1e-7, msg=case)


def test_a_batch_that_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    config = tiny_config(
        learnable_build(tmp_path / "build"), training={"batch_size": 1}, system={"devices": 2}
    )
    with pytest.raises(UsageError, match="A batch of 1 graph cannot be divided") as refused:
        train(config, home=Home(tmp_path), quiet=True)
    assert "training.batch_size=2" in str(refused.value)


@pytest.mark.torture
def test_two_nodes_of_torchrun_make_one_run(tmp_path: Path) -> None:
    build = learnable_build(tmp_path / "build", graphs=12)
    small = [
        "model.layers=1",
        "model.hidden_dim=8",
        "model.attention.heads=2",
        "model.attention.k=3",
        "training.batch_size=3",
    ]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    torchrun += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    command = ["-m", "kmip_data", "train", "--dataset", str(build.path), "--device", "cpu", "--json"]
    command += ["--home", str(tmp_path), "--name", "nodes", "--epochs", "2", "--set", "system.nodes=2"]
    command += [word for key in small for word in ("--set", key)]
    outputs = on_two(*([*torchrun, "--node-rank", rank, *command] for rank in "01"))
    found = json.loads(outputs[0])
    assert not outputs[1].strip()
    run = _run(tmp_path, "nodes")
    assert found["run"] == str(run)
    assert read_result(run).config["system"]["nodes"] == 2
    assert resume(run, home=Home(tmp_path), quiet=True).results[0].metrics == found["metrics"]
