"""``bench train``: a model's steps by their parts, beside other people's layers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.cli import kmip
from support.emulated_graph import EmulatedGraphs
from torch.autograd import DeviceType

from kmip_data.cli.benchmarks import train
from kmip_data.models.profiling import calls as counting
from kmip_data.models.profiling.calls import Calls
from kmip_data.models.profiling.training import Pace

pytestmark = pytest.mark.slow

SMALL = ("--set", "model.layers=1", "--set", "model.hidden_dim=16", "--set", "training.batch_size=2")


@pytest.fixture(scope="module")
def found(home_of_sample, tmp_path_factory):
    """What it measured; nothing is left in the folder where it ran."""
    target = ("s3dis", "--sample", "--set", "data.parameters={limit = 12, k = 4}", "--home", home_of_sample)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder := tmp_path_factory.mktemp("here"))
        one = ("--set", "training.batch_size=1")  # full attention takes long
        outcome = kmip("bench", "train", *target, "--quick", "--json", "-q", *SMALL, *one)
    assert outcome.code == 0, outcome.err
    assert list(folder.iterdir()) == []
    return outcome.json


def test_a_step_is_the_sum_of_its_parts(found):
    ours, *_ = found["models"]
    assert ours["name"] == "gps-kmip"
    assert list(ours["stages"]) == ["data", "forward", "search", "backward", "optimiser"]
    assert all(seconds > 0 for seconds in ours["stages"].values())
    assert sum(ours["stages"].values()) == pytest.approx(ours["seconds"], rel=1e-6)  # one batch is measured
    assert ours["graphs"] == 1
    assert ours["operators"] > 50
    assert ours["launches"] is None
    batches = 5 if ours["hours"] is None else ours["hours"] * 3600 / ours["seconds"] / 200
    assert batches == pytest.approx(round(batches))  # of an epoch; the preset has 200


def test_the_layers_of_others_are_beside_it(found):
    first, *rest = found["models"]
    assert first["ratio"] == 1
    assert [pace["name"] for pace in rest] == [
        "PyG GPSConv, multihead",
        "PyG GPSConv, performer",
        "k-MIP as upstream (padded, matrix product and topk)",
    ]
    assert all(pace["ratio"] > 0 and not pace["note"] for pace in rest)
    assert rest[-1]["parameters"] == first["parameters"]
    assert rest[-1]["stages"]["search"] > 0
    assert rest[0]["stages"]["search"] == 0
    assert "sample" in found["data"]


def test_a_network_that_does_not_fit_is_a_row_with_its_reason(home_of_sample, monkeypatch):
    from kmip_data.models.profiling import training

    monkeypatch.setattr(training, "SHARE", 1e-3)
    target = ("s3dis", "--sample", "--set", "data.parameters={limit = 12, k = 4}", "--home", home_of_sample)
    outcome = kmip("bench", "train", *target, "--alone", "--quick", "--json", "-q", "--set", "model.layers=3")
    assert outcome.code == 0, outcome.err
    (ours,) = outcome.json["models"]
    assert ours["seconds"] is None
    assert "memory" in ours["note"]


def test_the_table_says_what_could_not_be_measured(home_of_sample, monkeypatch):
    from kmip_data.models.profiling import training

    def too_small(config, data, device):
        raise MemoryError(config.model.name)

    monkeypatch.setattr(training, "plan_memory", too_small)
    target = ("s3dis", "--sample", "--set", "data.parameters={limit = 12, k = 4}", "--home", home_of_sample)
    outcome = kmip("bench", "train", *target, "--alone", "--quick", "--model", "gcn", *SMALL[:4])
    assert outcome.code == 0, outcome.err
    assert "gcn: gcn" in outcome.out
    assert "quick: not the figures of a full run" in outcome.out


class _Profiler:
    """Sees the events of a plain step, or of a replayed one where a graph was replayed meanwhile."""

    graphs, made = None, 0

    def __init__(self, activities):
        type(self).made += 1

    def start(self):
        self._replayed, self._recorded = self.graphs.replayed, self.graphs.recorded

    def stop(self):
        host, kernels = [*["cuLaunchKernelEx"] * 30, "cudaStreamSynchronize"], 30
        if self.graphs.replayed > self._replayed:
            host, kernels = ["cudaGraphLaunch", *["cudaLaunchKernel"] * 2], 33
        if self.graphs.recorded > self._recorded:
            host += ["cudaStreamBeginCapture_v10000", *["cuLaunchKernelEx"] * 30]
        host = ["aten::mm", *host, "cudaDeviceSynchronize"]  # the last is the profiler's own
        on_card = [*["a kernel"] * kernels, "Memcpy HtoD (Pinned -> Device)", "Memset (Device)"]
        self._events = [
            *(_event(name, DeviceType.CPU) for name in host),
            *(_event(name, DeviceType.CUDA) for name in on_card),
            _event("Optimizer.step", DeviceType.CUDA, note=True),
        ]

    def events(self):
        return self._events


def _event(name, device, *, note=False):
    return SimpleNamespace(name=name, device_type=device, is_user_annotation=note, cpu_parent=None)


FUSED = ("--set", "optimiser.fused=true")  # others refuse to be recorded on a CPU


def test_recorded_steps_are_timed_beside_plain_ones(home_of_sample, monkeypatch):
    from kmip_data.models.layers import gated_edges
    from kmip_data.models.profiling import training
    from kmip_data.models.training.capture import steps

    def made(_):
        _Profiler.graphs = EmulatedGraphs()
        return _Profiler.graphs

    _Profiler.graphs = EmulatedGraphs()  # of plain steps, which replay none
    monkeypatch.setattr(gated_edges, "_fused", lambda *_: None)
    monkeypatch.setattr(training, "why_plain", lambda *_, **__: None)
    monkeypatch.setattr(steps, "CudaGraphs", made)
    monkeypatch.setattr(counting, "profile", _Profiler)
    target = ("s3dis", "--sample", "--set", "data.parameters={limit = 12, k = 4}", "--home", home_of_sample)
    outcome = kmip("bench", "train", *target, "--alone", "--quick", "--json", "-q", *SMALL, *FUSED)
    assert outcome.code == 0, outcome.err
    (ours,) = outcome.json["models"]
    assert not ours["note"]
    assert ours["captured"] > 0
    batches = ours["hours"] * 3600 / ours["captured"] / 200
    assert batches == pytest.approx(round(batches))
    assert _Profiler.made > 1
    assert ours["operators"] == 1
    assert ours["replayed"] == {"launches": 3, "kernels": 33, "synchronisations": 0}


def test_calls_of_a_gpu_are_counted_without_those_of_the_profiler():
    _Profiler.graphs = EmulatedGraphs()
    profiler = _Profiler([])
    profiler.start()
    profiler.stop()
    assert Calls.of(profiler.events()) == Calls(
        1, launches=30, kernels=30, synchronisations=1, replayed=False
    )


def test_the_table_of_a_gpu_has_the_calls_of_both_kinds_of_steps():
    stages = dict.fromkeys(["data", "forward", "search", "backward", "optimiser"], 0.1)
    about = {"stages": stages, "ratio": 1.0, "hours": 1.0, "seconds": 0.5, "operators": 900}
    plain = Pace(name="plain", launches=1383, kernels=1400, synchronisations=2, **about)
    calls = {"launches": 43, "kernels": 1440, "synchronisations": 0}
    both = Pace(name="both", launches=1383, kernels=1400, synchronisations=2, replayed=calls, **about)
    header, *lines = train._table([plain, both], cuda=True).splitlines()
    assert header.split()[-6:-2] == ["operators", "launches", "kernels", "synchronisations"]
    assert " 900 1,383 1,400 2 1 " in " ".join(lines[-2].split())
    assert "1,383 (43)" in lines[-1]
    assert "1,400 (1,440)" in lines[-1]
    assert "2 (0)" in lines[-1]


def test_steps_that_could_not_be_recorded_have_no_time_and_a_reason(home_of_sample, monkeypatch):
    """Else the column would have the time of plain ones."""
    from kmip_data.models.profiling import training
    from kmip_data.models.training.capture import steps

    class Failing(EmulatedGraphs):
        def record(self, work):
            raise RuntimeError("operation not permitted")

    monkeypatch.setattr(training, "why_plain", lambda *_, **__: None)
    monkeypatch.setattr(steps, "CudaGraphs", lambda _: Failing())
    target = ("s3dis", "--sample", "--set", "data.parameters={limit = 12, k = 4}", "--home", home_of_sample)
    outcome = kmip("bench", "train", *target, "--alone", "--quick", "--json", "-q", *SMALL, *FUSED)
    (ours,) = outcome.json["models"]
    assert ours["captured"] is None
    assert ours["note"].endswith("operation not permitted")
