"""Resuming or starting a run whose trainer is still alive: one of the two processes is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.forks import NEVER, Writer, count, play
from support.links import difference, states
from support.training_data import learnable_build

from kmip_data.cli.main import run

SMALL = ("layers=1", "hidden_dim=8", "attention.heads=2", "attention.k=3")


def rounds(folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """Hold a training at each of its changes, while another command takes its run."""
    learnable_build(folder / "build")
    home, said = folder / "home", folder / "count.said"
    runs = home / "runs/clouds/gps-kmip"

    def train(place: Path = home) -> int:
        words = ["train", "--dataset", str(folder / "build"), "--home", str(place), "--epochs", "2", "-q"]
        words += ["--device", "cpu", "--set", "training.batch_size=4", "--name", "run"]
        return run([*words, *(word for key in SMALL for word in ("--set", f"model.{key}"))])

    def resume() -> int:
        return run(["train", "--resume", str(runs / "run"), "--home", str(home), "-q"])

    assert train(folder / "whole") == 0  # imports and kernels: what every fork begins with
    weights = (folder / "whole/runs/clouds/gps-kmip/run/model.safetensors").read_bytes()

    def round_(n: int, second: Callable[[], int]) -> str:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        one = Writer(train, home, n, folder / "a.said")
        one.until_held()
        before = states(home)
        two = Writer(second, home, NEVER, folder / "b.said")
        state, after = two.until_held(), states(home)
        codes = one.finish(), two.finish()
        said = f"{one.operation}: {codes} {state}\n{one.said.read_text()}{two.said.read_text()}"
        if "Traceback" in said or sorted(codes) not in ([0, 0], [0, 2]):
            return said
        if codes[0] == 0 and after != before:
            return f"{said}\n{difference(before, after)}"
        if (runs / "run/model.safetensors").read_bytes() != weights:
            return f"other weights: {said}"
        left = [path.name for path in runs.rglob("*") if "partial" in path.name]
        left += [path.name for path in runs.iterdir() if path.name != "run"]
        return f"left: {left}, {said}" if left else ""

    home.mkdir()
    for n in range(count(train, home, said)):
        yield f"{n}, resume", lambda n=n: round_(n, resume)
        yield f"{n}, the same name", lambda n=n: round_(n, train)


def test_a_live_run_is_not_resumed(tmp_path: Path) -> None:
    assert play(rounds(tmp_path), most=3) == 3


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(2))
def test_a_live_run_is_not_resumed_at_any_moment(
    tmp_path: Path, part: int, torture_count: Callable[..., None]
) -> None:
    torture_count("two writers", play(rounds(tmp_path), most=60, part=part, parts=2))
