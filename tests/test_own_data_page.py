"""Pages of own data: each command of the table of files builds small ones, and the trainings run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.io
import torch
from support.cli import kmip
from support.pages import write_friends
from support.shared import ROOT, shared_data
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.models.training.config.presets import config_for_data
from kmip_data.pipelines.datasets.graphs import file_formats
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.find_builds import find_build
from kmip_data.pipelines.own.files import head_of_table

PAGE = ROOT / "docs" / "own-data.md"
RULES = ROOT / "docs" / "own-data-rules.md"


def commands() -> dict[str, str]:
    """Return the commands of the table by the name that each gives."""
    section = RULES.read_text("utf-8").split("## I have this file")[1].split("\n## ")[0]
    lines = re.findall(r"\| `(kmip-data build [^`]+)` \|$", section, re.MULTILINE)
    return {re.search("--name (\\w+)", command)[1]: command for command in lines}


def roads() -> None:
    Path("roads.csv").write_text("source,target,length\na,b,1\nb,c,2\n")


def social() -> None:
    Path("social").mkdir()
    Path("social/edges.csv").write_text("source,target\n1,2\n2,3\n3,1\n")
    Path("social/nodes.csv").write_text("node,age,group\n1,20,a\n2,30,b\n3,40,a\n")


def mines() -> None:
    part_of = (np.arange(30) + np.arange(10)[:, None]) % 3
    masks = {f"{part}_masks": part_of == i for i, part in enumerate(PARTS)}
    edges = np.array([[node, (node + 1) % 30] for node in range(30)])
    x = np.ones((30, 7), np.float32)
    labels = np.arange(30) % 2
    np.savez("minesweeper.npz", node_features=x, node_labels=labels, edges=edges, **masks)


def citations() -> None:
    assert kmip("build", "cora", "--sample", "--quiet").code == 0
    Path("planetoid").mkdir()
    for file in Path(os.environ["KMIP_DATA_HOME"]).rglob("ind.cora.*"):
        shutil.copy(file, "planetoid")


def mutag() -> None:
    Path("MUTAG").mkdir()
    Path("MUTAG/MUTAG_A.txt").write_text("".join(f"{i}, {i + 1}\n" for i in range(1, 30, 3)))
    Path("MUTAG/MUTAG_graph_indicator.txt").write_text(
        "".join(f"{graph}\n" * 3 for graph in range(1, 11))
    )
    Path("MUTAG/MUTAG_graph_labels.txt").write_text("1\n-1\n" * 5)


def matrix() -> None:
    scipy.io.mmwrite("matrix.mtx", nx.to_scipy_sparse_array(nx.karate_club_graph(), weight=None))


def club() -> None:
    nx.write_graphml(nx.karate_club_graph(), "club.graphml")


def gml() -> None:
    nx.write_gml(nx.karate_club_graph(), "club.gml")


def node_link() -> None:
    Path("club.json").write_text(json.dumps(nx.node_link_data(nx.karate_club_graph())))


def ring(nodes: int) -> Data:
    index = torch.arange(nodes)
    edges = torch.stack([index, (index + 1) % nodes])
    return Data(x=torch.rand(nodes, 3), edge_index=edges, y=torch.tensor([nodes % 2]))


def one() -> None:
    data = ring(20)
    data.y = torch.arange(20) % 2
    torch.save(data, "data.pt")


def many() -> None:
    torch.save([ring(nodes) for nodes in range(4, 24)], "list.pt")


def authors() -> None:
    names = [f"Author {number}" for number in range(12)]
    with pd.ExcelWriter("authors.xlsx") as book:
        people = pd.DataFrame(
            {"author": names, "h-index": range(12), "field": ["maths", "art"] * 6}
        )
        people.to_excel(book, sheet_name="Authors", index=False)
        papers = pd.DataFrame({"first": names[:-1], "second": names[1:]})
        papers.to_excel(book, sheet_name="Papers", index=False)


def calls() -> None:
    Path("calls").mkdir()
    rows = ["program,family"]
    for number in range(10):
        nodes = "".join(f"fn_{i} [size={i}]; fn_{i} -> main;" for i in range(number + 1))
        Path(f"calls/app_{number}.dot").write_text(f'digraph "a b" {{{nodes}}}')
        rows.append(f"app_{number},{('worm', 'benign')[number % 2]}")
    Path("calls/families.csv").write_text("\n".join(rows))


def assay() -> None:
    rows = [f"{'C' * (i + 1)}O,{i % 2}" for i in range(10)]
    Path("assay.csv").write_text("\n".join(["smiles,toxic", *rows]))


def scan() -> None:
    laspy = pytest.importorskip("laspy")
    las = laspy.create(point_format=3)
    las.x, las.y, las.z = np.random.default_rng(0).random((3, 200)) * 10
    las.intensity = np.arange(200)
    las.classification = np.arange(200) % 2 + 1
    las.write("scan.las")


def scans() -> None:
    for room in "1234":
        folder = Path("scans/area_1", room, "Annotations")
        folder.mkdir(parents=True)
        for number, name in enumerate(("floor_1", "wall_1", "wall_2")):
            np.savetxt(folder / f"{name}.txt", np.random.default_rng(number).random((10, 3)))


def photos() -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("skimage")
    random = np.random.default_rng(0)
    for folder in ("images", "masks"):
        Path(folder).mkdir()
    for number in range(10):
        blocks = random.integers(0, 255, (4, 4, 3), np.uint8).repeat(8, 0).repeat(8, 1)
        image.fromarray(blocks).save(f"images/{number}.png")
        mask = (np.arange(32)[:, None] // 11 + np.zeros((1, 32), int)).astype(np.uint8)
        image.fromarray(mask).save(f"masks/{number}.png")


def leaves() -> None:
    photos()
    for number in range(10):
        folder = Path("leaves", "oak" if number % 2 else "elm")
        folder.mkdir(parents=True, exist_ok=True)
        Path(f"images/{number}.png").rename(folder / f"{number}.png")


PARTS = ("train", "val", "test")
#: Name -> what writes its files, and sizes of the build: graphs, nodes, edges (None: not asked).
FILES = {
    "roads": (roads, (1, 3, 4)),
    "social": (social, (1, 3, 3)),
    "mines": (mines, (1, 30, 60)),
    "citations": (citations, (1, None, None)),
    "mutag": (mutag, (10, 30, 10)),
    "matrix": (matrix, (1, 34, 156)),
    "club": (club, (1, 34, 156)),
    "gml": (gml, (1, 34, 156)),
    "json": (node_link, (1, 34, 156)),
    "authors": (authors, (1, 12, 11)),
    "calls": (calls, (10, 65, 55)),
    "one": (one, (1, 20, 20)),
    "many": (many, (20, 270, 270)),
    "assay": (assay, (10, None, None)),
    "scan": (scan, (1, 200, 1_600)),
    "scans": (scans, (4, 120, 1_920)),
    "leaves": (leaves, (10, None, None)),
    "photos": (photos, (10, None, None)),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a home, in which commands run as they stand on the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    return tmp_path


def built(name: str) -> kmip_data.ShardedDataset:
    _, *words = shlex.split(commands()[name])
    outcome = kmip(*words, "--quiet")
    assert outcome.code == 0, outcome.err
    return kmip_data.open(name, "train")


def test_the_table_has_the_commonest_layouts():
    assert {*commands()} == {*FILES}, (
        "add the function that writes the files of a command, and its sizes, to FILES"
    )


def test_the_table_has_a_command_for_every_file_format(folder: Path):
    readers = set()
    for name, command in commands().items():
        if command.startswith("kmip-data build graphs "):
            FILES[name][0]()
            archive = Path(shlex.split(command)[shlex.split(command).index("--archive") + 1])
            paths = sorted(archive.rglob("*.*")) if archive.is_dir() else [archive]
            heads = {path.name: head_of_table(path, None) for path in paths}
            recognised = file_formats._find_format(heads, ReadOptions(GraphParams()))
            readers.add(recognised.read.__module__)
    assert readers == {file_format.read.__module__ for file_format in file_formats.FORMATS}


@pytest.mark.parametrize("name", FILES)
def test_a_command_builds_its_file(name: str, folder: Path):
    write, (graphs, nodes, edges) = FILES[name]
    write()
    build = built(name).build
    counts = build.card.counts
    assert counts["graphs"] == graphs
    assert nodes in {None, counts["nodes"]}
    assert edges in {None, counts["edges"]}
    if name not in {"roads", "matrix"}:
        assert build.card.schema_.y_column.num_classes in {2, 3, 7}


def write_example(page: str) -> tuple[str, str]:
    """Write the files of the example, and return its two blocks: pasted and printed."""
    blocks = re.findall(r"^```(?:bash)?\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    write_friends(page, Path())
    return blocks[0], blocks[1]


def test_the_example_of_the_page_prints_what_it_shows(folder: Path):
    page = PAGE.read_text("utf-8")
    pasted, printed = write_example(page)
    dry_run = pasted.splitlines()[-1]
    outcome = kmip(*shlex.split(dry_run)[1:])
    assert outcome.code == 0, outcome.err
    for line in printed.splitlines():
        assert line in outcome.out
    assert not (folder / "home" / "built").exists()

    # New files with the same columns, without groups.
    Path("new").mkdir()
    shutil.copy("friends/edges.csv", "new")
    rows = Path("friends/nodes.csv").read_text().splitlines()
    Path("new/nodes.csv").write_text("\n".join(row.rsplit(",", 2)[0] for row in rows))
    lines = re.findall(r"^    kmip-data ([^#\n]*(?:friends|edited)[^#\n]*)$", page, re.MULTILINE)
    assert len(lines) == 6
    for line in lines:
        outcome = kmip(*shlex.split(line))
        assert outcome.code == 0, f"{line}: {outcome.err}"
    assert Path("new.csv").read_text().count("\n") == 10


def test_a_training_says_whether_weights_of_edges_are_read(folder: Path):
    Path("a").mkdir()
    Path("a/edges.csv").write_text(
        "source,target,weight\n" + "".join(f"{i},{(i + 1) % 20},{i}\n" for i in range(20))
    )
    Path("a/nodes.csv").write_text(
        "node,size,y\n" + "".join(f"{i},{i},{i % 2}\n" for i in range(20))
    )
    assert kmip("build", "graphs", "--name=a", "--archive=a", "--quiet").code == 0
    for words, unread in (
        (["gcn"], "; edge_attr is not read\n"),
        (
            ["gine", "--set=model.edge_encoder=dummy"],
            "; edge_attr is not read without --set model.edge_encoder=linear\n",
        ),
        (["gine"], " parameters\n"),
    ):
        outcome = kmip("train", "a", "--epochs=1", "--set=model.layers=1", "--model", *words)
        assert outcome.code == 0, outcome.err
        assert unread in outcome.err


def test_molecules_are_embedded_by_default_and_drawn_on_request(folder: Path):
    Path("m.csv").write_text("smiles,label\nCCO,0\nCCN,1\nCCC,0\nCCCN,1\nCCCO,0\n")
    words = ("--name=m", "--archive=m.csv", "--set=picture=false", "--quiet")
    assert kmip("build", "graphs", *words).code == 0
    config = config_for_data("m", "gine", home=Home.locate())
    assert (config.model.node_encoder, config.model.edge_encoder) == ("atom", "bond")

    build = find_build("m")
    picture, page = build.path / "preview.png", build.path / "README.md"
    assert not picture.exists()
    assert "preview.png" not in page.read_text("utf-8")
    assert kmip("preview", "m").code == 0
    assert picture.exists()
    assert "preview.png" in page.read_text("utf-8")


def test_the_trainings_of_the_page_run(folder: Path):
    """Each as it stands, but short: one epoch, a small network. Also two folds of a file."""
    page = PAGE.read_text("utf-8")
    write_example(page)
    (build,) = re.findall(r"^    (kmip-data build .*--name friends .*)$", page, re.MULTILINE)
    assert kmip(*shlex.split(build)[1:], "--quiet").code == 0
    lines = re.findall(r"^    (kmip-data train friends .*?) +#", page, re.MULTILINE)
    assert len(lines) == 4

    mines()
    built("mines")
    lines.append("kmip-data train mines --model gcn --folds 0..1")
    short = shlex.split("--epochs 1 --device cpu --set model.hidden_dim=8 --quiet")
    for line in lines:
        _, *words = shlex.split(line)
        outcome = kmip(*words, *short)
        assert outcome.code == 0, f"{line}: {outcome.err}"


#: Name -> file of ../shared/data, its name on the page, and nodes, edges and classes as published.
REAL = {
    "mines": ("node_benchmarks/minesweeper.npz", "minesweeper.npz", (10_000, 78_804, 2)),
    "citations": ("planetoid/ind.cora.*", "planetoid", (2_708, 10_556, 7)),
}


@pytest.mark.parametrize("name", REAL)
def test_a_command_builds_the_published_file(name: str, folder: Path):
    pattern, target, (nodes, edges, classes) = REAL[name]
    place = Path(pattern)
    files = sorted(shared_data(str(place.parent)).glob(place.name))
    assert files
    if len(files) > 1:
        Path(target).mkdir()
    for file in files:
        shutil.copy(file, target)
    card = built(name).build.card
    assert (card.counts["nodes"], card.counts["edges"]) == (nodes, edges)
    assert card.schema_.y_column.num_classes == classes
