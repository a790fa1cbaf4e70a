"""Self-check of an emulated GPU: undamaged it passes; what is broken is left out of a run."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.kernels import emulated_gpu
from support.kernels.cuda_emulator import COMPILER
from support.kernels.interpreted import needs_interpreter

from kmip_data.models import kernel_availability
from kmip_data.models.attention import operators, torch_kernels
from kmip_data.models.config import ModelConfig
from kmip_data.models.kernel_availability import DISABLED_GPU_FEATURES
from kmip_data.models.layers import gated_gcn
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.search import gpu, topk
from kmip_data.models.search.backends import cuda, dense
from kmip_data.models.training import self_check
from kmip_data.models.training.capture.steps import why_not_capturable
from kmip_data.models.training.self_check import OK, kernel_sizes

GPU = SimpleNamespace(type="cuda", name="a GPU")
KERNELS = Path(gpu.__file__).parent / "kernels"


@pytest.fixture(autouse=True)
def _whole_again():
    yield
    DISABLED_GPU_FEATURES.clear()


@needs_interpreter
@pytest.mark.torture  # minutes of CPU
def test_self_check_passes_sound_parts_and_finds_wrong_ones(monkeypatch, tmp_path) -> None:
    """The self-check runs on an emulated GPU; ``make gpu DRY=1`` covers captured steps."""
    monkeypatch.setattr(self_check, "CHECK_SECONDS", 1800.0)
    for name, value in {**emulated_gpu.ENVIRONMENT, "EMULATED_KERNELS": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)

    def verdicts(damage: str, *parts: str) -> dict[str, str]:
        monkeypatch.setattr(
            self_check, "CHILD_COMMAND", ("-m", "support.kernels.emulated_gpu", damage)
        )
        return self_check.check_gpu_features("cpu", emulated_gpu.SIZES, parts)

    parts = ("attention", "edges")
    assert verdicts("whole", *parts) == dict.fromkeys(parts, OK)
    assert all(
        "away from the expected values" in reason
        for reason in verdicts("other result", *parts).values()
    )
    assert COMPILER is None or verdicts("whole", "search") == {"search": OK}


def test_a_gpu_is_checked_again_after_any_change_of_its_kernels(monkeypatch) -> None:
    """The key of a passed check is made of every kernel's source."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: GPU.name)
    key = self_check._environment_digest({})
    assert self_check._environment_digest({}) == key
    real = Path.read_text
    for changed in (*KERNELS.iterdir(), Path(gated_gcn.__file__).parent / "gpu/gate_kernels.py"):

        def read(path: Path, encoding: str | None = None, changed: Path = changed) -> str:
            text = real(path, encoding)
            return text + " " if path.name == changed.name else text

        monkeypatch.setattr(Path, "read_text", read)
        assert self_check._environment_digest({}) != key, changed.name


def test_self_check_detects_a_wrong_search_result(monkeypatch) -> None:
    monkeypatch.setattr(cuda, "why_unusable", lambda _: None)
    monkeypatch.setattr(
        cuda, "search", lambda problem: tuple(each.flip(-1) for each in dense.search(problem))
    )
    with pytest.raises(AssertionError):
        self_check.main("search", "cpu", json.dumps(emulated_gpu.SIZES))


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os; os.abort()", "its process died: SIGABRT"),
        ("print('more'); raise RuntimeError('NVRTC_ERROR')", "RuntimeError: NVRTC_ERROR"),
        ("import time; time.sleep(1000)", "no result within 2 s"),
        ("", OK),
    ],
)
def test_failed_child_process_reports_reason(program: str, reason: str, monkeypatch) -> None:
    monkeypatch.setattr(self_check, "CHILD_COMMAND", ("-S", "-c", program))
    monkeypatch.setattr(self_check, "CHECK_SECONDS", 2.0 if "sleep" in program else 600.0)
    verdicts = self_check.check_gpu_features("cpu", emulated_gpu.SIZES, ("attention", "edges"))
    assert verdicts == dict.fromkeys(("attention", "edges"), reason)


@pytest.fixture
def checked(monkeypatch, tmp_path):
    """A GPU of which ``found`` is said, and how often it was checked."""
    made = SimpleNamespace(found=dict.fromkeys(self_check.GPU_FEATURES, OK), times=0, name="a GPU")

    def check(*_):
        made.times += 1
        return made.found

    monkeypatch.setattr(self_check, "check_gpu_features", check)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: made.name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(self_check.platformdirs, "user_cache_dir", lambda *_, **__: str(tmp_path))
    return made


def test_each_problem_size_is_checked_once_per_device(checked, monkeypatch, tmp_path) -> None:
    model = ModelConfig()
    assert kernel_sizes(model) == {
        "heads": 4,
        "k": 10,
        "key_dim": 5,
        "value_dim": 14,
        "hidden_dim": 56,
    }
    assert kernel_sizes(ModelConfig(attention={"kind": "none"}, hidden_dim=30))["value_dim"] == 7
    for _ in range(2):
        self_check.check_gpu_before_run(model, "a GPU")
    assert (checked.times, DISABLED_GPU_FEATURES) == (1, {})
    self_check.check_gpu_before_run(ModelConfig(hidden_dim=60), "a GPU")
    assert checked.times == 2
    checked.name = "another GPU"
    monkeypatch.setenv("KMIP_DATA_SELF_CHECK", "off")
    self_check.check_gpu_before_run(model, "a GPU")
    assert checked.times == 2
    monkeypatch.delenv("KMIP_DATA_SELF_CHECK")
    checked.found["edges"] = "no result within 60 s"  # a busy machine: tried again
    for _ in range(2):
        self_check.check_gpu_before_run(model, "a GPU")
    assert checked.times == 4
    checked.found["edges"] = "CUDA out of memory. Tried to allocate 2.00 GiB."  # of another process
    DISABLED_GPU_FEATURES.clear()
    self_check.check_gpu_before_run(model, "a GPU")
    assert (checked.times, DISABLED_GPU_FEATURES) == (5, {})


def test_failed_parts_are_disabled_with_one_warning(checked, caplog, monkeypatch) -> None:
    checked.found = {part: f"{part} is broken" for part in self_check.GPU_FEATURES}
    with caplog.at_level(logging.WARNING, self_check.__name__):
        for _ in range(2):
            self_check.check_gpu_before_run(ModelConfig(), "a GPU")
    (line,) = [
        record.getMessage() for record in caplog.records if "disables" in record.getMessage()
    ]
    assert all(part in line for part in self_check.GPU_FEATURES)
    assert "kmip-data doctor --json" in line
    assert checked.found == DISABLED_GPU_FEATURES
    # Search: the next backend.
    assert "search is broken" in str(cuda.why_unusable("cuda"))
    problem = SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32, dim=5, k=3)
    monkeypatch.setattr(topk.all_backends()["keops"], "why_unusable", lambda _: "not here")
    assert topk.choose_backend(problem).NAME == "dense"
    # Triton's parts: operators of PyTorch.
    monkeypatch.setattr(kernel_availability, "is_triton_available", lambda _: True)
    assert operators.triton_or_torch_kernels(torch.ones(1)) is torch_kernels
    batch = read_batch(
        SimpleNamespace(x=torch.ones(3, 4), edge_index=torch.zeros(2, 5, dtype=torch.int64))
    )
    x = SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32)
    layer = gated_gcn.GatedGCN(4, dropout=0.0, residual=False)
    assert gated_gcn._find_kernel(batch, x, torch.ones(5, 4), layer) is None
    DISABLED_GPU_FEATURES.pop("edges")
    assert gated_gcn._find_kernel(batch, x, torch.ones(5, 4), layer) is not None
    # Recorded steps: plain ones.
    training = SimpleNamespace(precision="32", neighbors=None, k_schedule=None)
    system = SimpleNamespace(capture="auto", compile=False)
    config = SimpleNamespace(
        training=training,
        system=system,
        optimizer=SimpleNamespace(name="adamw"),
        model=ModelConfig(),
        processes=1,
    )
    data = SimpleNamespace(is_ragged=False, part_members="graphs")
    assert (
        why_not_capturable(config, data, GPU, recompute=False)
        == "the self-check of this GPU failed"
    )
