"""``build pyg``: classes of PyTorch Geometric and of a module of the user's, on generated raw files."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
import torch
from support.builds.same import assert_same
from support.cases import check_each
from support.cli import done, kmip, refused
from torch_geometric.datasets import HeterophilousGraphDataset, TUDataset, WebKB

import kmip_data

MODULE = """
import torch
from torch_geometric.data import Data, Dataset, InMemoryDataset

print("printed while it is imported")


def ring(n):
    nodes = torch.arange(n)
    edges = torch.stack([nodes, (nodes + 1) % n])
    return Data(x=torch.eye(n)[:, :3], edge_index=edges, y=torch.tensor([n % 2]))


class Rings(InMemoryDataset):
    def __init__(self, root, count=20, transform=None):
        super().__init__(root, transform)
        self.load(self.processed_paths[0])

    raw_file_names = []
    processed_file_names = "rings.pt"

    def process(self):
        self.save([ring(n) for n in range(4, 24)], self.processed_paths[0])


class Parts(Rings):
    def __init__(self, root, split="train"):
        super().__init__(root)
        first, end = {"train": (0, 12), "val": (12, 15), "test": (15, 20)}[split]
        self._indices = range(first, end)


class Indexed(Rings):
    def get_idx_split(self):
        parts = {"train": [4, 2, 9], "valid": [1], "test": [0, 3], "test-dev": [5]}
        return {part: torch.tensor(rows) for part, rows in parts.items()}


class Planetoid(InMemoryDataset):
    def __init__(self, transform=None):
        super().__init__(None, transform)
        data = ring(12)
        data.y = torch.arange(12) % 2
        for start, part in enumerate(("train", "val", "test")):
            data[f"{part}_mask"] = torch.arange(12) % 4 == start
        self.data, self.slices = self.collate([data])


class Breaks(Rings):
    def get(self, number):
        raise RuntimeError("item is gone")


class Empty(Dataset):
    def len(self):
        return 0

    def get(self, number):
        raise AssertionError


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, number):
        return "no graph"


class Asks(Rings):
    def __init__(self, root):
        input("download? ")


def function():
    pass
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module of the user's; it is imported anew by each test."""
    (tmp_path / "my_rings.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "my_broken.py").write_text("this is no python")
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_rings"
    import sys

    sys.modules.pop("my_rings", None)


def build(address, *words, name="mine"):
    return done("build", "pyg", "--set", f"class={address}", *words, "--name", name, "--json").json


def write_webkb(folder, nodes=20):
    folder.mkdir(parents=True)
    lines = [f"{n}\t{n % 2},{n % 3 % 2},1\t{n % 5}" for n in range(nodes)]
    (folder / "out1_node_feature_label.txt").write_text("\n".join(["head", *lines, ""]))
    edges = [f"{n}\t{(n * 7 + 1) % nodes}" for n in range(nodes)]
    (folder / "out1_graph_edges.txt").write_text("\n".join(["head", *edges, ""]))
    for fold in range(10):
        part = np.random.default_rng(fold).permutation(nodes) % 3
        masks = {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
        np.savez(folder / f"cornell_split_0.6_0.2_{fold}.npz", **masks)


def test_a_class_of_ten_columns_of_masks_is_ten_splits_and_trains(home):
    raw = home / "raw" / "pages"
    write_webkb(raw / "cornell" / "raw")
    words = ("build", "pyg", "--set", "class=torch_geometric.datasets:WebKB")
    outcome = done(*words, "--set", "name=cornell", "--name", "pages")
    assert "its own code downloads and processes" in outcome.err
    assert "train --dataset pages" in outcome.out
    wanted = WebKB(str(raw), "cornell")[0]
    path = home / "built" / "pages"
    for fold in range(10):
        item = kmip_data.open(path, split_name=f"given-fold{fold}")[0]
        for name in ("train_mask", "val_mask", "test_mask"):
            assert torch.equal(item[name], wanted[name][:, fold])
    for name in ("x", "y", "edge_index"):
        assert torch.equal(item[name], wanted[name])
    assert kmip_data.open(path).split_name == "given-fold0"
    small = (
        "--model",
        "gcn",
        "--epochs",
        "1",
        "--set",
        "model.layers=1",
        "--set",
        "model.hidden_dim=8",
    )
    done("train", "--dataset", "pages", *small, "--set", "data.split.fold=3", "--quiet")
    message = refused("train", "--dataset", "pages", *small, "--set", "data.split.fold=10")
    assert "given-fold0, given-fold1" in message
    assert "is sound" in done("verify", "pages").out
    # It is there; a second build would replace it.
    assert "already exists" in refused(*words, "--set", "name=cornell", "--name", "pages")


def test_masks_as_rows_of_a_file_of_another_class(home):
    nodes = 12
    folder = home / "raw" / "mines" / "minesweeper" / "raw"
    folder.mkdir(parents=True)
    part = np.stack([np.random.default_rng(i).permutation(nodes) % 3 for i in range(4)])
    names = ("train", "val", "test")
    np.savez(
        folder / "minesweeper.npz",
        node_features=np.eye(nodes, 5, dtype=np.float32),
        node_labels=np.arange(nodes) % 2,
        edges=np.stack([np.arange(nodes), np.roll(np.arange(nodes), 1)], 1),
        **{f"{name}_masks": part == i for i, name in enumerate(names)},
    )
    found = build(
        "torch_geometric.datasets:HeterophilousGraphDataset",
        "--set",
        "name=Minesweeper",
        name="mines",
    )
    wanted = HeterophilousGraphDataset(str(folder.parents[1]), "Minesweeper")[0]
    item = kmip_data.open(found["path"], split_name="given-fold2")[0]
    assert torch.equal(item.val_mask, wanted.val_mask[:, 2])
    assert len(kmip_data.open(found["path"]).card.splits) == 4


def test_tudataset_has_no_split_so_one_is_drawn(home):
    folder = home / "raw" / "toy" / "TOY" / "raw"
    folder.mkdir(parents=True)
    graphs = np.repeat(np.arange(1, 11), 3)
    edges = [(3 * g + i + 1, 3 * g + (i + 1) % 3 + 1) for g in range(10) for i in range(3)]
    files = {
        "A": [f"{a}, {b}" for a, b in edges],
        "graph_indicator": graphs,
        "graph_labels": np.arange(10) % 2,
        "node_labels": np.arange(30) % 3,
    }
    for name, lines in files.items():
        (folder / f"TOY_{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    found = build("torch_geometric.datasets:TUDataset", "--set", "name=TOY", name="toy")
    dataset = kmip_data.open(found["path"])
    for item, wanted in zip(dataset, TUDataset(str(folder.parents[1]), "TOY"), strict=True):
        assert_same(item, wanted, ordered=False)
    assert {part: counts["graphs"] for part, counts in found["splits"].items()} == {
        "train": 8,
        "val": 1,
        "test": 1,
    }
    assert "drawn 80/10/10 with seed 0" in dataset.card.title


def test_splits_of_classes_of_the_user(home, mine):
    parts = build(f"{mine}:Parts", name="parts")
    assert kmip_data.open(parts["path"], "val").records.tolist() == [12, 13, 14]
    assert kmip_data.open(parts["path"], "test")[4].num_nodes == 23
    one = build(f"{mine}:Parts", "--set", "split=val", name="one")
    assert one["counts"]["graphs"] == 3
    indexed = build(f"{mine}:Indexed", name="indexed")
    assert kmip_data.open(indexed["path"], "train").records.tolist() == [4, 2, 9]
    assert kmip_data.open(indexed["path"], "val").records.tolist() == [1]
    masks = build(f"{mine}:Planetoid", name="masks")
    item = kmip_data.open(masks["path"])[0]
    assert item.val_mask.tolist() == [n % 4 == 1 for n in range(12)]


def test_what_is_refused(home, mine):
    def check(case):
        address, words, message = case
        given = ["--set", f"class={address}", *words, "--name", "mine"]
        text = refused("build", "pyg", *given)
        assert message in text
        assert "next:" in text
        assert list((home / "built").glob("*")) == []

    seed = ("--set", "count=3")
    check_each(
        check,
        [
            ("my_nothing:Rings", (), "No module named 'my_nothing'"),
            ("my_broken:Rings", (), "SyntaxError"),
            (f"{mine}:Nothing", (), "is not a class of a dataset"),
            (f"{mine}:function", (), "is not a class of a dataset"),
            (mine, (), "is not a class of a dataset"),
            ("builtins:dict", (), "is not a class of a dataset"),
            (f"{mine}:Parts", seed, "unexpected keyword argument 'count'"),
            (f"{mine}:Rings", ("--set", "root=/tmp"), "but root"),
            (f"{mine}:Rings", ("--set", "count"), "makes a dataset from the items"),
            (f"{mine}:Rings", ("--sample",), "--sample does not go with pyg"),
            (f"{mine}:Rings", ("--k", "3"), "--k does not go with pyg"),
            (f"{mine}:Breaks", (), "item is gone"),
            (f"{mine}:Empty", (), "has no items"),
            (f"{mine}:Texts", (), "str is not a homogeneous graph"),
            (f"{mine}:Asks", (), "failed: "),
        ],
    )
    assert "--name" in refused("build", "pyg", "--set", f"class={mine}:Rings")
    named = ("--set", f"class={mine}:Rings", "--name")
    assert "belongs to a dataset" in refused("build", "pyg", *named, "s3dis")
    assert "cannot be called" in refused("build", "pyg", *named, "../up")


def test_nothing_else_names_a_class(home, mine, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(f'[data]\ndataset = "pyg"\nparameters = {{class = "{mine}:Rings"}}\n')
    for words in (
        ("train", "--config", config),
        ("train", "--dataset", "pyg", "--set", f"data.parameters.class={mine}:Rings"),
        ("info", "pyg"),
    ):
        assert kmip(*words).code == 2
    import sys

    assert mine not in sys.modules
