"""docs/errors.md: each message of another package is produced, and the command below it works."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric
from ogb.graphproppred import PygGraphPropPredDataset
from scipy.spatial import KDTree
from support.attacks.http_server import status
from support.cli import expect_success
from support.shared import ROOT
from torch_geometric.data import Data, InMemoryDataset, download_url

import kmip_data
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline
from tools.real import dry


@pytest.fixture(autouse=True)
def own_home(monkeypatch, tmp_path):
    """Commands of the page name no home, so they must not build in that of the developer."""
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))


#: The error of a call that must fail, as a user pastes it, and the graphs that the build must have.
Failure = tuple[str, list[Data]]
TIES = "knn_graph or radius_graph gives different edges on another machine"
NO_PYG_LIB = "ImportError: 'knn_graph' requires 'pyg-lib>=0.6.0'"


def read_sections() -> dict[str, str]:
    """Return the text below each message of the page, by its title."""
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    messages = page.split("\n## Messages of")[1]
    return dict(section.split("\n", 1) for section in messages.split("\n### ")[1:])


SECTIONS = read_sections()


def run_commands(title: str) -> str:
    """Type the commands below a message; return the name of the build."""
    commands = re.findall(r"^    (kmip-data build .+)$", SECTIONS[title], re.MULTILINE)
    (words,) = map(shlex.split, commands)
    expect_success(*words[1:], "--quiet")
    return words[words.index("--name") + 1] if "--name" in words else words[2]


def error_of(call: Callable[[], object]) -> str:
    """Return the traceback of a call that must fail."""
    try:
        call()
    except Exception as error:
        return "".join(traceback.format_exception(error))
    pytest.fail("the call works")


def rings() -> list[Data]:
    """Return graphs of several sizes."""
    graphs = []
    for nodes in range(4, 24):
        index = torch.arange(nodes)
        edges = torch.stack([index, (index + 1) % nodes])
        graphs.append(Data(x=torch.rand(nodes, 3), edge_index=edges, y=torch.tensor([nodes % 2])))
    return graphs


def old_data(_: ExitStack) -> Failure:
    graphs = rings()
    old_graphs = []
    for graph in graphs:
        # Before version 2, the attributes of Data were those of the Python object.
        old = Data.__new__(Data)
        unset = dict.fromkeys(("edge_attr", "pos", "normal", "face"))
        old.__dict__.update(graph.to_dict(), **unset)
        old_graphs.append(old)
    torch.save(old_graphs, "old.pt")
    loaded = torch.load("old.pt", weights_only=False)
    return error_of(lambda: loaded[0].num_nodes), graphs


def weights_only(_: ExitStack) -> Failure:
    graphs = rings()
    torch.save(graphs, "graphs.pt")
    error = error_of(lambda: torch.load("graphs.pt"))

    # Each class that the page names is refused in turn.
    classes = {
        "DataEdgeAttr": torch_geometric.data.data.DataEdgeAttr,
        "DataTensorAttr": torch_geometric.data.data.DataTensorAttr,
        "GlobalStorage": torch_geometric.data.storage.GlobalStorage,
    }
    title = next(title for title in SECTIONS if "DataEdgeAttr" in title)
    assert set(re.findall(r"`(\w+Attr|\w+Storage)`", SECTIONS[title])) == set(classes)
    allowed: list[type] = []
    for name, refused in classes.items():
        with torch.serialization.safe_globals(allowed):
            assert f".{name} was not an allowed global" in error_of(lambda: torch.load("graphs.pt"))
        allowed.append(refused)
    return error, graphs


def ogb(_: ExitStack) -> Failure:
    folder = Path("dataset/ogbg_molbace")
    folder.mkdir(parents=True)
    load_pipeline(load_manifest("ogbg-molhiv")).write_sample(folder, limit=20, seed=0)
    (folder / "RELEASE_v1.txt").touch()
    error = error_of(lambda: PygGraphPropPredDataset("ogbg-molbace"))

    processed = InMemoryDataset()
    file = folder / "processed" / "geometric_data_processed.pt"
    processed.data, processed.slices = torch.load(file, weights_only=False)
    return error, list(processed)


def dead_host(stack: ExitStack) -> Failure:
    server = stack.enter_context(dry.served(["s3dis"], Path("mirrors")))
    (path,) = (path for path in server.routes if path.startswith("/s3dis/1/"))
    errors = ""
    for code in (404, 403):
        address = server.route(path, status(code))
        errors += error_of(lambda address=address: download_url(address, "pyg"))
    return errors, []


#: In a process of its own: a heap that earlier tests left could hold all graphs below the limit.
COLLATE = """
import resource, sys, torch
from torch_geometric.data import InMemoryDataset
graphs = torch.load("large.pt", weights_only=False)
(line,) = [line for line in open("/proc/self/status") if line.startswith("VmData")]
held = 1024 * int(line.split()[1])
limits = resource.getrlimit(resource.RLIMIT_DATA)
resource.setrlimit(resource.RLIMIT_DATA, (held + 2**22, limits[1]))
InMemoryDataset.collate(graphs)
"""


def little_memory(_: ExitStack) -> Failure:
    edges = torch.tensor([[0, 1], [1, 0]])
    graphs = []
    for number in range(48):
        x = torch.full((512, 512), float(number))  # 1 MiB
        graphs.append(Data(x=x, edge_index=edges, y=torch.tensor([number % 2])))
    torch.save(graphs, "large.pt")
    process = subprocess.run(
        [sys.executable, "-c", COLLATE], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    return process.stderr, graphs


FAILURES = {
    "The 'data' object was created by an older version of PyG": old_data,
    "Weights only load failed: Unsupported global: GLOBAL "
    "torch_geometric.data.data.DataEdgeAttr": weights_only,
    "PygGraphPropPredDataset: Weights only load failed": ogb,
    "HTTP Error 403: Forbidden, HTTP Error 404: Not Found": dead_host,
    "DefaultCPUAllocator: can't allocate memory": little_memory,
}


def test_every_message_is_produced():
    assert set(SECTIONS) == {*FAILURES, TIES, NO_PYG_LIB}


@pytest.mark.parametrize("title", FAILURES)
def test_the_command_below_a_message_works_on_the_same_file(title, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        error, graphs = FAILURES[title](stack)
        for part in re.split(": |, ", title):
            assert part in error
        name = run_commands(title)

    build = kmip_data.open(name)
    assert len(build) == len(graphs) or not graphs
    for graph, built in zip(graphs, build, strict=False):
        for attribute in ("x", "edge_index", "edge_attr", "y"):
            expected = graph.get(attribute)
            assert expected is None or torch.equal(built[attribute], expected.to(built[attribute]))


def test_ties_are_broken_alike(tmp_path, monkeypatch):
    """Two searches are right and differ; a build has the neighbours of least distance and index."""
    monkeypatch.chdir(tmp_path)
    grid = np.array([*itertools.product(range(4), repeat=3)])
    np.savetxt("grid.csv", grid, fmt="%d", delimiter=",", header="x,y,z", comments="")
    points = torch.from_numpy(grid).double()
    distances = torch.cdist(points, points).fill_diagonal_(np.inf)

    by_torch = distances.topk(4, largest=False).indices.sort().values
    by_scipy = torch.from_numpy(KDTree(grid).query(grid, 5)[1][:, 1:]).sort().values
    for neighbours in (by_torch, by_scipy):
        assert torch.equal(
            distances.gather(1, neighbours).sort().values,
            distances.sort().values[:, :4],
        )
    assert not torch.equal(by_torch, by_scipy)

    (graph,) = kmip_data.open(run_commands(TIES))
    source, target = graph.edge_index[:, graph.edge_index[1].argsort(stable=True)]
    assert torch.equal(target, torch.arange(64).repeat_interleave(4))
    expected = distances.sort(stable=True).indices[:, :4]
    assert torch.equal(source.view(64, 4).sort().values, expected.sort().values)


def test_neighbours_need_no_pyg_lib():
    points = torch.rand(1_000, 3)
    if importlib.util.find_spec("pyg_lib") is None:
        kind, _, message = NO_PYG_LIB.partition(": ")
        error = error_of(lambda: torch_geometric.nn.knn_graph(points, 16))
        assert f"{kind}: " in error
        assert message in error

    (snippet,) = re.findall(
        r"^```python\n(.*?)^```", SECTIONS[NO_PYG_LIB], re.MULTILINE | re.DOTALL
    )
    names: dict[str, object] = {}
    exec(snippet, names)
    assert names["edge_index"].shape == (2, 16_000)
