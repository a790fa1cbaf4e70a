"""Plans that repeat the paper: their cells, seeds and variants against its tables."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from support.cases import check_each

from kmip_data.builds.home import Home
from kmip_data.models.sweeps.plans import SweepRun, expand_plan, read_sweep_plan, sweep_names
from kmip_data.models.training.config.paper_comparison import compare_with_paper
from kmip_data.models.training.config.presets import (
    PaperTable,
    load_preset,
    paper_tables,
    preset_names,
    read_preset,
)
from kmip_data.strict_model import read_shipped

TABLES = {table.plan: table for table in paper_tables()}
OVER_K = read_shipped("results", "influence-of-k")
#: Plans of the paper's searches, which have no table, and ours.
OTHERS = {"paper-depth", "paper-search", "paper-search-city"}
OURS = {
    "long-range-suite",
    "train-small-test-large",
    "k-schedule",
    "small-cities",
    "small-city-search",
}
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reproduce.md").read_text("utf-8")
TITLES = {
    "GCN": "gcn",
    "GINE": "gine",
    "GAT": "gat",
    "GatedGCN": "gated-gcn",
    "BigBird": "gps-bigbird",
    "Performer": "gps-performer",
    "Exphormer": "exphormer",
    "k-MIP": "gps-kmip",
}


@pytest.fixture
def home(tmp_path) -> Home:
    return Home.locate(tmp_path / "home")


def runs_by_change(plan: str, home: Home) -> dict[tuple[str, str, str], list[SweepRun]]:
    """Runs of a plan by dataset, model and change, one for each seed."""
    groups = defaultdict(list)
    for run in expand_plan(read_sweep_plan(plan), home):
        groups[run.dataset, run.model, run.change].append(run)
    return groups


def printed_results(table: PaperTable) -> dict[tuple[str, str], str]:
    """Results of a table as printed, by dataset and model, without its empty cells."""
    printed = {}
    for model, row in table.results.items():
        for dataset, cell in zip(table.datasets, row, strict=True):
            if cell not in {"OOM", "–"}:
                printed[dataset, model] = cell
    return printed


def test_every_plan_is_of_a_table_of_a_search_or_ours():
    over_k = {"influence-of-k", "malnet"}
    assert {*TABLES} | over_k | OTHERS | OURS == {*sweep_names()}


def test_a_plan_has_the_cells_of_its_table(home):
    def check(name: str) -> None:
        printed = printed_results(TABLES[name])
        groups = runs_by_change(name, home)
        assert {(dataset, model) for dataset, model, _ in groups} == printed.keys()
        for (dataset, model, change), runs in groups.items():
            result = printed[dataset, model]
            seeds = TABLES[name].runs if "±" in result else 1
            assert change == ""
            assert [run.seed for run in runs] == [*range(seeds)], (dataset, model)
            for run in runs:
                preset = load_preset(dataset, model)
                assert run.config == preset.with_seed(run.seed)
                assert run.config.variant == read_preset(dataset, model).default
                comparison = compare_with_paper(run.config)
                assert (comparison.differing_keys, comparison.sample) == ([], False)
                assert result in comparison.paper_value
                assert f"{seeds} run" in comparison.paper_value

    check_each(check, sorted(TABLES))


@pytest.mark.parametrize("name", ["influence-of-k", "malnet"])
def test_a_plan_over_k_contains_the_cells_of_its_table(name, home):
    paper = {(row["dataset"], row["k"]): row for row in OVER_K["row"]}
    every_k = list(dict.fromkeys(k for _, k in paper))
    rows = defaultdict(list)
    for (dataset, model, change), runs in runs_by_change(name, home).items():
        assert model == "gps-kmip"
        assert [run.seed for run in runs] == [*range(OVER_K["runs"])]
        k = runs[0].config.model.attention.k
        assert change == f"k{k}"
        rows[dataset].append(k)
        row, comparison = paper[dataset, k], compare_with_paper(runs[0].config)
        assert runs[0].config.variant == row["variant"]
        result = (row["test"], row["test_std"], row["metric"])
        assert (
            comparison.paper_result.mean,
            comparison.paper_result.std,
            comparison.paper_result.metric,
        ) == result
        assert comparison.differing_keys == []
    if name == "malnet":
        assert {dataset: {*ks} <= {*every_k} for dataset, ks in rows.items()} == {
            "malnet-tiny": True
        }
    else:
        assert all(ks == every_k for ks in rows.values())
    if name == "influence-of-k":
        assert {*rows} == {dataset for dataset, _ in paper}


def test_the_search_for_a_depth_has_the_message_passing_of_its_table(home):
    table = TABLES["paper-points"]
    stacks = [model for model in table.results if not model.startswith(("gps-", "exp"))]
    depths = defaultdict(set)
    for (dataset, model, change), runs in runs_by_change("paper-depth", home).items():
        [run] = runs
        assert run.seed == 0
        assert change == f"depth-{run.config.model.layers}"
        depths[dataset, model].add(run.config.model.layers)
    assert depths.keys() == {(dataset, model) for dataset in table.datasets for model in stacks}
    for (dataset, model), layers in depths.items():
        assert layers == {5, 10, 15}
        assert load_preset(dataset, model).model.layers in layers


def test_searches_cover_the_models_that_the_paper_trained(home):
    lrgb, city = TABLES["paper-lrgb"], TABLES["paper-city"]
    searched = {(dataset, model) for dataset, model, _ in runs_by_change("paper-search", home)}
    assert searched == {cell for cell in printed_results(lrgb) if cell[1] not in lrgb.taken_from}
    searched = {(dataset, model) for dataset, model, _ in runs_by_change("paper-search-city", home)}
    assert searched == {cell for cell in printed_results(city) if cell[0] == "paris"}


def test_a_default_has_the_depth_that_the_papers_text_gives():
    """The only defaults that are not upstream's file are London's."""
    others = set()
    for name in preset_names():
        preset = read_preset(*name.split("/"))
        if preset.paper is None:
            continue
        default, text = load_preset(*name.split("/")), load_preset(*name.split("/"), "text")
        assert default.model.layers == text.model.layers, name
        if preset.default != "code":
            others.add(name)
    assert others == {"london/gps-kmip", "london/gps-performer"}


def test_hours_of_the_page_are_those_of_the_commands(home):
    """Its two tables, cell by cell, and the sums over what the plans queue."""

    def hours(name: str) -> dict[str, float]:
        spent = defaultdict(float)
        table = TABLES[name]
        for (dataset, model, _), runs in runs_by_change(name, home).items():
            spent[dataset] += len(runs) * table.result(dataset, model).hours
        return spent

    points, city = hours("paper-points"), sum(hours("paper-city").values())
    for title, dataset in (("ShapeNet-Part", "shapenet-part"), ("S3DIS", "s3dis")):
        [total] = re.findall(rf"^\| {title} \(.*\| ([\d,]+) \|$", PAGE, re.MULTILINE)
        assert total == f"{points[dataset]:,.0f}"
    [(runs, total)] = re.findall(r"(\d+) runs, which take (\d+) hours", PAGE)
    assert int(runs) == len(expand_plan(read_sweep_plan("paper-city"), home))
    assert total == f"{city:.0f}"

    cells = 0
    columns: list[str] = []
    for line in PAGE.splitlines():
        if line.startswith("| | GCN"):
            columns = [title.strip() for title in line.strip("| ").split("|")]
        words = [word.strip() for word in line.strip("|").split("|")]
        dataset = words[0].partition(" (")[0].lower()
        table = next((table for table in TABLES.values() if dataset in table.datasets), None)
        if table is None or not columns or not line.startswith("| "):
            continue
        for title, word in zip(columns, words[1:], strict=True):
            if title in TITLES:
                result = table.result(dataset, TITLES[title])
                value = re.match(r"[\d.]+", word)
                assert (value and float(value[0])) == (result and result.hours), (dataset, title)
                cells += 1
    assert cells == 8 * (2 + 4)
