"""GraphLand: equal to PyTorch Geometric's class on one raw folder; bad tables are refused."""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from support.cli import expect_refusal
from support.raises import raises

from kmip_data import GraphLandDataset
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.pipelines.base import RawCopy
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.datasets import graphland
from kmip_data.pipelines.datasets.graphland import (
    PIPELINE,
    GraphLandParams,
    normal_scores,
)
from kmip_data.pipelines.datasets.graphland.sample import write_sample
from kmip_data.pipelines.engine.repair import repair_build

STREETS = 1_500  #: more than there are quantiles


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> Path:
    """Tables in the upstream layout, in the folder where upstream's class looks for them."""
    folder = tmp_path_factory.mktemp("pyg") / "city-roads-M" / "raw" / "city-roads-M"
    write_sample(folder, None, STREETS, 3)
    return folder


@pytest.fixture(scope="module")
def home(raw: Path, tmp_path_factory) -> Path:
    """Home with both scalings built from these tables."""
    place = tmp_path_factory.mktemp("home")
    for scaling in ("RL", "RH"):
        options = {
            "parameters": {"target_scaling": scaling},
            "archives": [raw],
            "jobs": 1,
            "quiet": True,
        }
        build_dataset("city-roads-m", home=Home(place), **options)
    return place


@pytest.mark.parametrize("rule", ["RL", "RH"])
def test_equal_to_pytorch_geometric(rule: str, raw: Path, home: Path) -> None:
    for package in ("pandas", "sklearn", "yaml"):
        pytest.importorskip(package, reason=f"upstream's class needs {package}")
    pyg = pytest.importorskip("torch_geometric.datasets")
    if not hasattr(pyg, "GraphLandDataset"):
        pytest.skip("this version of PyTorch Geometric has no GraphLandDataset: 2.8 has")
    theirs = pyg.GraphLandDataset(str(raw.parents[2]), "city-roads-M", rule)[0]
    dataset = GraphLandDataset("city-roads-M", split_rule=rule, root=home)
    ours = dataset[0]
    assert sorted(ours.keys()) == sorted(theirs.keys())
    for key in theirs.keys():  # noqa: SIM118 -- not a dict
        assert (ours[key].dtype, ours[key].shape) == (theirs[key].dtype, theirs[key].shape), key
        assert ours[key].numpy().tobytes() == theirs[key].numpy().tobytes(), key
    assert 0 < int(torch.isnan(ours.y).sum()) < STREETS / 10
    assert dataset.num_node_features == len(dataset.schema.column("node/x").fields) == 8


def test_quantiles_equal_scikit_learn() -> None:
    """Columns are constant, tied, skewed, mostly missing, or repeat their smallest or largest value."""
    preprocessing = pytest.importorskip(
        "sklearn.preprocessing", reason="upstream's class needs sklearn"
    )
    rng = np.random.default_rng(0)
    for n in (1, 7, 999, 3_000):
        columns = np.stack(
            [
                np.full(n, 3.0), rng.integers(0, 2, n), rng.integers(0, 40, n), rng.lognormal(0, 3, n),
                np.where(rng.random(n) < 0.7, 0, rng.normal(size=n)), rng.normal(size=n) * 1e-7,
            ]
        ).astype(np.float32)  # fmt: skip
        columns[2:, 1:][:, rng.random(n - 1) < 0.5] = np.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fewer rows than quantiles
            theirs = preprocessing.QuantileTransformer(output_distribution="normal", subsample=None)
            theirs = theirs.fit_transform(columns.T).T
        for ours, expected, values in zip(
            map(normal_scores, columns), theirs, columns, strict=True
        ):
            known = ~np.isnan(values)
            assert ours[known].tobytes() == expected[known].tobytes()
            most = np.unique(values[known], return_counts=True)
            assert (ours[~known] == ours[values == most[0][most[1].argmax()]][0]).all()


def test_a_finished_build_is_found_repaired_and_dealt_anew(
    home: Path, raw: Path, tmp_path: Path
) -> None:
    """Names of columns come from the raw files, and are no parameter that must be given again."""
    build = build_dataset("city-roads-m", home=Home(home), offline=True, quiet=True)
    assert build.card.parameters == {"limit": None, "target_scaling": "RL"}
    shard = build.path / build.card.shards[0].file
    before = shard.read_bytes()
    shard.write_bytes(before[:-1])
    assert repair_build(build.path, home=home, quiet=True) == ["shards/00000.h5"]
    assert shard.read_bytes() == before
    dealt = GraphLandDataset("city-roads-m", split_rule="stratified", split_seed=3, root=home)[0]
    item = GraphLandDataset("CITY-ROADS-M", root=home)[0]
    for part in ("train", "val", "test"):
        assert dealt[f"{part}_mask"].sum() == item[f"{part}_mask"].sum()
    assert not dealt.train_mask[item.y.isnan()].any()
    assert not torch.equal(dealt.train_mask, item.train_mask)
    with pytest.raises(UsageError):
        GraphLandDataset("paris", root=home)


@pytest.mark.parametrize("with_archive", [False, True])
def test_a_finished_build_is_found_without_parsing_a_file(
    home: Path, raw: Path, monkeypatch: pytest.MonkeyPatch, with_archive: bool
) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError(f"{arguments[0]} is parsed")

    for reader in ("read_table", "read_column_names"):
        monkeypatch.setattr(graphland, reader, refuse)
    archives = [raw] if with_archive else []
    build = build_dataset("city-roads-m", home=Home(home), archives=archives, jobs=1, quiet=True)
    assert "feature" in build.card.schema_.column("node/x").doc
    with raises(DamagedInput, naming="is parsed"):
        build_dataset(
            "city-roads-m",
            home=Home(home),
            parameters={"target_scaling": "none"},
            archives=archives,
            jobs=1,
            quiet=True,
        )


#: File, pattern of what is replaced (None: all of it), what by, value that the error names.
DAMAGED = [
    ("info.yaml", None, "a: [", "info.yaml"),
    ("info.yaml", None, "[" * 5_000, "info.yaml"),
    ("info.yaml", None, "- x", "target_name"),
    ("info.yaml", "target_name: sample_speed", "target_name: [a]", "target_name"),
    ("info.yaml", "- sample_bus", "- {a: b}", "target_name"),
    ("info.yaml", "- sample_bus", "- sample_tram", "'sample_tram'"),
    ("info.yaml", "(- sample_bus)", r"\1\n\1", "sample_bus=1"),
    ("info.yaml", "- sample_bus", "- sample_length", "sample_length"),
    ("features.csv", None, "node_id,sample_length\n", "sample_length"),
    ("features.csv", r"\n0,[^,]*,", "\n0,inf,", "sample_length"),
    ("features.csv", r"\n1,[^,]*,", "\n1,x,", "'x'"),
    ("targets.csv", None, "node_id,sample_speed\n0,1\n", "targets.csv"),
    ("targets.csv", r"\n0,.*", "\n0,1e300", "sample_speed"),
    ("targets.csv", None, "node_id,speed\n0,1\n", "'sample_speed'"),
    ("targets.csv", r"(?m)^(\d+),.*", r"\1,7", 150),
    ("edgelist.csv", None, "source,target\n0,1500\n", 1500),
    ("edgelist.csv", None, "source,target\n0,-1\n", -1),
    ("edgelist.csv", None, "source,target\n0,0.5\n", "edgelist.csv"),
    ("edgelist.csv", None, "source,target,length\n0,1,2\n", "edgelist.csv"),
    ("split_masks_RL.csv", "True,False,False", "True,True,False", "split_masks_RL.csv"),
    ("split_masks_RL.csv", None, "node_id,train,val,test\n0,1,0,0\n", "train"),
]  # fmt: skip


def test_bad_tables_are_refused(raw: Path, tmp_path: Path, subtests: pytest.Subtests) -> None:
    pipeline = PIPELINE.__new__(PIPELINE)
    for number, (name, old, new, value) in enumerate(DAMAGED):
        folder = tmp_path / str(number)
        shutil.copytree(raw, folder)
        text = (folder / name).read_text()
        (folder / name).write_text(
            new if old is None else re.sub(old, new, text, count=0 if "(?m)" in old else 1)
        )
        with subtests.test(f"{number} {name}"), raises(DamagedInput, naming=value):
            pipeline.prepare(RawCopy(folder, {}, ()), GraphLandParams(), tmp_path)


def test_a_bad_archive_leaves_nothing(raw: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(raw, tmp_path / "city-roads-M")
    (folder / "info.yaml").write_bytes(b"\xff")
    line = ("build", "city-roads-m", "--archive", folder, "--home", tmp_path / "home", "--jobs", 1)
    assert "info.yaml" in expect_refusal(*line, code=4)
    assert not list((tmp_path / "home").rglob("*.csv"))
