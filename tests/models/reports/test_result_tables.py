"""Runs by name, differences from a preset, rows and tables of a report, the paper's results."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

import pytest
from support.cases import check_each
from support.cli import expect_success
from support.raises import raises
from support.runs.reports import write_run

from kmip_data.builds.home import Home
from kmip_data.errors import Setting, UsageError
from kmip_data.files.small_files import sealed_json
from kmip_data.models.reports.result_tables import read_finished_runs, tables_of_runs
from kmip_data.models.reports.sheets import results_sheet
from kmip_data.models.sweeps.runs_by_name import select_runs
from kmip_data.models.training.config.presets import preset_names
from kmip_data.pipelines.find_builds import parameters_with_defaults

VALUES = [0.93, 0.94, 0.92]


def report(home: Path, *names: object, against: str | None = None):
    runs, notices = read_finished_runs(select_runs([str(name) for name in names], Home(home)))
    tables, others = tables_of_runs(runs, against)
    return tables, notices + others


def rows_of(home: Path, **options):
    return [row for table in report(home, **options)[0] for row in table.rows]


def test_seeds_of_a_configuration_are_a_row(tmp_path):
    for seed, value in enumerate(VALUES):
        write_run(tmp_path, value, seed=seed, hours=1 + seed)
    [row] = rows_of(tmp_path)
    assert row["test"] == statistics.fmean(VALUES)
    assert row["test_std"] == pytest.approx(statistics.stdev(VALUES))
    assert (row["runs"], row["seeds"], row["changes"]) == (3, "0 1 2", "")
    assert (row["hours"], row["device"], row["memory"], row["version"]) == (
        2,
        "NVIDIA A100",
        2e9,
        "1.0",
    )
    assert (row["share"], row["split"], row["parameters"]) == ("all", "upstream", 499_000)
    # The paper's 93.52 ± 0.49 of 5 runs.
    assert (row["paper"], row["paper_std"], row["paper_runs"]) == pytest.approx((0.9352, 0.0049, 5))
    assert row["to_paper"] == pytest.approx(0.93 - 0.9352)


def test_a_setting_that_the_data_decides_is_no_change(tmp_path):
    """A run records ``none`` for ``data.scale=auto`` of published data, and is still the paper's."""
    write_run(tmp_path, 0.93, changes=["data.scale=none"])
    [row] = rows_of(tmp_path)
    assert row["changes"] == ""
    assert row["to_paper"] == pytest.approx(0.93 - 0.9352)
    write_run(tmp_path, 0.93, changes=["data.scale=features"])
    scaled = next(row for row in rows_of(tmp_path) if row["changes"])
    assert scaled["changes"] == "data.scale=features instead of none"
    assert scaled["to_paper"] is None


def test_differences_are_to_the_best_over_the_same_seeds(tmp_path):
    def check(metric_is_better, base=tmp_path):
        tmp_path = Path(tempfile.mkdtemp(dir=base))
        dataset, sign = (
            ("malnet-tiny", 1) if metric_is_better == "higher" else ("peptides-struct", -1)
        )
        other = [0.5, 0.52, 0.47]
        for seed in range(3):
            write_run(tmp_path, 0.5 + sign * 0.1 + seed / 100, dataset=dataset, seed=seed)
            write_run(tmp_path, other[seed], dataset=dataset, seed=seed, model="gcn")
        write_run(tmp_path, 0.5, dataset=dataset, seed=7, model="gcn")  # without a partner
        gcn, best = rows_of(tmp_path)
        assert (gcn["rank"], best["rank"]) == (2, 1)
        assert best["to_baseline"] is None
        wanted = statistics.fmean(
            other[seed] - (0.5 + sign * 0.1 + seed / 100) for seed in range(3)
        )
        assert gcn["to_baseline"] == pytest.approx(wanted)
        assert (gcn["runs"], gcn["pairs"]) == (4, 3)
        gcn, best = rows_of(tmp_path, against="gcn")
        assert gcn["to_baseline"] is None
        assert best["to_baseline"] > 0 if sign > 0 else best["to_baseline"] < 0
        with raises(UsageError, steps=Setting(against="gcn")):
            rows_of(tmp_path, against="gnc")

    check_each(check, ["higher", "lower"])


def test_the_best_is_marked_where_it_is_more_than_a_standard_error_ahead(tmp_path):
    def marks(ours, other, error=None):
        home = Path(tempfile.mkdtemp(dir=tmp_path))
        for model, values in (("gps-kmip", ours), ("gcn", other)):
            for seed, value in enumerate(values):
                errors = {} if error is None else {"standard_errors": {"accuracy": error}}
                write_run(home, value, seed=seed, model=model, **errors)
        [table] = report(home)[0]
        sheet = results_sheet(table)
        assert len(set(sheet.colors)) == 2
        return sheet.ranks

    assert marks([0.9], [0.5]) == [None, None], "of one run each nothing is known of chance"
    assert marks([0.9], [0.5], error=0.2) == [1, 2]
    assert marks([0.9], [0.5], error=0.3) == [None, None], "the difference has an error of 0.42"
    assert marks([0.90, 0.92], [0.80, 0.82]) == [1, 2]
    assert marks([0.90, 0.80], [0.89, 0.79]) == [None, None]
    assert marks([0.90, 0.92], [0.80]) == [None, None]


def test_reference_answers_are_rows_without_a_rank(tmp_path):
    """The mean over the splits of the runs, in its place among them; no run is marked below a better one."""
    for fold, linear in ((0, 0.8), (1, 0.9)):
        split = {"name": f"s{fold}", "rule": "masks", "parameters": {"fold": fold}}
        split["digests"] = {"test": str(fold)}
        references = {"linear": {"val": 0.5, "test": linear}, "constant": {"test": 0.1}}
        for model, value in (("gcn", 0.7), ("gps-kmip", 0.6)):
            changes = [f"training.references={['none', 'true'][fold]}"]
            about = {"split": split, "references": references, "changes": changes}
            about["standard_errors"] = {"accuracy": 0.01}
            write_run(tmp_path, value, model=model, **about)
    [table], _ = report(tmp_path)
    assert len(table.rows) == 2
    assert [row["model"] for row in table.answer_rows] == ["constant answer", "linear model"]
    linear = table.all_rows[-1]
    assert (linear["test"], linear["runs"], linear["rank"]) == (pytest.approx(0.85), 2, None)
    assert linear.keys() == table.rows[0].keys()
    sheet = results_sheet(table)
    assert [cells[0] for cells in sheet.cells] == [
        "linear model (reference)",
        "gcn",
        "gps-kmip",
        "constant answer (reference)",
    ]
    assert sheet.ranks == [None] * 4
    assert len(sheet.cells) == len(sheet.ranks) == len(sheet.colors) == 4
    lines = expect_success("report", "--home", tmp_path).out.splitlines()
    assert any("linear model (reference)" in line and "85.00 ± 7.07" in line for line in lines)
    rows = expect_success("report", "--format", "json", "--home", tmp_path).json["rows"]
    assert rows[-1]["variant"] == "reference"
    narrow = results_sheet(table, narrow=True)
    assert len(narrow.cells) == 4

    constant = {"constant": {"test": 0.1}}
    for model, value in (("gcn", 0.7), ("gps-kmip", 0.6)):
        about = {"references": constant, "standard_errors": {"accuracy": 0.01}}
        write_run(tmp_path / "published", value, model=model, **about)
    [table], _ = report(tmp_path / "published")
    sheet = results_sheet(table)
    assert sheet.cells[2][0] == "constant answer (reference)"
    assert sheet.ranks == [1, 2, None]


OTHER_SPLIT = {"name": "upstream", "rule": "upstream", "parameters": {}, "digests": {"test": "1"}}


def test_different_settings_are_in_separate_rows(tmp_path):
    def check(case, base=tmp_path):
        other, tables, paper = case
        tmp_path = Path(tempfile.mkdtemp(dir=base))
        write_run(tmp_path, 0.9, seed=0)
        write_run(tmp_path, 0.8, seed=1, **other)
        shown, notices = report(tmp_path)
        rows = [row for table in shown for row in table.rows]
        assert (len(shown), [row["runs"] for row in rows], notices) == (tables, [1, 1], [])
        assert sorted((row["paper"] is not None for row in rows), reverse=True) == paper
        changed = "changes" in other
        assert [row["to_paper"] is None for row in rows if row["test"] == 0.8] == [
            changed or not paper[1]
        ]

    cases = [
        ({"changes": ["training.epochs=20"]}, 1, [True, True]),
        ({"build_key": "another build"}, 2, [True, True]),
        ({"split": OTHER_SPLIT}, 2, [True, True]),
        ({"sample": True}, 2, [True, False]),
        ({"complete": False}, 2, [True, False]),
        ({"dataset": "pcqm-contact"}, 2, [True, False]),
        ({"model": "mlp"}, 1, [True, False]),  # a preset of ours
    ]
    check_each(check, cases)


def test_machine_and_data_name_do_not_separate_rows(tmp_path):
    first = write_run(tmp_path, 0.9, seed=0, changes=["system.device=cpu"])
    second = write_run(tmp_path, 0.8, seed=1, device="cpu")
    result = json.loads((second / "result.json").read_text())
    result["config"]["data"]["dataset"] = "/elsewhere/built/malnet-tiny"
    (second / "result.json").write_text(sealed_json(result))
    [row] = rows_of(tmp_path)
    assert (row["runs"], row["device"], row["changes"]) == (2, "NVIDIA A100, cpu", "")
    assert row["folders"] == f"{first} {second}"


def test_a_seed_counts_once(tmp_path):
    first, second = (write_run(tmp_path, value, seed=3) for value in (0.8, 0.9))
    [table], [notice] = report(tmp_path)
    assert (table.rows[0]["runs"], table.rows[0]["test"]) == (1, 0.9)
    assert notice.startswith(f"{first} is skipped: {second} has the same configuration")


def test_a_split_that_follows_the_seed_is_one_table(tmp_path):
    for seed in range(2):
        split = {
            "name": f"upstream-area6-seed{seed}",
            "rule": "upstream",
            "digests": {"val": str(seed)},
        }
        split["parameters"] = {"split_rule": "upstream", "test_area": 6, "split_seed": seed}
        write_run(tmp_path, 0.6 + seed / 100, dataset="s3dis", seed=seed, split=split)
        write_run(tmp_path, 0.5, dataset="s3dis", seed=seed, model="gcn", split=split)
    gcn, kmip = rows_of(tmp_path)
    assert (kmip["runs"], kmip["changes"], gcn["pairs"]) == (2, "", 2)
    assert kmip["to_paper"] == pytest.approx(0.605 - 0.6799)
    split["digests"] = {"val": "another"}
    write_run(tmp_path, 0.5, dataset="s3dis", seed=2, model="gcn", split=split)
    write_run(tmp_path, 0.5, dataset="s3dis", seed=2, split={**split, "digests": {"val": "2"}})
    assert rows_of(tmp_path)[0]["pairs"] == 2


def test_londons_figures_are_of_fewer_layers_and_a_variant_of_ours_is_not_the_papers(tmp_path):
    def check(case):
        dataset, model, variant, figure, compared = case
        home = tmp_path / f"{model}-{variant}"
        write_run(home, 0.56, dataset=dataset, model=model, variant=variant)
        [row] = rows_of(home)
        assert row["paper"] == pytest.approx(figure)
        assert (row["to_paper"] is not None) == compared

    london = [("code", False), ("paper-depth", True), ("text", True)]
    cases = [("london", "gps-kmip", variant, 0.5605, compared) for variant, compared in london]
    check_each(check, [*cases, ("s3dis", "gps-kmip", "thesis-4-layers", 0.6799, False)])


def test_a_preset_as_it_is_has_no_changes(tmp_path):
    def check(name):
        dataset, model = name.replace("city/", "paris/").split("/")
        write_run(tmp_path / name, 0.5, dataset=dataset, model=model)
        [run], notices = read_finished_runs(select_runs([], Home(tmp_path / name)))
        assert (run.changes, notices) == ((), [])

    check_each(check, preset_names())


def test_rows_name_what_differs(tmp_path):
    def check(case):
        number, (options, said) = case
        home, dataset = tmp_path / str(number), options.get("dataset", "malnet-tiny")
        if "build_parameters" in options:
            options["build_parameters"] = (
                parameters_with_defaults(dataset, {}) | options["build_parameters"]
            )
        if "split" in options:
            options["split"] = {
                "name": options["split"],
                "rule": "spatial",
                "parameters": {},
                "digests": {},
            }
        write_run(home, 0.5, **options)
        [run], _ = read_finished_runs(select_runs([], Home(home)))
        assert said in run.changes

    cases = [
        ({"changes": ["training.epochs=20"]}, "training.epochs=20 instead of 150"),
        (
            {"changes": ["model.attention.kind=performer"]},
            "model.attention.kind=performer instead of k-mip",
        ),
        ({"changes": ["system.devices=2"]}, "system.devices=2 instead of 1"),
        (
            {"dataset": "peptides-func", "num_parameters": 300_000},
            "model.hidden_dim=88 instead of 56",
        ),
        ({"build_parameters": {"limit": 100}}, "limit=100 instead of none"),
        ({"dataset": "s3dis", "build_parameters": {"k": 16}}, "k=16 instead of 32"),
        (
            {"dataset": "paris", "split": "spatial-seed0"},
            "split=spatial-seed0 instead of random-seed0",
        ),
    ]
    check_each(check, enumerate(cases))


def test_a_run_with_an_unknown_preset_is_compared_with_the_defaults(tmp_path):
    for number, preset in enumerate(("", "a/b/c", "../../x", "malnet-tiny/none-such")):
        run = write_run(tmp_path, 0.5, seed=number)
        result = json.loads((run / "result.json").read_text())
        result["config"]["preset"] = preset
        (run / "result.json").write_text(sealed_json(result))
    runs, notices = read_finished_runs(select_runs([], Home(tmp_path)))
    assert notices == []
    for run in runs:
        assert run.paper is None
        assert "training.epochs=150 instead of 200" in run.changes


def test_a_preset_of_other_data_or_another_model_has_no_figure(tmp_path):
    run = write_run(tmp_path, 0.5)
    for changed in ({"dataset": "clouds"}, {"model": "gcn"}, {"metric": "f1"}):
        result = json.loads((run / "result.json").read_text()) | changed
        result["metrics"] = {"test": {"accuracy": 0.5, "f1": 0.5}}
        other = run.with_name(f"other-{'-'.join(changed)}")
        other.mkdir()
        (other / "result.json").write_text(sealed_json(result))
    write_run(tmp_path, 0.5, dataset="paris", variant="small-city")  # a variant of ours
    papers = [
        trained.paper is not None
        for trained in read_finished_runs(select_runs([], Home(tmp_path)))[0]
    ]
    assert sorted(papers) == [False] * 4 + [True]


def test_a_damaged_run_prints_a_notice_and_is_skipped(tmp_path):
    def check(damage, base=tmp_path):
        tmp_path = Path(tempfile.mkdtemp(dir=base))
        good, bad = write_run(tmp_path, 0.5), write_run(tmp_path, 0.6, seed=1)
        result = json.loads((bad / "result.json").read_text())
        data = damage if isinstance(damage, bytes) else json.dumps(result | damage).encode()
        (bad / "result.json").write_bytes(data)
        [run], [notice] = read_finished_runs(select_runs([], Home(tmp_path)))
        assert run.folder == good
        assert notice.startswith(f"{bad} is skipped: ")
        assert "\n" not in notice

    damages = [
        b"{",
        {"version": 2},
        {"metrics": {}},
        {"metrics": {"test": {"accuracy": 1e300}}},
    ]
    damages += [
        {"metrics": {"test": {"accuracy": float("nan")}}},
    ]
    damages += [
        {"config": {"data": {"dataset": "x"}, "model": {"layers": -1}}},
        {"surprise": 1},
    ]
    check_each(check, damages)


def test_runs_and_sweeps_are_selected_by_name(tmp_path):
    names = {
        "small-cities-0123abcd-seed0": "gcn",
        "small-cities-deep-0123abcd-seed0": "gat",  # of another plan
        "small-cities-0123abcd-seed1": "gine",
        "mine": "gcn",
    }
    for name, model in names.items():
        write_run(tmp_path, 0.5, dataset="helsinki", model=model, name=name)
    home = Home(tmp_path)
    other_plan = tmp_path / "sweeps" / "small-cities-deep"
    other_plan.mkdir(parents=True)

    def runs_of(*asked):
        return [run.folder.name for run in read_finished_runs(select_runs(asked, home))[0]]

    assert sorted(runs_of()) == sorted(runs_of("helsinki")) == sorted(names)
    assert runs_of("helsinki/gcn") == ["mine", "small-cities-0123abcd-seed0"]
    assert runs_of("small-cities") == ["small-cities-0123abcd-seed0", "small-cities-0123abcd-seed1"]
    assert runs_of("mine") == ["mine"]
    assert runs_of("helsinki/gcn/mine", "mine") == ["mine"]
    other_plan.rmdir()
    (tmp_path / "small-cities.toml").write_text(
        'about = "x"\ndatasets = ["helsinki"]\nmodels = ["gat"]\nseeds = [0]\n[[changes]]\nname = "deep"\n'
    )
    assert "small-cities-deep-0123abcd-seed0" in runs_of(str(tmp_path / "small-cities.toml"))
    (home.runs / "helsinki/gcn/mine/result.json").unlink()
    runs, [notice] = read_finished_runs(select_runs(["mine"], home))
    assert runs == []
    assert "is not a finished run" in notice
    with pytest.raises(UsageError):
        select_runs(["nothing"], home)
