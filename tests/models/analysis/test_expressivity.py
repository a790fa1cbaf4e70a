"""Theorem 1 on networks: what S-SEG-WL does not separate, no weights do, unless an order of nodes counts."""

from __future__ import annotations

import pytest
import torch
from support.cases import check_each
from torch_geometric.data import Data

from kmip_data.models.analysis import expressivity
from kmip_data.models.analysis.expressivity import EQUAL, Check, check_networks
from kmip_data.models.analysis.graph_pairs import known_pairs
from kmip_data.models.analysis.refinement import as_graphs
from kmip_data.models.config import ATTENTION, ModelConfig
from kmip_data.models.network import build_model

ORDERED = {"bigbird", "exphormer"}  #: blocks of nodes; an expander that is drawn


@pytest.fixture(scope="module")
def checks() -> dict[tuple[str, str], Check]:
    found = check_networks(known_pairs(), draws=2)
    return {(check.attention, check.positional): check for check in found}


def test_no_attention_sees_more_than_the_test(checks):
    def check(kind):
        for positional in ("none", "rwse"):
            check = checks[kind, positional]
            if kind in ORDERED:
                assert check.verdict == "order of nodes"
                assert check.relabelled > EQUAL
            else:
                assert check.verdict == "bounded"
                assert check.gap <= EQUAL
                assert check.relabelled <= EQUAL

    check_each(check, ATTENTION)


def test_encodings_tell_more_apart(checks):
    def check(kind):
        assert not checks[kind, "none"].by_encoding
        for positional in ("rwse", "lappe"):
            apart = checks[kind, positional].by_encoding
            assert {"2 C3, C6", "decalin, bicyclopentyl", "CSL(41, 2), CSL(41, 3)"} <= apart.keys()
            assert min(apart.values()) > 1e-6

    check_each(check, ATTENTION)


def test_pairs_do_not_depend_on_what_they_are_checked_with(monkeypatch):
    """Encodings are rounded pair by pair: of many graphs different values would become one."""
    monkeypatch.setattr(expressivity, "ATTENTION", ["k-mip"])
    pairs = {
        name: known_pairs()[name] for name in ("2 C3, C6", "two rings of 9, of 8", "decalin, bicyclopentyl")
    }
    together = [check.by_encoding for check in check_networks(pairs, draws=1)]
    monkeypatch.setattr(expressivity, "AT_ONCE", 1)
    alone = [check.by_encoding for check in check_networks(pairs, draws=1)]
    assert [one.keys() for one in alone] == [one.keys() for one in together]
    assert alone[1] == pytest.approx(together[1], rel=1e-9)  # of RWSE: LapPE depends on an order


def test_eigenvectors_depend_on_the_order_of_nodes(checks):
    assert {checks[kind, "lappe"].verdict for kind in ATTENTION} == {"order of nodes"}


def test_a_contradiction_is_called_one():
    assert Check("k-mip", "none", 1e-3, 1e-12, {}).verdict == "not bounded"


def test_exphormer_without_its_expander_is_bounded():
    def check(pair):
        graphs = as_graphs(known_pairs()[pair])
        ptr = torch.from_numpy(graphs.node_ptr)
        batch = Data(x=torch.ones(int(ptr[-1]), 1), edge_index=torch.from_numpy(graphs.joined()), ptr=ptr)
        attention = {"kind": "exphormer", "expander": 0}
        config = ModelConfig(attention=attention, layers=3, hidden_dim=16, head="graph")
        torch.manual_seed(0)
        network = build_model(config, in_channels=1, num_classes=3).double().eval()
        first, second = network(batch)
        torch.testing.assert_close(first, second, rtol=0, atol=EQUAL)

    check_each(check, ["two rings of 9, of 8", "these, a leaf at a node"])
