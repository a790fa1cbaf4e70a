"""``doctor``: what this machine has, and what is missing."""

from __future__ import annotations

import importlib.metadata

import pytest
from support.cli import expect_refusal, expect_success

from kmip_data.cli import doctor
from kmip_data.models.training import self_check
from kmip_data.runtime.extras import GPU_EXTRAS


@pytest.mark.slow
def test_doctor_finds_this_machine_sound(home, monkeypatch):
    check = self_check.check_gpu_features
    monkeypatch.setattr(
        self_check, "check_gpu_features", lambda device, sizes, _: check(device, sizes, ["dense"])
    )
    checks = {
        (each["section"], each["name"]): each
        for each in expect_success("doctor", "--json").json["checks"]
    }
    assert (
        f"torch {importlib.metadata.version('torch')}," in checks["Program", "packages"]["detail"]
    )
    assert checks["Search backends", "dense (cpu)"]["status"] == "ok"
    assert str(home) in checks["Home", "folder"]["detail"]
    assert all(entry["detail"] for entry in checks.values() if entry["status"] == "no"), (
        "a reason for each"
    )


def test_doctor_names_what_is_broken_missing_or_too_old(home, monkeypatch):
    failed: dict[str, str] = {}
    monkeypatch.setattr(self_check, "check_gpu_features", lambda *_: failed)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ["numpy>=1.0"])
    # A slow backend is no problem.
    for reason, code in (("other bits", 1), (f"{self_check.TIMED_OUT} 600 s", 0)):
        failed["dense"] = reason
        assert (reason in expect_refusal("doctor", code=code)) is bool(code)
    assert reason in expect_success("doctor").out
    failed.clear()
    needed = ["torch>=99.0", "numpy>=1.0", "no-such-package>=1.2", 'no-chem>=3; extra == "chem"']
    needed += [f'no-{extra}>=1; extra == "{extra}"' for extra in GPU_EXTRAS]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: needed)
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    message = expect_refusal("doctor", code=1)
    for word in (
        "2 checks",
        "torch",
        "at least 99.0 is needed",
        "no-such-package is missing",
        str(home),
    ):
        assert word in message
    for word in ("numpy", "chem"):
        assert word not in message
    details = [detail for name, _, detail in doctor._check_program() if name in {"[cuda]", "[gpu]"}]
    for cost, detail in zip(GPU_EXTRAS.values(), details, strict=True):
        assert f"(without it, on an NVIDIA GPU, {cost})" in detail
