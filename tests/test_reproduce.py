"""Every snippet of docs/reproduce.md runs as it stands, offline and in an empty home."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from support.cli import python

from kmip_data.models.sweeps.plan import sweep_names

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "reproduce.md").read_text("utf-8")
DATASET, MODEL, LAYER, SWEEP = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def run(snippet: str, folder: Path) -> str:
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {"KMIP_DATA_HOME": str(folder / "home"), "PATH": paths, "OMP_NUM_THREADS": "1"}
    return python("-c", snippet, cwd=folder, **variables).out


@pytest.mark.parametrize(
    ("snippet", "printed"),
    [
        (DATASET, r"torch.Size\(\[\d+, 5\]\)"),
        (MODEL, r"loss \d\.\d+"),
        (LAYER, r"torch.Size\(\[2526, 32\]\)"),
    ],
    ids=["a dataset", "a model", "a layer"],
)
def test_a_snippet_runs(snippet, printed, tmp_path) -> None:
    assert re.search(printed, run(snippet, tmp_path))


@pytest.mark.torture
def test_a_sweep_of_ones_own_runs(tmp_path) -> None:
    *_, first, second = run(SWEEP, tmp_path).splitlines()
    for line, k in ((first, 5), (second, 50)):
        assert f"model.attention.k={k} (15)" in line
        assert re.search(r"\) 2 0\.\d+ 0\.\d+$", line)  # two runs, their mean and deviation


def test_the_plans_that_it_names_are_shipped():
    named = set(re.findall(r"kmip-data (?:sweep|report) ([a-z][\w-]+)", PAGE)) - {"datasets", "empty"}
    assert named <= set(sweep_names())
    assert {"paper-city", "paper-lrgb", "paper-points", "influence-of-k", "malnet"} <= named
