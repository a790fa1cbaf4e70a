"""Anything happens to builds in a home, and nothing is ever read that is not what was built."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from support.attacks.home_machine import EVENTS, KINDS_DONE, STEPS, STEPS_DONE, HomeMachine

LONGEST = 60  #: steps of one home, at most


@pytest.fixture(scope="module", autouse=True)
def _machine(tmp_path_factory: pytest.TempPathFactory) -> None:
    HomeMachine.set_up(tmp_path_factory.mktemp("truths"))


def take_steps(count: int, homes: int, longest: int = LONGEST) -> None:
    """Let at least so many things happen, in so many homes of each seed."""
    for counter in (STEPS_DONE, KINDS_DONE, EVENTS):
        counter.clear()
    for number in itertools.count():
        machine = seed(number)(type("HomeMachine", (HomeMachine,), {}))
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=homes,
                stateful_step_count=longest,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
        if KINDS_DONE.total() >= count:
            return


@pytest.mark.slow
def test_60_random_commands_keep_homes_consistent() -> None:
    """In three homes, of which Hypothesis gives the first the simplest steps."""
    take_steps(61, homes=3, longest=30)
    assert len(STEPS_DONE.keys() & STEPS.keys()) > len(STEPS) / 2, STEPS_DONE


@pytest.mark.torture
@pytest.mark.timeout(7200)
def test_10_000_random_commands_keep_homes_consistent(torture_count: Callable[..., None]) -> None:
    begun = time.process_time()
    take_steps(10_000, homes=40)
    for name, count in (STEPS_DONE + KINDS_DONE + EVENTS).items():
        torture_count(name, count)
    torture_count("seconds of the processor", time.process_time() - begun)
    assert STEPS.keys() <= STEPS_DONE.keys()
    for kind in ("damage", "kill", "files"):
        assert KINDS_DONE[kind] >= KINDS_DONE.total() / 5, KINDS_DONE
