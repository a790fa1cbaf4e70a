"""Runs by name, received folders, and what differs from a preset."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from support.cases import check_each
from support.reports import write_run

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.models.reports.tables import read_runs
from kmip_data.models.sweeps.state import folders_of
from kmip_data.models.training.config.presets import preset_names
from kmip_data.pipelines.find import record_parameters


def test_a_preset_as_it_is_has_no_changes(tmp_path):
    def check(name):
        dataset, model = name.replace("city/", "paris/").split("/")
        write_run(tmp_path / name, 0.5, dataset=dataset, model=model)
        [run], notices = read_runs(folders_of([], Home(tmp_path / name)))
        assert (run.changes, notices) == ((), [])

    check_each(check, preset_names())


def test_what_differs_is_said(tmp_path):
    def check(case):
        number, (options, said) = case
        home, dataset = tmp_path / str(number), options.get("dataset", "malnet-tiny")
        if "build_parameters" in options:
            options["build_parameters"] = record_parameters(dataset, {}) | options["build_parameters"]
        if "split" in options:
            options["split"] = {"name": options["split"], "rule": "spatial", "parameters": {}, "digests": {}}
        write_run(home, 0.5, **options)
        [run], _ = read_runs(folders_of([], Home(home)))
        assert said in run.changes

    cases = [
        ({"changes": ["training.epochs=20"]}, "training.epochs=20 (150)"),
        ({"changes": ["model.attention.kind=performer"]}, "model.attention.kind=performer (k-mip)"),
        ({"changes": ["system.devices=2"]}, "system.devices=2 (1)"),
        ({"dataset": "peptides-func", "num_parameters": 300_000}, "model.hidden_dim=88 (56)"),
        ({"build_parameters": {"limit": 100}}, "limit=100 (none)"),
        ({"dataset": "s3dis", "build_parameters": {"k": 16}}, "k=16 (32)"),
        ({"dataset": "paris", "split": "spatial-seed0"}, "split=spatial-seed0 (random-seed0)"),
    ]
    check_each(check, enumerate(cases))


def test_a_preset_that_nobody_has_leaves_the_defaults(tmp_path):
    for number, preset in enumerate(("", "a/b/c", "../../x", "malnet-tiny/none-such")):
        run = write_run(tmp_path, 0.5, seed=number)
        result = json.loads((run / "result.json").read_text())
        result["config"]["preset"] = preset
        (run / "result.json").write_text(json.dumps(result))
    runs, notices = read_runs(folders_of([], Home(tmp_path)))
    assert notices == []
    for run in runs:
        assert run.paper is None
        assert "training.epochs=150 (200)" in run.changes


def test_a_preset_of_other_data_or_another_model_has_no_figure(tmp_path):
    run = write_run(tmp_path, 0.5)
    for changed in ({"dataset": "clouds"}, {"model": "gcn"}, {"metric": "f1"}):
        result = json.loads((run / "result.json").read_text()) | changed
        result["metrics"] = {"test": {"accuracy": 0.5, "f1": 0.5}}
        other = run.with_name(f"other-{'-'.join(changed)}")
        other.mkdir()
        (other / "result.json").write_text(json.dumps(result))
    write_run(tmp_path, 0.5, dataset="paris", variant="small-city")  # a variant of ours
    papers = [found.paper is not None for found in read_runs(folders_of([], Home(tmp_path)))[0]]
    assert sorted(papers) == [False] * 4 + [True]


def test_a_damaged_run_is_a_notice_and_not_the_end(tmp_path):
    def check(damage, base=tmp_path):
        tmp_path = Path(tempfile.mkdtemp(dir=base))
        good, bad = write_run(tmp_path, 0.5), write_run(tmp_path, 0.6, seed=1)
        result = json.loads((bad / "result.json").read_text())
        data = damage if isinstance(damage, bytes) else json.dumps(result | damage).encode()
        (bad / "result.json").write_bytes(data)
        [run], [notice] = read_runs(folders_of([], Home(tmp_path)))
        assert run.folder == good
        assert notice.startswith(f"{bad} is left out: ")
        assert "\n" not in notice

    damages = [b"", b"{", {"version": 2}, {"metrics": {}}, {"metrics": {"test": {"accuracy": 1e300}}}]
    damages += [{"metrics": {"test": {"accuracy": float("nan")}}}, {"metrics": {"test": {"f1": 0.5}}}]
    damages += [
        {"config": {}},
        {"config": {"data": {"dataset": "x"}, "model": {"layers": -1}}},
        {"surprise": 1},
    ]
    check_each(check, damages)


def test_runs_and_sweeps_by_name(tmp_path):
    names = {
        "small-cities-0123abcd-seed0": "gcn",
        "small-cities-deep-0123abcd-seed0": "gat",  # of another plan
        "small-cities-0123abcd-seed1": "gine",
        "mine": "gcn",
    }
    for name, model in names.items():
        write_run(tmp_path, 0.5, dataset="helsinki", model=model, name=name)
    home = Home(tmp_path)

    def found(*asked):
        return [run.folder.name for run in read_runs(folders_of(asked, home))[0]]

    assert sorted(found()) == sorted(names)
    assert found("small-cities") == ["small-cities-0123abcd-seed0", "small-cities-0123abcd-seed1"]
    assert found("mine") == ["mine"]
    assert found("helsinki/gcn/mine", "mine") == ["mine"]
    (tmp_path / "small-cities.toml").write_text(
        'about = "x"\ndatasets = ["helsinki"]\nmodels = ["gat"]\nseeds = [0]\n[[changes]]\nname = "deep"\n'
    )
    assert "small-cities-deep-0123abcd-seed0" in found(str(tmp_path / "small-cities.toml"))
    (home.runs / "helsinki/gcn/mine/result.json").unlink()
    runs, [notice] = read_runs(folders_of(["mine"], home))
    assert runs == []
    assert "is not a finished run" in notice
    with pytest.raises(UsageError, match="There is no run 'nothing'"):
        folders_of(["nothing"], home)
