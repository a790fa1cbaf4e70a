"""Anything happens to builds in a home, and nothing is ever read that is not what was built."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from support.attacks.home_machine import COUNTS, GROUPS, KINDS, HomeMachine, make_truths

HOMES = 10  #: of one seed
LONGEST = 50  #: steps of one home, at most


@pytest.fixture(scope="module", autouse=True)
def _truths(tmp_path_factory: pytest.TempPathFactory) -> None:
    make_truths(tmp_path_factory.mktemp("truths"))


def run(steps: int) -> None:
    """Let at least so many things happen, in homes of one seed after the other."""
    for counter in (COUNTS, GROUPS, KINDS):
        counter.clear()
    for number in itertools.count():
        machine = seed(number)(type("HomeMachine", (HomeMachine,), {}))
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=HOMES,
                stateful_step_count=LONGEST,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
        if GROUPS.total() >= steps:
            return


@pytest.mark.slow
def test_300_steps() -> None:
    run(300)
    assert min(GROUPS.values()) > 0


@pytest.mark.torture
@pytest.mark.timeout(7200)
def test_10_000_steps(torture_count: Callable[..., None]) -> None:
    begun = time.process_time()
    run(10_000)
    for name, count in (COUNTS + KINDS).items():
        torture_count(name, count)
    torture_count("seconds of the processor", time.process_time() - begun)
    for group in ("damage", "kill", "files"):
        assert GROUPS[group] >= GROUPS.total() / 5, GROUPS
