"""Sections 3 and 4: the tests that need a GPU, many at a time."""

from __future__ import annotations

import ast
import importlib.util
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from gpu import children
from gpu.children import ROOT
from gpu.results import Recorder

KERNELS = (
    "tests/models/attention/test_attention_kernels.py::test_kernels_on_a_gpu",
    "tests/models/layers/gated_edges_kernels.py",
    "tests/models/layers/normed_kernels.py",
)
CAPTURE = (
    "tests/models/training/capture/test_on_a_gpu.py",
    "tests/models/training/run/test_meter.py",
    "tests/kmip_data/reading/test_loader.py",
)


def kernels(record: Recorder) -> None:
    """Run the tests of attention, edges and norms, in which nothing is interpreted."""
    run_tests(record, list(KERNELS), processes=12)


def capture(record: Recorder) -> None:
    """Run the tests of captured steps and of what else asks for a GPU."""
    run_tests(record, [CAPTURE[0]], processes=12)
    run_tests(record, list(CAPTURE[1:]), filters="on_a_gpu", processes=4)


def run_tests(record: Recorder, files: list[str], *, filters: str = "", processes: int) -> None:
    """Run tests and record each that failed; on a CPU count those that would run."""
    names = ", ".join(Path(file.split("::")[0]).stem for file in files)
    if record.dry:
        record(names, status="skipped", note=f"{sum(map(_tests_in, files))} tests would run on a GPU")
        return
    report = record.folder / f"tests-{record.section}.xml"
    # Not torture: it takes minutes by itself. No other configuration: a plain pytest is enough.
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not torture", *("-p", "no:cacheprovider")]
    if filters:
        command += ["-k", filters]
    if importlib.util.find_spec("xdist") is not None:
        command += ["-n", str(processes)]
    done = children.run([*command, f"--junitxml={report}", *files])
    record.show(done.stdout[-20_000:] + done.stderr[-5_000:])
    passed = 0
    for case in ET.parse(report).iter("testcase") if report.is_file() else ():
        ended = next((each for each in case if each.tag in {"failure", "error", "skipped"}), None)
        if ended is None:
            passed += 1
        elif ended.tag != "skipped":
            lines = (ended.get("message") or "").splitlines() or [""]
            record(f"{case.get('classname')}.{case.get('name')}", status="failed", note=lines[0][:300])
    report.unlink(missing_ok=True)
    status = "ok" if done.returncode == 0 and passed else "failed"
    record(f"tests passed: {names}", passed, "tests", status=status, kind="figure")


def _tests_in(file: str) -> int:
    """Count the functions that a file, or what ``::`` names in it, has for pytest."""
    path, _, name = file.partition("::")
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    tests = [
        each.name for each in tree.body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
    ]
    found = sum(each == name or not name for each in tests)
    if not found:
        raise ValueError(f"there are no such tests: {file}")
    return found
