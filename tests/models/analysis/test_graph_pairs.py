"""Pairs of graphs from files: BREC's own layout, others, and what is refused."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from support.cases import check_each

from kmip_data.errors import DamagedInput
from kmip_data.models.analysis.graph_pairs import BREC, COPIES, known_pairs, read_pairs

RINGS = [nx.cycle_graph(8), nx.disjoint_union(nx.cycle_graph(4), nx.cycle_graph(4))]


def graph6(*graphs: nx.Graph) -> list[bytes]:
    return [nx.to_graph6_bytes(graph, header=False).strip() for graph in graphs]


def test_of_brecs_file_each_pair_is_taken_once(tmp_path):
    """As its customize/dataset_v3.py writes it: G, H, G renumbered, H renumbered …; then copies of one."""
    pair = graph6(*RINGS)
    pairs = sum(BREC.values())
    last = graph6(nx.path_graph(4), nx.star_graph(3))
    interlaced = [*(pair * (COPIES // 4) * (pairs - 1)), *(last * (COPIES // 4))]
    np.save(tmp_path / "brec_v3.npy", interlaced + pair[:1] * (pairs * COPIES // 2))
    found = read_pairs(tmp_path / "brec_v3.npy")
    assert [name for name in found if name.endswith(" 1")] == [f"{family} 1" for family in BREC]
    assert [*found][-1] == "distance regular 20"
    for graph, matrix in zip(RINGS, found["CFI 100"], strict=True):
        assert np.array_equal(matrix, nx.to_numpy_array(graph))
    assert [matrix.sum(0).max() for matrix in found["distance regular 20"]] == [2, 3]


def test_arrays_of_pairs_and_lines_are_the_same(tmp_path):
    def check(dtype, base=tmp_path):
        tmp_path = Path(tempfile.mkdtemp(dir=base))
        texts = graph6(
            *RINGS, *(nx.from_numpy_array(matrix) for matrix in known_pairs()["4x4 rook, Shrikhande"])
        )
        np.save(tmp_path / "pairs.npy", np.array(texts, dtype=dtype).reshape(2, 2))
        (tmp_path / "pairs.g6").write_bytes(b">>graph6<<" + b"\n".join(texts) + b"\n")
        found = [read_pairs(tmp_path / name) for name in ("pairs.npy", "pairs.g6")]
        for pairs in found:
            assert [*pairs] == ["pair 1", "pair 2"]
            for graph, matrix in zip(RINGS, pairs["pair 1"], strict=True):
                assert np.array_equal(matrix, nx.to_numpy_array(graph))

    check_each(check, ["S", "U"])


class Trap:
    """What a pickle may do."""

    def __reduce__(self):
        return os.mkdir, ("trapped",)


def test_what_holds_no_pairs_is_refused(tmp_path, monkeypatch):
    def check(case, base=tmp_path):
        name, content, said = case
        tmp_path = Path(tempfile.mkdtemp(dir=base))
        monkeypatch.chdir(tmp_path)
        path = Path(name)
        np.save(path, content) if isinstance(content, np.ndarray) else path.write_bytes(content)
        with pytest.raises(DamagedInput) as caught:
            read_pairs(path)
        assert said in caught.value.parts["found"]
        assert sorted(tmp_path.iterdir()) == [tmp_path / name]

    check_each(
        check,
        [
            ("pickled.npy", np.array([Trap(), Trap()], dtype=object), "Python objects"),
            ("numbers.npy", np.zeros(4), "an array of float64"),
            ("odd.g6", b"\n".join(graph6(*RINGS, RINGS[0])), "3 graphs"),
            ("empty.g6", b"", "0 graphs"),
            ("none.g6", b"?\n?\n", "a graph of 0 nodes"),
            ("many.g6", b"A_\n" * 2002, "2,002 graphs"),
            ("short.g6", b"Dhc\nD", "Expected"),
            ("claims.g6", b"~~~~~~~~\nDhc\n", "Expected"),
            ("text.g6", b"not a graph\xff\n", ""),
            (
                "cut.npy",
                b"\x93NUMPY\x01\x00v\x00{'descr': '|S4', 'fortran_order': False, 'shape': (10**9,), }",
                "",
            ),
        ],
    )


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DamagedInput, match="holds no pairs"):
        read_pairs(tmp_path / "brec_v3.npy")
