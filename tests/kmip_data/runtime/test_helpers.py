"""Work shared with helper threads: every part once, errors raised, nothing left running."""

import os
import threading
import time
from itertools import pairwise

import pytest

from kmip_data.runtime.threads import HelperThreads


def running():
    return [thread for thread in threading.enumerate() if thread.name.startswith("kmip-data-help")]


@pytest.fixture
def helpers():
    helpers = HelperThreads(3)
    yield helpers
    helpers.close()


@pytest.mark.parametrize("bounds", [[0, 9], [0, 4, 9], [0, 1, 2, 3, 9], list(range(30)), [0, 0, 5]])
def test_every_part_once(helpers, bounds):
    seen = []
    helpers.run(lambda start, stop: seen.append((start, stop)), bounds)
    assert sorted(seen) == sorted(pairwise(bounds))


def test_parts_run_at_the_same_time(helpers):
    barrier = threading.Barrier(4, timeout=600)
    threads = set()

    def work(start, stop):
        barrier.wait()
        threads.add(threading.current_thread())

    helpers.run(work, [0, 1, 2, 3, 4])
    assert len(threads) == 4
    assert threading.current_thread() in threads


@pytest.mark.parametrize("broken", [0, 1, 3])
def test_errors_are_raised_after_all_parts_ended(helpers, broken):
    ended = []

    def work(start, stop):
        if start == broken:
            message = "this part"
            raise ValueError(message)
        time.sleep(0.05)
        ended.append(start)

    with pytest.raises(ValueError, match="this part"):
        helpers.run(work, [0, 1, 2, 3, 4])
    assert len(ended) == 3


def test_without_helpers():
    helpers = HelperThreads(0)
    seen = []
    helpers.run(lambda start, stop: seen.append((start, stop, threading.current_thread())), [0, 3, 7])
    assert seen == [(0, 7, threading.current_thread())]
    helpers.close()


def test_closed_helpers_end(helpers):
    helpers.run(lambda start, stop: None, [0, 1, 2])
    assert running()
    helpers.close()
    deadline = time.monotonic() + 600
    while running() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not running()


def test_a_forked_child_does_it_all(helpers):
    helpers.run(lambda start, stop: None, [0, 1, 2])
    child = os.fork()
    if child == 0:
        seen = []
        helpers.run(lambda start, stop: seen.append((start, stop)), [0, 1, 2])
        helpers.close()
        os._exit(0 if seen == [(0, 2)] else 1)
    assert os.waitpid(child, 0)[1] == 0
