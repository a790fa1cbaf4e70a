"""The pool of threads: all rows once, from anywhere, also from inside itself and after a fork."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from kmip_data.runtime import threads


@pytest.fixture(autouse=True)
def two_threads():
    threads.set_num_threads(2)
    yield
    threads.set_num_threads(None)


def test_every_row_once():
    seen = np.zeros(1000, int)

    def work(start, stop):
        seen[start:stop] += 1

    threads.for_ranges(work, 1000)
    assert (seen == 1).all()


def test_a_call_from_inside_runs_where_it_is():
    """Every thread of the pool is busy with a range that needs ranges of its own."""
    seen = np.zeros((64, 64), int)

    def outer(start, stop):
        for row in range(start, stop):

            def inner(a, b, row=row):
                seen[row, a:b] += 1

            threads.for_ranges(inner, 64)

    runner = threading.Thread(target=threads.for_ranges, args=(outer, 64), daemon=True)
    runner.start()
    runner.join(20)
    assert not runner.is_alive()
    assert (seen == 1).all()


def test_many_threads_share_one_pool(monkeypatch):
    made = []
    pool = threads.ThreadPoolExecutor

    def slow(*args, **kwargs):
        made.append(args)
        threading.Event().wait(0.05)
        return pool(*args, **kwargs)

    monkeypatch.setattr(threads, "ThreadPoolExecutor", slow)
    monkeypatch.setattr(threads, "_pool", None)
    runners = [threading.Thread(target=threads.for_ranges, args=(lambda a, b: None, 100)) for _ in range(8)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert len(made) == 1


def test_a_child_forked_from_a_busy_pool_has_its_own():
    code = (
        "import os; from kmip_data.runtime import threads; threads.set_num_threads(2)\n"
        "threads._lock.acquire(); threads._here.busy = True\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    names = set()\n"
        "    import threading\n"
        "    threads.for_ranges(lambda a, b: names.add(threading.current_thread().name), 8)\n"
        "    os._exit(0 if names <= {'kmip-data_0', 'kmip-data_1'} else 3)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=600, check=False, env=dict(os.environ))
    assert done.returncode == 0


def test_interrupt_while_ranges_are_handed_over(monkeypatch) -> None:
    """What was handed over and has not begun is dropped; the pool is free for the next call."""
    release = threading.Event()
    begun: list[int] = []

    def work(start: int, _stop: int) -> None:
        begun.append(start)
        release.wait(30)

    try:
        pool = threads._get_pool()
        submit, handed = pool.submit, []

        def interrupted(*arguments):
            handed.append(submit(*arguments))
            if len(handed) == 20:
                raise KeyboardInterrupt
            return handed[-1]

        monkeypatch.setattr(pool, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            threads.for_ranges(work, 1000, most=1)
        # The 20th was lost with the interrupt before anyone knew it.
        assert sum(future.cancelled() for future in handed[:19]) >= 19 - pool._max_workers
    finally:
        release.set()
