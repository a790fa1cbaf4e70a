"""Links in a run folder lead nowhere: no command writes, removes or changes anything through one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.attacks.links import KINDS, Command, Kind, Sandbox, run_all
from support.builds.learnable import learnable_build
from support.cli import kmip

from kmip_data.builds.home import Home
from kmip_data.models.training.run import fit as fit_file
from kmip_data.models.training.run.loop import Loop

MADE = (
    *(".lock", "map.png", "model.safetensors", "result.json", "checkpoints/best.safetensors"),
    "../.D.lock",
)
SMALL = [
    word
    for key in ("layers=1", "hidden_dim=8", "attention.heads=2", "attention.k=3")
    for word in ("--set", f"model.{key}")
]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Command]:
    """Every command that is given a run, on finished runs and on some that were stopped."""
    home = Home(tmp_path_factory.mktemp("home"))
    build = learnable_build(home.built / "clouds").path
    runs = home.runs / "clouds/gps-kmip"

    def train(name: str, *, place: Path = home.path, epochs: int = 2) -> list[object]:
        words = [
            "train",
            build,
            "--model",
            "gps-kmip",
            "--home",
            place,
            "--epochs",
            epochs,
            "--device",
            "cpu",
            "-q",
        ]
        return [*words, "--name", name, *SMALL]

    def stopped(name: str, *after: object) -> Path:
        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(*after, stop)
            assert kmip(*train(name)).code == 130
        return runs / name

    assert kmip(*train("done")).code == 0
    begun, half = stopped("begun", Loop, "train_epoch"), stopped("half", Loop, "end_epoch")
    saved = stopped("saved", fit_file, "_evaluate_and_write")

    def resume(run: Path) -> list[object]:
        return ["train", "--resume", run, "--home", home.path, "-q"]

    def evaluate(run: Path, *more: object) -> list[object]:
        return ["evaluate", run, "--dataset", build, "--home", home.path, *more]

    return {
        "resume a finished run": Command(runs / "done", resume),
        "resume without a result": Command(
            runs / "done", resume, lambda run: (run / "result.json").unlink()
        ),
        "resume a run that has begun": Command(begun, resume),
        "resume at half": Command(half, resume),
        "resume a trained run": Command(saved, resume),
        "evaluate": Command(runs / "done", evaluate),
    }


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("resume a run that has begun", "metrics.csv"),
        ("resume at half", "checkpoints"),
        ("resume a trained run", "model.safetensors"),
        ("resume without a result", "result.json"),
        ("resume without a result", "../.D.lock"),
        ("resume a trained run", "../.D.lock"),
    ],
)
def test_targets_of_some_links_in_a_run_are_left_unchanged(
    commands: dict[str, Command], tmp_path: Path, command: str, name: str
) -> None:
    assert Sandbox(tmp_path).run(commands[command], name, "bait")


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_no_command_changes_the_target_of_a_link_in_a_run(
    commands: dict[str, Command], tmp_path: Path, kind: Kind, torture_count: Callable[..., None]
) -> None:
    count, failed = run_all(Sandbox(tmp_path), commands, MADE, kind)
    assert not failed, "\n\n".join(failed)
    torture_count("links", count)
