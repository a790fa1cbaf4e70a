"""Descriptions of columns: what a dry run prints, a file has, and new data are held to."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from support.cases import check_each
from support.cli import expect_refusal, expect_success
from support.shared import shared_data
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Build
from kmip_data.columns.column_roles import ColumnRoles
from kmip_data.errors import UsageError

SMALL = ["--model", "gine", "--epochs", "1", "--device", "cpu", "--quiet"]
SMALL += ["--set", "model.hidden_dim=8", "--set", "model.parameter_budget=none"]
COUNTRIES = ["NL", 'the "South"', "Åland 🏝"]


def people(rows: int, seed: int, **columns: Any) -> pd.DataFrame:
    """Table of nodes with a number, a number that is missing in places, texts, names and a label."""
    rng = np.random.default_rng(seed)
    age = rng.integers(1, 90, rows).astype(float)
    age[::7] = np.nan
    values = {
        "id": [f"p{row}" for row in range(rows)],
        "income": rng.random(rows).round(3),
        "country": rng.permutation(np.resize(COUNTRIES, rows)),
        "age": age,
        "note": [f"note {row}" for row in range(rows)],
        "group": rng.permutation(np.resize(["x", "y", "z"], rows)),
    }
    return pd.DataFrame({**values, **columns})


def write(folder: Path, nodes: pd.DataFrame) -> Path:
    """Write tables of nodes and of edges between them; return the folder."""
    folder.mkdir()
    nodes.to_csv(folder / "nodes.csv", index=False)
    source = nodes["id"].to_numpy()
    edges = pd.DataFrame({"source": source, "target": np.roll(source, 1)})
    edges.to_csv(folder / "edges.csv", index=False)
    return folder


def build(name: str, archive: Path, *options: str) -> Build:
    expect_success("build", "graphs", "--name", name, "--archive", archive, "--quiet", *options)
    return kmip_data.open(name, split=None).build


def nodes_of(build: Build) -> tuple[list[str], np.ndarray]:
    """Return names and values of the features of nodes."""
    data = kmip_data.open(build.path, split=None)[0]
    return list(build.card.schema_.column("node/x").fields), data.x.numpy()


@pytest.fixture
def old(home: Path, tmp_path: Path) -> Path:
    folder = write(tmp_path / "old", people(30, 0))
    build("old", folder, "--set", "label=group", "--set", "undirected=true")
    return folder


def test_a_dry_run_prints_each_column_and_writes_nothing(home, tmp_path):
    table = people(30, 0)
    folder = write(tmp_path / "old", table)
    line = ["build", "graphs", "--archive", folder, "--set", "label=group", "--dry-run"]
    facts = expect_success(*line, "--json").json
    columns = {
        column["column"]: column
        for column in facts["files"]["columns"]["columns"]
        if column["level"] == "node"
    }
    uses = {name: column["use"] for name, column in columns.items()}
    assert uses == {
        "id": "id",
        "income": "number",
        "country": "category",
        "age": "number",
        "note": "ignored",
        "group": "label",
    }
    for name, column in columns.items():
        assert column["distinct"] == table[name].nunique(), name
        assert column.get("missing", 0) == table[name].isna().sum(), name
        values = table[name].dropna().unique()[:3]
        assert column["values"] == [str(value).removesuffix(".0") for value in values]
    assert facts["files"]["columns"]["classes"] == ["x", "y", "z"]
    assert facts["counts"] == {"graphs": 1, "nodes": 30, "edges": 30}
    text = expect_success(*line).out
    assert re.search(r"node +age +number .* 5$", text, re.MULTILINE)
    assert "classes         3 (x: 10, y: 10, z: 10)" in text
    assert not home.exists()
    [command] = re.findall(r"\nNext: kmip-data (.*)\n", text)
    expect_success(*shlex.split(command), "--quiet")
    assert kmip_data.open("mine", split=None).build.card.key == facts["key"]


def test_building_from_a_written_description_gives_the_same_build(home, tmp_path):
    folder = write(tmp_path / "old", people(30, 0))
    file = tmp_path / "columns.toml"
    line = ["build", "graphs", "--archive", folder, "--dry-run", "--describe", file]
    expect_success(*line, "--set", "label=group")
    assert "exists already" in expect_refusal(*line)
    plain = build("plain", folder, "--set", "label=group")
    read_back = build("read-back", folder, "--like", str(file))
    beside = build("beside", write_next_to(folder, file))
    for other in (read_back, beside):
        assert other.card.schema_ == plain.card.schema_
        assert other.card.class_names == plain.card.class_names
        for attribute, values in kmip_data.open(plain.path, split=None)[0].to_dict().items():
            same = kmip_data.open(other.path, split=None)[0][attribute]
            assert torch.equal(torch.as_tensor(same), torch.as_tensor(values)), attribute
        assert str(tmp_path) not in (other.path / "card.json").read_text("utf-8")


def write_next_to(folder: Path, file: Path) -> Path:
    (folder / "columns.toml").write_bytes(file.read_bytes())
    return folder


def test_an_edited_description_changes_the_build(home, tmp_path):
    folder = write(tmp_path / "old", people(30, 0))
    file = tmp_path / "columns.toml"
    line = ["build", "graphs", "--archive", folder, "--set", "label=group", "--dry-run"]
    said = expect_success(*line, "--set", "on_error=skip", "--describe", file).out
    text = file.read_text("utf-8")
    # The command to type has the file and all that it does not describe.
    step = said.rpartition("Next: kmip-data ")[2].strip()
    assert text.splitlines()[1] == f"# Then: kmip-data {step}"
    words = ["--name", "mine", "--archive", str(folder), "--set", "on_error=skip"]
    assert shlex.split(step) == ["build", "graphs", *words, "--like", str(file)]
    expect_success(*shlex.split(step), "-q")
    text = text.replace('classes = ["x", "y", "z"]', 'classes = ["z", "x", "y"]')
    text = text.replace('column = "income"\nlevel = "node"\nuse = "number"',
                        'column = "income"\nlevel = "node"\nuse = "ignored"')  # fmt: skip
    file.write_text(text, "utf-8")
    ColumnRoles.model_validate(tomllib.loads(text))
    edited = build("edited", folder, "--like", str(file))
    assert edited.card.class_names == ["z", "x", "y"]
    names, _ = nodes_of(edited)
    assert "income" not in names
    assert "age" in names
    # Parameters are edits, too.
    names, _ = nodes_of(build("again", folder, "--like", str(file), "--set", "ignore=age"))
    assert not {"income", "age", "age missing"} & {*names}
    file.write_text("uses = 3\n", "utf-8")
    message = expect_refusal(
        "build", "graphs", "--name", "bad", "--archive", folder, "--like", file, code=4
    )
    assert "columns.toml is not a valid description of columns: uses" in message


def test_new_data_are_built_with_the_columns_of_an_earlier_build(old, tmp_path):
    """The new data differ in texts, column order, missing values and labels; pandas is the oracle."""
    table = people(9, 1, country=["NL"] * 9, age=np.arange(9), further=1).drop(columns="group")
    new = build("new", write(tmp_path / "new", table[table.columns[::-1]]), "--like", "old")
    names, x = nodes_of(new)
    expected, _ = nodes_of(kmip_data.open("old", split=None).build)
    assert names == expected
    wanted = {name: np.zeros(9) for name in names}
    wanted |= {"income": table["income"], "country=NL": np.ones(9), "age": np.arange(9)}
    assert {f"country={country}" for country in COUNTRIES} < {*names}
    np.testing.assert_array_equal(x, np.stack([wanted[name] for name in names], 1, dtype="float32"))
    assert new.card.schema_.y_column is None
    assert new.card.parameters["undirected"] is True
    assert "further: not in the description" in new.card.statistics["files"]["ignored"]


def test_new_data_are_read_with_the_decimal_sign_of_an_earlier_build(home, tmp_path):
    """The text 1,234 alone may mean 1.234 or 1234."""
    income = [f"1,{100 + row}" for row in range(9)]
    archive = write(tmp_path / "old", people(9, 0, income=income))
    old = build("old", archive, "--set", "label=group", "--set", "decimal=,")
    new = build("new", write(tmp_path / "new", people(9, 1, income=income)), "--like", "old")
    for each in (old, new):
        names, x = nodes_of(each)
        expected = [1.1 + row / 1_000 for row in range(9)]
        np.testing.assert_allclose(x[:, names.index("income")], expected, rtol=1e-6)


def test_a_run_can_be_given_in_place_of_the_build_it_was_trained_on(old, tmp_path, home):
    """The same holds if a newer build with other columns has the same name."""
    expect_success("train", "old", "--name", "first", *SMALL)
    build("old", old, "--set", "label=country")
    table = people(9, 1).drop(columns="group")
    folder = write(tmp_path / "new", table)
    by_run = build("new", folder, "--like", "old/gine/first")
    assert "country=NL" in nodes_of(by_run)[0]
    by_path = build("again", folder, "--like", str(home / "runs" / "old" / "gine" / "first"))
    assert by_path.card.schema_ == by_run.card.schema_
    message = expect_refusal(
        "build", "graphs", "--name", "a", "--archive", folder, "--like", "old/x/y"
    )
    assert "old/x/y" in message


def test_unknown_values_are_refused_and_their_cell_is_named(old, tmp_path):
    cases = {
        "country": ("BE", "line 4: 'country' is 'BE', not one of the categories NL, the"),
        "income": ("much", "line 4: 'income' is 'much', not a number"),
        "group": ("w", "line 4: 'group' is 'w', not one of the classes x, y, z"),
    }

    def check(case):
        column, (value, words) = case
        table = people(9, 1)
        table[column] = table[column].astype(object)
        table.loc[2, column] = value
        archive = write(tmp_path / f"{column} {value}", table)
        line = ["build", "graphs", "--name", "new", "--archive", archive, "--like", "old"]
        assert f"nodes.csv, {words}" in expect_refusal(*line, code=4)

    check_each(check, [*cases.items(), ("income", ("", "line 4: 'income' is empty"))])
    archive = write(tmp_path / "less", people(9, 1).drop(columns="income"))
    message = expect_refusal(
        "build", "graphs", "--name", "new", "--archive", archive, "--like", "old", code=4
    )
    assert "No table has the column 'income' of the description" in message


def test_a_trained_model_predicts_new_data(old, tmp_path, home):
    """The refusal prints a command that fits new data to the run, and then the run predicts them."""
    expect_success("train", "old", *SMALL)
    [run] = (home / "runs").glob("*/*/*/config.toml")
    table = people(12, 2, country="NL")
    build("new", write(tmp_path / "new", table), "--set", "label=group")
    message = expect_refusal("evaluate", run.parent, "--dataset", "new")
    assert "remedy: then the same command again with the dataset 'new-new'\n" in message
    command = re.search(r"next: kmip-data (.*)\n", message)[1]
    expect_success(*shlex.split(command), "--quiet")
    expect_success("evaluate", run.parent, "--dataset", "new-new")
    archive = write(tmp_path / "bare", table.drop(columns="group"))
    build("bare", archive, "--like", "old")
    expect_success("predict", run.parent, "--dataset", "bare", "--output", tmp_path / "p.csv", "-q")
    predicted = pd.read_csv(tmp_path / "p.csv")
    assert len(predicted) == 12
    assert {"logit x", "logit y", "logit z"} <= {*predicted.columns}


def test_a_given_label_replaces_the_label_of_a_description_and_its_classes(old):
    other = build("other", old, "--like", "old", "--set", "label=income")
    column = other.card.schema_.column("node/y")
    assert (column.num_classes, column.stored) == (None, "float32")
    names, _ = nodes_of(other)
    assert names == [
        name
        for name in nodes_of(kmip_data.open("old", split=None).build)[0]
        if not name.startswith("income")
    ]
    words = ("--name", "none", "--archive", old, "--like", "old", "--set", "label=incom")
    assert "label=income" in expect_refusal("build", "graphs", *words)


def test_predicted_values_are_named_after_their_targets(old, tmp_path, home):
    """The names are also written for data without targets."""
    build("values", old, "--set", "label=income")
    expect_success("train", "values", "--name", "first", *SMALL)
    archive = write(tmp_path / "bare", people(12, 2).drop(columns="income"))
    build("bare", archive, "--like", "values")
    expect_success(
        "predict", "values/gine/first", "--dataset", "bare", "--output", tmp_path / "p.csv"
    )
    assert [*pd.read_csv(tmp_path / "p.csv")] == ["key", "pred income"]


def test_arrays_of_new_data_get_the_dtypes_of_an_earlier_build(home, tmp_path):
    ring = torch.stack([torch.arange(4), torch.arange(4).roll(1)])

    def graphs(name, dtype, labels, **more):
        values = [
            Data(x=torch.arange(8).reshape(4, 2).to(dtype), edge_index=ring, **more) for _ in labels
        ]
        for data, label in zip(values, labels, strict=True):
            data.y = torch.tensor([label])
        torch.save(values, tmp_path / f"{name}.pt")
        return tmp_path / f"{name}.pt"

    first = build("first", graphs("first", torch.float32, [0, 1, 2, 0], w=torch.ones(4)))
    second = build(
        "second",
        graphs("second", torch.float64, [1, 1], w=torch.ones(4), more=torch.ones(4)),
        "--like",
        "first",
    )
    columns = {column.key: column for column in second.card.schema_.columns}
    assert {*columns} == {column.key for column in first.card.schema_.columns}
    assert columns["node/x"].presented == "float32"
    assert columns["graph/y"].num_classes == 3
    line = ["build", "graphs", "--name", "third", "--like", "first", "--archive"]
    assert "The files have no w" in expect_refusal(
        *line, graphs("third", torch.float32, [1, 1]), code=4
    )
    wrong = graphs("fourth", torch.float32, [1, 3], w=torch.ones(4))
    assert "y is 3, which is not a class" in expect_refusal(*line, wrong, code=4)


def test_a_published_file_can_be_described(home):
    file = shared_data("node_benchmarks/chameleon_filtered.npz")
    facts = expect_success("build", "graphs", "--archive", file, "--dry-run", "--json").json
    columns = {column["column"]: column for column in facts["files"]["columns"]["columns"]}
    assert columns["x"]["shape"] == [2325]
    assert facts["files"]["columns"]["task"] == "classification"
    assert facts["counts"]["nodes"] == 890


def test_tables_of_several_types_are_merged_with_a_type_column(home, tmp_path):
    """The layout of DGL's CSVDataset; the advice of its refusal is followed."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "meta.yaml").write_text("dataset_name: shop\n")
    nodes = []
    for number, kind in enumerate(("user", "item")):
        table = pd.DataFrame({"node_id": range(3), "price": [1.5, 2, number]})
        table.to_csv(folder / f"nodes_{number}.csv", index=False)
        nodes.append(table.assign(node_id=[f"{kind}:{row}" for row in range(3)], type=kind))
    edges = pd.DataFrame({"src_id": [0, 1, 2], "dst_id": [2, 1, 0]})
    edges.to_csv(folder / "edges_0.csv", index=False)
    message = expect_refusal("build", "graphs", "--name", "shop", "--archive", folder, code=4)
    assert "nodes_0.csv, nodes_1.csv is named like a table of nodes, but" in message
    assert "write the type before each id in all tables, as in user:0" in message

    joined = tmp_path / "joined"
    joined.mkdir()
    pd.concat(nodes).to_csv(joined / "nodes.csv", index=False)
    edges = edges.assign(src_id="user:" + edges.src_id.astype(str))
    edges = edges.assign(dst_id="item:" + edges.dst_id.astype(str))
    edges.to_csv(joined / "edges.csv", index=False)
    names, x = nodes_of(build("shop", joined, "--set", "source=src_id", "--set", "target=dst_id"))
    assert names == ["price", "type=item", "type=user"]
    assert x[:, 2].tolist() == [1, 1, 1, 0, 0, 0]


def test_pandas_tables_give_the_same_keys_and_dtypes_as_files(home, tmp_path):
    table = people(30, 0).astype({"country": "category", "age": "Int64"})
    table["joined"] = pd.Timestamp("2020-01-02")
    source = table["id"].to_numpy()
    edges = pd.DataFrame({"a": source, "b": np.roll(source, 1)})
    keys = {"source": "a", "target": "b", "label": "group", "ignore": "income"}
    saved = kmip_data.save({"nodes": table, "edges": edges}, tmp_path / "saved", **keys)
    names, x = nodes_of(saved)
    folder = write(tmp_path / "files", people(30, 0))
    expected, wanted = nodes_of(
        build("files", folder, "--set", "label=group", "--set", "ignore=income")
    )
    assert names == expected
    np.testing.assert_array_equal(x, wanted)
    assert saved.card.class_names == ["x", "y", "z"]
    for given, words in (
        ({"nodes": table}, "The tables are called nodes"),
        ({"edges": edges.assign(b="-", w=1.5)}, "No table has two columns with ids"),
        (edges.assign(a=None), "'a' is empty"),
    ):
        options = {"source": "a", "target": "b"} if isinstance(given, pd.DataFrame) else {}
        with pytest.raises(UsageError, match=words):
            kmip_data.save(given, tmp_path / "refused", **options)
        assert not (tmp_path / "refused").exists()


def test_every_ignored_column_is_listed(tmp_path, home):
    words = [f"w{number}" for number in range(6)]
    table = {"source": [0, 1, 2], "target": [1, 2, 0], **{word: ["p", "q", "r"] for word in words}}
    pd.DataFrame(table).to_csv(tmp_path / "edges.csv", index=False)
    ignoring = [option for word in words for option in ("--set", f"ignore={word}")]
    archive = str(tmp_path / "edges.csv")
    printed = expect_success(
        "build", "graphs", "--name", "six", "--archive", archive, *ignoring
    ).out
    assert [word for word in words if f" {word}: by ignore" in printed] == words


def test_a_value_that_a_description_lists_twice_is_refused(old, tmp_path):
    file = tmp_path / "twice.toml"
    folder = tmp_path / "old"
    line = ["build", "graphs", "--archive", folder, "--set", "label=group", "--dry-run"]
    expect_success(*line, "--describe", file)
    text = file.read_text("utf-8")
    number = 'column = "age"\nlevel = "node"\nuse = "number"'
    category = number.replace("number", "category") + '\ncategories = ["5", "5.0"]'
    text = text.replace(number, category)
    file.write_text(text, "utf-8")
    message = expect_refusal(
        "build", "graphs", "--name", "twice", "--archive", folder, "--like", file, code=4
    )
    assert "The description of 'age' has a value twice: 5, 5.0" in message
