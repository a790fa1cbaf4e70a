"""Threads: the pool of kernels, results made ahead; after a fork, too."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from support.cases import wait_until
from support.cli import python

from kmip_data.errors import UsageError
from kmip_data.runtime import parallel
from kmip_data.runtime.parallel import prepare_ahead


@pytest.fixture(autouse=True)
def two_threads():
    parallel.set_num_threads(2)
    yield
    parallel.set_num_threads(None)


def running(name):
    return [
        thread for thread in threading.enumerate() if thread.name.startswith(f"kmip-data-{name}")
    ]


def test_ranges_cover_every_row_once():
    seen = np.zeros(1000, int)

    def work(start, stop):
        assert stop - start <= 100
        seen[start:stop] += 1

    parallel.run_in_ranges(work, 1000, max_rows=100)
    assert (seen == 1).all()


def test_a_nested_call_covers_every_row_once():
    """Every thread of the pool is busy with a range that needs ranges of its own."""
    seen = np.zeros((64, 64), int)

    def outer(start, stop):
        for row in range(start, stop):

            def inner(a, b, row=row):
                seen[row, a:b] += 1

            parallel.run_in_ranges(inner, 64)

    runner = threading.Thread(target=parallel.run_in_ranges, args=(outer, 64), daemon=True)
    runner.start()
    runner.join(600)
    assert not runner.is_alive()
    assert (seen == 1).all()


def test_a_child_forked_from_a_busy_pool_has_its_own_pool():
    code = (
        "import os; from kmip_data.runtime import parallel; parallel.set_num_threads(2)\n"
        "parallel._lock.acquire(); parallel._thread.is_running_ranges = True\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    names = set()\n"
        "    import threading\n"
        "    parallel.run_in_ranges(lambda a, b: names.add(threading.current_thread().name), 8)\n"
        "    os._exit(0 if names <= {'kmip-data_0', 'kmip-data_1'} else 3)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    python("-c", code)


@pytest.fixture
def torchs_threads():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def runners_of_ranges():
    """Return the identities of threads that run ranges, two at a time."""
    meeting, runners = threading.Barrier(2, timeout=600), set()

    def work(start, stop):
        runners.add(threading.get_ident())
        meeting.wait()

    parallel.run_in_ranges(work, 8)
    return runners


def test_threads_of_torch_and_the_main_one_run_ranges(torchs_threads):
    runners = runners_of_ranges()
    python_threads = {thread.ident for thread in threading.enumerate()}
    assert len(runners) == 2
    assert runners & python_threads == {threading.get_ident()}

    # In another thread they would be new ones.
    in_pool = []
    thread = threading.Thread(target=lambda: in_pool.append(runners_of_ranges()), daemon=True)
    thread.start()
    thread.join(600)
    assert len(in_pool[0]) == 2
    assert not in_pool[0] & runners


def test_errors_and_interrupts_end_a_region_of_torchs_threads(torchs_threads):
    with pytest.raises(ZeroDivisionError):
        parallel.run_in_ranges(lambda a, b: 1 // a, 1000)

    def interrupt(start, stop):
        if threading.get_ident() == threading.main_thread().ident:
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        parallel.run_in_ranges(interrupt, 1000)
    assert len(runners_of_ranges()) == 2


def test_a_child_forked_after_torchs_threads_ran_has_its_own(torchs_threads):
    runners_of_ranges()
    child = os.fork()
    if child == 0:
        os._exit(0 if len(runners_of_ranges()) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0


# Results made ahead


def test_results_are_in_order_whatever_their_duration():
    def make(number):
        time.sleep(0.02 if number % 3 == 0 else 0)
        return number * number

    assert list(prepare_ahead(range(20), make, threads=4, depth=6)) == [n * n for n in range(20)]
    assert list(prepare_ahead([], make, threads=2, depth=2)) == []


def test_no_more_results_are_computed_than_requested():
    made = []
    results = prepare_ahead(range(100), made.append, threads=2, depth=3)
    for number in range(5):
        next(results)
        time.sleep(0.02)
        assert len(made) <= number + 1 + 3
    results.close()
    time.sleep(0.05)
    assert len(made) <= 8


def test_errors_are_raised_in_order():
    def make(number):
        return 1 // (number - 4)

    results = prepare_ahead(range(9), make, threads=3, depth=8)
    for _ in range(4):
        next(results)
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert not running("ahead")


def test_a_fork_does_not_wait_for_the_threads_of_its_parent():
    results = prepare_ahead(range(9), str, threads=1, depth=2)
    next(results)
    owner = os.getpid()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            next(results)
        except UsageError as error:
            code = int(str(owner) not in error.message)
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert list(results) == list("12345678")


def test_prepared_results_can_be_collected_in_their_own_thread():
    """The last reference may go in a background thread, which cannot wait for itself."""
    results, only_one_left, closed_by = {}, threading.Event(), []

    def make(number):
        if number == 2:
            only_one_left.wait(600)
            results.clear()
            closed_by.append(threading.current_thread())
        return number

    results["it"] = prepare_ahead(range(50), make, threads=1, depth=2)
    assert next(results["it"]) == 0
    only_one_left.set()
    wait_until(lambda: not running("ahead"))
    assert closed_by[0] is not threading.current_thread()
