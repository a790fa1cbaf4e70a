"""``train`` on the sample of every dataset, by its preset but for the depth, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli import kmip

from kmip_data.builds.home import added_names
from kmip_data.manifest import dataset_names

pytestmark = pytest.mark.slow

CLASSES = {"accuracy", "f1", "miou"}
VALUES = {"mae", "mae_batches", "r2"}
RANKS = {"mrr", "mrr_filtered", "mrr_extended", "hits1", "hits3", "hits10"}
GEOM_GCN = ("actor", "cornell", "texas", "wisconsin", "chameleon", "squirrel")
#: Dataset -> metric that chooses, all metrics, records (none: one graph), the column that is added.
EXPECTED = {
    "s3dis": ("miou", CLASSES, 4, None),
    "shapenet-part": ("f1", CLASSES, 10, None),
    "long-range": ("accuracy", CLASSES, 120, None),
    "city-roads-m": ("r2", VALUES, None, None),
    "city-roads-l": ("r2", VALUES, 300, None),
    "paris": ("accuracy", CLASSES, None, None),
    "shanghai": ("accuracy", CLASSES, None, None),
    "la": ("accuracy", CLASSES, None, None),
    "london": ("accuracy", CLASSES, None, None),
    "pascalvoc-sp": ("f1", CLASSES, 20, None),
    "coco-sp": ("f1", CLASSES, 20, None),
    "peptides-func": ("ap", {"ap"}, 20, None),
    "ogbg-molhiv": ("auc", {"ap", "auc"}, 40, "rwse16"),
    "ogbg-molpcba": ("ap", {"ap"}, 40, "rwse16"),
    "ogbn-arxiv": ("accuracy", CLASSES, 300, None),
    "ogbn-products": ("accuracy", CLASSES, 300, None),
    "peptides-struct": ("mae", VALUES, 20, None),
    "cifar10": ("accuracy", CLASSES, 24, "lappe8"),
    "malnet-tiny": ("accuracy", CLASSES, 20, None),
    "mnist": ("accuracy", CLASSES, 20, "lappe8"),
    "pattern": ("accuracy_sbm", {*CLASSES, "accuracy_sbm"}, 20, "lappe10"),
    "cluster": ("accuracy_sbm", {*CLASSES, "accuracy_sbm"}, 20, "lappe10"),
    "zinc": ("mae", VALUES, 24, "rwse20"),
    "zinc-full": ("mae", VALUES, 24, "rwse20"),
    "pcqm-contact": ("mrr", RANKS, 24, None),
    "helsinki": ("accuracy", CLASSES, None, None),
    **dict.fromkeys(GEOM_GCN, ("accuracy", CLASSES, None, None)),
    **{
        f"echo-{task}": ("mae", VALUES, 20, "rwse20")
        for task in ("sssp", "ecc", "diam", "charge", "energy")
    },
}


def test_all_datasets_are_listed() -> None:
    own = {
        "city",
        "points",
        "superpixels",
    }  # of the user's files: no sample, no preset of their own
    assert set(EXPECTED) == set(dataset_names()) - own


#: Their pipelines and presets are those of others.
LIKE_OTHERS = {"shanghai", "la", "zinc-full", "echo-ecc", "echo-energy"}
LIKE_OTHERS |= {"ogbg-molpcba", "mnist", "cluster", *GEOM_GCN[1:]}
LIKE_OTHERS |= {"ogbg-molpcba"}


@pytest.mark.parametrize(
    "dataset",
    [pytest.param(name, marks=[pytest.mark.torture] * (name in LIKE_OTHERS)) for name in EXPECTED],
)
def test_one_epoch(dataset: str, tmp_path: Path) -> None:
    metric, metrics, limit, column = EXPECTED[dataset]
    arguments = [
        "train",
        "--dataset",
        dataset,
        "--epochs",
        1,
        "--device",
        "cpu",
        "--home",
        tmp_path,
    ]
    arguments += ["--sample", "--set", "model.layers=2", "--set", "model.parameter_budget=none"]
    if dataset == "s3dis":
        arguments += ["--k", 4]  # edges are most of its work
    if limit is not None:
        arguments += ["--limit", limit]
    outcome = kmip(*arguments, "--quiet", "--json")
    assert outcome.code == 0, outcome.err
    found = outcome.json
    assert found["sample"]
    assert set(found["metrics"]) == {"train", "val", "test"}
    assert all(set(values) == {"loss", *metrics} for values in found["metrics"].values())
    result = json.loads((Path(found["run"]) / "result.json").read_text())
    assert (result["metric"], result["epochs"], result["sample"]) == (metric, 1, True)
    family = "city" if dataset == "helsinki" else dataset
    assert result["preset"] == f"{family}/gps-kmip"
    (build,) = (tmp_path / "built").glob("*")
    assert added_names(build) == ([column] if column else [])
    assert kmip("evaluate", found["run"], "--home", tmp_path, "--json").json["same_as_result"]
