"""MalNet-Tiny: real graphs against networkx and PyG, both node conventions, every bad file an error."""

from __future__ import annotations

import shutil
import tarfile
import zipfile

import networkx as nx
import numpy as np
import pytest
import torch
from support.cases import check_each
from support.same import assert_same
from support.shared import shared_data
from support.small_graphs import prepare, pyg_malnet, records_of_folder
from torch_geometric.utils import remove_isolated_nodes

from kmip_data import MalNetTiny
from kmip_data.errors import DamagedInput
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.formats.text import MAX_ID, parse_edges
from kmip_data.pipelines.malnet_tiny import LABEL_ORDERS, drop_isolated, read_graph, read_split_lists
from kmip_data.pipelines.raw.archives import open_archive
from kmip_data.pipelines.raw.extract import recognise

HEADER = "# a comment\n# Nodes: {}, Edges: {}\n# FromNodeId\tToNodeId\n"


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
    folder = tmp_path_factory.mktemp("sample")
    load_pipeline(load_manifest("malnet-tiny")).sample(folder, limit=25)
    return folder


def test_one_archive_with_graphs_and_lists_is_both_sources():
    """Each source is measured by what is read of it: the graphs are larger than the lists may be."""
    archive = open_archive(shared_data("malnet_tiny_complete.tar.xz"))
    plans = [recognise(archive, source.content) for source in load_manifest("malnet-tiny").sources]
    assert [len(plan.members) for plan in plans] == [5000, 3]


def networkx_graph(path):
    graph = nx.read_edgelist(path, nodetype=int, create_using=nx.DiGraph)
    graph.remove_nodes_from([u for u in list(graph) if not (set(graph.succ[u]) | set(graph.pred[u])) - {u}])
    return graph


def test_real_graphs_equal_networkx(real, tmp_path):
    """Nodes with an edge to another one, in the order of their numbers, and their edges."""
    _, dropped = records_of_folder("malnet-tiny", real, tmp_path)
    _, kept = records_of_folder("malnet-tiny", real, tmp_path, isolated="keep")
    listed = [name for names in read_split_lists(real).values() for name in names]
    assert len(listed) == 100
    for name, record, whole in [*zip(listed, dropped, kept, strict=True)][::3]:
        path = real / f"{name}.edgelist"
        graph = networkx_graph(path)
        numbers = sorted(graph)
        assert record.key == name.split("/")[2]
        assert record.num_nodes == len(numbers)
        edges = sorted((numbers[u], numbers[v]) for u, v in record.edge_index.T.tolist())
        assert edges == sorted(graph.edges())
        lines = [tuple(map(int, line.split())) for line in path.read_text().splitlines()[5:]]
        assert [tuple(edge) for edge in whole.edge_index.T.tolist()] == lines
        assert whole.num_nodes == max(map(max, lines)) + 1


def test_items_equal_pyg(real, tmp_path):
    archives = [shared_data("malnet-graphs-tiny_100.tar.gz"), shared_data("split_info_tiny_100.zip")]
    options = {"home": tmp_path / "home", "archives": archives, "jobs": 1, "quiet": True}
    kept = {"isolated": "keep", "label_order": "first-seen"}
    builds = [MalNetTiny(**options, **kept).build.path, MalNetTiny(**options).build.path]
    for part in ("train", "val", "test", None):
        theirs = pyg_malnet(tmp_path / "pyg", real, part)
        as_pyg, as_gps = MalNetTiny(builds[0], split=part, **kept), MalNetTiny(builds[1], split=part)
        assert len(theirs) == len(as_pyg) == len(as_gps)
        for data, one, other in zip(theirs, as_pyg, as_gps, strict=True):
            assert_same(one, data, ordered=False)
            edges, _, mask = remove_isolated_nodes(data.edge_index, num_nodes=data.num_nodes)
            assert torch.equal(other.edge_index, edges)
            assert other.num_nodes == int(mask.sum())
            assert as_gps.class_names[int(other.y)] == as_pyg.class_names[int(one.y)]
        assert as_gps.num_classes == 5
    assert not as_gps.card.complete
    assert any("100 of the 5,000" in note for note in as_gps.card.notes)
    assert as_gps.class_names == sorted(as_gps.class_names)


def test_degree_profile_is_made_on_reading(real, tmp_path):
    archives = [shared_data("malnet-graphs-tiny_100.tar.gz"), shared_data("split_info_tiny_100.zip")]
    build = MalNetTiny(home=tmp_path, archives=archives, jobs=1, quiet=True).build.path
    options = {"root": build, "split": "test"}
    plain = MalNetTiny(**options)
    both = [MalNetTiny(degree_profile=rule, **options) for rule in ("2.0", "2.8")]
    assert plain.num_node_features == 0
    assert plain[0].x is None
    assert [dataset.num_node_features for dataset in both] == [5, 5]
    assert torch.equal(both[0][3].x[:, :4], both[1][3].x[:, :4])
    assert not torch.equal(both[0][3].x[:, 4], both[1][3].x[:, 4])
    doubled = MalNetTiny(
        degree_profile="2.0", transform=lambda data: data.update({"x": 2 * data.x}), **options
    )
    assert torch.equal(doubled[3].x, 2 * both[0][3].x)


def test_drop_isolated_equals_pyg_on_random_graphs():
    rng = np.random.default_rng(0)
    for _ in range(200):
        edges = rng.integers(0, rng.integers(1, 12), (2, int(rng.integers(1, 14)))).astype(np.int32)
        edges = np.unique(edges, axis=1)[:, rng.permutation(np.unique(edges, axis=1).shape[1])]
        wanted, _, mask = remove_isolated_nodes(
            torch.from_numpy(edges).long(), num_nodes=int(edges.max()) + 1
        )
        nodes, found = drop_isolated(edges)
        assert nodes == int(mask.sum())
        assert np.array_equal(found, wanted.numpy())


# --- edge lists ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_edge_text(end, last):
    text = end.join(["# one", "# two", "0\t1", "12 3", "5\t\t5 "]) + end * last
    header, edges = parse_edges(text.encode(), name="file")
    assert header == ["# one", "# two"]
    assert edges.tolist() == [[0, 12, 5], [1, 3, 5]]
    assert parse_edges(b"", name="file")[1].shape == (2, 0)


def test_a_bad_line_is_named():
    def check(case):
        line, number = case
        text = f"# header\n0\t1\n1\t2\n{line}\n3\t4\n"
        with pytest.raises(DamagedInput, match=f"file, line {number}: not an edge"):
            parse_edges(text.encode(), name="file")

    check_each(
        check,
        [
            ("1", 4),
            ("1\tx", 4),
            ("x\t1", 4),
            ("1\t2\t3", 4),
            ("-1\t2", 4),
            ("1.5\t2", 4),
            ("", 4),
            ("1,2", 4),
            (f"0\t{MAX_ID}", 4),
            ("0\t99999999999999999999999", 4),
            ("\0\t1", 4),
            ("# late", 4),
            ("12", 4),
        ],
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (HEADER.format(3, 2) + "0\t1\n1\t2\n", None),
        (HEADER.format(3, 3) + "0\t1\n1\t2\n", "not whole"),
        (HEADER.format(4, 2) + "0\t1\n1\t2\n", "not whole"),
        (HEADER.format(0, 0), "no edges"),
        ("0\t1\n", "has no comment line"),
        ("", "no edges"),
    ],
)
def test_edge_lists_must_be_as_large_as_they_say(text, what):
    if what is None:
        assert read_graph(text.encode(), "file").tolist() == [[0, 1], [1, 2]]
    else:
        with pytest.raises(DamagedInput, match=what):
            read_graph(text.encode(), "file")


# --- lists ---------------------------------------------------------------------------------------


def test_lists_must_partition_the_graphs(sample, tmp_path):
    def check(match):
        with pytest.raises(DamagedInput, match=match):
            prepare("malnet-tiny", folder, tmp_path / "work")
        shutil.rmtree(folder)
        shutil.copytree(sample, folder)

    folder = tmp_path / "raw"
    shutil.copytree(sample, folder)
    prepare("malnet-tiny", folder, tmp_path / "work")
    train, test = folder / "type" / "train.txt", folder / "type" / "test.txt"
    first = train.read_text().splitlines()[0]
    test.write_text(test.read_text() + first + "\n")
    check("listed twice")
    train.write_text("".join(train.read_text().splitlines(keepends=True)[1:]))
    check("do not partition")
    (folder / f"{first}.edgelist").unlink()
    check("do not partition")
    train.write_text("../../etc/passwd\n")
    check("line 1: not a graph of one of the five types")
    train.unlink()
    check("not there")


def test_schema_names_and_labels(sample, tmp_path):
    pipeline, records = records_of_folder("malnet-tiny", sample, tmp_path)
    _, others = records_of_folder("malnet-tiny", sample, tmp_path, label_order="first-seen")
    for one, other in zip(records, others, strict=True):
        names = [
            LABEL_ORDERS[order][int(record.columns["graph/y"])]
            for order, record in (("alphabetical", one), ("first-seen", other))
        ]
        assert names[0] == names[1]
    params = pipeline.Params(isolated="keep", label_order="first-seen")
    assert pipeline.name_parts(params) == ["keep-isolated", "first-seen"]
    assert pipeline.name_parts(pipeline.Params()) == []
    assert pipeline.schema(params).index_dtype == "uint16"
