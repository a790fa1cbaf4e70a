"""Messages about your own data: each names the command that works."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import r2_score, root_mean_squared_error
from support.cli import expect_refusal, expect_success

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.pipelines.find_builds import find_build

QUICK = ["--model", "gcn", "--epochs", "1", "--device", "cpu", "-q"]
QUICK += ["--set", "model.layers=1", "--set", "model.hidden_dim=8"]


def command_of(message: str) -> list[str]:
    """Return the words of the command that ends a message."""
    return shlex.split(re.search(r"next: kmip-data (.+)\n", message)[1])


def write_people(folder, *columns):
    """Write a ring of 40 people in two groups, with columns of numbers."""
    folder.mkdir()
    lines = [",".join(["node", *columns, "group"])]
    for number in range(40):
        values = [number % 7] * len(columns)
        lines.append(",".join(map(str, [f"p{number}", *values, "ab"[number % 2]])))
    (folder / "nodes.csv").write_text("\n".join(lines))
    edges = [f"p{number},p{(number + 1) % 40}" for number in range(40)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]))


@pytest.fixture
def people(home, tmp_path):
    """The command that builds a dataset with groups as labels, done once."""
    write_people(tmp_path / "soc", "age")
    words = ["build", "graphs", "--name", "soc", "--archive", tmp_path / "soc"]
    words += ["--set", "label=group", "-q"]
    expect_success(*words)
    return words


def test_a_build_without_labels_does_not_hide_the_one_with_labels(people, home, tmp_path):
    labelled = find_build("soc", home=Home(home)).path.name
    expect_success(*people[:-3], "-q")
    message = expect_refusal("train", "soc", *QUICK, "--name", "first")
    assert f"name {labelled} to use another.\n" in message
    assert command_of(message) == ["train", labelled, *QUICK, "--name", "first"]
    expect_success(*command_of(message))

    # The command that is repeated gives its build the name again, and the run goes on by either.
    text = " ".join(expect_success(*people).out.split())
    assert "; the name soc means the newest build" in text
    assert find_build("soc", home=Home(home)).path.name == labelled
    assert (
        "is finished already" not in expect_success("train", "soc", *QUICK, "--name", "first").err
    )
    expect_success("train", labelled, *QUICK, "--name", "first")


#: Words after `kmip-data` -> the command that its error names.
STEPS = {
    "train soc --set k=20": "train soc --set model.attention.k=20",
    "train soc --set data.parameters.k=20": "train soc --set model.attention.k=20",
    "train soc --k 20": "train soc --set model.attention.k=20",
    "train soc --set data.split.fold=3": "train soc --split-rule random --split-seed 3",
    "train soc --folds 3": "train soc --split-rule random --split-seed 3",
    "explore soc --split dev": "explore soc --split val",
    "explore soc --split TEST": "explore soc --split test",
    "train soc --set val_fraction=0.2": "train soc --set data.split.val_fraction=0.2",
    "train soc --set data.split.val_fraction=2": "train soc --set data.split.val_fraction=0.1",
    "train soc --set data.features=degree": "train soc --set data.features=degree-profile",
    "train soc --set undirected=true": "build graphs --name soc --archive FILE --set undirected=true",
    "train --set optimizer.lr soc": "train soc --set optimizer.lr=0.001",
    "train --set optimizer.lr 0.1 soc": "train soc --set optimizer.lr=0.1",
}


def test_the_next_step_is_the_corrected_command(people, subtests):
    for words, step in STEPS.items():
        with subtests.test(words):
            assert command_of(expect_refusal(*words.split())) == step.split()
    expect_success(*STEPS["train soc --folds 3"].split(), *QUICK)
    expect_success(*STEPS["train soc --set val_fraction=0.2"].split(), *QUICK)


def test_missing_configuration_file_is_refused(people, home, tmp_path):
    words = ["--epochs", "1", "-q"]
    missing = tmp_path / "mine.tml"
    assert command_of(expect_refusal("train", "--config", missing)) == ["train", "--help"]
    expect_success("train", "soc", *QUICK, "--name", "first")
    message = expect_refusal("train", "--config", missing, *words)
    config = home / "runs/soc/gcn/first/config.toml"
    assert command_of(message) == ["train", *words, "--config", str(config)]
    config.rename(missing.with_suffix(".toml"))
    message = expect_refusal("train", "--config", missing, *words)
    assert command_of(message) == ["train", "--config", f"{tmp_path}/mine.toml", *words]
    expect_success(*command_of(message))


def test_own_split_column_is_used_and_one_error_metric_is_printed(home, tmp_path):
    parts = ["train"] * 12 + ["val"] * 4 + ["test"] * 4
    rows = [f"{'C' * (number + 1)}O,{number / 3},{part}" for number, part in enumerate(parts)]
    (tmp_path / "sol.csv").write_text("\n".join(["smiles,logs,split", *rows]))
    words = ["--name", "sol", "--archive", tmp_path / "sol.csv", "--set", "label=logs", "-q"]
    expect_success("build", "graphs", *words)
    outcome = expect_success(
        "train", "sol", *[word for word in QUICK if word != "-q"], "--name", "r"
    )
    assert "sol has no preset: gcn uses its defaults" in outcome.err
    assert "split 'split': train 12, " in outcome.err
    assert "of batches" not in outcome.out
    assert re.search(r"\n *test +MAE [0-9.]+", outcome.out)
    assert "4 rows of test, split 'split', " in expect_success("predict", "r").out
    # The median of train is 5 / 3, and its mean 5.5 / 3; test has 16 / 3 to 19 / 3.
    assert "; a constant answer has 4.1667\n" in outcome.out
    squared = expect_success("train", "sol", *QUICK, "--set", "training.metric=r2").out
    assert "; a constant answer has -115.2000\n" in squared
    # The parts are a split, and no attribute of an item unless it is named.
    item = kmip_data.open("sol", split="train")[0]
    assert set(item.keys()) == {"x", "edge_index", "edge_attr", "y"}
    assert kmip_data.open("sol", columns=["split"])[12].split.tolist() == [1]
    expect_success("encode", "sol", "rwse3", "-q")
    encoded = kmip_data.open("sol", columns=["rwse3"])[0]
    assert set(encoded.keys()) == {"x", "edge_index", "edge_attr", "y", "rwse"}


def test_rare_classes_are_shown_and_the_key_of_their_weights_is_named(home, tmp_path):
    parts = [*["train"] * 22, "val", "val", "test", "test"]
    rows = [
        f"{'C' * (row + 1)}O,{'no' if row % 11 else 'yes'},{part}" for row, part in enumerate(parts)
    ]
    (tmp_path / "tox.csv").write_text("\n".join(["smiles,toxic,split", *rows]))
    words = ["--name", "tox", "--archive", tmp_path / "tox.csv", "--set", "label=toxic", "-q"]
    expect_success("build", "graphs", *words)
    typed = ["train", "tox", *[word for word in QUICK if word != "-q"], "--name", "r"]
    outcome = expect_success(*typed)
    assert re.search(r"\ntest +precision \[%\] +recall \[%\] +F1 \[%\] +count\nno ", outcome.out)
    assert re.search(r"\nyes +(?:\S+ +){3}0\n", outcome.out)
    (warning,) = [line for line in outcome.err.splitlines() if "larger weights" in line]
    assert "the classes of train have 2 to 20 graphs; " in warning
    for option in re.findall(r"--set \S+", warning):
        typed += option.split()
    typed[-5] = "weighted"
    outcome = expect_success(*typed)
    assert "larger weights" not in outcome.err
    assert "the best by balanced accuracy on val" in outcome.out
    scores = expect_success("evaluate", "weighted", "--json").json["class_scores"]
    assert [score["count"] for score in scores] == [2, 0]
    assert scores[1]["recall"] is None


def test_the_constant_baseline_ignores_missing_numbers(home, tmp_path):
    write_people(tmp_path / "soc", "age")
    table = (tmp_path / "soc/nodes.csv").read_text().replace("p3,3,", "p3,,")
    (tmp_path / "soc/nodes.csv").write_text(table)
    words = ["--set", "label=age", "--set", "task=regression", "-q"]
    expect_success("build", "graphs", "--name", "soc", "--archive", tmp_path / "soc", *words)
    trained = expect_success("train", "soc", *QUICK, "--json").json
    graph = kmip_data.open("soc")[0]
    known = graph.y.isfinite()
    train, test = graph.y[graph.train_mask & known], graph.y[graph.test_mask & known]
    error = (test - train.median()).abs().mean()
    result = json.loads((Path(trained["run"]) / "result.json").read_text())
    assert result["references"]["constant"]["test"] == pytest.approx(float(error))

    # Metrics of one graph are those of all known nodes of a part.
    expect_success("predict", trained["run"])
    with np.load(Path(trained["run"]) / "predictions.npz") as predicted:
        answers = predicted["pred"][:, 0][known[graph.test_mask]]
    measured = result["metrics"]["test"]
    assert measured["r2"] == pytest.approx(r2_score(test, answers), rel=1e-5)
    assert measured["rmse"] == pytest.approx(root_mean_squared_error(test, answers), rel=1e-5)


def test_prediction_on_other_data_names_the_build_to_make(people, home, tmp_path):
    expect_success("train", "soc", *QUICK, "--name", "first")
    (tmp_path / "new.csv").write_text("source,target\np0,p1\n")
    message = expect_refusal("predict", "first", "--dataset", tmp_path / "new.csv")
    assert "; then the same command with the dataset 'new'\n" in message
    assert command_of(message)[-2:] == ["--like", f"{home}/runs/soc/gcn/first"]

    write_people(tmp_path / "wide", "age", "size")
    expect_success(
        "build", "graphs", "--name", "wide", "--archive", tmp_path / "wide", *people[-3:]
    )
    message = expect_refusal("predict", "first", "--dataset", "wide")
    expect_success(*command_of(message), "-q")
    expect_success("predict", "first", "--dataset", "wide-new")

    # Other columns: first a training, then the run that it gave; other data where nothing is learned.
    write_people(tmp_path / "tall", "height")
    words = ["build", "graphs", "--name", "tall", "--archive", tmp_path / "tall", "-q"]
    expect_success(*words, "--set", "label=group")
    message = expect_refusal("predict", "first", "--dataset", "tall")
    assert command_of(message) == ["train", "tall"]
    expect_success("train", "tall", *QUICK, "--name", "own")
    message = expect_refusal("predict", "first", "--dataset", "tall")
    assert command_of(message) == ["predict", "tall/gcn/own"]
    expect_success(*command_of(message))
    words[words.index("tall")] = "bare"
    expect_success(*words, "--set", "label=none", "--set", "ignore=group")
    message = expect_refusal("predict", "first", "--dataset", "bare")
    assert command_of(message) == ["list"]

    message = expect_refusal("train", "soc", "--preset", "soc/gcn")
    assert command_of(message) == ["train", "soc", "--model", "gcn"]

    smiles = [f"{'C' * length}O,{length % 2}" for length in range(1, 21)]
    (tmp_path / "assay.csv").write_text("\n".join(["smiles,toxic", *smiles]))
    words = ["build", "graphs", "--name", "assay", "--archive", tmp_path / "assay.csv"]
    expect_success(*words, "--set", "label=toxic", "-q")
    message = expect_refusal("predict", "first", "--dataset", "assay")
    assert "The run 'first' learned classification of each node, and assay has targets" in message
    assert "targets for classification of each graph" in message


def test_a_report_has_one_row_for_the_seeds_of_a_name(people, home, tmp_path):
    """The seeds of a name are one row of a report; other settings are listed line by line."""
    expect_success("train", "soc", *QUICK, "--name", "two", "--seeds", "0..1")
    rows = expect_success("report", "two", "--format", "json").json["rows"]
    assert [row["seeds"] for row in rows if row["variant"] != "reference"] == ["0 1"]
    assert expect_success("report", "soc", "--format", "json").json["rows"] == rows

    message = expect_refusal(
        "train", "soc", *QUICK, "--name", "two-seed0", "--set", "optimizer.lr=0.5"
    )
    assert re.search(r"found: optimizer.lr: [0-9.]+, not 0.5\n  ", message)

    message = expect_refusal("predict", "soc")
    assert message.startswith("Error: soc is a dataset; this command takes a run.\n")
    assert command_of(expect_refusal("preview", "soc/gcn/two-seed0")) == [
        "explore",
        "soc/gcn/two-seed0",
    ]
    assert "small-cities" in expect_refusal("report", "zzzz")
    expect_success("train", "soc", *QUICK, "--name", "a")
    assert "Did you mean 'soc/gcn/two-seed1'?" in expect_refusal("predict", "soc/gcn/tow-seed1")


def test_an_unknown_split_rule_is_refused_and_not_replaced(home, tmp_path):
    table = tmp_path / "assay.csv"
    table.write_text("smiles,y\nCCO,1\nCCN,0\nCCC,1\nCCCl,0\nCCBr,1\n")
    line = ["build", "graphs", "--name", "assay", "--archive", table, "--split-rule"]
    for typed, step in {
        "cluster": "remedy: one of these rules, or the parts in a column split of the files",
        "randon": f"next: {shlex.join(['kmip-data', *map(str, line), 'random'])}",
    }.items():
        message = expect_refusal(*line, typed)
        assert (
            f"There is no rule or column of parts {typed!r}.\n  expected: random, stra" in message
        )
        assert f"  {step}\n" in message


def test_positives_and_missing_labels_of_several_targets_are_counted(home, tmp_path):
    table = tmp_path / "assay.csv"
    table.write_text("smiles,HIV,Tox\nCCO,1,0\nCCN,,1\nCCC,0,\nCCCl,1,1\nCCBr,0,0\n")
    labels = ["--set", "label=HIV", "--set", "label=Tox", "--set", "task=multilabel"]
    shown = expect_success(
        "build", "graphs", "--name", "assay", "--archive", table, *labels, "--dry-run"
    ).out
    facts = {line[2:18].strip(): line[18:] for line in shown.splitlines()}
    assert facts["positives"] == "2 (HIV: 2, Tox: 2)"
    assert facts["missing labels"] == "HIV: 1, Tox: 1"
    assert facts["missing"] == "none"
    assert "classes" not in facts


def test_evaluation_names_missing_build_of_run(people, home, tmp_path):
    run = expect_success("train", "soc", *QUICK, "--name", "first", "--json").json["run"]
    expect_success("remove", "soc", "--yes")
    write_people(tmp_path / "new", "age")
    new = ["build", "graphs", "--name", "new", "--archive", tmp_path / "new"]
    for command in (
        ["predict", run],
        ["evaluate", run],
        ["explore", run],
        [*new, "--like", run],
    ):
        message = expect_refusal(*command)
        assert "The build of soc that the run was trained on is gone.\n" in message
    step = re.search(r"  or: kmip-data (build .*)\n", message)[1]
    assert step == "build graphs --name soc --archive FILE --set label=group"

    expect_success(*shlex.split(step.replace("FILE", str(tmp_path / "soc"))), "-q")
    expect_success("evaluate", run)


def test_unknown_own_build_is_refused(people, home):
    run = expect_success("train", "soc", *QUICK, "--name", "first", "--json").json["run"]
    assert "next: kmip-data list\n" in expect_refusal("predict", run, "--dataset", "nothere")
    assert f"next: kmip-data predict {run} --dataset soc\n" in expect_refusal(
        "predict", run, "--dataset", "socc"
    )
    with pytest.raises(UsageError) as caught:
        kmip_data.open("socc")
    assert caught.value.steps == ["kmip_data.open('soc')"]


def test_features_are_refused_and_a_missing_target_is_reported_for_molecules(home, tmp_path):
    pytest.importorskip("rdkit")
    file = tmp_path / "assay.csv"
    file.write_text("smiles,toxic,solvent\n" + "CCO,no,0.5\nCCC,yes,1.5\n" * 10)
    words = ["build", "graphs", "--name", "assay", "--archive", file]

    message = expect_refusal(*words, "--set", "label=toxic", "--set", "feature=solvent")
    command = message.partition("next: kmip-data ")[2]
    expect_success(*shlex.split(command), "-q")

    text = expect_success(*words, "--dry-run").out
    assert "to train       build with --set label=COLUMN (toxic, solvent)" in text


def test_smiles_without_a_header_are_not_read_as_edges(home, tmp_path):
    pytest.importorskip("rdkit")
    file = tmp_path / "assay.csv"
    file.write_text("CCO,1.5\nCC(=O)O,2.5\nc1ccccc1,0.5\n" * 4)
    words = ["build", "graphs", "--name", "a", "--archive", file, "--set", "picture=false"]
    message = expect_refusal(*words, code=4)
    assert message.rstrip().endswith(" --set smiles=0")
    assert (
        "graphs         12\n" in expect_success(*words, "--set", "smiles=0", "--set", "label=1").out
    )

    # Ids of nodes that look like the carbon of a ring.
    file.write_text("c1,c2\nc2,c3\nc1,c3\n")
    assert "edges           3\n" in expect_success(*words).out


def test_unnamed_classes_are_shown_by_number(home, tmp_path):
    pytest.importorskip("rdkit")
    file = tmp_path / "assay.csv"
    file.write_text("smiles,active\n" + "CCO,0\nCCC,1\nCCN,1\n" * 4)
    words = ["build", "graphs", "--archive", file, "--dry-run", "--set", "label=active"]
    assert "  classes        2 (0: 4, 1: 8)\n" in expect_success(*words).out


def test_the_summary_covers_molecules_and_a_single_class(home, tmp_path):
    pytest.importorskip("rdkit")
    file = tmp_path / "assay.csv"
    file.write_text("smiles,toxic,kind\n" + "CCO,1,a\nCCC,2,a\n" * 10)
    words = ["build", "graphs", "--archive", file, "--dry-run"]
    text = expect_success(*words, "--set", "label=toxic").out
    assert "  classes        2 (1: 10, 2: 10)\n" in text
    assert "  edge features  3 (type, stereo, conjugated)\n" in text
    assert "one class" not in text
    text = expect_success(*words, "--set", "label=kind").out
    assert "classes        1 (a: 20)" in text
    assert "every label is a: a network learns nothing from one class" in text


def test_only_runs_with_the_same_target_are_suggested(home, tmp_path):
    pytest.importorskip("rdkit")
    file = tmp_path / "assay.csv"
    file.write_text("smiles,mass,logs\n" + "CCO,1.5,0.5\nCCC,2.5,0.25\n" * 10)
    (tmp_path / "new.csv").write_text("smiles\nCO\n")
    words = ["build", "graphs", "-q", "--archive"]
    for name in ("mass", "logs"):
        expect_success(*words, file, "--name", name, "--set", f"label={name}")
        expect_success("train", name, *QUICK, "--name", "first")
    for name in ("mass", "logs"):
        expect_success(*words, tmp_path / "new.csv", "--name", f"new-{name}", "--like", name)
        advised = command_of(expect_refusal("train", f"new-{name}"))
        assert advised == ["predict", f"{home}/runs/{name}/gcn/first", "--dataset", f"new-{name}"]
        expect_success(*advised)


def test_a_preset_for_typed_atoms_reads_user_molecules(home, tmp_path):
    pytest.importorskip("rdkit")
    file = tmp_path / "assay.csv"
    file.write_text("smiles,toxic\n" + "CCO,no\nCCC,yes\n" * 10)
    words = ["--name", "assay", "--archive", file, "--set", "label=toxic", "-q"]
    expect_success("build", "graphs", *words)

    preset = ["train", "assay", "--preset", "zinc/gps-kmip", *QUICK[2:6]]
    preset += ["--set", "model.layers=1", "--set", "model.hidden_dim=32"]
    messages = expect_success(*preset, "--name", "first").err
    assert "model.node_encoder = types28 does not fit the data; using atom\n" in messages
    assert "model.edge_encoder = types4 does not fit the data; using bond\n" in messages

    # Encoders that were typed lead to the same ones.
    types = ["--set", "model.edge_encoder=types4", "--set", "model.node_encoder=types120"]
    message = expect_refusal(*preset, *types)
    assert command_of(message)[-2:] == ["--set", "model.node_encoder=atom"]
    message = expect_refusal(*command_of(message))
    assert command_of(message)[-2:] == ["--set", "model.edge_encoder=bond"]
    expect_success(*command_of(message))
