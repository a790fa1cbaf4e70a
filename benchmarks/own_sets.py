"""Sets of own data on which the defaults of a training are measured.

``--data DIR`` holds the published files, of which none is part of this repository: ``planetoid``,
``node_benchmarks``, ``city_networks_huangpu``, ``peptides_func``, MalNet-Tiny's archives of 100 graphs,
and tables of SMILES: ``esol.csv``, ``freesolv.csv`` and ``lipophilicity.csv``. A set without its files
is left out. The other sets are scikit-learn's, or generated.
"""

from __future__ import annotations

import ast
import io
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn import datasets
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch_geometric.data import Data

from kmip_data.builds.home import Home, list_builds
from kmip_data.pipelines.build import build_own
from kmip_data.saving.save import save

MALNET_TYPES = ("addisplay", "adware", "benign", "downloader", "trojan")
NEIGHBORS = 8  #: of a k-NN graph


def build_set(name: str, data: Path, home: Home) -> Path | None:
    """Build a set in ``home`` and return its folder; ``None`` if its files are missing."""
    own_name = f"own-{name}"  # the name of a published dataset is taken
    if builds := list_builds(home, own_name):
        return builds[0].path
    try:
        source = SETS[name](data)
    except FileNotFoundError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(source, tuple):
            graphs, split = source
            return save(graphs, home.built / own_name, split, name=own_name).path
        return build_own("graphs", own_name, home=home, jobs=1, quiet=True, **source).path


def from_files(path: Path, **parameters: Any) -> dict[str, Any]:
    """Return the arguments of a build from files."""
    if not path.exists():
        raise FileNotFoundError(path)
    return {"source": {"path": path}, "parameters": parameters}


def from_table(table: pd.DataFrame, name: str) -> dict[str, Any]:
    """Return the arguments of a build from a table of SMILES."""
    path = Path(tempfile.mkdtemp(prefix="kmip-data-bench-")) / f"{name}.csv"
    table.to_csv(path, index=False)
    labels = tuple(column for column in table if column != "smiles")
    return from_files(path, label=labels)


def random_split(count: int) -> dict[str, Any]:
    """Draw 80, 10 and 10 % of the items, as a build does."""
    order = np.random.default_rng(0).permutation(count)
    val, test = count * 8 // 10, count * 9 // 10
    return {"train": order[:val], "val": order[val:test], "test": order[test:]}


def planetoid(data: Path, name: str) -> dict[str, Any]:
    """Return a citation network with its published split."""
    folder = Path(tempfile.mkdtemp(prefix="kmip-data-bench-")) / name
    folder.mkdir()
    files = sorted((data / "planetoid").glob(f"ind.{name}.*"))
    if not files:
        raise FileNotFoundError(name)
    for file in files:
        (folder / file.name).write_bytes(file.read_bytes())
    return from_files(folder)


def node_benchmark(data: Path, name: str) -> dict[str, Any]:
    """Return a graph of Platonov et al. with the first of its ten splits."""
    return from_files(data / "node_benchmarks" / f"{name}.npz", undirected=True)


def huangpu(data: Path) -> tuple[list[Data], dict[str, Any]]:
    """Return a district whose classes are ranges of the eccentricity."""
    folder = data / "city_networks_huangpu"
    graph = Data(
        x=torch.load(folder / "node_features_augmented.pt"),
        edge_index=torch.load(folder / "edge_indices.pt"),
        edge_attr=torch.load(folder / "edge_features.pt")[:, :2],
        y=torch.load(folder / "10-chunk_node_labels.pt"),
    )
    return [graph], random_split(int(graph.num_nodes or 0))


def peptides(data: Path) -> dict[str, Any]:
    """Return 1,000 drawn peptides with ten labels."""
    path = data / "peptides_func/peptide_multi_class_dataset.csv.gz"
    table = pd.read_csv(path).sample(1_000, random_state=0)
    labels = pd.DataFrame([ast.literal_eval(text) for text in table["labels"]])
    labels.columns = [f"label{column}" for column in labels]
    return from_table(
        pd.concat([table[["smiles"]].reset_index(drop=True), labels], axis=1), "peptides"
    )


def malnet(data: Path) -> tuple[list[Data], dict[str, Any]]:
    """Return call graphs of 100 apps in their published split."""
    graphs: list[Data] = []
    split: dict[str, list[int]] = {"train": [], "val": [], "test": []}
    with (
        tarfile.open(data / "malnet-graphs-tiny_100.tar.gz") as archive,
        zipfile.ZipFile(data / "split_info_tiny_100.zip") as lists,
    ):
        for part, numbers in split.items():
            for name in lists.read(f"split_info_tiny/type/{part}.txt").decode().split():
                file: Any = archive.extractfile(f"malnet-graphs-tiny/{name}.edgelist")
                edges = np.loadtxt(io.BytesIO(file.read()), np.int64, ndmin=2)
                nodes, edges = np.unique(edges, return_inverse=True)
                numbers.append(len(graphs))
                graphs.append(
                    Data(
                        edge_index=torch.from_numpy(edges.reshape(-1, 2).T.copy()),
                        num_nodes=len(nodes),
                        y=MALNET_TYPES.index(name.split("/")[0]),
                    )
                )
    return graphs, split


def smiles(data: Path, name: str, target: str) -> dict[str, Any]:
    """Return molecules with a number."""
    table = pd.read_csv(data / f"{name}.csv")
    return from_table(table[["smiles", target]], name)


def nearest_neighbors(rows: Any) -> Tensor:
    """Return the edges (2, E) of a symmetric k-NN graph of standardised rows."""
    scaled = StandardScaler().fit_transform(rows)
    adjacency = kneighbors_graph(scaled, NEIGHBORS)
    source, target = (adjacency + adjacency.T).nonzero()
    return torch.from_numpy(np.stack([source, target]).astype(np.int64))


def table_of(name: str) -> tuple[list[Data], dict[str, Any]]:
    """Return a table of scikit-learn as a k-NN graph."""
    rows, targets = getattr(datasets, f"load_{name}")(return_X_y=True)
    y = torch.from_numpy(targets)
    graph = Data(
        x=torch.from_numpy(rows).float(),
        edge_index=nearest_neighbors(rows),
        y=y.float() if name == "diabetes" else y.long(),
    )
    return [graph], random_split(len(rows))


def grid(_: Path) -> tuple[list[Data], dict[str, Any]]:
    """Generate 180 buses whose price depends on their own load and height, and on those of neighbours."""
    random = np.random.default_rng(3)
    places = random.random((180, 2))
    edges = nearest_neighbors(places)
    load = random.lognormal(6.5, 0.8, 180)
    height = random.uniform(0, 1800, 180)
    voltage = random.choice([66, 110, 220], 180)
    near = mean_of_neighbors(np.log(load), edges)
    price = 60 + 4 * (np.log(load) - 6.5) + 0.004 * height + 8 * (near - 6.5)
    price += random.normal(0, 0.7, 180)
    x = np.stack([load, height, voltage], axis=1)
    return [node_graph(x, edges, price)], random_split(180)


def mean_at(ends: Tensor, values: Any, nodes: int) -> Any:
    """Return the mean of edge values (E,) at each node, (nodes,)."""
    count = np.bincount(ends, minlength=nodes)
    return np.bincount(ends, values, minlength=nodes) / np.maximum(count, 1)


def mean_of_neighbors(values: Any, edges: Tensor) -> Any:
    """Return the mean over the sources of each node."""
    return mean_at(edges[1], values[edges[0]], len(values))


def node_graph(x: Any, edges: Tensor, targets: Any, edge_attr: Any = None) -> Data:
    """Return a graph with features, and its targets: numbers, or classes if they are integers."""
    y = torch.from_numpy(np.asarray(targets))
    graph = Data(
        x=torch.from_numpy(x).float(),
        edge_index=edges,
        y=y if y.dtype == torch.int64 else y.float(),
    )
    if edge_attr is not None:
        graph.edge_attr = torch.from_numpy(edge_attr).float()
    return graph


def yields(_: Path) -> tuple[list[Data], dict[str, Any]]:
    """Generate 240 small graphs whose yield near 30,000 is nearly linear in means of their features."""
    random = np.random.default_rng(4)
    graphs = []
    for _number in range(240):
        graph = random_graph(random, int(random.integers(8, 20)), 2)
        x = random.normal([300, 4, 0], [40, 1, 1], (int(graph.max()) + 1, 3))
        mean = x.mean(0)
        y = 30_000 + 25 * (mean[0] - 300) + 900 * (mean[1] - 4) + random.normal(0, 90)
        graphs.append(node_graph(x, graph, [y]))
    return graphs, random_split(240)


def random_graph(random: np.random.Generator, nodes: int, degree: int) -> Tensor:
    """Return the edges (2, E), both ways, of a random graph in which each node draws neighbours."""
    source = np.repeat(np.arange(nodes), degree)
    target = (source + random.integers(1, nodes, len(source))) % nodes
    pairs = np.concatenate([np.stack([source, target]), np.stack([target, source])], axis=1)
    return torch.from_numpy(np.unique(pairs, axis=1))


def three_classes(_: Path) -> tuple[list[Data], dict[str, Any]]:
    """Generate 300 nodes in three classes, which two small columns separate beside a large one."""
    random = np.random.default_rng(5)
    classes = random.integers(0, 3, 300)
    centers = np.array([[0, 0], [0.02, 0], [0, 0.02]])
    small = centers[classes] + random.normal(0, 0.008, (300, 2))
    x = np.column_stack([random.normal(50_000, 9_000, 300), small])
    return [node_graph(x, random_graph(random, 300, 2), classes)], random_split(300)


def field(_: Path) -> tuple[list[Data], dict[str, Any]]:
    """Generate 20,000 sensors, whose number is not linear in their own features and those near them."""
    random = np.random.default_rng(6)
    places = random.random((20_000, 2))
    edges = nearest_neighbors(places)
    x = random.normal(0, 1, (20_000, 5)) * [1, 10, 100, 0.1, 1]
    a, b, c = x[:, 0], x[:, 1] / 10, x[:, 2] / 100
    near = mean_of_neighbors(a, edges)
    y = a * b + 2 * np.abs(near) + np.sin(2 * c) + random.normal(0, 0.3, 20_000)
    return [node_graph(x, edges, y)], random_split(20_000)


def teams(_: Path) -> tuple[list[Data], dict[str, Any]]:
    """Generate 60 teams of two classes, which differ in the mean of a feature."""
    random = np.random.default_rng(7)
    graphs = []
    for number in range(60):
        edges = random_graph(random, 12, 2)
        x = random.normal(0, 1, (12, 4)) + np.array([0.5 * (number % 2), 0, 0, 0])
        graphs.append(node_graph(x, edges, [number % 2]))
    return graphs, random_split(60)


def scenes(_: Path) -> tuple[list[Data], dict[str, Any]]:
    """Generate 150 graphs of about 80 nodes, whose class depends on products of features nearby."""
    random = np.random.default_rng(8)
    graphs = []
    for _number in range(150):
        places = random.random((int(random.integers(60, 100)), 2))
        edges = nearest_neighbors(places)
        x = np.column_stack([random.normal(0, 1, (len(places), 3)), places * 1_000])
        near = mean_of_neighbors(x[:, 0], edges)
        score = x[:, 0] * x[:, 1] + 3 * near + random.normal(0, 0.2, len(places))
        graphs.append(node_graph(x, edges, np.digitize(score, [-0.7, 0.7])))
    return graphs, random_split(150)


def random_arcs(random: np.random.Generator, nodes: int, degree: int) -> Tensor:
    """Return the edges (2, E), one way, of a random graph in which each node draws its targets."""
    pairs = random_graph(random, nodes, degree)
    low, high = pairs.sort(dim=0)[0].numpy()
    goes_up = random.random((nodes, nodes))[low, high] < 0.5
    return pairs[:, torch.from_numpy(goes_up == (pairs[0].numpy() == low))]


def connectomes(_: Path) -> tuple[list[Data], dict[str, Any]]:
    """Generate 300 brains of two classes, which differ in the weights of their edges."""
    random = np.random.default_rng(10)
    graphs = []
    for number in range(300):
        edges = random_graph(random, 30, 3)
        pair = edges.sort(dim=0)[0]
        weights = random.gamma(2, 0.25, (30, 30))[pair[0], pair[1]] + 0.08 * (number % 2)
        x = random.normal(0, 1, (30, 3))
        graphs.append(node_graph(x, edges, [number % 2], weights[:, None]))
    return graphs, random_split(300)


def ledger(_: Path) -> tuple[list[Data], dict[str, Any]]:
    """Generate 2,000 accounts, whose class depends on the amounts that they pay and receive."""
    random = np.random.default_rng(11)
    edges = random_arcs(random, 2_000, 4)
    amounts = random.lognormal(3, 1, edges.shape[1])
    paid = mean_at(edges[0], np.log(amounts), 2_000)
    received = mean_at(edges[1], np.log(amounts), 2_000)
    score = paid - 0.5 * received + random.normal(0, 0.2, 2_000)
    x = random.normal(0, 1, (2_000, 4))
    classes = (score > np.quantile(score, 0.78)).astype(np.int64)
    return [node_graph(x, edges, classes, amounts[:, None])], random_split(2_000)


def citing(_: Path) -> tuple[list[Data], dict[str, Any]]:
    """Generate 1,500 papers, whose class is that of most papers that they cite."""
    random = np.random.default_rng(12)
    edges = random_arcs(random, 1_500, 6)
    topic = random.integers(0, 3, 1_500)
    cited = np.zeros((1_500, 3))
    np.add.at(cited, edges[0].numpy(), np.eye(3)[topic[edges[1]]])
    x = np.eye(3)[topic] + random.normal(0, 0.7, (1_500, 3))
    return [node_graph(x, edges, cited.argmax(1))], random_split(1_500)


def reach(_: Path) -> tuple[list[Data], dict[str, Any]]:
    """Generate 1,500 members, whose number depends on whom they follow and who follows them."""
    random = np.random.default_rng(13)
    edges = random_arcs(random, 1_500, 5)
    x = random.normal(0, 1, (1_500, 4))
    followed = mean_at(edges[0], x[edges[1], 0], 1_500)
    followers = mean_at(edges[1], x[edges[0], 1], 1_500)
    y = 3 * np.abs(followed) - 2 * followers + 0.5 * x[:, 2] + random.normal(0, 0.2, 1_500)
    return [node_graph(x, edges, y)], random_split(1_500)


def roads(_: Path) -> tuple[list[Data], dict[str, Any]]:
    """Generate 1,500 crossings, whose number depends on the lengths of their streets."""
    random = np.random.default_rng(14)
    places = random.random((1_500, 2))
    edges = nearest_neighbors(places)
    length = np.linalg.norm(places[edges[0]] - places[edges[1]], axis=1) * 1_000
    x = random.normal(0, 1, (1_500, 3))
    y = 0.1 * mean_at(edges[1], length, 1_500) + x[:, 0] + random.normal(0, 0.3, 1_500)
    return [node_graph(x, edges, y, length[:, None])], random_split(1_500)


def relations(_: Path) -> tuple[list[Data], dict[str, Any]]:
    """Generate 1,200 people, whose class is the most frequent kind of their relations."""
    random = np.random.default_rng(15)
    edges = random_graph(random, 1_200, 3)
    liked = random.integers(0, 4, 1_200)
    low, high = edges.sort(dim=0)[0].numpy()
    kind = np.where((low * 31 + high) % 10 < 6, liked[low], (low + 7 * high) % 4)
    counts = np.zeros((1_200, 4))
    np.add.at(counts, edges[1].numpy(), np.eye(4)[kind])
    x = random.normal(0, 1, (1_200, 3))
    return [node_graph(x, edges, counts.argmax(1), np.eye(4)[kind])], random_split(1_200)


def flows(_: Path) -> tuple[list[Data], dict[str, Any]]:
    """Generate 400 one-way networks, whose number is the mean load of their pipes."""
    random = np.random.default_rng(16)
    graphs = []
    for _number in range(400):
        nodes = int(random.integers(10, 30))
        edges = random_arcs(random, nodes, 3)
        x = random.normal(0, 1, (nodes, 3))
        flow = random.gamma(2, 1, edges.shape[1])
        y = float(np.mean(flow * (x[edges[0], 0] > 0)) + random.normal(0, 0.05))
        graphs.append(node_graph(x, edges, [y], flow[:, None]))
    return graphs, random_split(400)


def replies(_: Path) -> tuple[list[Data], dict[str, Any]]:
    """Generate 400 threads of two classes: messages with a mark are answered, or answer others."""
    random = np.random.default_rng(17)
    graphs = []
    for number in range(400):
        nodes = int(random.integers(15, 40))
        edges = random_arcs(random, nodes, 2)
        marks = np.bincount(edges[number % 2], minlength=nodes) > 1.5
        marks ^= random.random(nodes) < 0.25
        x = np.column_stack([marks, random.normal(0, 1, (nodes, 2))])
        graphs.append(node_graph(x, edges, [number % 2]))
    return graphs, random_split(400)


#: Source of each set: graphs with a split, or the arguments of a build from files.
SETS: dict[str, Callable[[Path], Any]] = {
    "cora": lambda data: planetoid(data, "cora"),
    "citeseer": lambda data: planetoid(data, "citeseer"),
    "minesweeper": lambda data: node_benchmark(data, "minesweeper"),
    "tolokers": lambda data: node_benchmark(data, "tolokers"),
    "chameleon-filtered": lambda data: node_benchmark(data, "chameleon_filtered"),
    "squirrel-filtered": lambda data: node_benchmark(data, "squirrel_filtered"),
    "huangpu": huangpu,
    "peptides": peptides,
    "malnet-100": malnet,
    "diabetes": lambda _: table_of("diabetes"),
    "wine": lambda _: table_of("wine"),
    "breast-cancer": lambda _: table_of("breast_cancer"),
    "digits": lambda _: table_of("digits"),
    "esol": lambda data: smiles(data, "esol", "measured log solubility in mols per litre"),
    "freesolv": lambda data: smiles(data, "freesolv", "expt"),
    "lipophilicity": lambda data: smiles(data, "lipophilicity", "exp"),
    "grid": grid,
    "yields": yields,
    "three-classes": three_classes,
    "field": field,
    "teams": teams,
    "scenes": scenes,
    "connectomes": connectomes,
    "ledger": ledger,
    "citing": citing,
    "reach": reach,
    "roads": roads,
    "relations": relations,
    "flows": flows,
    "replies": replies,
}
