"""Theorem 1: what S-SEG-WL does not separate, no weights do; Theorem 2: deeper transformers come nearer."""

from __future__ import annotations

import pytest
import torch
from support.cases import check_each
from torch_geometric.data import Data

from kmip_data.models.analysis import expressivity
from kmip_data.models.analysis.expressivity import (
    DIM,
    EQUAL,
    FITTED,
    NODES,
    TARGET,
    Check,
    as_graphs,
    check_networks,
    copied,
    fit,
    known_pairs,
    transformer,
)
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
    names = ("2 C3, C6", "two rings of 9, of 8", "decalin, bicyclopentyl")
    together = [*check_networks({name: known_pairs()[name] for name in names}, draws=1)][1]  # of RWSE
    alone = [[*check_networks({name: known_pairs()[name]}, draws=1)][1] for name in names]
    assert {name: gap for one in alone for name, gap in one.by_encoding.items()} == pytest.approx(
        together.by_encoding, rel=1e-9
    )


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


def test_k_of_all_nodes_is_full_attention():
    for seed in range(3):
        error, gap = copied(NODES, seed)
        assert gap < 1e-5
        assert error < 1e-5
    assert copied(NODES + 5)[1] < 1e-5


def test_copied_weights_come_nearer_with_k():
    errors = [copied(k)[0] for k in (1, 2, 4, NODES)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.1  # of a sharp target no single key is enough


def test_the_class_is_that_of_the_theorem():
    block = transformer(FITTED, 3, 1, seed=0)[0]
    shapes = {name: tuple(weights.shape) for name, weights in block.named_parameters()}
    heads, size, hidden = FITTED
    assert (heads, size, hidden) == (2, 1, 4)
    assert shapes == {
        **{f"attention.{name}.weight": (heads * size, DIM) for name in ("query", "key", "value")},
        "attention.output.weight": (DIM, heads * size),
        "mlp.0.weight": (hidden, DIM),
        "mlp.0.bias": (hidden,),
        "mlp.2.weight": (DIM, hidden),
        "mlp.2.bias": (DIM,),
    }


def test_rows_permuted_permute_what_comes_out():
    def check(k):
        x, order = torch.rand(5, NODES, DIM), torch.randperm(NODES)
        network = transformer(TARGET, k, 2, seed=1)
        torch.testing.assert_close(network(x[:, order]), network(x)[:, order])

    check_each(check, [None, 2])


def test_deeper_is_nearer():
    errors = list(fit(2, (1, 3), steps=60))
    assert 1 > errors[0] > errors[1]


def test_the_same_seed_gives_the_same_errors_and_leaves_the_generator():
    state = torch.get_rng_state()
    assert list(fit(1, (1, 2), steps=3, seed=7)) == list(fit(1, (1, 2), steps=3, seed=7))
    assert torch.equal(torch.get_rng_state(), state)
