"""Adjacency matrices as tables: random ones are read as they were written."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.own_graphs import read_files, write_files
from support.raises import raises

from kmip_data.errors import OpenQuestions, Setting


def text_of(weights, names, has_row_names):
    """Return a matrix as CSV."""
    rows = [[f"{weight:g}" for weight in row] for row in weights]
    if has_row_names:
        rows = [[name, *row] for name, row in zip(names, rows, strict=True)]
        names = ["", *names]
    lines = [names, *rows] if names else rows
    return "".join(",".join(line) + "\n" for line in lines)


def dense(record):
    """Return the weights of a graph as a matrix."""
    weights = np.zeros((record.num_nodes, record.num_nodes))
    source, target = record.edge_index
    values = record.columns.get("edge/edge_attr", np.ones((len(source), 1)))
    weights[source, target] = values[:, 0]
    return weights


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(4, 9), min_size=1, max_size=3),
    form=st.sampled_from(["no names", "names twice", "names above"]),
    is_weighted=st.booleans(),
)
def test_random_matrices_are_read_as_they_were_written(
    tmp_path_factory, seed, sizes, form, is_weighted
):
    if form == "names above":
        sizes = sizes[:1]
    rng = np.random.default_rng(seed)
    folder = tmp_path_factory.mktemp("m")
    expected = []
    for number, size in enumerate(sizes):
        weights = rng.integers(0, 3 if is_weighted else 2, (size, size)) * rng.integers(0, 2, size)
        np.fill_diagonal(weights, 0)
        weights[0, 1] = 1 + is_weighted
        names = [f"n{node}" for node in rng.permutation(size)] if form != "no names" else []
        (folder / f"g{number}.csv").write_text(text_of(weights, names, form == "names twice"))
        expected.append(weights)
    labels = "".join(f"g{number},{number % 2}\n" for number in range(len(sizes)))
    if len(sizes) > 1:
        (folder / "labels.csv").write_text("file,label\n" + labels)
    got = read_files(folder)
    for number, (record, weights) in enumerate(zip(got.records, expected, strict=True)):
        np.testing.assert_array_equal(dense(record), weights)
        if len(sizes) > 1:
            assert (record.key, int(record.columns["graph/y"])) == (f"g{number}", number % 2)


def test_a_table_of_nodes_next_to_a_matrix_has_their_features(tmp_path):
    by_name = write_files(
        tmp_path / "a",
        m_csv=",a,b,c,d\na,0,1,0,0\nb,0,0,2,0\nc,0,0,0,3\nd,0,0,0,0\n",
        nodes_csv="id,mass\nd,4\na,1\nb,2\nc,3\n",
    )
    record = read_files(by_name).first
    mass = record.columns["node/x"][:, 0]
    source, target = mass[record.edge_index]
    assert sorted(zip(source, target, strict=True)) == [(1, 2), (2, 3), (3, 4)]
    by_row = write_files(
        tmp_path / "b",
        m_csv="0,1,0,0\n0,0,1,0\n0,0,0,1\n0,0,0,0\n",
        nodes_csv="mass\n1.5\n2.5\n3.5\n4.5\n",
    )
    record = read_files(by_row).first
    assert record.columns["node/x"].tolist() == [[1.5], [2.5], [3.5], [4.5]]
    assert record.edge_index.tolist() == [[0, 1, 2], [1, 2, 3]]


def test_three_rows_of_three_numbers_are_asked_about(tmp_path):
    folder = write_files(tmp_path / "m", m_csv="0,1,2\n1,0,5\n2,5,0\n")
    with raises(OpenQuestions, steps=Setting(source="0", target="1")):
        read_files(folder)
    assert read_files(folder, source="0", target="1").first.num_edges == 3
    edges = write_files(tmp_path / "e", m_csv="0,1,2\n1,2,5\n2,0,7\n")
    assert read_files(edges).first.columns["edge/edge_attr"].tolist() == [[2], [5], [7]]
