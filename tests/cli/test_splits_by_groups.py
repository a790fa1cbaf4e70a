"""Splits that keep groups of your own data together: patients, sites and scaffolds."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pandas as pd
import pytest
import torch
from support.cli import expect_refusal, expect_success
from torch_geometric.data import Data

import kmip_data
from kmip_data.errors import UsageError
from kmip_data.pipelines.find_builds import ensure_split, find_build

PEOPLE = 60
SITE = "Größe der site"  #: a name that no array may have


def command_of(message: str) -> list[str]:
    """Return the words of the command that ends a message."""
    return shlex.split(re.search(r"next: kmip-data (.+)", message)[1])


@pytest.fixture
def people(home, tmp_path):
    """Command that builds people of seven sites; the site of one is unknown."""
    folder = tmp_path / "soc"
    folder.mkdir()
    sites = [f"s{number % 7}" for number in range(PEOPLE)]
    sites[5] = ""
    rows = [
        f"p{number},{number % 5},{sites[number]},{'ab'[number % 2]}" for number in range(PEOPLE)
    ]
    (folder / "nodes.csv").write_text("\n".join([f"node,age,{SITE},group", *rows]))
    edges = [f"p{number},p{(number + 1) % PEOPLE}" for number in range(PEOPLE)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]))
    words = ["build", "graphs", "--name", "soc", "--archive", folder, "-q"]
    return [*words, "--set", "label=group"]


def test_people_of_one_site_are_in_one_part_of_each_random_split(people, tmp_path):
    typed = [*people, "--set", f"group={SITE}"]
    assert f"items with the same {SITE} are kept together" in expect_success(*typed).out
    for rule in (["random", "--split-seed", 1], ["stratified"]):
        expect_success(*typed, "--split-rule", *rule)
    build = find_build("soc")
    assert list(build.card.splits) == ["random-seed0", "random-seed1", "stratified-seed0"]

    # The site is neither a feature nor an attribute of an item unless it is named.
    graph = kmip_data.open("soc")[0]
    assert graph.x.shape == (PEOPLE, 1)
    assert "group" not in graph
    sites = kmip_data.open("soc", columns=["group"])[0].group
    assert (sites == -1).nonzero().tolist() == [[5]]
    for name in build.card.splits:
        graph = kmip_data.open("soc", split_name=name)[0]
        parts = [
            set(sites[graph[f"{part}_mask"]].tolist()) - {-1} for part in ("train", "val", "test")
        ]
        assert sum(map(len, parts)) == 7
        assert all(parts)

    # A description has the group; new data need none.
    new = tmp_path / "new"
    new.mkdir()
    (new / "edges.csv").write_text((tmp_path / "soc/edges.csv").read_text())
    table = (tmp_path / "soc/nodes.csv").read_text().replace(",s", ",t")
    (new / "nodes.csv").write_text(table)
    words = ["build", "graphs", "--like", "soc", "-q", "--archive", new, "--name"]
    expect_success(*words, "same")
    assert find_build("same").card.data_schema == build.card.data_schema
    (new / "nodes.csv").write_text(re.sub(r",(t\d|),", ",", table.replace(f",{SITE},", ",")))
    expect_success(*words, "without")
    assert "group" not in find_build("without").card.splits["random-seed0"].note


def test_groups_that_cannot_be_kept_are_refused_with_the_command_that_works(people, tmp_path):
    table = tmp_path / "soc/nodes.csv"
    text = table.read_text()

    # 1. Parts in the files.
    lines = text.splitlines()
    parts = ["split", *(["train"] * 40), *(["val"] * 10), *(["test"] * 10)]
    table.write_text("\n".join(map(",".join, zip(lines, parts, strict=True))))
    message = expect_refusal(*people, "--set", f"group={SITE}")
    expect_success(*command_of(message))
    message = expect_refusal(
        *people, "--set", f"group={SITE}", "--split-rule", "random", "--set", "fold=1"
    )
    assert "has no folds" in message

    # 2. Too few groups, numbers with fractions, and columns of another use.
    table.write_text(text.replace("age", "ward").replace(",3,", ",2,"))
    table.write_text(re.sub(r",[1-4],", ",1,", table.read_text()))
    message = expect_refusal(*people, "--set", "group=ward")
    assert "'ward'" in message
    expect_success(*people, "--set", "group=ward", "--set", "val_fraction=0")
    table.write_text(text.replace(",3,", ",3.5,"))
    message = expect_refusal(*people, "--set", "group=age", code=4)
    assert "3.5" in message
    assert "cannot be one of label" in expect_refusal(*people, "--set", "group=group")
    message = expect_refusal(*people, "--set", "group=Größe der sight")
    assert shlex.quote(f"group={SITE}") in message


def test_an_array_groups_graphs_of_tensors(home, tmp_path):
    graphs = []
    for number in range(12):
        edges = torch.tensor([[0, 1], [1, 0]])
        graph = Data(x=torch.rand(2, 1), edge_index=edges, y=torch.tensor([number % 2]))
        graph.patient = number // 3
        graph.weight = number / 2
        graphs.append(graph)
    torch.save(graphs, tmp_path / "many.pt")
    words = ["build", "graphs", "--name", "many", "--archive", tmp_path / "many.pt", "-q"]
    expect_success(*words, "--set", "group=patient")
    parts = [
        {item.patient for item in kmip_data.open("many", split=part, columns=["patient"])}
        for part in ("train", "val", "test")
    ]
    assert sorted(patient for part in parts for patient in part) == [0, 1, 2, 3]
    assert "patient" not in kmip_data.open("many", split="train")[0]
    message = expect_refusal(*words, "--set", "group=weight")
    assert "'weight'" in message
    expect_success(
        "build", "graphs", "--name", "more", "--archive", tmp_path / "many.pt", "--like", "many"
    )
    assert find_build("more").card.data_schema == find_build("many").card.data_schema


def test_molecules_of_one_scaffold_are_in_one_part(home, tmp_path):
    pytest.importorskip("rdkit")
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    rings = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "c1ccoc1"]
    smiles = ["C" * (number // 4 + 1) + rings[number % 4] for number in range(12)]
    smiles += ["C" * (number + 1) + "O" for number in range(8)]
    rows = [f"{molecule},{number % 2}" for number, molecule in enumerate(smiles)]
    (tmp_path / "mol.csv").write_text("\n".join(["smiles,label", *rows]))
    words = ["build", "graphs", "--name", "mol", "--archive", tmp_path / "mol.csv", "-q"]
    expect_success(*words)
    # A finished build has the scaffolds, so that the rule needs no file.
    (tmp_path / "mol.csv").write_text("")
    name = ensure_split(find_build("mol"), {"split_rule": "scaffold"})
    dataset = {
        part: kmip_data.open("mol", split=part, split_name=name)
        for part in ("train", "val", "test")
    }
    scaffolds = {
        part: {MurckoScaffoldSmiles(smiles[int(key)]) for key in items.keys}
        for part, items in dataset.items()
    }
    assert [len(items) for items in dataset.values()] == [14, 3, 3]
    assert sum(map(len, scaffolds.values())) == 5
    assert "" in scaffolds["train"]
    assert set(dataset["train"][0].keys()) == {"x", "edge_index", "edge_attr", "y"}
    assert np.all([item.num_nodes for item in dataset["test"]])


def test_a_molecule_in_train_and_test_is_counted_in_any_spelling(home, tmp_path):
    pytest.importorskip("rdkit")
    rows = ["smiles,label,split", "CCO,0,train", "OCC,1,test", "c1ccccc1,1,train"]
    rows += ["C1=CC=CC=C1,1,test", "CCN,0,val", "CCCC,1,val", "CCCl,0,train"]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    words = ["build", "graphs", "--name", "a", "--archive", tmp_path / "a.csv", "-q"]
    fact = "2 of 2 molecules of test also in train; 2 of 7 equal one with another target"
    printed = expect_success(*words).out
    assert f"  {fact}\n" in printed
    assert "warning" in printed
    assert f"  {fact}\n" in expect_success("info", "a").out
    # Molecules of one scaffold are in one part, so equal ones are.
    printed = expect_success(*words, "--split-rule", "scaffold").out
    assert " 0 of 2 molecules of test also in train; 2 of 7 " in printed
    assert "flatters" not in printed


def test_saved_tables_are_divided_by_groups(tmp_path):
    nodes = pd.DataFrame({"id": range(30), "age": np.arange(30) / 2, "site": list("abcdef") * 5})
    nodes["label"] = nodes["id"] % 2
    edges = pd.DataFrame({"source": range(29), "target": range(1, 30)})
    tables = {"nodes": nodes, "edges": edges}
    build = kmip_data.save(tables, tmp_path / "b", group="site")
    graph = kmip_data.open(build.path)[0]
    parts = [{*nodes["site"][graph[f"{part}_mask"].numpy()]} for part in ("train", "val", "test")]
    assert sorted(site for part in parts for site in part) == [*"abcdef"]
    with pytest.raises(UsageError):
        kmip_data.save(
            tables, tmp_path / "c", group="site", split={"train": [0], "val": [1], "test": [2]}
        )


@pytest.mark.parametrize("column", [SITE, "my split", "2nd", "%"])
def test_a_column_of_parts_may_have_any_name(home, tmp_path, column):
    file = tmp_path / "lines.csv"
    parts = ["train", "train", "val", "test", "train", "val", "test", "train"]
    smiles = ["C" * (1 + number % 5) + "O" * (number % 2) for number in range(8)]
    rows = [
        f"{text},{number % 2},{part}"
        for number, (text, part) in enumerate(zip(smiles, parts, strict=True))
    ]
    file.write_text("\n".join([f"smiles,y,{column}", *rows]))
    words = ["build", "graphs", "--archive", file, "-q", "--name"]
    expect_success(*words, "parted", "--set", "label=y")
    expect_success(*words, "again", "--like", "parted")
    for name in ("parted", "again"):
        build = find_build(name)
        assert [entry.rule for entry in build.card.splits.values()] == ["given"]
        counts = [len(kmip_data.open(name, part)) for part in ("train", "val", "test")]
        assert counts == [4, 2, 2]
