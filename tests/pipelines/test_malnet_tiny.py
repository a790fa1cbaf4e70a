"""MalNet-Tiny: real graphs against networkx and PyG, both node conventions, every bad file an error."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from support.builds.raw_graphs import refused_folder, write_sample
from support.builds.same import assert_same_data
from support.cases import check_each
from support.raises import raises
from support.shared import shared_data
from torch_geometric import datasets as pyg
from torch_geometric.utils import remove_isolated_nodes

from kmip_data import MalNetTiny
from kmip_data.errors import DamagedInput
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.datasets.malnet_tiny import drop_isolated, parse_graph
from kmip_data.pipelines.formats.text import MAX_NODE_ID
from kmip_data.pipelines.raw.extract import recognise_dataset


def pyg_malnet(root: Path, folder: Path, part: str | None) -> pyg.MalNetTiny:
    """PyG's class on a raw folder of ours."""
    if not (root / "raw").exists():
        shutil.copytree(folder, root / "raw" / "malnet-graphs-tiny")
        shutil.copytree(folder / "type", root / "raw" / "split_info_tiny" / "type")
    return pyg.MalNetTiny(str(root), split=part)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The 100 real graphs as they lie in ``raw/``."""
    folder = tmp_path_factory.mktemp("real")
    with tarfile.open(shared_data("malnet-graphs-tiny_100.tar.gz")) as archive:
        archive.extractall(folder, filter="data")
    with zipfile.ZipFile(shared_data("split_info_tiny_100.zip")) as archive:
        archive.extractall(folder)
    shutil.move(folder / "split_info_tiny" / "type", folder / "malnet-graphs-tiny" / "type")
    return folder / "malnet-graphs-tiny"


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return write_sample("malnet-tiny", tmp_path_factory.mktemp("sample"), limit=25)


@pytest.mark.slow
def test_one_archive_with_graphs_and_lists_is_both_sources():
    """Each source is measured by what is read of it: the graphs are larger than the lists may be."""
    archive = shared_data("malnet_tiny_complete.tar.xz")
    plans = [
        recognise_dataset(archive, source.content)
        for source in load_manifest("malnet-tiny").sources
    ]
    assert [len(plan.members) for plan in plans] == [5000, 3]


def test_items_of_malnet_tiny_equal_pyg(real, tmp_path):
    archives = [
        shared_data("malnet-graphs-tiny_100.tar.gz"),
        shared_data("split_info_tiny_100.zip"),
    ]
    options = {"root": tmp_path / "home", "archives": archives, "unpinned": True, "quiet": True}
    kept = {"isolated": "keep", "label_order": "first-seen"}
    builds = [MalNetTiny(**options, **kept).build.path, MalNetTiny(**options).build.path]
    for part in ("train", "val", "test", None):
        theirs = pyg_malnet(tmp_path / "pyg", real, part)
        as_pyg, as_gps = (
            MalNetTiny(builds[0], split=part, **kept),
            MalNetTiny(builds[1], split=part),
        )
        assert len(theirs) == len(as_pyg) == len(as_gps)
        for data, one, other in zip(theirs, as_pyg, as_gps, strict=True):
            assert_same_data(one, data, ordered=False)
            edges, _, mask = remove_isolated_nodes(data.edge_index, num_nodes=data.num_nodes)
            assert torch.equal(other.edge_index, edges)
            assert other.num_nodes == int(mask.sum())
            assert as_gps.class_names[int(other.y)] == as_pyg.class_names[int(one.y)]
        assert as_gps.num_classes == 5
    assert not as_gps.card.complete
    assert any("100 of the 5,000" in note for note in as_gps.card.notes)
    assert as_gps.class_names == sorted(as_gps.class_names)
    assert builds[0].name.startswith("malnet-tiny-keep-isolated-first-seen-")
    both = [MalNetTiny(builds[1], split=None, degree_profile=rule) for rule in ("2.0", "2.8")]
    assert [as_gps.num_node_features, *(dataset.num_node_features for dataset in both)] == [0, 5, 5]
    assert torch.equal(both[0][3].x[:, :4], both[1][3].x[:, :4])
    assert not torch.equal(both[0][3].x[:, 4], both[1][3].x[:, 4])


def test_drop_isolated_equals_pyg_on_random_graphs():
    rng = np.random.default_rng(0)
    for _ in range(200):
        edges = rng.integers(0, rng.integers(1, 12), (2, int(rng.integers(1, 14)))).astype(np.int32)
        edges = np.unique(edges, axis=1)[:, rng.permutation(np.unique(edges, axis=1).shape[1])]
        wanted, _, mask = remove_isolated_nodes(
            torch.from_numpy(edges).long(), num_nodes=int(edges.max()) + 1
        )
        nodes, kept = drop_isolated(edges)
        assert nodes == int(mask.sum())
        assert np.array_equal(kept, wanted.numpy())


# --- damaged and hostile files -------------------------------------------------------------------


GOOD = ["# a comment", "# Nodes: 3, Edges: 3", "0\t1", "2 1", "2\t\t0 "]


def test_edge_lists_are_whole_and_a_bad_line_is_named():
    for end in ("\n", "\r\n"):
        text = end.join(GOOD).encode()
        assert (
            parse_graph(text, "file").tolist() == parse_graph(text + end.encode(), "file").tolist()
        )
    assert parse_graph(text, "file").tolist() == [[0, 2, 2], [1, 1, 0]]

    def check(case):
        lines, *named = case
        with raises(DamagedInput, naming=["file", *named]):
            parse_graph("\n".join(lines).encode(), "file")

    large = (f"0\t{MAX_NODE_ID}", "0\t" + "9" * 22)
    bad = ["1", "1\tx", "1\t2\t3", "-1\t2", "1.5\t2", "", "1,2", "\0\t1", "# late", *large]
    check_each(check, [([*GOOD[:3], line, *GOOD[3:]], "line 4") for line in bad])
    check_each(
        check,
        [
            (GOOD[:-1], "Edges: 2", "Edges: 3"),
            (["# Nodes: 4, Edges: 3", *GOOD[2:]], "Nodes: 3", "Nodes: 4"),
            (["# Nodes: 0, Edges: 0"],),
            (GOOD[2:],),
            ([],),
        ],
    )


def test_lists_must_partition_the_graphs(sample, tmp_path):
    folder = tmp_path / "raw"
    first = (sample / "type" / "train.txt").read_text().splitlines()[0]

    def check(case):
        part, change, value = case
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(sample, folder)
        path = folder / "type" / f"{part}.txt"
        text = change(path.read_text())
        path.write_text(text) if text else path.unlink()
        refused_folder("malnet-tiny", folder, value)

    check_each(
        check,
        [
            ("test", lambda text: f"{text}{first}\n", "type/test.txt"),
            ("train", lambda text: text.replace(f"{first}\n", ""), first),
            ("val", lambda text: f"{text}adware/airpush/{'0' * 64}\n", "0" * 64),
            ("train", lambda _: "../../etc/passwd\n", "line 1"),
            ("train", lambda _: "", "train.txt"),
        ],
    )
