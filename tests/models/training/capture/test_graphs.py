"""CUDA graphs with a stand-in for the device: its calls in their order, and what a failure leaves."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch
from support.raises import raises

from kmip_data.models.training.capture.cuda_graphs import CudaGraphs, StepOutput
from kmip_data.runtime.memory import keep_alive_for_capture


class _Stream:
    def __init__(self, log, name):
        self._log, self.name = log, name

    def wait_stream(self, other):
        self._log.append(f"{self.name} waits for {other.name}")


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
    def capturing(graph, pool, stream, capture_error_mode):
        log.append(f"captured on the {stream.name} in {pool}, {capture_error_mode}")
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
        "graph": capturing,
        "graph_pool_handle": lambda: "a new pool",
    }
    for name, value in stand_in.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(
        torch._C, "_cuda_endAllocateToPool", lambda *where: log.append(("end", *where))
    )
    monkeypatch.setattr(
        torch._C, "_cuda_releasePool", lambda *where: log.append(("release", *where))
    )
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda _, stream: log.append(f"kept for {stream.name}")
    )
    return log


def _work(_=None):
    return StepOutput(*(torch.zeros(1),) * 4)


def test_eager_work_runs_on_capture_stream(log):
    CudaGraphs(torch.device("cuda")).run(_work)
    assert log == ["side waits for loop", "loop waits for side", *["kept for loop"] * 4]


def test_a_graph_keeps_referenced_tensors_alive_and_shares_memory(log):
    class Plan:
        def __del__(self):
            log.append("plan dropped")

    def work(_):
        keep_alive_for_capture(Plan())
        return _work()

    graphs = CudaGraphs(torch.device("cuda"))
    replay, learned = graphs.capture(work)
    replay()
    assert isinstance(learned, StepOutput)
    second = graphs.capture(_work)
    assert log == [
        f"captured on the side in {pool}, thread_local" for pool in ("a new pool", "its")
    ]
    del replay, second
    assert log.pop() == "plan dropped"
    graphs.capture(_work)
    assert log[-1] == "captured on the side in a new pool, thread_local"


def test_a_failed_capture_raises_its_error_and_frees_generator_and_allocator(log, monkeypatch):
    def work(_):
        raise error

    error = RuntimeError("operation not permitted")
    graphs = CudaGraphs(torch.device("cuda", 0))
    with raises(RuntimeError, naming=error):
        graphs.capture(work)
    assert log[-3:] == ["as before", ("end", 0, "a new pool"), ("release", 0, "a new pool")]

    def refused(device, pool):
        raise RuntimeError("endAllocatePool: not currently recording to mempool_id")

    # A capture that ended by itself is not ended again: the graph gives its memory back.
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", refused)
    error = LookupError("of Python alone")
    with raises(LookupError, naming=error):
        graphs.capture(work)
    assert log[-1] == "as before"
