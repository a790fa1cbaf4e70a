"""The power is cut at any moment: what the next command says is true, and it ends with the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.attacks.home_model import EDGES, LABELS, NODES
from support.attacks.power_cuts import Disk, recorded
from support.cases import read_contents
from support.cli import expect_success, kmip

from kmip_data.format.build_files import CROISSANT_NAME
from kmip_data.format.card import CARD_NAME

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    tables = {"edges.csv": EDGES, "nodes.csv": NODES, "graphs.csv": LABELS}
    for name, text in tables.items():
        (folder / name).write_text(text)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a build that have the same bytes on every day."""
    files = read_contents(folder)
    return {name: data for name, data in files.items() if name != CROISSANT_NAME}


def every(disk: Disk, step: int) -> list[int]:
    """Return the numbers of the states that a test looks at, with the last."""
    return sorted({*range(0, len(disk.states), step), len(disk.states) - 1})


def check_builds(graphs: Path, folder: Path, step: int) -> int:
    home = folder / "home"
    home.mkdir()
    target = home / "built" / "own"
    line = (
        *("build", "graphs", "--name", "own", "--archive", graphs, "--set", "feature=mass"),
        *("--output", target, "--home", home, "--jobs", "1", "-q"),
    )
    with recorded(home) as disk:
        expect_success(*line)
        expect_success("encode", target, "rwse3", "--jobs", "1", "-q", "--home", home)
    whole = files_of(target)

    numbers = every(disk, step)
    for number in numbers:
        disk.put(disk.states[number])
        if (target / CARD_NAME).is_file():
            assert kmip("verify", target, "--home", home).code == 0, number
        expect_success(*line)
        expect_success("encode", target, "rwse3", "--jobs", "1", "-q", "--home", home)
        assert files_of(target) == whole, number
    return len(numbers)


def check_pushes(graphs: Path, folder: Path, step: int) -> int:
    home = folder / "home"
    target = home / "built" / "own"
    line = ("build", "graphs", "--name", "own", "--archive", graphs, "--set", "feature=mass")
    expect_success(*line, "--output", target, "--home", home, "--jobs", "1", "-q")
    whole = files_of(target)
    place = folder / "disk"
    place.mkdir()
    address = place / "pushed"
    with recorded(place) as disk:
        expect_success("push", target, address, "-q", "--home", home)

    numbers = every(disk, step)
    for number in numbers:
        disk.put(disk.states[number])
        pull = ("pull", address, "--home", home, "-q", "--output")
        early = folder / f"early-{number}"
        outcome = kmip(*pull, early)
        if outcome.code == 0:
            assert files_of(early) == whole, number
        else:
            assert str(address) in outcome.err, number
        expect_success("push", target, address, "-q", "--home", home)
        expect_success(*pull, folder / f"late-{number}")
        assert files_of(folder / f"late-{number}") == whole, number
    return len(numbers)


def test_a_build_and_its_column_survive_a_power_cut(graphs: Path, tmp_path: Path) -> None:
    check_builds(graphs, tmp_path, 12)


def test_a_push_survives_a_power_cut(graphs: Path, tmp_path: Path) -> None:
    check_pushes(graphs, tmp_path, 6)


@pytest.mark.torture
def test_power_cuts_at_every_moment(
    graphs: Path, tmp_path: Path, torture_count: Callable[..., None]
) -> None:
    for name, check in {"builds": check_builds, "pushes": check_pushes}.items():
        (tmp_path / name).mkdir()
        torture_count(f"power cuts of {name}", check(graphs, tmp_path / name, 1))
