"""Data of a run: builds, splits, feature sets, and refusal of other data."""

from __future__ import annotations

import numpy as np
import pytest
from support.builds.learnable import CLASSES, learnable_build, tiny_config
from support.builds.written import write_build
from support.raises import raises

from kmip_data.builds.home import Home
from kmip_data.errors import Setting, UsageError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Column, Schema
from kmip_data.format.split_files import read_split
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for_data, load_preset
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.run.evaluate_run import evaluate
from kmip_data.models.training.run.train import train
from kmip_data.pipelines.find_builds import find_or_build

X = Column(key="node/x", attribute="x", stored="float32", presented="float32", shape=(2,))
Y = Column(key="node/y", attribute="y", stored="uint8", presented="int64")


def build_of(folder, columns, *, graphs=4, edges="index", labels=None, **options):
    """A build of two-node graphs with the columns given."""
    records = []
    for graph in range(graphs):
        values = {}
        for column in columns:
            rows = () if column.level == "graph" else (2,)  # two nodes, two edges
            values[column.key] = np.zeros((*rows, *column.shape), column.stored)
        if labels is not None:
            values["node/y"] = np.full(2, labels[graph], np.uint8)
        index = np.array([[0, 1], [1, 0]], np.uint16) if edges == "index" else None
        records.append(GraphRecord(key=f"g{graph}", num_nodes=2, columns=values, edge_index=index))
    schema = Schema(columns=tuple(columns), edges=edges)
    options = options or {"parts": {"train": [0, 1], "val": [2], "test": [3]}}
    return write_build(folder, records, schema, dataset="mine", **options)


GRAPH_Y = Column(key="graph/y", attribute="y", stored="uint8", presented="int64")
EDGE_Y = Column(key="edge/y", attribute="y", stored="uint8", presented="int64")
MANY_Y = Column(key="graph/y", attribute="y", stored="float32", presented="float32", shape=(2, 2))


def test_unsuitable_data_are_refused(tmp_path):
    one_graph = {"graphs": 1, "part_codes": np.array([0, 1], np.uint8)}
    for number, (columns, options, *missing) in enumerate(
        (
            ([Y], {}, "x"),
            ([X], {}, "y"),
            ([], {}, "x", "y"),
            ([X, EDGE_Y], {}, "y"),
            ([X, MANY_Y], {}),
            ([X, Y], {"edges": "none"}, "edges"),
            ([X, Y], {"parts": None}, "split"),
            ([X, GRAPH_Y], one_graph),
        )
    ):
        build = build_of(tmp_path / str(number), columns, **options)
        with raises(UsageError, naming=missing):
            train(tiny_config(build), home=Home(tmp_path / "home"), quiet=True)
    assert not (tmp_path / "home").exists()


def test_neighbours_are_sampled_in_a_single_graph_alone(tmp_path):
    build = learnable_build(tmp_path / "build")
    with raises(UsageError, steps=Setting(neighbor_sampling=None)):
        open_data(tiny_config(build, training={"neighbors": [2]}), home=Home(tmp_path))


def test_classes_are_counted_over_all_parts(tmp_path):
    build = build_of(tmp_path / "build", [X, Y], labels=[0, 1, 0, 6])
    data = open_data(tiny_config(build), home=Home(tmp_path))
    assert data.task.outputs == 7
    result = train(tiny_config(build), home=Home(tmp_path), quiet=True).results[0]
    assert result.num_classes == 7


def test_train_batches_cover_each_epoch(tmp_path):
    build = learnable_build(tmp_path / "build", graphs=12)
    data = open_data(tiny_config(build, training={"batch_size": 2}), home=Home(tmp_path))

    def order(epoch):
        batches = data.train_batches(epoch)
        firsts = [tuple(batch.x[batch.ptr[:-1], 0].tolist()) for batch in batches]
        assert len(firsts) == len(batches) == 4
        return firsts

    first, again, second = order(0), order(0), order(1)
    assert first == again != second
    assert sorted(sum(first, ())) == sorted(sum(second, ()))


def test_test_and_val_come_in_file_order_and_only_with_what_is_read(tmp_path):
    build = learnable_build(tmp_path / "build")
    data = open_data(tiny_config(build), home=Home(tmp_path))
    ((parts, batches),) = data.evaluation_passes(["val"])
    (batch,) = batches
    assert parts == ("val",)
    assert sorted(batch.keys()) == ["batch", "neighbor", "ptr", "x", "y"]
    assert data.task.outputs == CLASSES


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A home with twelve sample blocks of S3DIS."""
    home = Home(tmp_path_factory.mktemp("home"))
    find_or_build("s3dis", {"k": 4, "limit": 12}, {}, home=home, sample=True, quiet=True)
    return home


SMALL = ["data.sample=true", "data.parameters.k=4", "data.parameters.limit=12", "model.layers=1"]
SMALL += ["model.hidden_dim=8", "training.epochs=1", "training.batch_size=4", "system.device=cpu"]


@pytest.mark.slow
def test_a_sample_says_so_and_each_seed_has_its_validation_blocks(sample):
    config = apply_overrides(load_preset("s3dis", variant="text"), SMALL)
    summary = train(config, home=sample, seeds=[0, 1], quiet=True)
    for run, result in zip(summary.runs, summary.results, strict=True):
        assert run.parent == sample.runs / "s3dis-sample" / "gps-kmip"
        assert result.sample
        assert result.num_features == 6  # position and colour, as the text says
        assert result.variant == "text"
        assert evaluate(run, home=sample).equals_result
    seeds = [result.split.parameters["split_seed"] for result in summary.results]
    assert seeds == [0, 1]
    digests = [result.split.digests for result in summary.results]
    assert digests[0]["val"] != digests[1]["val"]
    (build,) = sample.built.iterdir()
    area6 = [
        read_split(build / "splits" / f"{each.split.name}.h5").parts["test"]
        for each in summary.results
    ]
    assert set(area6[0].tolist()) == set(area6[1].tolist())  # whatever the seed


def test_a_build_folder_keeps_its_build_parameters(sample):
    (folder,) = sample.built.iterdir()
    config = config_for_data(str(folder))
    assert config.preset == "s3dis/gps-kmip"
    assert config.data.parameters == {"k": 4, "limit": 12, "knn_rule": "exact"}
    assert config.data.sample
    assert config.data.split == {"split_rule": "upstream", "test_area": 6, "split_seed": 0}
    data = open_data(config.with_seed(5), home=sample)
    assert data.split_name == "upstream-area6-seed0"
    with raises(UsageError, naming=32):
        open_data(apply_overrides(config, ["data.parameters.k=32"]), home=sample)
