"""Results made ahead: in order, bounded, and without threads left behind."""

import gc
import threading
import time

import pytest

from kmip_data.runtime.threads import ahead


def running():
    return [thread for thread in threading.enumerate() if thread.name.startswith("kmip-data-ahead")]


def test_in_order_whatever_takes_long():
    def make(number):
        time.sleep(0.02 if number % 3 == 0 else 0)
        return number * number

    assert list(ahead(range(20), make, threads=4, depth=6)) == [n * n for n in range(20)]
    assert list(ahead([], make, threads=2, depth=2)) == []


def test_no_more_is_made_than_asked_for():
    made = []
    results = ahead(range(100), made.append, threads=2, depth=3)
    for number in range(5):
        next(results)
        time.sleep(0.02)
        assert len(made) <= number + 1 + 3
    results.close()
    time.sleep(0.05)
    assert len(made) <= 8


def test_the_source_is_read_in_the_callers_thread():
    seen = set()

    def items():
        for number in range(6):
            seen.add(threading.current_thread())
            yield number

    assert list(ahead(items(), abs, threads=3, depth=3)) == list(range(6))
    assert seen == {threading.current_thread()}


def test_errors_come_in_their_place():
    def make(number):
        return 1 // (number - 4)

    results = ahead(range(9), make, threads=3, depth=8)
    for _ in range(4):
        next(results)
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert not running()


def test_closed_by_a_collection():
    class Holder:
        pass

    holder = Holder()
    holder.results = ahead(range(1000), abs, threads=2, depth=4)
    holder.itself = holder
    next(holder.results)
    assert running()
    del holder
    gc.collect()
    deadline = time.monotonic() + 600
    while running() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not running()


def test_collected_in_one_of_its_own_threads():
    """The last reference may go in a background thread, which cannot wait for itself."""
    results, only_one_left, closed_by = {}, threading.Event(), []

    def make(number):
        if number == 2:
            only_one_left.wait(10)
            results.clear()
            closed_by.append(threading.current_thread())
        return number

    results["it"] = ahead(range(50), make, threads=1, depth=2)
    assert next(results["it"]) == 0
    only_one_left.set()
    deadline = time.monotonic() + 600
    while running() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not running()
    assert closed_by[0] is not threading.current_thread()
