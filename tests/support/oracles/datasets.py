"""Datasets read from their raw files by PyTorch Geometric's and OGB's classes, or by the authors' steps."""

from __future__ import annotations

import csv
import gzip
import pickle
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ogb.io.read_graph_pyg import read_graph_pyg
from ogb.utils import smiles2graph
from ogb.utils.features import atom_to_feature_vector, bond_to_feature_vector
from rdkit import Chem, rdBase
from torch_geometric import datasets
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import kmip_data
from kmip_data.datasets.base import ShardedDataset
from kmip_data.format.split_files import PARTS
from kmip_data.pipelines.datasets.geom_gcn import EDGE_FILE, NODE_FILE
from kmip_data.pipelines.datasets.pcqm_contact import SPLIT_FILES, TABLE_FILE
from kmip_data.pipelines.datasets.peptides import TARGETS

FOLDS = "folds"  #: instead of parts: one graph, whose masks are [N, folds]
Graphs = dict[str, Any]


@dataclass(frozen=True)
class Oracle:
    """Reader of the raw files of a dataset; it may need a folder of its own, the second argument."""

    read: Callable[[Path, Path], Graphs]  #: part -> graphs in their order, or ``FOLDS`` -> graph
    limit: int = 30  #: records, or nodes, of the sample
    change: Callable[[Path], None] = lambda raw: None  #: what a sample lacks
    split_rule: str | None = None  #: rule of the split, which is its name too
    sample: str = ""  #: dataset whose sample is taken, if not this one's
    opened: Callable[..., ShardedDataset] = kmip_data.open


def copy_raw(raw: Path, folder: Path) -> None:
    if not folder.exists():
        shutil.copytree(raw, folder)


def read_table(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    """Rows of a gzip-compressed table with a header."""
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def read_numbers(path: Path) -> list[list[float]]:
    """Rows of a gzip-compressed table without a header, a number at a time; NaN where one is missing."""
    with gzip.open(path, "rt") as file:
        return [[float(word or "nan") for word in row] for row in csv.reader(file)]


# --- One graph in text or arrays -----------------------------------------------------------------


def geom_gcn(name: str, folder: str, made: Callable[[str], Any]) -> Oracle:
    def read(raw: Path, root: Path) -> Graphs:
        copy_raw(raw, root / folder)
        return {FOLDS: made(str(root))[0]}

    return Oracle(read, limit=60, change=lambda raw: more_lines(raw, shuffled=name == "actor"))


def more_lines(raw: Path, *, shuffled: bool) -> None:
    """Repeat some edges and add a loop; nodes may be in no order."""
    lines = (raw / EDGE_FILE).read_text().splitlines()
    (raw / EDGE_FILE).write_text("\n".join([*lines, *lines[1:4], "5\t5"]) + "\n")
    if shuffled:
        head, *nodes = (raw / NODE_FILE).read_text().splitlines()
        (raw / NODE_FILE).write_text("\n".join([head, *nodes[::-1]]) + "\n")


#: Names that PyTorch Geometric's class knows.
OF_PYG = {"roman-empire", "amazon-ratings", "minesweeper", "tolokers", "questions"}


def heterophilous(name: str) -> Oracle:
    """Read by PyG's class, or by its steps for names that it does not know."""
    file = f"{name.replace('-', '_')}.npz"

    def read(raw: Path, root: Path) -> Graphs:
        if name in OF_PYG:
            copy_raw(raw, root / file.removesuffix(".npz") / "raw")
            return {FOLDS: datasets.HeterophilousGraphDataset(str(root), name)[0]}
        arrays = np.load(raw / file)
        edges = torch.from_numpy(arrays["edges"]).t().contiguous()
        masks = {f"{part}_mask": torch.from_numpy(arrays[f"{part}_masks"]).t() for part in PARTS}
        graph = Data(
            x=torch.from_numpy(arrays["node_features"]),
            y=torch.from_numpy(arrays["node_labels"]),
            edge_index=to_undirected(edges, num_nodes=len(arrays["node_labels"])),
            **masks,
        )
        return {FOLDS: graph}

    return Oracle(read, limit=60)


def planetoid(name: str) -> Oracle:
    def read(raw: Path, root: Path) -> Graphs:
        copy_raw(raw, root / name / "raw")
        return {FOLDS: datasets.Planetoid(str(root), name)[0]}

    return Oracle(read, limit=60)


# --- Graphs in pickles and files of torch --------------------------------------------------------


def zinc(*, subset: bool) -> Oracle:
    """The subset in the order of its lists; more molecules lie in the pickles."""

    def read(raw: Path, root: Path) -> Graphs:
        copy_raw(raw, root / "raw")
        return {part: datasets.ZINC(root, subset, part) for part in PARTS}

    return Oracle(read, sample="zinc")


def benchmark_gnns(name: str) -> Oracle:
    def read(raw: Path, root: Path) -> Graphs:
        copy_raw(raw, root / name / "raw")
        parts: Graphs = {}
        for part in PARTS:
            graphs = parts[part] = list(datasets.GNNBenchmarkDataset(str(root), name, split=part))
            for graph in graphs if "pos" in graphs[0] else ():  # as GraphGPS joins them
                graph.x = torch.cat([graph.x, graph.pos], dim=1)
                graph.edge_attr = graph.edge_attr.view(-1, 1)
        return parts

    return Oracle(read)


def echo(task: str) -> Oracle:
    """Items as the authors' class makes them (pull request 10648 of PyTorch Geometric).

    But for a factor of 1/40, which runs have. Files are of ``torch.save``, and have an attribute more.
    """
    column = {"diam": 1, "sssp": 2}.get(task, 0)

    def change(raw: Path) -> None:
        for path in raw.iterdir():
            graphs = torch.load(path, weights_only=False)
            for number, graph in enumerate(graphs):
                graph.name = f"graph {number}"
                graph.x = graph.x.double().numpy() if task == "sssp" else graph.x
            torch.save(graphs, path)

    def read(raw: Path, root: Path) -> Graphs:
        parts: Graphs = {}
        for part in PARTS:
            parts[part] = torch.load(raw / f"{part}_data.pt", weights_only=False)
            for graph in parts[part]:
                y = graph.y[:, column]
                graph.y = (y[:1] if task == "diam" else y).unsqueeze(-1)
                graph.x = torch.as_tensor(graph.x).float()
                del graph.name
        return parts

    return Oracle(read, limit=40, change=change)


def lrim(raw: Path, root: Path) -> Graphs:
    """Items as the authors' example makes them: reverse edges added, split by number."""
    (file,) = raw.iterdir()
    graphs = torch.load(file, weights_only=False)
    for graph in graphs:
        graph.y = graph.y.unsqueeze(-1)
        graph.edge_index = to_undirected(graph.edge_index)
    first, last = int(0.8 * len(graphs)), int(0.9 * len(graphs))
    return dict(zip(PARTS, (graphs[:first], graphs[first:last], graphs[last:]), strict=True))


def superpixel_graphs(name: str) -> Oracle:
    def read(raw: Path, root: Path) -> Graphs:
        copy_raw(raw, root / name / "raw")
        return {part: datasets.LRGBDataset(str(root), name, split=part) for part in PARTS}

    return Oracle(read)


# --- Molecules -----------------------------------------------------------------------------------


def molecule(smiles: str, y: torch.Tensor) -> Data:
    graph = smiles2graph(smiles)
    x, edge_attr, edge_index = (
        torch.from_numpy(graph[key]) for key in ("node_feat", "edge_feat", "edge_index")
    )
    return Data(x=x, edge_attr=edge_attr, edge_index=edge_index, y=y)


def peptides(name: str) -> Oracle:
    def read(raw: Path, root: Path) -> Graphs:
        (file,) = raw.glob("*.csv.gz")
        graphs = []
        for row in read_table(file):
            values = eval(row["labels"]) if "func" in name else [float(row[t]) for t in TARGETS]
            graphs.append(molecule(row["smiles"], torch.tensor([values], dtype=torch.float32)))
        (file,) = raw.glob("*.pickle")
        lists = pickle.loads(file.read_bytes())
        return {part: [graphs[row] for row in lists[part].tolist()] for part in PARTS}

    return Oracle(read)


def pcqm4m(raw: Path, root: Path) -> Graphs:
    lists = torch.load(raw / "split_dict.pt", weights_only=False)
    rows = read_table(raw / "raw/data.csv.gz")
    parts = {}
    for part, name in (("train", "train"), ("val", "valid"), ("test", "test-dev")):
        chosen = [rows[row] for row in lists[name].tolist()]
        parts[part] = [
            molecule(row["smiles"], torch.tensor([float(row["homolumogap"] or "nan")]))
            for row in chosen
        ]
    return parts


def pcqm_contact(raw: Path, root: Path) -> Graphs:
    texts = [row["cxsmiles"] for row in read_table(raw / TABLE_FILE, "\t")]
    texts = [text for i, text in enumerate(texts) if i % 6 == 0 and ".contact." in text]
    lists = torch.load(raw / SPLIT_FILES["shuffle"], weights_only=False)
    return {part: [with_contacts(texts[row]) for row in lists[part]] for part in PARTS}


def with_contacts(text: str) -> Data:
    """Features of every atom and bond, and the contacts of each number, as upstream finds them."""
    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(text, sanitize=False)
    mol.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(mol)
    edges, attr = [], []
    for bond in mol.GetBonds():
        i, j = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        edges += [(i, j), (j, i)]
        attr += [bond_to_feature_vector(bond)] * 2
    ends: dict[int, list[int]] = {}
    for i, atom in enumerate(mol.GetAtoms()):
        for number in atom.GetProp("contact").split(";") if atom.HasProp("contact") else ():
            ends.setdefault(int(number), []).append(i)
    contacts = torch.tensor([ends[number] for number in range(len(ends))]).reshape(-1, 2)
    links = to_undirected(contacts.T)
    return Data(
        x=torch.tensor([atom_to_feature_vector(atom) for atom in mol.GetAtoms()]),
        edge_index=torch.tensor(edges).T,
        edge_attr=torch.tensor(attr),
        edge_label_index=links,
        edge_label=torch.ones(links.size(1), dtype=torch.int32),
    )


# --- OGB's tables --------------------------------------------------------------------------------


def ogb_lists(raw: Path, rule: str) -> dict[str, list[int]]:
    files = {part: raw / f"split/{rule}/{part.replace('val', 'valid')}.csv.gz" for part in PARTS}
    return {part: [int(row) for (row,) in read_numbers(file)] for part, file in files.items()}


def ogb_graphs(raw: Path, root: Path) -> Graphs:
    graphs = read_graph_pyg(str(raw / "raw"), add_inverse_edge=True)
    targets = torch.tensor(read_numbers(raw / "raw/graph-label.csv.gz"), dtype=torch.float64)
    dtype = torch.float32 if targets.isnan().any() else torch.int64  # by OGB's rule
    for graph, target in zip(graphs, targets, strict=True):
        graph.y = target.view(1, -1).to(dtype)
        del graph.num_nodes
    return {
        part: [graphs[row] for row in rows] for part, rows in ogb_lists(raw, "scaffold").items()
    }


def ogb_nodes(rule: str, **reading: Any) -> Oracle:
    def read(raw: Path, root: Path) -> Graphs:
        (graph,) = read_graph_pyg(str(raw / "raw"), **reading)
        graph.y = torch.tensor(read_numbers(raw / "raw/node-label.csv.gz")).flatten().long()
        for part, rows in ogb_lists(raw, rule).items():
            graph[f"{part}_mask"] = torch.zeros(graph.num_nodes, dtype=torch.bool)
            graph[f"{part}_mask"][rows] = True
        del graph.num_nodes
        return {FOLDS: graph}

    return Oracle(read, limit=90)


ORACLES: Mapping[str, Oracle] = {
    "actor": geom_gcn("actor", "raw", datasets.Actor),
    "texas": geom_gcn("texas", "texas/raw", lambda root: datasets.WebKB(root, "texas")),
    "chameleon": geom_gcn(
        "chameleon",
        "chameleon/geom_gcn/raw",
        lambda root: datasets.WikipediaNetwork(root, "chameleon", geom_gcn_preprocess=True),
    ),
    **{
        name: heterophilous(name)
        for name in ("minesweeper", "tolokers", "chameleon-filtered", "squirrel-filtered")
    },
    **{name: planetoid(name) for name in ("cora", "citeseer")},
    "zinc": zinc(subset=True),
    "zinc-full": zinc(subset=False),
    **{name: benchmark_gnns(name.upper()) for name in ("cifar10", "mnist", "pattern", "cluster")},
    **{f"echo-{task}": echo(task) for task in ("ecc", "diam", "sssp", "charge", "energy")},
    **{name: Oracle(lrim, limit=40) for name in ("lrim-16-hard", "lrim-256-easy")},
    **{name: superpixel_graphs(name) for name in ("pascalvoc-sp", "coco-sp")},
    **{name: peptides(name) for name in ("peptides-func", "peptides-struct")},
    "pcqm-contact": Oracle(pcqm_contact, limit=60, opened=kmip_data.PCQMContact),
    "pcqm4mv2": Oracle(pcqm4m, limit=60, split_rule="upstream"),
    **{name: Oracle(ogb_graphs) for name in ("ogbg-molhiv", "ogbg-molpcba")},
    "ogbn-arxiv": ogb_nodes("time", additional_node_files=["node_year"]),
    "ogbn-products": ogb_nodes("sales_ranking", add_inverse_edge=True),
}
