"""Anything happens to builds in a home, and nothing is ever read that is not what was built."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from support.attacks.home_machine import EVENTS, KINDS_DONE, STEPS, STEPS_DONE, HomeMachine

STEPS_OF_A_HOME = 60  #: at most
HOMES_OF_A_SEED = 40


def take_steps(count: int) -> None:
    """Let at least so many things happen."""
    for number in itertools.count():
        machine = seed(number)(type("HomeMachine", (HomeMachine,), {}))
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=HOMES_OF_A_SEED,
                stateful_step_count=STEPS_OF_A_HOME,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
        if KINDS_DONE.total() >= count:
            return


@pytest.mark.torture
@pytest.mark.timeout(7200)
def test_10_000_random_commands_keep_homes_consistent(
    tmp_path: Path, torture_count: Callable[..., None]
) -> None:
    HomeMachine.set_up(tmp_path)
    begun = time.process_time()
    take_steps(10_000)
    for name, count in (STEPS_DONE + KINDS_DONE + EVENTS).items():
        torture_count(name, count)
    torture_count("seconds of the processor", time.process_time() - begun)
    assert STEPS.keys() <= STEPS_DONE.keys()
    for kind in ("damage", "kill", "files"):
        assert KINDS_DONE[kind] >= KINDS_DONE.total() / 6, KINDS_DONE
