"""Measurements that succeed, run out of memory or time, or are ended: none ends the program."""

import faulthandler
import os
import signal
import sys
import time

import pytest
import torch

from kmip_data.models.benchmarking import measuring
from kmip_data.models.benchmarking.measuring import (
    Measurement,
    MeasurementOptions,
    Measurer,
    growth_exponent,
    measure_methods,
)
from kmip_data.models.benchmarking.methods import WorkloadOptions, get_method

pytestmark = pytest.mark.usefixtures("one_thread")


def measurer(**options):
    return Measurer(WorkloadOptions(k=3), MeasurementOptions(threads=1, **options))


def ending(action):
    """Return a stand-in for the worker: sizes of 10 and training succeed, all else does ``action``."""

    def serve(connection, workload_options, options):
        faulthandler.disable()  # pytest's would print the stack of an end that is meant
        connection.send(True)
        while True:
            method, mode, n = connection.recv()
            if n != 10 and mode != "training":
                action()
            measurement = Measurement(method=method, mode=mode, n=n, status="ok", forward=(0.5,))
            connection.send(measurement)

    return serve


#: How a process ends, and the status of the measurement.
ENDS = {
    "killed": (lambda: os.kill(os.getpid(), signal.SIGKILL), "oom"),
    "aborted": (os.abort, "oom"),
    "broken": (lambda: os._exit(3), "failed"),
    "hanging": (lambda: time.sleep(60), "time"),
}


@pytest.mark.slow
def test_a_measurement_that_does_not_fit_is_a_result(monkeypatch):
    monkeypatch.setattr(measuring, "START_METHOD", "fork")  # a new process imports for 3 s
    measurements = measure_methods(
        ["full", "flash"],
        [100, 30_000],
        workload_options=WorkloadOptions(),
        options=MeasurementOptions(threads=1, repeats=2, memory_limit=2**26),
        modes=["training"],
    )
    small, large, *flash = measurements
    assert (small.status, len(small.forward), len(small.backward)) == ("ok", 2, 2)
    assert large.status == "oom"
    assert large.note
    assert [measurement.status for measurement in flash] == ["unavailable"] * 2
    assert "CUDA" in flash[0].note


@pytest.mark.slow
def test_ended_worker_process_becomes_a_measurement(monkeypatch):
    exchange, waited = measuring._Worker._send_and_wait, set()

    def impatient(worker, question, seconds):
        """Wait for ever, and a moment for the one that hangs."""
        waited.add(seconds)
        return exchange(
            worker, question, 0.2 if (how, question[1:]) == ("hanging", ("inference", 20)) else 600
        )

    monkeypatch.setattr(measuring._Worker, "_send_and_wait", impatient)
    monkeypatch.setattr(
        measuring, "START_METHOD", "fork"
    )  # a stand-in cannot be sent to a new process
    # A forked process holds both ends of its pipe, so it never sees that the other side closed.
    monkeypatch.setattr(measuring._Worker.close, "__defaults__", (0.1,))
    for how, (action, status) in ENDS.items():
        monkeypatch.setattr(measuring, "_serve_measurements", ending(action))
        reported = []
        options = {
            "workload_options": WorkloadOptions(),
            "options": MeasurementOptions(threads=1),
            "log": reported.append,
        }
        measurements = measure_methods(["naive"], [10, 20, 30], **options)
        expected = {("inference", 10): "ok", ("inference", 20): status, ("inference", 30): status}
        expected |= {("training", n): "ok" for n in (10, 20, 30)}  # a new process
        assert {
            (measurement.mode, measurement.n): measurement.status for measurement in measurements
        } == expected, how
        assert reported == measurements
        assert ("not tried" in measurements[2].note) is (status != "failed"), how
    assert waited == {3 * MeasurementOptions().time_limit + measuring.COMPILE_SECONDS}


def test_each_repeat_is_timed_and_the_median_is_reported():
    for mode in ("inference", "training"):
        measurement = measurer(repeats=3).measure(get_method("naive"), mode, 40)
        assert len(measurement.forward) == 3
        assert len(measurement.backward) == (3 if mode == "training" else 0)
        assert all(seconds > 0 for seconds in measurement.totals)
        assert measurement.seconds == sorted(measurement.totals)[1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak can be reset on Linux only")
def test_peak_memory_counts_scores_and_is_reset():
    n = 2000
    measure_ = measurer(repeats=1)
    full = measure_.measure(get_method("full"), "training", n).peak_bytes
    small = measure_.measure(get_method("sdpa"), "inference", n).peak_bytes
    scores = 4 * n * n
    assert full > 2 * scores
    assert small < scores / 2, "memory of earlier runs does not count"


def test_freed_memory_does_not_make_the_peak_negative(monkeypatch):
    peak = measuring.PeakMemory(torch.device("cpu"))
    peak.start([])
    monkeypatch.setattr(measuring, "peak_host_memory", lambda: 0)
    peak.stop()
    assert peak.bytes in {0, None}  # None: no peak can be reset here


def test_inputs_differ_between_runs_and_repeat_between_methods():
    measured = measurer()
    one, two = (
        measured.random_workload(get_method("auto"), 20, number, training=False)
        for number in (1, 2)
    )
    again = measured.random_workload(get_method("naive"), 20, 1, training=True)
    assert not torch.equal(one.keys, two.keys)
    assert torch.equal(one.keys, again.keys)
    assert again.keys.requires_grad


def test_growth_is_fitted_over_the_last_decade():
    points = [(n, 1e-3 + 1e-9 * n**1.5) for n in (100, 316, 1000)]
    points += [(n, 1e-9 * n**1.5) for n in (10_000, 31_622, 100_000)]
    assert growth_exponent(points) == pytest.approx(1.5)
    assert growth_exponent(points[:1]) is None
    assert growth_exponent([]) is None
