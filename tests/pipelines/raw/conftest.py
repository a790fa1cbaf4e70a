"""No proxies and no consent from outside, and a server."""

from __future__ import annotations

import os

import pytest
from support.attacks.http_server import serving


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in os.environ:
        if name.lower().endswith(("_proxy", "_ca_bundle", "_accept_license")):
            monkeypatch.delenv(name)


@pytest.fixture
def server():
    with serving() as running:
        yield running
