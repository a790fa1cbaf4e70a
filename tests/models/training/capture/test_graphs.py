"""CUDA graphs with a stand-in for the device: its calls in their order, and what a failure leaves."""

from __future__ import annotations

import contextlib
import functools
from types import SimpleNamespace

import pytest
import torch

from kmip_data.models.training.capture.graphs import CudaGraphs, Learned


class _Stream:
    def __init__(self, log, name):
        self._log, self.name = log, name

    def wait_stream(self, other):
        self._log.append(f"{self.name} waits for {other.name}")


_ENDED = ["endAllocateToPool a new pool of 0", "releasePool a new pool of 0"]


class _Graph:
    def replay(self):
        pass

    def pool(self):
        return "its"


@pytest.fixture
def log(monkeypatch):
    """Log of what is asked, and the one random generator."""
    log: list[str] = []
    generator = SimpleNamespace(clone_state=lambda: "as before", graphsafe_set_state=log.append)

    @contextlib.contextmanager
    def recording(graph, pool, stream, capture_error_mode):
        log.append(f"recorded on the {stream.name} in {pool}, {capture_error_mode}")
        try:
            yield
        except RuntimeError:
            raise ValueError("no end") from None

    stand_in = {
        "Stream": lambda _: _Stream(log, "side"),
        "stream": lambda _: contextlib.nullcontext(),
        "current_stream": lambda _: _Stream(log, "loop"),
        "current_device": lambda: 0,
        "CUDAGraph": _Graph,
        "default_generators": [generator],
        "graph": recording,
        "graph_pool_handle": lambda: "a new pool",
    }
    for name, value in stand_in.items():
        monkeypatch.setattr(torch.cuda, name, value)

    for name in ("endAllocateToPool", "releasePool"):
        told = functools.partial("{} {} of {}".format, name)
        monkeypatch.setattr(
            torch._C, f"_cuda_{name}", lambda *where, told=told: log.append(told(*reversed(where)))
        )
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda _, stream: log.append(f"kept for the {stream.name}")
    )
    return log


def _work(_=None):
    return Learned(*(torch.zeros(1),) * 4)


def test_plain_work_is_where_it_will_be_recorded(log):
    CudaGraphs(torch.device("cuda")).run(_work)
    assert log == ["side waits for loop", "loop waits for side", *["kept for the loop"] * 4]


def test_a_graph_keeps_what_its_work_refers_to(log):
    class Plan:
        def __del__(self):
            log.append("plan dropped")

    def work(keep):
        keep.append(Plan())
        return _work()

    replay, found = CudaGraphs(torch.device("cuda")).record(work)
    replay()
    assert isinstance(found, Learned)
    assert log == ["recorded on the side in a new pool, thread_local"]
    del replay
    assert log[-1] == "plan dropped"


def test_graphs_share_memory_with_those_that_are_there(log):
    graphs = CudaGraphs(torch.device("cuda"))
    first = graphs.record(_work)
    second = graphs.record(_work)
    del first, second
    graphs.record(_work)
    assert [line.split(" in ")[1] for line in log] == [
        f"{pool}, thread_local" for pool in ("a new pool", "its", "a new pool")
    ]


def test_a_failure_is_told_by_its_own_error_and_frees_generator_and_allocator(log):
    def work(_):
        raise RuntimeError("operation not permitted")

    with pytest.raises(RuntimeError, match="operation not permitted"):
        CudaGraphs(torch.device("cuda", 0)).record(work)
    assert log[-3:] == ["as before", *_ENDED]


def test_a_recording_that_ended_by_itself_is_not_ended_again(log, monkeypatch):
    """Then the graph gives its memory back."""

    def refused(device, pool):
        raise RuntimeError("endAllocatePool: not currently recording to mempool_id")

    def work(_):
        raise LookupError("of Python alone")

    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", refused)
    with pytest.raises(LookupError, match="of Python alone"):
        CudaGraphs(torch.device("cuda", 0)).record(work)
    assert log[-1] == "as before"
