"""CUDA graphs of training steps: equal to the same work never captured, with few launches and no waiting."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import pytest
import torch
from support.builds.learnable import OPERATORS, learnable_build
from support.runs.captured import assert_same_runs, train_run
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from kmip_data.models.search.backends import cuda
from kmip_data.models.training.capture.cuda_graphs import CudaGraphs
from kmip_data.models.training.run.training_module import TrainingModule

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: graphs of steps were only emulated"
)

LAUNCHED = 70  #: launches of a replayed step
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch")  #: and their variants
CAPTURING = ("cudaStreamBeginCapture", "cudaGraphInstantiate")
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
#: Of a step. What is an operator on a CPU is one kernel here, none (views), one of dozens (fused
#: ones), or several (sorts, sums in a fixed order): so many leave room, and thousands would not
#: fit.
KERNELS = 2 * OPERATORS
K_MIP = pytest.param(
    {},
    marks=pytest.mark.skipif(
        cuda.why_unusable("cuda") is not None, reason=str(cuda.why_unusable("cuda"))
    ),
    id="k-mip",
)
ALONE = pytest.param(
    {"attention": {"kind": "none"}, "heads": None, "k": None, "key_dim": None}, id="alone"
)


@pytest.fixture(autouse=True)
def _as_before():
    yield
    torch.use_deterministic_algorithms(False)


class _Plain(CudaGraphs):
    """Does the work where it would be captured."""

    def capture(self, work):
        raise RuntimeError("not wanted")


class _SixthBatch:
    """Calls of the sixth batch of a training loop, by the profiler: of the host, and kernels that ran."""

    def __init__(self):
        self.left, self.host, self.kernels = 5, Counter(), 0

    @contextmanager
    def __call__(self, batch, last):
        self.left -= 1
        if self.left != -1:
            yield
            return
        torch.cuda.synchronize()  # kernels of the batch before are not this one's
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            yield
        for event in profiler.events():
            if event.device_type != DeviceType.CUDA:
                self.host[event.name] += 1
            elif not event.is_user_annotation:
                self.kernels += not event.name.startswith(("Memcpy", "Memset"))


def _graphs(kind=CudaGraphs):
    return kind(torch.device("cuda"))


def _options(*, deterministic=True, **changes):
    system = {"device": "cuda", "deterministic": deterministic}
    return {"device": "cuda", "system": system, **changes}


@pytest.mark.parametrize("model", [K_MIP, ALONE])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_replay_equals_eager_while_batches_change(accumulate, model, tmp_path):
    build = learnable_build(tmp_path / "build", graphs=15, varied=0)
    options = _options(model=model, training={"epochs": 8, "accumulate": accumulate})
    plain, replayed = (
        train_run(build, tmp_path, _graphs(kind), **options) for kind in (_Plain, CudaGraphs)
    )
    assert replayed.told == []
    assert_same_runs(plain, replayed)
    loop = train_run(build, tmp_path, **options)
    torch.testing.assert_close(loop.state[0], replayed.state[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("model", [K_MIP, ALONE])
@pytest.mark.parametrize("layout", ["neighbor", "index"])
@pytest.mark.parametrize("kind", [_Plain, CudaGraphs])
def test_two_runs_are_equal_by_default(kind, layout, model, tmp_path):
    """Results are bit-identical without torch's deterministic algorithms."""
    build = learnable_build(tmp_path / "build", graphs=15, varied=0, layout=layout)
    options = _options(deterministic=False, model=model, training={"epochs": 8, "accumulate": 1})
    one, other = (train_run(build, tmp_path, _graphs(kind), **options) for _ in range(2))
    assert not torch.are_deterministic_algorithms_enabled()
    assert_same_runs(one, other)


@pytest.mark.parametrize("model", [K_MIP, ALONE])
def test_a_replayed_step_is_few_launches_and_waits_for_nothing(model, tmp_path):
    """Its graph holds no more kernels than an eager step launches."""
    build = learnable_build(tmp_path / "build", graphs=15, varied=0)
    options = _options(model=model, training={"epochs": 6, "batch_size": 11, "accumulate": 1})

    plain, replayed = _SixthBatch(), _SixthBatch()
    for watch, kind in ((plain, _Plain), (replayed, CudaGraphs)):
        train_run(build, tmp_path, _graphs(kind), watch=watch, **options)
    assert replayed.host["cudaGraphLaunch"]
    assert not any(name.startswith(CAPTURING) for name in replayed.host)
    assert (
        sum(count for name, count in replayed.host.items() if name.startswith(LAUNCHES)) <= LAUNCHED
    )
    assert sum(replayed.host[name] for name in WAITS) <= 1  # of the profiler, when it stops
    assert 0 < plain.kernels <= KERNELS
    assert plain.kernels / 2 < replayed.kernels <= plain.kernels + LAUNCHED


def test_a_recording_that_fails_leaves_a_run_as_it_was(tmp_path, monkeypatch):
    """Dropout still draws its numbers, from where it stood, and batches are freed."""
    build = learnable_build(tmp_path / "build", graphs=15, varied=0)
    options = _options(
        model={**ALONE.values[0], "dropout": 0.2}, training={"epochs": 4, "accumulate": 1}
    )
    plain = train_run(build, tmp_path, _graphs(_Plain), **options)
    plain_learn = TrainingModule.train_loss

    def waits(self, batch, **watching):
        learned = plain_learn(self, batch, **watching)
        learned[2].item()
        return learned

    monkeypatch.setattr(TrainingModule, "train_loss", waits)
    failed = train_run(build, tmp_path, _graphs(), **options)
    assert len(failed.told) == 1
    assert_same_runs(plain, failed)
    torch.cuda.synchronize()
    torch.empty(1, device="cuda")  # the allocator looks at what other streams are done with
    memory = torch.cuda.memory_stats()
    assert (
        memory["active.all.current"] == memory["allocation.all.current"]
    )  # no batch waits to be freed
