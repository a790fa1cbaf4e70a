"""``build pyg``: classes of PyTorch Geometric and of a module of the user's, on generated raw files."""

from __future__ import annotations

import json
import pickle
import shlex
import sys
import textwrap

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from support.builds.same import assert_same_data
from support.cases import check_each
from support.cli import expect_refusal, expect_success, kmip
from support.typed_advice import commands_in
from torch_geometric.datasets import QM9, Planetoid, WebKB

import kmip_data

PYG = "torch_geometric.datasets"
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


class Required(Parts):
    def __init__(self, root, split):
        super().__init__(root, split)


class Ignores(Rings):
    def __init__(self, root, split):
        super().__init__(root)


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


class Passes(Rings):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)


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


class Exits(Rings):
    def __init__(self, root):
        raise SystemExit(0)


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
    sys.modules.pop("my_rings", None)


def build(address, *words, name="mine"):
    return expect_success(
        "build", "pyg", "--set", f"class={address}", *words, "--name", name, "--json"
    ).json


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


def test_ten_mask_columns_become_ten_splits_that_can_be_trained(home):
    raw = home / "raw" / "my-cornell"
    write_webkb(raw / "cornell" / "raw")
    (command,) = commands_in(expect_refusal("build", "pyg"))
    outcome = expect_success(*shlex.split(command)[1:])
    assert "Running torch_geometric.datasets:WebKB," in outcome.err
    assert str(raw) in outcome.err
    assert "train my-cornell" in outcome.out
    assert command + "-2" in expect_refusal("build", "pyg")
    wanted = WebKB(str(raw), "cornell")[0]
    path = home / "built" / "my-cornell"
    for fold in range(10):
        item = kmip_data.open(path, split_name=f"masks-fold{fold}")[0]
        for name in ("train_mask", "val_mask", "test_mask"):
            assert torch.equal(item[name], wanted[name][:, fold])
    for name in ("x", "y", "edge_index"):
        assert torch.equal(item[name], wanted[name])
    assert kmip_data.open(path).split_name == "masks-fold0"
    small = ("--model", "gcn", "--epochs", "1", "--set", "model.layers=1")
    train = ("train", "my-cornell", *small, "--set", "model.hidden_dim=8")
    expect_success(*train, "--set", "data.split.fold=3", "--quiet")
    message = expect_refusal(*train, "--set", "data.split.fold=10")
    assert "masks-fold0, masks-fold1" in message
    assert "is sound" in expect_success("verify", "my-cornell").out
    # It is there; a second build would replace it.
    assert "already exists" in expect_refusal(*shlex.split(command)[1:])


def test_splits_of_user_defined_classes_are_read(home, mine):
    parts = build(f"{mine}:Parts", name="parts")
    assert kmip_data.open(parts["path"], "val").records.tolist() == [12, 13, 14]
    assert kmip_data.open(parts["path"], "test")[4].num_nodes == 23
    required = build(f"{mine}:Required", name="required")
    assert kmip_data.open(required["path"], "val").records.tolist() == [12, 13, 14]
    ignored = build(f"{mine}:Ignores", "--set", "split=train", name="ignored")
    assert kmip_data.open(ignored["path"], split=None).card.counts["graphs"] == 20
    one = build(f"{mine}:Parts", "--set", "split=val", name="one")
    assert one["counts"]["graphs"] == 3
    indexed = build(f"{mine}:Indexed", name="indexed")
    assert kmip_data.open(indexed["path"], "train").records.tolist() == [4, 2, 9]
    assert kmip_data.open(indexed["path"], "val").records.tolist() == [1]
    masks = build(f"{mine}:Planetoid", name="masks")
    item = kmip_data.open(masks["path"])[0]
    assert item.val_mask.tolist() == [n % 4 == 1 for n in range(12)]


def test_root_is_passed_to_classes_that_accept_it(home, mine):
    named = build(f"{mine}:Rings", name="named")
    assert {part: counts["graphs"] for part, counts in named["splits"].items()} == {
        "train": 16,
        "val": 2,
        "test": 2,
    }
    assert "drawn 80/10/10 with seed 0" in kmip_data.open(named["path"]).card.title
    assert (home / "raw" / "named" / "processed" / "rings.pt").is_file()
    passed = build(f"{mine}:Passes", "--set", f"root={home / 'mine'}", name="passes")
    assert passed["counts"]["graphs"] == 20
    assert (home / "mine" / "processed" / "rings.pt").is_file()
    fake = build(f"{PYG}:FakeDataset", "--set", "num_graphs=2", "--set", "label=3", name="fake")
    assert fake["counts"]["graphs"] == 2
    assert kmip_data.open(fake["path"], split=None)[0].label.shape == (3,)


def test_wrong_classes_and_options_of_build_pyg_are_refused(home, mine):
    def check(case):
        address, words, message = case
        options = ["--set", f"class={address}", *words, "--name", "mine"]
        text = expect_refusal("build", "pyg", *options)
        assert message in text
        assert "next: " in text or "remedy: " in text
        assert list((home / "built").glob("*")) == []

    seed = ("--set", "count=3")
    check_each(
        check,
        [
            ("my_nothing:Rings", (), "No module named 'my_nothing'"),
            ("my_broken:Rings", (), "SyntaxError"),
            (f"{mine}:Nothing", (), "is not a dataset class"),
            (f"{mine}:function", (), "is not a dataset class"),
            (mine, (), "is not a dataset class"),
            ("builtins:dict", (), "is not a dataset class"),
            (f"{mine}:Parts", seed, "unexpected keyword argument 'count'"),
            (
                f"{mine}:Passes",
                ("--set", "size=3"),
                "unexpected keyword argument 'size'",
            ),
            (f"{mine}:Rings", ("--set", "count"), "--set count has no value"),
            (f"{mine}:Rings", ("--sample",), "build pyg does not take --sample"),
            (f"{mine}:Rings", ("--k", "3"), "build pyg does not take --k"),
            (f"{mine}:Breaks", (), "item is gone"),
            (f"{mine}:Ignores", (), "same items in train, val and test"),
            (f"{mine}:Empty", (), "has no items"),
            (f"{mine}:Texts", (), "str is not a homogeneous graph"),
            (f"{mine}:Asks", (), "failed: "),
            (f"{mine}:Exits", (), "failed: SystemExit: 0"),
        ],
    )
    assert "--name" in expect_refusal("build", "pyg", "--set", f"class={mine}:Rings")
    named = ("--set", f"class={mine}:Rings", "--name")
    for name, message in (("s3dis", "belongs to a dataset"), ("../up", "cannot be called")):
        text = expect_refusal("build", "pyg", *named, name)
        assert message in text
        assert " runs: " not in text


def test_a_class_with_only_a_train_mask_can_be_viewed_but_not_trained(home):
    """KarateClub's four labelled nodes: training would refuse the empty part val."""
    outcome = expect_success("build", "pyg", "--set", f"class={PYG}:KarateClub", "--name", "club")
    assert "\nNext: kmip-data preview club" in outcome.out


def test_planetoid_is_built_with_its_masks(home):
    folder = home / "raw" / "cite" / "Cora" / "raw"
    write_planetoid(folder)
    path = build(f"{PYG}:Planetoid", "--set", "name=Cora", name="cite")["path"]
    assert_same_data(kmip_data.open(path)[0], Planetoid(str(folder.parents[1]), "Cora")[0])


def write_planetoid(folder, nodes=520, test=8, train=6):
    """Pickles of sparse features, labels and lists; PyG makes the 500 nodes after train val."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rest = nodes - test
    x = csr_matrix((rng.random((nodes, 5)) < 0.4).astype(np.float32))
    y = np.eye(3, dtype=np.int32)[np.arange(nodes) % 3]
    files = {"x": x[:train], "y": y[:train], "allx": x[:rest], "ally": y[:rest]}
    files |= {"tx": x[rest:], "ty": y[rest:]}
    files["graph"] = {node: [(node + 1) % nodes, node * 7 % nodes] for node in range(nodes)}
    for name, value in files.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(value))
    order = rng.permutation(np.arange(rest, nodes))
    (folder / "ind.cora.test.index").write_text("".join(f"{node}\n" for node in order))


def test_qm9_is_built_with_texts_and_19_targets(home):
    chem = pytest.importorskip("rdkit.Chem", reason="rdkit is not installed")
    from rdkit.Chem import rdDepictor

    folder = home / "raw" / "small" / "raw"
    folder.mkdir(parents=True)
    texts = ["C", "N", "O", "CC", "CO", "C=O", "C#N", "CCO", "CC=O", "CCC", "CC#N", "NC=O"]
    with chem.SDWriter(str(folder / "gdb9.sdf")) as writer:
        for number, text in enumerate(texts, 1):
            molecule = chem.AddHs(chem.MolFromSmiles(text))
            rdDepictor.Compute2DCoords(molecule)
            molecule.SetProp("_Name", f"gdb_{number}")
            writer.write(molecule)
    rng = np.random.default_rng(0)
    rows = [",".join(["gdb", *map(str, rng.normal(size=19))]) for _ in texts]
    (folder / "gdb9.sdf.csv").write_text("\n".join(["head", *rows, ""]))
    left_out = ["head"] * 9 + ["3 gdb_3", "", ""]
    (folder / "uncharacterized.txt").write_text("\n".join(left_out))
    path = build(f"{PYG}:QM9", name="small")["path"]
    wanted = QM9(str(folder.parent))
    assert len(wanted) == len(texts) - 1
    for item, data in zip(kmip_data.open(path, split=None), wanted, strict=True):
        assert_same_data(item, data)
        assert (item.smiles, item.name) == (data.smiles, data.name)


@pytest.mark.slow  # its imports
def test_graphbench_parts_come_from_separate_classes(home):
    datasets = pytest.importorskip("graphbench.datasets", reason="graphbench-lib is not installed")
    circuits = home / "raw/bench/electroniccircuits/electronic_circuits_5_eff"
    (circuits / "processed").mkdir(parents=True)
    (circuits / "processed" / "here").touch()  # else it downloads
    (circuits / "raw").mkdir()
    rng = np.random.default_rng(0)
    for part, size in (("train", 6), ("valid", 2), ("test", 3)):
        graphs = []
        for nodes in rng.integers(4, 8, size).tolist():
            ring = [list(range(nodes)), [(node + 1) % nodes for node in range(nodes)]]
            numbers = {"duty": 0.5, "eff": rng.random(), "vout": rng.normal()}
            ids = {f"{name}_ids": [0, 1] for name in ("device", "port", "terminal")}
            graphs.append({"node_features": ring[0], "edge_index": ring, **numbers, **ids})
        (circuits / "raw" / f"dataset_5_{part}.json").write_text(json.dumps(graphs))
    words = ("--set", "name=electronic_circuits_5_eff")
    path = build("graphbench.datasets:ECDataset", *words, name="bench")["path"]
    for part in ("train", "val", "test"):
        wanted = datasets.ECDataset("electronic_circuits_5_eff", part, home / "raw/bench")
        for item, data in zip(kmip_data.open(path, part), wanted, strict=True):
            assert_same_data(item, data)


def test_only_build_pyg_accepts_a_class_address(home, mine, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(f'[data]\ndataset = "pyg"\nparameters = {{class = "{mine}:Rings"}}\n')
    for words in (
        ("train", "--config", config),
        ("train", "pyg", "--set", f"data.parameters.class={mine}:Rings"),
        ("info", "pyg"),
    ):
        assert kmip(*words).code == 2
    assert mine not in sys.modules


@pytest.mark.parametrize(
    "problem",
    [
        "URLError(OSError(-2, 'Name or service not known'))",
        "TimeoutError('timed out')",
        "RuntimeError('damaged cache') from ConnectionResetError('by peer')",
    ],
)
def test_a_class_that_cannot_download_names_the_missing_network(
    home, tmp_path, monkeypatch, problem
):
    text = "from urllib.error import URLError\nfrom torch_geometric.data import Dataset\n"
    text += f"class Far(Dataset):\n    def __init__(self, root):\n        raise {problem}\n"
    (tmp_path / "far_away.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("far_away", None)
    message = expect_refusal("build", "pyg", "--set", "class=far_away:Far", "--name", "far", code=3)
    assert "far_away:Far could not download: " in message
    assert "connect to the network, or put its raw files in place\n" in message
