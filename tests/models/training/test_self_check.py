"""Self-check of an emulated GPU: undamaged it passes; what is broken on purpose is left out of a run."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
import torch
from support.cuda_emulator import COMPILER
from support.emulated_gpu import CHILD, ENVIRONMENT
from support.interpreted import needs_interpreter

from kmip_data.models.attention import gathered, operators
from kmip_data.models.config import ModelConfig
from kmip_data.models.context import LEFT_OUT
from kmip_data.models.layers import gated_gcn, norms
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.search import topk
from kmip_data.models.search.backends import cuda
from kmip_data.models.training import self_check
from kmip_data.models.training.capture.steps import why_plain
from kmip_data.models.training.self_check import OK, Sizes, check, sizes_of

SIZES = Sizes(dim=5, width=7, k=4, heads=2, hidden=12)
GPU = SimpleNamespace(kind="cuda", name="a GPU")


@pytest.fixture(autouse=True)
def _whole_again():
    yield
    LEFT_OUT.clear()


def child(damage: str) -> tuple[str, ...]:
    return (*CHILD, damage)


def whole(tmp_path, *parts: str) -> None:
    environment = {**ENVIRONMENT, "EMULATED_KERNELS": str(tmp_path)}
    found = check("cpu", SIZES, parts, child=child("whole"), limit=1800, environment=environment)
    assert found == dict.fromkeys(parts, OK)


@needs_interpreter
@pytest.mark.slow
def test_attention_and_captured_steps_pass_without_a_gpu(tmp_path) -> None:
    """Interpreted, and by an emulated graph; ``make gpu DRY=1`` has the norms."""
    whole(tmp_path, "attention", "capture")


@needs_interpreter
@pytest.mark.torture  # half a minute of CPU each
def test_edges_pass_by_interpreter_and_the_search_by_emulation(tmp_path) -> None:
    whole(tmp_path, "edges", *(["search"] if COMPILER else []))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("other result", "search, the run's sizes: other bits"),
        pytest.param("compile error", "RuntimeError: NVRTC_ERROR_COMPILATION", marks=pytest.mark.torture),
    ],
)
def test_a_broken_search_is_found(damage: str, reason: str) -> None:
    found = check("cpu", SIZES, ("search",), child=child(damage), limit=1800, environment=ENVIRONMENT)
    assert found == {"search": reason}


def test_a_hang_ends_at_the_limit_and_a_signal_is_named() -> None:
    hang = ("-c", "import time; time.sleep(1000)")
    assert check("cpu", SIZES, ("edges", "norms"), child=hang, limit=0.5) == {
        "edges": "no result within 0 s",
        "norms": "no result within 0 s",
    }
    dying = ("-c", "import os; os.abort()")
    assert check("cpu", SIZES, ("search",), child=dying) == {"search": "its process died: SIGABRT"}


@pytest.fixture
def checked(monkeypatch, tmp_path):
    """A GPU of which ``found`` is said, and how often it was checked."""
    made = SimpleNamespace(found=dict.fromkeys(self_check.INSTEAD, OK), times=0)

    def check(*_):
        made.times += 1
        return made.found

    monkeypatch.setattr(self_check, "check", check)
    monkeypatch.setattr(self_check, "_hardware", lambda _: ["a GPU", 9, 0])
    monkeypatch.setattr(self_check.platformdirs, "user_cache_dir", lambda *_, **__: str(tmp_path))
    return made


def test_a_device_is_checked_once_a_size(checked, monkeypatch, tmp_path) -> None:
    model = ModelConfig()
    assert sizes_of(model) == Sizes()
    for _ in range(2):
        self_check.before_run(model, GPU)
    assert (checked.times, LEFT_OUT) == (1, {})
    self_check.before_run(ModelConfig(hidden_dim=60), GPU)
    assert checked.times == 2
    self_check.before_run(model, SimpleNamespace(kind="cpu", name="cpu"))
    monkeypatch.setattr(self_check, "_hardware", lambda _: ["another GPU", 9, 0])
    monkeypatch.setenv("KMIP_DATA_SELF_CHECK", "off")
    self_check.before_run(model, GPU)
    assert checked.times == 2
    monkeypatch.delenv("KMIP_DATA_SELF_CHECK")
    checked.found["edges"] = "no result within 60 s"  # a busy machine: tried again
    for _ in range(2):
        self_check.before_run(model, GPU)
    assert checked.times == 4
    checked.found["edges"] = "CUDA out of memory. Tried to allocate 2.00 GiB."  # of another process
    LEFT_OUT.clear()
    self_check.before_run(model, GPU)
    assert (checked.times, LEFT_OUT) == (5, {})
    for path in tmp_path.rglob("*.json"):
        path.write_text("damaged")
    monkeypatch.setattr(self_check, "_hardware", lambda _: ["a GPU", 9, 0])
    self_check.before_run(model, GPU)
    assert checked.times == 6


def test_failed_parts_are_left_out_with_one_warning(checked, caplog, monkeypatch) -> None:
    checked.found = {part: f"{part} is broken" for part in self_check.INSTEAD}
    with caplog.at_level(logging.WARNING, self_check.__name__):
        for _ in range(2):
            self_check.before_run(ModelConfig(), GPU)
    (line,) = [record.getMessage() for record in caplog.records if "leaves out" in record.getMessage()]
    assert all(part in line for part in self_check.INSTEAD)
    assert "kmip-data doctor --json" in line
    # Search: the next backend.
    monkeypatch.setattr(cuda.torch.cuda, "is_available", lambda: True)
    assert "search is broken" in str(cuda.unusable("cuda"))
    problem = SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32, dim=5, k=3)
    monkeypatch.setattr(topk.all_backends()["keops"], "unusable", lambda _: "not here", raising=True)
    assert topk.choose(problem).NAME == "dense"
    # Triton's parts: operators of PyTorch.
    for module in (operators, gated_gcn, norms):
        monkeypatch.setattr(module, "triton_runs", lambda _: True)
    assert operators.kernels_for(torch.ones(1)) is gathered
    assert norms._kernels(torch.ones(2, 2)) is None
    batch = SimpleNamespace(x=torch.ones(3, 4), edge_index=torch.zeros(2, 5, dtype=torch.int64))
    x = SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32)
    layer = gated_gcn.GatedGCN(4, dropout=0.0, residual=False)
    assert gated_gcn._fused(read_batch(batch), x, torch.ones(5, 4), layer) is None
    LEFT_OUT.pop("edges")
    assert gated_gcn._fused(read_batch(batch), x, torch.ones(5, 4), layer) is not None
    # Recorded steps: plain ones.
    config = SimpleNamespace(
        training=SimpleNamespace(precision="32", neighbors=None, k_schedule=None),
        system=SimpleNamespace(capture="auto", compile=False),
        model=ModelConfig(),
        processes=1,
    )
    data = SimpleNamespace(ragged=False, unit="graphs")
    assert why_plain(config, data, GPU, recompute=False) == "the self-check of this GPU failed"
