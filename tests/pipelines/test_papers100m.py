"""``ogbn-papers100m``: equal to OGB's own reader, in any layout of the archives, killed in any pass."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from ogb.io.read_graph_raw import read_binary_graph_raw
from support.attacks.crash_points import Fault, environment
from support.builds.papers import ROOT, Papers, write_zip
from support.builds.raw_graphs import records_of_folder, refused_folder, write_sample
from support.cases import check_each
from torch_geometric.utils import to_undirected

from kmip_data import OGBNPapers100M
from kmip_data.builds.home import Home
from kmip_data.builds.verify import verify_build
from kmip_data.cli.preview import draw_build
from kmip_data.cli.shared.neighborhoods import drawable_dataset
from kmip_data.drawing.layers import NO_CLASS_LABEL
from kmip_data.drawing.page_graph import graph_of_record
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format import reader
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.graph_arrays import external_edge_sort
from kmip_data.pipelines.sample_writers import gzip_bytes
from kmip_data.saving.export import write_parquet

NAME = "ogbn-papers100m"
QUIET = {"jobs": 1, "quiet": True}


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    """Batches, buckets and pieces of a small graph are as many as of a large one."""
    monkeypatch.setattr(external_edge_sort, "EDGES_PER_BATCH", 1_000)
    monkeypatch.setattr(external_edge_sort, "BUCKET_EDGES", 500)
    monkeypatch.setattr("kmip_data.format.writer.PIECE_BYTES", 2**15)
    monkeypatch.setattr("kmip_data.graphs.statistics.BLOCK", 1_000)
    monkeypatch.setattr("kmip_data.cli.shared.neighborhoods.MAX_NODES", 100)


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("papers")
    write_sample(NAME, folder, limit=700)
    return folder


def arrays_of(folder):
    with np.load(folder / "raw" / "data.npz") as data:
        return dict(data)


def test_papers100m_equals_the_ogb_reader(raw, tmp_path):
    """Every value as OGB's reader has it; edges by target, those into a node in their order."""
    (theirs,) = read_binary_graph_raw(str(raw / "raw"))
    labels = np.load(raw / "raw" / "node-label.npz")["node_label"]
    (ours,) = OGBNPapers100M(root=tmp_path, archives=[raw], **QUIET)
    order = np.argsort(theirs["edge_index"][1], kind="stable")
    assert torch.equal(ours.edge_index, torch.from_numpy(theirs["edge_index"][:, order]))
    assert torch.equal(ours.x, torch.from_numpy(theirs["node_feat"]))
    assert torch.equal(ours.node_year, torch.from_numpy(theirs["node_year"]))
    assert ours.num_nodes == theirs["num_nodes"] == 700
    assert np.array_equal(ours.y, np.where(np.isnan(labels), -1, labels)[:, 0])
    parts = Papers(700, 172).lists()
    for part, file in (("train", "train"), ("val", "valid"), ("test", "test")):
        assert ours[f"{part}_mask"].nonzero().flatten().tolist() == parts[file].tolist()
    assert 0 < (ours.y >= 0).sum() == sum(map(len, parts.values())) < 300


def test_papers100m_supports_reverse_edges_and_half_precision(raw, tmp_path):
    """Undirected edges are PyG's, whose first row is sorted and ours the second; float16 is the nearest."""
    arrays = arrays_of(raw)
    (ours,) = OGBNPapers100M(
        root=tmp_path, archives=[raw], edges="undirected", features="float16", **QUIET
    )
    both = to_undirected(torch.from_numpy(arrays["edge_index"]))
    assert torch.equal(ours.edge_index, both.flip(0))
    half = arrays["node_feat"].astype(np.float16)
    assert torch.equal(ours.x, torch.from_numpy(half.astype(np.float32)))
    most = np.maximum(np.abs(arrays["node_feat"]) / 2048, 3e-8)
    assert (np.abs(ours.x.numpy() - arrays["node_feat"]) <= most).all()


def test_every_archive_layout_is_read(raw, tmp_path):
    """Stored or deflated, inside and outside, in any order and by columns: the same shards."""
    arrays = arrays_of(raw)
    wanted = []

    def check(layout):
        number, inside, outside, by_columns = layout
        path = tmp_path / f"{number}.zip"
        write_zip(path, 700, labelled=0.3, inside=inside, outside=outside)
        if by_columns:
            changed = dict(reversed(arrays.items()))
            changed["edge_index"] = np.asfortranarray(arrays["edge_index"])
            files = io.BytesIO()
            np.savez_compressed(files, **changed)
            with zipfile.ZipFile(path) as before:
                others = {name: before.read(name) for name in before.namelist()}
            others[f"{ROOT}/raw/data.npz"] = files.getvalue()
            with zipfile.ZipFile(path, "w") as after:
                for name, data in others.items():
                    after.writestr(name, data)
        OGBNPapers100M(root=tmp_path / str(number), archives=[path], **QUIET)
        (file,) = (tmp_path / str(number)).glob("built/*/shards/*.h5")
        shard = reader.Shard(file)
        digests = {key: shard.read(key, 0, 10**6).tobytes() for key in shard.expected_arrays}
        wanted.append(digests)
        assert digests == wanted[0]

    stored = zipfile.ZIP_STORED
    deflated = zipfile.ZIP_DEFLATED
    layouts = [(stored, stored, False), (deflated, stored, False), (stored, deflated, False)]
    check_each(check, [(i, *layout) for i, layout in enumerate([*layouts, (stored, stored, True)])])


def test_sorted_runs_equal_a_slow_sort(tmp_path):
    """Any number of nodes, edges and buckets, hubs and nodes without edges, by a sort of pairs."""
    rng = np.random.default_rng(0)

    def check(case):
        nodes, edges, distinct = case
        folder = tmp_path / f"{nodes}-{edges}-{distinct}"
        folder.mkdir()
        ends = rng.integers(0, nodes, (2, edges))
        ends[1, rng.random(edges) < 0.5] = nodes // 3
        batches = [ends[:, i : i + 700] for i in range(0, edges, 700)]
        external_edge_sort.write_runs(map(tuple, batches), nodes, edges, folder, both_ways=distinct)
        size = external_edge_sort.sort_runs(folder, nodes, folder, distinct=distinct)
        pairs = ends.T.tolist()
        if distinct:
            pairs = sorted({(a, b) for a, b in pairs} | {(b, a) for a, b in pairs})
        wanted = sorted(pairs, key=lambda pair: pair[1])
        assert external_edge_sort.map_sorted_edges(folder, *size).T.tolist() == [
            list(pair) for pair in wanted
        ]

    check_each(
        check,
        [
            (nodes, edges, distinct)
            for nodes in (1, 2, 3, 1_000, 4_097)
            for edges in (0, 1, 5_000)
            for distinct in (False, True)
        ],
    )


def test_damaged_files_of_papers100m_end_in_one_error(raw, tmp_path):
    """Each file that is cut, or has another shape, dtype or value, ends in one error."""
    folder = tmp_path
    write_sample(NAME, folder, limit=700)
    arrays = arrays_of(folder)
    labels = np.load(folder / "raw/node-label.npz")["node_label"]
    data = folder / "raw" / "data.npz"
    sound = data.read_bytes()

    def replaced(name, value):
        np.savez(data, **{**arrays, name: value})

    def value_at(name, place, value):
        changed = arrays[name].copy()
        changed[place] = value
        replaced(name, changed)

    def removed(name):
        np.savez(data, **{key: value for key, value in arrays.items() if key != name})

    def labelled(place, value):
        changed = labels.copy()
        changed[place] = value
        np.savez(folder / "raw/node-label.npz", node_label=changed)

    def listed(text):
        (folder / "split/time/valid.csv.gz").write_bytes(gzip_bytes(text))

    def check(case):
        spoil, message = case
        files = [data, folder / "raw/node-label.npz", folder / "split/time/valid.csv.gz"]
        before = [path.read_bytes() for path in files]
        spoil()
        try:
            refused_folder(NAME, folder, message)
        finally:
            for path, content in zip(files, before, strict=True):
                path.write_bytes(content)

    edge = arrays["edge_index"]
    check_each(
        check,
        [
            (lambda: data.write_bytes(sound.replace(b"<f4", b"<f8")), "have|has .* bytes"),
            (lambda: removed("node_feat"), "array node_feat is missing"),
            (lambda: replaced("node_feat", arrays["node_feat"][:, :100]), r"float32 \(700, 100\)"),
            (lambda: replaced("node_feat", arrays["node_feat"].astype(int)), "node_feat is int64"),
            (
                lambda: replaced("node_feat", np.asfortranarray(arrays["node_feat"])),
                "stored by columns",
            ),
            (lambda: replaced("node_feat", np.array([{}])), "is not an array|has .* bytes"),
            (lambda: replaced("edge_index", edge.astype(float)), "edge_index is float64"),
            (lambda: replaced("edge_index", edge.T), r"edge_index is int64 \(.*, 2\)"),
            (lambda: value_at("edge_index", (1, 3_210), 700), "edge 3,210 leads out of the graph"),
            (lambda: value_at("edge_index", (0, 0), -1), "edge 0 leads out"),
            (lambda: value_at("num_nodes_list", 0, 699), r"is float32 \(700, 128\)"),
            (lambda: value_at("num_nodes_list", 0, 2**31), r"is float32 \(700, 128\)"),
            (lambda: value_at("num_edges_list", 0, -5), "num_edges_list is -5"),
            (lambda: value_at("node_year", 5, 10_001), "node_year: 10001 in row 5"),
            (lambda: labelled(9, 172), "node_label: 172.0 in row 9"),
            (lambda: labelled(9, 0.5), "node_label: 0.5 in row 9"),
            (lambda: listed(b"0\n700\n"), "split/time, val: node 700 is not in"),
            (lambda: listed(b"0\n0\n"), "split/time, val: a node is listed twice"),
        ],
    )

    # Features are read where they are written.
    def features(value, **parameters):
        value_at("node_feat", (431, 7), value)
        _, (record,) = records_of_folder(NAME, folder, folder / "work", **parameters)
        return np.asarray(record.columns["node/x"])

    assert features(1e5)[431, 7] == 1e5
    for value, parameters in ((1e5, {"features": "float16"}), (np.nan, {}), (np.inf, {})):
        with pytest.raises(DamagedInput, match="row 431 "):
            features(value, **parameters)
    middle = len(sound) // 2  # of the file, where features are
    data.write_bytes(sound[:middle] + bytes([sound[middle] ^ 1]) + sound[middle + 1 :])
    _, (record,) = records_of_folder(NAME, folder, folder / "work")
    with pytest.raises(DamagedInput, match="CRC"):
        np.asarray(record.columns["node/x"])


BUILD = """
import sys
from pathlib import Path
from kmip_data.builds.home import Home
from kmip_data.pipelines.build import build_dataset
build_dataset("ogbn-papers100m", home=Home(Path(sys.argv[1])), archives=[sys.argv[2]], jobs=1, quiet=True)
"""
#: Pass -> a folder that it writes to, and one of its own steps that must not be repeated after it.
PASSES = {
    "partition": ("work/prepared-0/", None),
    "sort": ("work/prepared-1/", "write_runs"),
    "shard": ("shards/", "sort_runs"),
}


@pytest.mark.parametrize(
    ("name", "n"),
    [("sort", 2)]
    + [
        pytest.param(name, n, marks=pytest.mark.torture)
        for name in PASSES
        for n in (1, 2, 3)
        if (name, n) not in {("sort", 2), ("shard", 2), ("shard", 3)}
    ],
)
def test_a_build_killed_in_a_pass_continues_with_it(name, n, raw, tmp_path, torture_count):
    """The same command continues with this pass, gives the same bytes and leaves no runs."""
    within, done = PASSES[name]
    whole = build_dataset(NAME, home=Home(tmp_path / "whole"), archives=[raw], **QUIET)
    home = tmp_path / "home"
    fault = Fault(str(home / "built"), "builder", "fsync", n, within=within)
    child = subprocess.run(
        [sys.executable, "-c", BUILD, home, raw],
        env=environment(tmp_path / "child", fault),
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    torture_count("kills")
    with pytest.MonkeyPatch.context() as patch:
        if done is not None:
            patch.delattr(external_edge_sort, done)
        build = build_dataset(NAME, home=Home(home), archives=[raw], **QUIET)
    assert build.card.shards == whole.card.shards
    assert sorted(path.name for path in build.path.iterdir()) == sorted(
        path.name for path in whole.path.iterdir()
    )
    assert verify_build(build.path).ok


def test_a_build_of_several_files_is_found_again(raw, tmp_path, monkeypatch):
    """A second call returns the existing build by name; an error names a missing shard file."""
    monkeypatch.setattr("kmip_data.format.writer.MEMBER_BYTES", 2**17)
    build = build_dataset(NAME, home=Home(tmp_path), archives=[raw], **QUIET)
    files = list(build.card.shards[0].files)
    assert len(files) > 2
    again = build_dataset(NAME, home=Home(tmp_path), **QUIET)
    assert (again.path, again.card.digest) == (build.path, build.card.digest)
    (build.path / files[1]).unlink()
    with pytest.raises(DamagedInput, match=re.escape(files[1])):
        build_dataset(NAME, home=Home(tmp_path), **QUIET)


def test_a_large_graph_is_drawn_as_a_sample(raw, tmp_path, monkeypatch):
    """A large graph is drawn as samples that say so: edges of the graph into the nodes that are shown."""
    build = build_dataset(NAME, home=Home(tmp_path), archives=[raw], **QUIET)
    monkeypatch.setattr(reader, "RELEASED_MAP_BYTES", 0)
    assert verify_build(build.path).ok, "pages are given back while a shard is read"
    with pytest.warns(match="part of"):
        dataset = OGBNPapers100M(root=tmp_path, **QUIET)
    whole = dataset[0]
    edges = set(zip(*whole.edge_index.tolist(), strict=True))
    drawn = drawable_dataset(dataset, "train")
    nodes = whole.train_mask.nonzero().flatten().tolist()
    assert len(drawn) == len(nodes) < 700
    assert drawn.keys[3] == f"sample around node {nodes[3]}"
    around = drawn[3]
    assert torch.equal(around.x[0], whole.x[nodes[3]])
    rows = [whole.x.eq(row).all(dim=1).nonzero().flatten() for row in around.x]
    assert all(len(row) == 1 for row in rows), "rows tell nodes"
    met = torch.cat(rows)
    assert set(zip(*met[around.edge_index].tolist(), strict=True)) <= edges
    assert 1 < around.num_edges <= 12 + 12 * 4
    assert torch.equal(around.y, whole.y[met])
    assert (around.y < 0).any()

    graph = graph_of_record(drawn, 3)
    assert graph.header["key"] == drawn.keys[3]
    assert graph.header["layers"][0]["labels"][-1] == NO_CLASS_LABEL
    assert graph.header["layers"][0]["counts"][-1] == int((around.y < 0).sum())
    facts = draw_build(build, tmp_path / "preview.png", Home(tmp_path), records="0,699")
    assert [row["key"] for row in facts["records"]] == [
        "sample around node 0",
        "sample around node 699",
    ]
    assert (tmp_path / "preview.png").stat().st_size > 10_000
    rows = draw_build(build, tmp_path / "default.png", Home(tmp_path))["records"]
    assert len({row["key"] for row in rows}) == 3, "three nodes, evenly spread"

    # A row of Parquet would be the graph.
    monkeypatch.setattr("kmip_data.saving.export.MEMBER_BYTES", 2**10)
    with pytest.raises(UsageError, match="row"):
        write_parquet(build, tmp_path)
