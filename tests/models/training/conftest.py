"""A GPU's streams, on a machine without one."""

from __future__ import annotations

import contextlib

import pytest
import torch

from kmip_data.models.training.data.run_data import _copy_stream


class _Stream:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def record_event(self):
        self.log.append("copied")
        return self

    def wait_event(self, event):
        self.log.append(f"{self.name} waits for {event.name}")


@pytest.fixture
def streams(monkeypatch):
    """Log of calls to a GPU's streams, on a machine without one."""
    events: list[str] = []
    _copy_stream.cache_clear()
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: _Stream(events, "copies"))
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: _Stream(events, "the step"))
    yield events
    _copy_stream.cache_clear()
