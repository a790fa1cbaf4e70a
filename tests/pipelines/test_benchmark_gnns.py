"""Sets of benchmarking-gnns: limits and dtypes; bad graphs are named."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.builds.raw_graphs import records_of_folder, refused_folder, write_sample
from support.cases import check_each

from kmip_data.pipelines.datasets.benchmark_gnns.digits import (
    divide_into_superpixels,
    draw_digit,
)

FILE = "CIFAR10_v2.pt"


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return write_sample("cifar10", tmp_path_factory.mktemp("raw"), limit=40)


@pytest.fixture
def lists(raw):
    return torch.load(raw / FILE, weights_only=True)


def test_a_limit_takes_evenly_spaced_records(raw, tmp_path):
    pipeline, records = records_of_folder("cifar10", raw, tmp_path / "all")
    _, some = records_of_folder("cifar10", raw, tmp_path / "some", limit=8)
    keys = [record.key for record in records]
    sizes = {"train": 30, "val": 3, "test": 7}
    assert keys == [f"{part}/{i:06d}" for part, count in sizes.items() for i in range(count)]
    assert [record.key for record in some] == [keys[i * 40 // 8] for i in range(8)]
    assert pipeline.schema(pipeline.Params()).column("node/x").stored == "float32"


def test_a_generated_digit_is_read_from_its_superpixels():
    """Of ten digits of each class, the nearest mean of 16 × 16 greys tells the class."""
    rng = np.random.default_rng(0)
    places = (np.indices((16, 16)).reshape(2, -1).T + 0.5) / 16

    def superpixels(digit: int) -> np.ndarray:
        pos, grey = divide_into_superpixels(draw_digit(digit, rng), (8, 9), rng)
        assert 60 < len(pos) <= 72
        assert grey.min() == 0
        assert grey.max() > 0.9
        return grey[np.linalg.norm(places[:, None] - pos, axis=-1).argmin(axis=1)]

    drawn = np.array([[superpixels(digit) for _ in range(10)] for digit in range(10)])
    means = drawn[:, :6].mean(axis=1)
    others = drawn[:, 6:].reshape(40, -1)
    nearest = np.linalg.norm(others[:, None] - means, axis=-1).argmin(axis=1)
    assert np.mean(nearest == np.arange(10).repeat(4)) > 0.9


def test_other_dtypes_are_cast(lists, tmp_path):
    for graph in lists[0]:
        graph.update({name: graph[name].double() for name in ("x", "pos", "edge_attr")})
        graph["edge_attr"] = graph["edge_attr"].view(-1, 1)
        graph["y"] = int(graph["y"])
    torch.save(lists, tmp_path / FILE)
    _, records = records_of_folder("cifar10", tmp_path, tmp_path / "work")
    assert records[0].columns["node/x"].dtype == np.float32
    assert records[0].columns["edge/attr"].shape == (len(lists[0][0]["edge_attr"]), 1)


FAULTS = [
    ("x", None),
    ("pos", np.zeros((1, 2), np.float32)),
    ("edge_index", np.full((2, 1), 10_000)),
    ("edge_attr", "text"),
    ("y", np.array([10])),
    ("y", np.array([1, 2])),
]


def test_bad_graphs_are_named(lists, tmp_path):
    def check(case):
        name, value = case
        value = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        graphs = [list(part) for part in lists]
        graphs[0][2] = {**graphs[0][2], name: value}
        torch.save(graphs, tmp_path / FILE)
        refused_folder("cifar10", tmp_path, f"{FILE}, train 2")

    check_each(check, FAULTS)


def test_bad_classes_of_nodes_are_named(tmp_path):
    write_sample("pattern", tmp_path, limit=5)
    file = tmp_path / "PATTERN_v2.pt"
    lists = torch.load(file, weights_only=True)
    graph = lists[2][0]
    for classes in (torch.tensor([0, 1]), graph["y"] + 2):
        torch.save([*lists[:2], [{**graph, "y": classes}]], file)
        refused_folder("pattern", tmp_path, "PATTERN_v2.pt, test 0")


@pytest.mark.parametrize("content", [{}, [[], [], {}], None, [[], [], [3]]])
def test_a_file_of_something_else_is_refused(content, tmp_path):
    torch.save(content, tmp_path / FILE)
    refused_folder("cifar10", tmp_path, "CIFAR10_v2")
