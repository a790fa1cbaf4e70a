"""Snippets of the pages quickstart, reproduce, bring-your-own and own-components run as they stand, offline."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import torch
from support.shared import ROOT
from torch_geometric.data import Batch, Data

from kmip_data.models.sweeps.plans import sweep_names

DOCS = ROOT / "docs"
START, REPRODUCE, OWN, PARTS = (
    (DOCS / f"{name}.md").read_text("utf-8")
    for name in ("quickstart", "reproduce", "bring-your-own", "own-components")
)
CITY, MANY, LAYER = re.findall(r"^```python\n(.*?)^```", START, re.MULTILINE | re.DOTALL)
(SWEEP,) = re.findall(r"^```python\n(.*?)^```", REPRODUCE, re.MULTILINE | re.DOTALL)
LIST, *_ = re.findall(r"^```python\n(.*?)^```", OWN, re.MULTILINE | re.DOTALL)
*_, CONV = re.findall(r"^```python\n(.*?)^```", PARTS, re.MULTILINE | re.DOTALL)
PRINTED = {
    "one city": (CITY, r"test accuracy [2-9]\d\.\d+%"),  # ten classes
    "many graphs": (MANY, ""),
    "a list": (LIST, ""),
    "a layer": (CONV, r"torch.Size\(\[2526, 32\]\)"),
}


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a snippet in an empty folder with a home in it, and return what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

    def _run(snippet: str) -> str:
        exec(snippet, {"__name__": "__main__"})
        return capfd.readouterr().out

    return _run


@pytest.mark.parametrize("name", PRINTED)
def test_a_snippet_prints_what_its_page_shows(name, run) -> None:
    snippet, printed = PRINTED[name]
    assert re.search(printed, run(snippet))


@pytest.mark.torture
def test_a_sweep_of_your_own_runs(run) -> None:
    *_, first, second = run(SWEEP).splitlines()
    for line, k in ((first, 5), (second, 50)):
        assert f"model.attention.k={k} instead of 15;" in line
        assert re.search(r" 2 0\.\d+ 0\.\d+$", line)  # two runs, their mean and deviation


def test_attention_replaces_a_convolution() -> None:
    names: dict = {}
    exec(LAYER, names)
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    batch = Batch.from_data_list([Data(x=torch.randn(n, 64), edge_index=edges) for n in (3, 30)])
    assert names["layer"](batch.x, batch).shape == (33, 64)


def test_every_dataset_class_is_in_the_table() -> None:
    import kmip_data
    from kmip_data.reading.dataset import ShardedDataset

    classes = {name for name in kmip_data.__all__ if isinstance(getattr(kmip_data, name), type)}
    datasets = {name for name in classes if issubclass(getattr(kmip_data, name), ShardedDataset)}
    table = (DOCS / "datasets.md").read_text("utf-8")
    for name in datasets - {"ShardedDataset"}:
        assert re.search(rf"`{name}[`(]", table), name


def test_the_plans_of_the_page_are_shipped():
    named = set(re.findall(r"kmip-data (?:sweep|report) ([a-z][\w-]+)", REPRODUCE)) - {
        "datasets",
        "empty",
    }
    assert named <= set(sweep_names())
    assert {"paper-city", "paper-lrgb", "paper-points", "influence-of-k", "malnet"} <= named
