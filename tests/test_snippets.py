"""Snippets of the docs run in a home where downloads are samples; examples of docstrings print what they show."""

from __future__ import annotations

import doctest
import importlib
import io
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.builds.raw_graphs import write_sample
from support.cli import expect_success
from support.pages import write_friends
from support.shared import ROOT, shared_data
from test_docs import PAGES, python_blocks

from kmip_data.pipelines import build as building
from kmip_data.pipelines.datasets.s3dis import sample as s3dis_sample

#: Pages whose snippets test_readme.py and test_pages_run.py run, and compare what they print.
ELSEWHERE = {"README.md", "docs/quickstart.md"}
WITH_SNIPPETS = {
    name: blocks
    for page in PAGES
    if (name := page.relative_to(ROOT).as_posix()) not in ELSEWHERE
    if (blocks := python_blocks(page.read_text("utf-8")))
}
NEEDS = {"docs/clusters.md": "dask_jobqueue"}  #: packages that no extra installs
#: Words of a snippet and what runs instead: the same for less time.
SHORTER = {
    "docs/training.md": {
        '"training.epochs=20"': '"training.epochs=1", "model.layers=1", "data.parameters.limit=3"',
        "seeds=[0, 1, 2]": "seeds=[0, 1]",
    },
    "docs/building.md": {"jobs=8": "jobs=1"},
    "docs/search.md": {"300_000": "3_000"},
    "docs/analysis.md": {  # 256 points of 4,096: weights are sorted row by row
        "(queries, keys, values, ks": "(queries[:, :256], keys[:, :256], values[:, :256], ks"
    },
    "docs/point-clouds.md": {
        'train(load_preset("campus", "gcn"))': (
            "from kmip_data.models import apply_overrides\n"
            'train(apply_overrides(load_preset("campus", "gcn"), ["training.epochs=1"]))'
        )
    },
    # test_pages_run.py runs all four, each in a new process.
    "docs/reproduce.md": {
        'subprocess.run(["kmip-data", "sweep", "mine.toml", "--jobs", "2", "-q"], check=True)': (
            'from support.cli import expect_success\nexpect_success("sweep", "mine.toml", "-q")'
        ),
        '"0..1"': '"0..0"',
        '[[changes]]\nname = "k50"\nset = ["model.attention.k=50"]\n': "",
    },
}
SLOW = {"docs/analysis.md", "docs/point-clouds.md", "docs/reproduce.md", "docs/training.md"}


def _run(folder: Path) -> None:
    """A run of the name that docs/analysis.md has."""
    tiny = ("--epochs", "1", "--device", "cpu", "--set", "model.layers=3", "--limit", "3")
    expect_success("train", "s3dis", "--name", "mine", *tiny, "-q")


def _inside_a_build(folder: Path) -> None:
    expect_success("build", "s3dis", "-q", "--output", folder / "s3dis")
    os.chdir(folder / "s3dis")


def _scans(folder: Path) -> None:
    (folder / "scans").mkdir()
    for number in range(4):
        rows = [f"{i},{number},{i % 7},{i % 255},{i % 3}" for i in range(60)]
        text = "\n".join(["x,y,z,red,class", *rows])
        (folder / "scans" / f"{number}.csv").write_text(text)


def _molecules(folder: Path) -> None:
    molecules = [f"{'C' * length}{core},no" for core in ("O", "c1ccccc1") for length in range(1, 9)]
    (folder / "assay.csv").write_text("\n".join(["smiles,toxic", *molecules]))


def _map(folder: Path) -> None:
    shutil.copyfile(shared_data("osm") / "paris_3e_11e.osm.pbf", folder / "paris.osm.pbf")


#: Preparations that a page asks for before its snippets.
BEFORE: dict[str, Callable[[Path], Any]] = {
    "docs/analysis.md": _run,
    "docs/encodings.md": lambda folder: [
        expect_success("build", "peptides-func", "-q"),
        expect_success("encode", "peptides-func", "rwse20", "lappe10", "-q"),
    ],
    "docs/reading.md": lambda folder: [
        expect_success("build", "s3dis", "-q"),
        expect_success("build", "s3dis", "--k", "16", "-q"),
        expect_success(
            "build", "long-range", "--limit", "12", "-q", "--output", "folder/of/a/build"
        ),
    ],
    "docs/own-data.md": lambda folder: write_friends(
        (ROOT / "docs" / "own-data.md").read_text("utf-8"), folder
    ),
    "docs/point-clouds.md": _scans,
    "docs/errors.md": lambda folder: write_sample("ogbg-molhiv", folder / "mine", limit=20, seed=0),
    "docs/graph-files.md": _molecules,
    "docs/cities.md": _map,
    "docs/format.md": _inside_a_build,
    "docs/reproduce.md": lambda folder: expect_success(
        "build", "helsinki", "-q"
    ),  # before another process
}


def _chosen(page: str) -> Any:
    return pytest.param(page, marks=pytest.mark.slow if page in SLOW else [])


@pytest.mark.parametrize("page", [_chosen(page) for page in sorted(WITH_SNIPPETS)])
@pytest.mark.usefixtures("in_process")
def test_snippets_of_the_pages_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page in NEEDS:
        pytest.importorskip(NEEDS[page])
    obtain = building.obtain_raw

    def obtain_sample(*arguments: Any, sample: bool) -> Any:
        """A download brings the sample, in the layout of the published files."""
        chosen = sample or not arguments[3].archives
        return replace(obtain(*arguments, sample=chosen), sample=sample)

    monkeypatch.setattr(building, "obtain_raw", obtain_sample)
    if page != "docs/format.md":  # which has a build of two shards
        monkeypatch.setattr(s3dis_sample, "DEFAULT_BLOCKS", 6)  # one in each area
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    # A snippet may run the command.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    BEFORE.get(page, lambda folder: None)(tmp_path)
    names: dict[str, Any] = {"__name__": "snippet"}
    for block in WITH_SNIPPETS[page]:
        code = block
        for words, shorter in SHORTER.get(page, {}).items():
            code = code.replace(words, shorter)
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            exec(compile(code, page, "exec"), names)


def modules_with_examples() -> list[str]:
    modules = []
    for folder in ("kmip_data", "pipelines", "models", "cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if ">>> " in path.read_text("utf-8"):
                parts = path.relative_to(ROOT).with_suffix("").parts
                modules.append(".".join(part for part in parts if part != "__init__"))
    return [name if name.startswith("kmip_data") else f"kmip_data.{name}" for name in modules]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_of_docstrings_print_what_they_show(name):
    module = importlib.import_module(name)
    results = doctest.testmod(module)
    assert results.failed == 0, name
    assert results.attempted > 0, f"{name} has no example that doctest finds"
