"""Rows that differ in k alone, and the paper's beside them."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import pytest
from support.cases import check_each
from support.cli import kmip
from support.reports import write_run

from kmip_data.builds.home import Home
from kmip_data.models.reports.listing import folders_of
from kmip_data.models.reports.over_k import curves_over_k, published_over_k, rows_over_k
from kmip_data.models.reports.runs import read_runs
from kmip_data.models.reports.tables import tables_of


def of_k(home, k: int, value: float, *, seconds: float = 10.0, changes=(), **options):
    changed = [f"model.attention.k={k}", *changes]
    spent = {"train_epoch": seconds, "total": 100.0}
    return write_run(home, value, changes=changed, seconds=spent, **options)


@pytest.fixture
def runs(tmp_path):
    """k = 5 and 10 from two seeds each, k = 10 with another rate, a GCN, and part of the data."""
    for seed in (0, 1):
        of_k(tmp_path, 5, 0.90 + 0.02 * seed, seconds=10.0 + 2 * seed, seed=seed)
        of_k(tmp_path, 10, 0.93, seconds=20.0, seed=seed)
    of_k(tmp_path, 10, 0.5, changes=["optimiser.lr=1e-2"])
    of_k(tmp_path, 20, 0.6, complete=False)
    write_run(tmp_path, 0.8, dataset="helsinki", model="gcn")
    return tmp_path


def test_rows_that_differ_in_k_alone_make_a_curve(runs):
    tables, _ = tables_of(read_runs(folders_of((), Home.locate(runs)))[0])
    found = [curves_over_k(table) for table in tables]
    (curve,) = [of for each in found for of in each.values() if len(of) > 1]
    assert list(curve) == [5, 10]
    assert (curve[5]["test"], curve[5]["test_std"]) == pytest.approx((0.91, 0.01))
    assert (curve[5]["seconds"], curve[5]["seconds_std"]) == pytest.approx((11.0, 1.0))
    names = {name for each in found for name in each}
    assert any("optimiser.lr=0.01" in name for name in names)
    assert not any("gcn" in name for name in names)
    assert sum(len(of) for each in found for of in each.values()) == 4  # the part of the data is apart


def test_published_figures_are_those_of_the_paper():
    malnet = {row["k"]: row for row in published_over_k("malnet-tiny", "accuracy")}
    assert list(malnet) == [1, 2, 3, 5, 10, 20, 30, 50, 100]
    assert (malnet[10]["test"], malnet[10]["test_std"]) == pytest.approx((0.9352, 0.0049))
    assert (malnet[100]["seconds"], malnet[100]["seconds_std"], malnet[100]["runs"]) == (666.36, 9.46, 5)
    assert published_over_k("peptides-func", "ap")[0]["test"] == pytest.approx(0.6064)
    assert published_over_k("malnet-tiny", "f1") == published_over_k("helsinki", "accuracy") == []


def test_the_paper_stands_beside_its_own_k_and_whole_data(tmp_path):
    def check(case, base=tmp_path):
        ks, complete, wanted = case
        tmp_path = Path(tempfile.mkdtemp(dir=base))
        for k in ks:
            of_k(tmp_path, k, 0.9, complete=complete)
        (table,), _ = tables_of(read_runs(folders_of((), Home.locate(tmp_path)))[0])
        ours, paper = rows_over_k(table)
        assert [row["paper_test"] for row in ours] == [value and pytest.approx(value) for value in wanted]
        assert len(paper) == (9 if complete else 0)
        assert len({row["curve"] for row in ours}) == 1

    check_each(check, [((5, 7), True, [0.9354, None]), ((5, 10), False, [None] * 2)])


def test_command_sets_them_beside_the_paper(runs, tmp_path):
    outcome = kmip("analyze", "influence-of-k", "--home", runs, "--save", tmp_path / "k")
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert "91.00 ± 1.00" in lines[1]
    assert "93.54 ± 0.52" in lines[1]
    assert "30.1400 ± 0.9400" in lines[2]
    assert "NVIDIA A100; the paper's on a V100" in outcome.out
    assert (tmp_path / "k.png").read_bytes()[:4] == b"\x89PNG"
    with (tmp_path / "k.csv").open(newline="") as file:
        assert [row["k"] for row in csv.DictReader(file)] == ["5", "10"]
    shown = kmip("analyze", "influence-of-k", "--home", runs, "--save", tmp_path / "k", "--json").json
    assert shown["rows"][1]["paper_seconds"] == 30.14
    assert shown["rows"][0]["runs"] == 2


def test_nothing_to_compare_is_told(tmp_path):
    write_run(tmp_path, 0.8, dataset="helsinki", model="gcn")
    outcome = kmip("analyze", "influence-of-k", "--home", tmp_path, "--save", tmp_path / "k")
    assert outcome.code == 2
    assert "differ in k alone" in outcome.err
    assert not (tmp_path / "k.png").exists()
