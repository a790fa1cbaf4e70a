"""City-Networks: equal to PyTorch Geometric's class on one archive.

Huangpu is read exactly; others are refused.
"""

from __future__ import annotations

import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.cli import kmip
from support.raises import raises
from support.shared import shared_data
from torch_geometric import datasets as pyg
from torch_geometric.utils import remove_self_loops, to_undirected

from kmip_data import CityNetwork
from kmip_data.builds.home import Home
from kmip_data.errors import Command, DamagedInput, UsageError
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.build import build_dataset, build_own
from kmip_data.pipelines.datasets.city_networks import check_published_counts, read_city_archive
from kmip_data.pipelines.datasets.city_networks.sample import write_sample

NODES = 350


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def archive(home: Path) -> Path:
    """``paris.tar.gz`` in the exact upstream layout."""
    write_sample(home / "raw files" / "paris", None, NODES, 3)
    path = home / "paris.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(home / "raw files" / "paris", "paris")
    return path


@pytest.fixture(scope="module")
def city(home: Path, archive: Path) -> None:
    """The archive as a city of its own, as published."""
    build_own("city", "town", {"archive": archive}, home=Home(home), jobs=1, quiet=True)


def test_equal_to_pytorch_geometric(home: Path, archive: Path, city) -> None:
    raw = home / "pyg" / "paris" / "raw"
    raw.mkdir(parents=True)
    shutil.copy(archive, raw)
    theirs = pyg.CityNetwork(str(home / "pyg"), "paris")[0]
    ours = CityNetwork("town", root=home, raw_features=True)
    assert ours.num_node_features == 37
    assert ours.num_classes == 10
    item = ours[0]
    assert sorted(item.keys()) == sorted(theirs.keys())
    for key in theirs.keys():  # noqa: SIM118 -- not a dict
        assert item[key].dtype == theirs[key].dtype, key
        assert torch.equal(item[key], theirs[key]), key


def test_inputs_of_a_city_are_standardised_by_its_training_nodes(home: Path, city) -> None:
    raw = CityNetwork("town", root=home, raw_features=True)[0]
    train = raw.x[raw.train_mask].double()
    scaled = (raw.x.double() - train.mean(0)) / torch.where(train.std(0) == 0, 1.0, train.std(0))
    dataset = CityNetwork("town", root=home)
    item = dataset[0]
    assert dataset.num_node_features == item.x.shape[1] == 32 + 35
    torch.testing.assert_close(item.x[:, 32:], scaled[:, 2:].float(), rtol=1e-5, atol=1e-5)
    assert torch.equal(item.pos, raw.x[:, :2])
    assert item.edge_length.shape == (item.num_edges,)


def test_other_parameters_give_other_labels(home: Path, archive: Path) -> None:
    parameters = {"hops": 3, "classes": 4, "weight": "travel_time", "bands": 2}
    build = build_own(
        "city", "times", {"archive": archive}, parameters=parameters, home=Home(home), jobs=1, quiet=True,
        split_parameters={"split_rule": "spatial", "block_size": 150.0},
    )  # fmt: skip
    item = CityNetwork("times", root=home, **parameters, split_rule="spatial", block_size=150.0)[0]
    assert item.x.shape == (NODES, 8 + 35)
    assert torch.bincount(item.y).tolist() == [88, 88, 88, 86]
    order = item.eccentricity.argsort(stable=True)
    assert (item.y[order].diff() >= 0).all()
    assert list(build.card.splits) == ["random-seed0", "spatial-150m-buffer1-seed0"]
    assert parts_that_meet(item) == set()
    kept = item.train_mask | item.val_mask | item.test_mask
    dropped = f"{NODES - int(kept.sum())} of {NODES} intersections are in no part"
    assert dropped in build.card.splits["spatial-150m-buffer1-seed0"].note


def parts_that_meet(item) -> set[tuple[int, int]]:
    """Pairs of parts that have a street between them; nodes of the buffer count for nothing."""
    code = item.train_mask + 2 * item.val_mask + 3 * item.test_mask
    ends = torch.stack([code[item.edge_index[0]], code[item.edge_index[1]]])
    across = ends[:, (ends > 0).all(0) & (ends[0] < ends[1])]
    return set(map(tuple, across.T.tolist()))


def test_the_authors_tensors_of_huangpu_are_read(tmp_path: Path) -> None:
    """The authors' real tensors, of the time when the graphs were directed."""
    folder = shared_data("city_networks_huangpu")
    load = lambda name: torch.load(folder / f"{name}.pt", weights_only=True)
    outcome = kmip(
        "build",
        "city",
        "--name",
        "huangpu",
        "--archive",
        folder,
        "--home",
        tmp_path,
        "--json",
        "--jobs",
        1,
    )
    assert outcome.code == 0, outcome.err
    assert "directed" in outcome.err
    dataset = CityNetwork("huangpu", root=tmp_path, raw_features=True)
    item, full = dataset[0], CityNetwork("huangpu", root=tmp_path)[0]
    assert torch.equal(item.x, load("node_features_augmented"))
    edges, lengths = remove_self_loops(
        *to_undirected(load("edge_indices"), load("edge_features"), reduce="mean")
    )
    assert item.edge_index.shape == (2, 14_870)
    assert torch.equal(item.edge_index, edges)
    # Theirs adds in float32 in an order of its own.
    torch.testing.assert_close(full.edge_length, lengths[:, 0], rtol=2e-7, atol=0)
    assert torch.equal(full.eccentricity, load("16-hop_eccentricities"))
    assert torch.equal(item.y, load("10-chunk_node_labels"))
    assert torch.bincount(item.y).tolist() == [527] * 9 + [525]
    order = np.random.RandomState(0).permutation(5_268)
    for part, rows in zip(("train", "val", "test"), np.split(order, [526, 1_052]), strict=True):
        assert item[f"{part}_mask"].nonzero()[:, 0].tolist() == sorted(rows.tolist())
    assert kmip("verify", dataset.build.path).code == 0


def test_published_names_take_the_published_tensors_alone(tmp_path: Path, archive: Path) -> None:
    with raises(DamagedInput, naming=[350, 114_127]):
        build_dataset("paris", home=Home(tmp_path), archives=[archive], jobs=1, quiet=True)
    outcome = kmip(
        "build", "london", "--archive", shared_data("city_networks_huangpu"), "--home", tmp_path
    )
    assert outcome.code == 4
    assert not list(tmp_path.glob("raw/*/members-*")) + list(tmp_path.glob("built/*/card.json"))
    dataset = CityNetwork("London", root=tmp_path, sample=True, limit=120, jobs=1, quiet=True)
    assert dataset.card.sample
    assert dataset[0].num_nodes == 120
    for name in ("s3dis", "nowhere"):
        with pytest.raises(UsageError):
            CityNetwork(name, root=tmp_path)
    with raises(UsageError, naming="both"):
        CityNetwork("london", root=tmp_path, sample=True, limit=120, coordinates="both")


def test_damaged_archives(tmp_path: Path, archive: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    folder = tmp_path / "paris"

    def expect_refused_tensor(name: str, change, value: object) -> None:
        path = folder / name
        whole = path.read_bytes()
        torch.save(change(torch.load(path, weights_only=True)), path)
        with raises(DamagedInput, naming=value):
            read_city_archive(folder)
        path.write_bytes(whole)

    def set_value(row, value):
        def change(tensor):
            tensor[row] = value
            return tensor

        return change

    expect_refused_tensor("node_features_augmented.pt", lambda t: t[:, :36], 36)
    expect_refused_tensor("node_features_augmented.pt", set_value((5, 0), torch.nan), 5)
    expect_refused_tensor("edge_indices.pt", set_value((0, 0), NODES), NODES)
    expect_refused_tensor("10-chunk_16-hop_node_labels.pt", set_value(0, 10), 10)
    labels, eccentricities = "10-chunk_16-hop_node_labels.pt", "16-hop_eccentricities.pt"
    expect_refused_tensor(labels, lambda t: t.flip(0), labels)
    expect_refused_tensor(eccentricities, set_value(0, torch.nan), eccentricities)
    (folder / "edge_features.pt").unlink()
    with raises(DamagedInput, naming="edge_features.pt"):
        read_city_archive(folder)


def test_a_city_with_other_counts_than_published_is_refused(home: Path, archive: Path) -> None:
    """A stand-in with the published counts is taken; one edge or label less is not."""
    tensors = read_city_archive(home / "raw files" / "paris")
    for name in ("paris", "shanghai", "la", "london"):
        manifest = load_manifest(name)
        n, edges = int(manifest.expected.avg_nodes), int(manifest.expected.avg_edges)
        labels = np.arange(n) // (n // 10 + 1)
        features, index = np.zeros((n, 37), np.float32), np.zeros((2, edges), np.int64)
        stand_in = replace(tensors, features=features, edge_index=index, labels=labels)
        check_published_counts(stand_in, manifest, "my-paris")
        for other in (
            replace(stand_in, edge_index=index[:, 1:]),
            replace(stand_in, labels=np.sort(np.append(labels[1:], 4))),
            replace(stand_in, features=features[1:]),
        ):
            with raises(DamagedInput, naming=manifest.title) as refusal:
                check_published_counts(other, manifest, "my-paris")
            words = ("kmip-data", "build", "city", "--name", "my-paris", "--archive", "PATH")
            assert refusal.value.steps[-1] == Command(*words)
