"""Backends are discovered automatically, say why they cannot run, and ``auto`` takes the best that can."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from support.raises import raises

from kmip_data.errors import Setting, UsageError
from kmip_data.models.search import (
    backend_names,
    backend_status,
    backends,
    topk,
    topk_inner_product,
)
from kmip_data.models.search.backends import keops
from kmip_data.models.search.problem import make_problem
from kmip_data.models.training import self_check


def test_status_names_every_backend_with_a_reason() -> None:
    status = backend_status(("cpu", "cuda"))
    assert {row.name for row in status} >= {"cpu", "dense", "keops"}
    assert all(row.reason for row in status)
    (cpu_on_cuda,) = (row for row in status if (row.name, row.device) == ("cpu", "cuda"))
    assert not cpu_on_cuda.usable
    assert "CPU only" in cpu_on_cuda.reason
    assert backend_names()[0] == "auto"


def test_auto_takes_the_cpu_search_for_float32_and_the_dense_for_float64(caplog) -> None:
    def chosen(dim: int, dtype: torch.dtype = torch.float32) -> str:
        rows = torch.ones(1, 4, dim, dtype=dtype)
        return str(topk.choose_backend(make_problem(rows, rows, 2)).NAME)

    assert chosen(10) == chosen(64) == "cpu"
    assert not keops.AUTO_PRIORITY  # taken by name only
    with caplog.at_level(logging.DEBUG, logger="kmip_data.models.search.topk"):
        assert chosen(10, torch.float64) == "dense"
    assert "not cpu: takes float32" in caplog.text


#: Of a module: a backend whose results are zeros; its second search hangs, in a process that tries
#: it.
ZEROS = """
NAME, AUTO_NOTE, AUTO_PRIORITY = 'zeros', 'for a test', {'cpu': 99}
why_unusable = why_refused = lambda _: None
def search(problem):
    scores, indices = problem.new_result()
    return scores, indices * 0
"""


def test_a_backend_is_one_file(tmp_path, monkeypatch) -> None:
    (tmp_path / "zeros.py").write_text(ZEROS)
    monkeypatch.setattr(backends, "__path__", [*backends.__path__, str(tmp_path)])
    topk.all_backends.cache_clear()
    try:
        rows = torch.ones(1, 3, 2)
        assert topk_inner_product(rows, rows, 1)[1].tolist() == [[[0], [0], [0]]]
        assert "zeros" in backend_names()
    finally:
        topk.all_backends.cache_clear()


def test_a_backend_that_errs_is_broken_and_a_slow_one_is_late(monkeypatch) -> None:
    monkeypatch.setattr(
        topk, "search_op", lambda *args: (torch.ones(1) * (args[5] == "wrong"),) * 2
    )
    self_check.main("right", "cpu", "{}")
    with pytest.raises(AssertionError):
        self_check.main("wrong", "cpu", "{}")
    monkeypatch.setattr(self_check, "TRIAL_SECONDS", 0.01)
    (reason,) = self_check.check_gpu_features("cpu", {}, ["dense"]).values()
    assert reason.startswith(self_check.TIMED_OUT)


def test_keops_is_unusable_without_a_compiler(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    rows = torch.ones(1, 30, 3)
    with raises(UsageError, naming="CXX") as caught:
        topk_inner_product(rows, rows, 2, backend="keops")
    assert caught.value.steps[0] == Setting({"model.attention.search": "auto"})


@pytest.mark.skipif(keops.why_unusable("cpu") is not None, reason=str(keops.why_unusable("cpu")))
def test_keops_refuses_a_search_with_a_broken_compiler(tmp_path) -> None:
    program = (
        "import torch\n"
        "from kmip_data.models.search import topk_inner_product\n"
        "rows = torch.randn(1, 30, 4)\n"
        "try:\n"
        "    topk_inner_product(rows, rows, 2, backend='keops')\n"
        "except ValueError as error:\n"
        "    print('refused:', error)\n"
    )
    environment = os.environ | {"CXX": "/bin/false", "KEOPS_CACHE_FOLDER": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # Standard output is ours alone: KeOps' own messages went to standard error.
    assert done.stdout.startswith("refused: KeOps could not compile its search")


def test_a_missing_fast_gpu_search_is_warned_of_once(monkeypatch, caplog):
    fast = SimpleNamespace(
        NAME="fast", AUTO_PRIORITY={"cuda": 2}, why_unusable=lambda _: "it is not installed"
    )
    slow = SimpleNamespace(
        NAME="slow",
        AUTO_PRIORITY={"cuda": 1},
        why_unusable=lambda _: None,
        why_refused=lambda _: None,
    )
    monkeypatch.setattr(topk, "all_backends", lambda: {"fast": fast, "slow": slow})
    problem = SimpleNamespace(device=torch.device("cuda"))
    topk._warn_once.cache_clear()
    with caplog.at_level("WARNING"):
        assert topk.choose_backend(problem) is topk.choose_backend(problem) is slow
    (record,) = caplog.records
    assert record.getMessage() == "search backend slow on cuda; not fast: it is not installed"
