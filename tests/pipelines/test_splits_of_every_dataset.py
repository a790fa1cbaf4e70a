"""``--split-rule stratified --split-seed S`` on every dataset: published sizes, equal shares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.builds.toy_pipeline import CLASSES
from support.cases import check_each
from support.cli import kmip
from support.raises import raises

from kmip_data.errors import UsageError
from kmip_data.format.schema import Column
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.base import Pipeline, RecordTable, Split, load_pipeline
from kmip_data.pipelines.parameters import BaseSplitParams, check_params
from kmip_data.pipelines.units_and_splits import apply_split, stratification_labels


def column(level, shape=()):
    about = {"stored": "uint8", "presented": "int64", "num_classes": CLASSES}
    return Column(key=f"{level}/y", attribute="y", shape=shape, **about)


def records(classes, label=None):
    none = np.ones(len(classes), np.int64)
    return RecordTable(
        [f"{i:05d}" for i in range(len(classes))],
        none,
        none,
        np.asarray(classes),
        None,
        label_column=label,
    )


def test_every_dataset_takes_the_rule():
    def check(name):
        params = load_pipeline(load_manifest(name)).SplitParams
        assert params(split_rule="stratified", split_seed=3).identity()["split_seed"] == 3
        default = params()
        assert default.split_rule != "stratified"
        if default.split_rule not in params.random_rules:
            assert "split_seed" not in default.identity()
            with raises(UsageError, naming=[name, default.split_rule]):
                check_params(params, {"split_seed": 3}, name)

    check_each(check, dataset_names())


@pytest.mark.parametrize("name", ["malnet-tiny", "s3dis", "paris"])
def test_the_command_line_splits_samples(name, tmp_path):
    limit = [] if name == "paris" else ["--limit", 12 if name == "s3dis" else 60]
    options = [name, "--sample", *limit, "--jobs", 1, "--quiet", "--home", tmp_path, "--json"]
    published = kmip("build", *options).json
    asked = ["--split-rule", "stratified", "--split-seed", 4]
    result = kmip("build", *options, *asked).json
    assert result["path"] == published["path"]
    assert result["split"].startswith("stratified")
    assert "seed4" in result["split"]
    sizes = "nodes" if name == "paris" else "graphs"
    for part, entry in published["splits"].items():
        assert result["splits"][part][sizes] == entry[sizes]
    assert result["splits"]["train"]["digest"] != published["splits"]["train"]["digest"]
    if name == "s3dis":  # the test area stays what it is, in another order
        both = [each["splits"]["test"] | {"digest": ""} for each in (result, published)]
        assert both[0] == both[1]
    assert kmip("build", *options, *asked).json == result


class Thirds(Pipeline):
    """Deals the records in thirds."""

    def __init__(self):
        pass

    schema = sample = units = records = None

    def split(self, built_records, params, raw_folder):
        n = len(built_records.keys)
        parts = {"train": range(n // 3), "val": range(n // 3, n // 2), "test": range(n // 2, n)}
        return Split("upstream", "upstream", {}, parts)


Thirds.__abstractmethods__ = frozenset()


def test_shares_are_equal_and_parts_that_stay_stay():
    labels = np.sort(np.random.default_rng(0).integers(0, CLASSES, 600))
    built_records = records(np.eye(CLASSES, dtype=np.int64)[labels], column("graph"))
    split = apply_split(
        Thirds(), built_records, BaseSplitParams(split_rule="stratified", split_seed=1), None
    )
    assert split.name == "stratified-seed1"
    assert sorted(row for part in split.parts.values() for row in part) == list(range(600))
    whole = np.bincount(labels) / 600
    for part, rows in split.parts.items():
        assert abs(np.bincount(labels[rows], minlength=CLASSES) / len(rows) - whole).max() < 0.01, (
            part
        )

    class Fixed(Thirds):
        redrawn_parts = ("train", "val")

    split = apply_split(Fixed(), built_records, BaseSplitParams(split_rule="stratified"), None)
    assert list(split.parts["test"]) == list(range(300, 600))
    assert sorted([*split.parts["train"], *split.parts["val"]]) == list(range(300))


def test_stratification_uses_the_labels_of_graphs():
    one_hot = np.eye(CLASSES, dtype=np.int64)[[2, 0, 1, 2]]
    assert stratification_labels(records(one_hot, column("graph")), None)[0].tolist() == [
        2,
        0,
        1,
        2,
    ]
    several = np.array([[1, 0, 1], [1, 0, 0], [1, 0, 1], [0, 1, 1]])
    labels = stratification_labels(records(several, column("graph", (CLASSES,))), None)[0]
    assert labels[0] == labels[2]
    assert len(set(labels.tolist())) == 3
    counts = np.array([[5, 1, 1], [9, 0, 1], [9, 0, 0]])
    assert stratification_labels(records(counts, column("node")), 0)[0].tolist() == [1, 2, 0]
    assert stratification_labels(records(counts, column("node")), None)[0].tolist() == [0, 0, 0]
    labels, what = stratification_labels(records(np.zeros((3, 0), np.int64)), None)
    assert labels.tolist() == [0, 0, 0]
    assert "chance" in what


def test_nodes_in_no_part_stay_excluded():
    rng = np.random.default_rng(0)
    codes = rng.choice(np.array([0, 1, 2, 255], np.uint8), 2_000)
    labels = rng.integers(0, CLASSES, 2_000)

    class Nodes(Thirds):
        def split(self, built_records, params, raw_folder):
            return Split("random", "random", {}, part_codes=codes)

    built_records = replace(
        records([[1, 1, 1]], column("node")), node_labels=(labels, column("node"))
    )
    dealt = apply_split(
        Nodes(), built_records, BaseSplitParams(split_rule="stratified"), None
    ).part_codes
    assert ((dealt == 255) == (codes == 255)).all()
    assert (np.bincount(dealt) == np.bincount(codes)).all()
    for part in range(3):
        expected = (codes == part).sum() * np.bincount(labels[codes != 255]) / (codes != 255).sum()
        assert abs(np.bincount(labels[dealt == part]) - expected).max() <= 1.5
