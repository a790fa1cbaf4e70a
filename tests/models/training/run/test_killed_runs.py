"""Killed, or out of room, at any file operation: the command that is named finishes with the same weights."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.killed_runs import TAKES_ROOM, Case, Operation, Outcome, disturb, survey
from support.training_data import learnable_build


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    learnable_build(folder / "build")
    return folder


@pytest.fixture(scope="module")
def operations(place: Path) -> list[Operation]:
    """Every file operation of an undisturbed run of four epochs."""
    return survey(place, place / "build")


def _check(outcomes: list[Outcome], cases: list[Case]) -> None:
    assert [outcome.case for outcome in outcomes] == cases
    assert [outcome for outcome in outcomes if outcome.fault] == []
    for outcome in outcomes:
        if outcome.case.how == "kill":
            assert outcome.status == -signal.SIGKILL, outcome
        else:  # the last room that is asked for is that of the folder, which is synced
            assert outcome.status == 6, outcome
            assert 1 <= len(outcome.commands) <= 2, outcome


def _find(operations: list[Operation], name: str, file: str, which: int = 0) -> int:
    """Index of the operation on a file, or on the half-written one that is to be it."""
    return [i for i, operation in enumerate(operations) if operation.name == name and file in operation.file][
        which
    ]


@pytest.mark.torture  # a process imports PyTorch, twice
def test_a_run_that_is_killed_is_gone_on_with_by_the_command_it_names(
    place: Path, operations: list[Operation]
) -> None:
    cases = [
        Case(_find(operations, "mkdir", "run", -2), "after"),  # the folder is there
        Case(_find(operations, "write", "config.toml"), "middle"),
        Case(_find(operations, "replace", "metrics.csv"), "after"),  # an epoch, and no checkpoint
        Case(_find(operations, "write", "last.ckpt", 1), "middle"),
        Case(_find(operations, "replace", "last.ckpt", 3), "after"),  # trained, and nothing measured
        Case(_find(operations, "replace", "model.safetensors"), "after"),
        Case(_find(operations, "replace", "result.json"), "after"),  # finished, but for the lock
        Case(_find(operations, "open", "config.toml"), how="no-space"),
        Case(_find(operations, "write", "last.ckpt"), how="no-space"),
        Case(_find(operations, "write", "metrics.csv", 2), how="no-space"),
        Case(_find(operations, "write", "result.json"), how="no-space"),
    ]
    _check(disturb(place, place / "build", cases), cases)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
def test_runs_killed_at_200_moments(
    place: Path, operations: list[Operation], part: int, torture_count: Callable[..., None]
) -> None:
    moments = [
        Case(n, when)
        for n, operation in enumerate(operations)
        for when in ("before", "middle", "after")
        if when != "middle" or operation.name == "write"
    ]
    cases = random.Random(0).sample(moments, 200)[part::4]
    _check(disturb(place, place / "build", cases), cases)
    torture_count("kills", len(cases))


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_runs_whose_disk_is_full_from_any_operation_on(
    place: Path, operations: list[Operation], torture_count: Callable[..., None]
) -> None:
    cases = [
        Case(n, how="no-space") for n, operation in enumerate(operations) if operation.name in TAKES_ROOM
    ]
    cases = random.Random(1).sample(cases, 40)
    _check(disturb(place, place / "build", cases), cases)
    torture_count("full disks", len(cases))
