"""Theorem 2, tried: k = N is full attention, and deeper transformers come nearer."""

from __future__ import annotations

import torch
from support.cases import check_each

from kmip_data.models.analysis.universality import DIM, FITTED, NODES, TARGET, copied, fit, transformer


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
