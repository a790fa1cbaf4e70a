"""A clock of stages on a GPU."""

from types import SimpleNamespace

import pytest
import torch

from kmip_data.models.benchmarking.clock import StageClock


def test_a_gpu_is_timed_by_events_and_synchronised_once(monkeypatch):
    waited = []

    class Event:
        """An event at the next power of two, in milliseconds."""

        number = 0

        def __init__(self, *, enable_timing):
            assert enable_timing

        def record(self):
            self.at = 2**Event.number
            Event.number += 1

        def synchronize(self):
            waited.append(self.at)

        def elapsed_time(self, other):
            return other.at - self.at

    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = StageClock(SimpleNamespace(type="cuda"))
    for stage in ("start", "scores", "softmax", "scores", "backward"):
        clock(stage)
    seconds = clock.seconds_by_stage()
    assert seconds == pytest.approx({"scores": 0.001 + 0.004, "softmax": 0.002, "backward": 0.008})
    assert waited == [16]
