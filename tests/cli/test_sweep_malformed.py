"""Rules of ``sweep`` and ``report`` in homes that somebody else has changed."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.builds.learnable import learnable_build
from support.cases import check_each, read_contents
from support.cli import expect_refusal, expect_success, kmip
from support.runs.sweeps import SMALL, write_plan

MINE = b"years of work"


@pytest.fixture
def plan(home: Path, tmp_path: Path, stand_in: None) -> Path:
    """One run on data that are there, by the stand-in for training."""
    learnable_build(home / "built/clouds")
    return write_plan(tmp_path / "small.toml", set=SMALL, models=["gps-none"], seeds=[0])


@pytest.mark.timeout(600)  # a pipe that is waited for
def test_nothing_is_written_through_a_link_or_into_a_pipe(home, plan, tmp_path):
    run = expect_success("sweep", plan, "--dry-run", "--json").json["runs"][0]["name"]
    log, outside = f"sweeps/small/clouds.gps-none.{run}.log", tmp_path / "outside"
    parents = ("sweeps", "sweeps/small", "runs", "runs/clouds", "runs/clouds/gps-none")
    cases = [(name, "folder") for name in (*parents, f"runs/clouds/gps-none/{run}")]
    cases += [
        (log, kind) for kind in ("link", "dangling", "hard link", "pipe", "folder of its name")
    ]

    def check(case):
        name, kind = case
        for top in (home / "sweeps", home / "runs"):
            top.unlink() if top.is_symlink() else shutil.rmtree(top, ignore_errors=True)
        shutil.rmtree(outside, ignore_errors=True)
        outside.mkdir()
        (outside / "mine").write_bytes(MINE)
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "hard link":
            path.hardlink_to(outside / "mine")
        elif kind == "folder of its name":
            path.mkdir()
        else:
            path.symlink_to(
                {"folder": outside, "link": outside / "mine", "dangling": outside / "new"}[kind]
            )
        outcome = kmip("sweep", plan, "-q")
        assert outcome.code == 2, outcome.err
        assert read_contents(outside) == {"mine": MINE}

    check_each(check, cases)


def test_a_plan_has_at_most_ten_thousand_runs(home, tmp_path):
    """Counted before anything is expanded: a plan that is expanded runs into the limit of memory."""
    names = [f"d{number}" for number in range(200)]
    changes = [{"name": f"c{number}"} for number in range(600)]
    plans: list[dict[str, Any]] = [
        {"seeds": "0..300000000"},
        {"seeds": "0..10000", "models": ["gcn"]},  # one too many
        {"changes": changes, "models": names, "datasets": names, "seeds": "0..9"},
        {"set_of": {"gps-kmip": ["x" * 2_000_000]}},  # a large file
    ]
    lines = [[str(write_plan(tmp_path / f"p{n}.toml", **keys))] for n, keys in enumerate(plans)]
    of_line = ["malnet", "--dataset", "helsinki", "--model"]
    many = ",".join(f"m{i}" for i in range(10_001))
    lines += [[*of_line, "gcn", "--seeds", "0..9999,10000"], [*of_line, many]]
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + (6 << 30), hard))
    try:
        for words in lines:
            message = expect_refusal("sweep", *words, "--dry-run", "--home", home)
            assert re.search("10,000|1,048,576|at most 1000", message), words[0][:80]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _odd_homes(home: Path, run: Path, plan: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name of each strange file that a sweep may find, and a function that makes it."""
    log = home / f"sweeps/small/clouds.gps-none.{run.name}.log"
    lock = run.parent / f".{run.name}.lock"
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").unlink()
    for data in (b"\xff\xfe\n", b"Error: \0\x1b[31m\n"):
        yield f"log {data!r}", lambda data=data: log.write_bytes(data)
    yield "log a pipe", lambda: (log.unlink(), os.mkfifo(log))
    yield "lock a folder", lambda: lock.mkdir(parents=True)
    seconds = b"epoch,seconds\n0,"
    for data in (b"\xff", seconds + b"1e308\n1,1e308\n", seconds + b"nan,1,2\n\0"):
        yield f"metrics {data[:20]!r}", lambda data=data: (run / "metrics.csv").write_bytes(data)
    for data in (b"\xff", b"training = 3", b"[training]\nepochs = 1e400", b"a" * 99_999):
        yield f"config {data[:20]!r}", lambda data=data: (run / "config.toml").write_bytes(data)
    odd: list[Any] = [[], None, {}, {**result, "metrics": []}, {**result, "metric": "\ud800"}]
    odd += [
        {**result, "seed": 10**400},
        {**result, "seconds": {"train_epoch": 1e308, "total": 1e308}},
    ]
    odd += [
        {**result, "config": {"data": {"dataset": "\0"}}},
        {**result, "versions": {"kmip-data": 3}},
    ]
    for number, value in enumerate(odd):
        yield (
            f"result {number}",
            lambda value=value: (run / "result.json").write_text(json.dumps(value)),
        )
    yield "result a pipe", lambda: ((run / "result.json").unlink(), os.mkfifo(run / "result.json"))
    for name in ("a[b", "a\nb", os.fsdecode(b"\xff"), "small-0123abcd-seed99999999999999999999"):
        yield f"run called {name!r}", lambda name=name: shutil.copytree(run, run.parent / name)
    yield "plan with NUL", lambda: plan.write_bytes(b'about = "\0"')
    yield "plan not UTF-8", lambda: plan.write_bytes(b"\xff")
    yield "plan with a NUL name", lambda: write_plan(plan, datasets=["\0"], models=["a\0"])


def test_a_strange_home_ends_in_a_usual_error(home, plan, tmp_path):
    expect_success("sweep", plan, "-q")
    good, text = tmp_path / "good", plan.read_bytes()
    shutil.copytree(home, good)
    [run] = (home / "runs/clouds/gps-none").iterdir()

    def check(case):
        name, change = case
        shutil.rmtree(home)
        shutil.copytree(good, home)
        plan.write_bytes(text)
        if not name.startswith("result"):
            (run / "result.json").unlink()
        change()
        html = ["report", plan, "--format", "html"]
        for words in (["sweep", plan, "--status"], ["runs"], ["report"], html):
            outcome = kmip(*words)
            assert outcome.code in {0, 2, 4}, (words[0], outcome.err[:300])

    check_each(check, list(_odd_homes(home, run, plan)))


def test_status_includes_runs_with_other_options(home, plan):
    for options in ("--epochs 3", "--set model.layers=2", "--seeds 4", "--model gcn"):
        expect_success("sweep", plan, *options.split(), "-q")
    status = kmip("sweep", plan, "--status", "--json").json
    runs = [(run["model"], run["name"][-5:], run["state"]) for run in status["runs"]]
    assert sorted(runs) == [
        ("gcn", "seed0", "done"),
        *(("gps-none", f"seed{s}", "done") for s in (0, 0, 4)),
    ]
