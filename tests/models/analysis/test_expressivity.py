"""Theorem 1: what S-SEG-WL does not separate, no weights do; Theorem 2: deeper transformers come nearer."""

from __future__ import annotations

import pytest
import torch
from support.cases import check_each

from kmip_data.models.analysis.expressivity import (
    EQUAL,
    NODES,
    Check,
    check_networks,
    copied,
    fit,
    known_pairs,
)
from kmip_data.models.config import ATTENTION

ORDERED = {"bigbird", "exphormer"}  #: blocks of nodes; an expander that is drawn


@pytest.fixture(scope="module")
def checks() -> dict[tuple[str, str], Check]:
    found = check_networks(known_pairs(), draws=2)
    return {(check.attention, check.positional): check for check in found}


def test_no_attention_sees_more_than_the_test_and_encodings_tell_more_apart(checks):
    def check(kind):
        assert not checks[kind, "none"].by_encoding
        for positional in ("none", "rwse"):
            check = checks[kind, positional]
            assert check.verdict == ("order of nodes" if kind in ORDERED else "bounded")
            assert (check.relabelled > EQUAL) is (kind in ORDERED)
            assert kind in ORDERED or check.gap <= EQUAL
        for positional in ("rwse", "lappe"):
            apart = checks[kind, positional].by_encoding
            assert {"2 C3, C6", "decalin, bicyclopentyl", "CSL(41, 2), CSL(41, 3)"} <= apart.keys()
            assert min(apart.values()) > 1e-6
        assert checks[kind, "lappe"].verdict == "order of nodes", "eigenvectors depend on it"

    check_each(check, ATTENTION)
    assert Check("k-mip", "none", 1e-3, 1e-12, {}).verdict == "not bounded"


def test_copied_weights_come_nearer_with_k_and_with_all_nodes_are_full_attention():
    errors = [copied(k)[0] for k in (1, 2, 4, NODES)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.1  # of a sharp target no single key is enough
    assert max(copied(NODES, seed=1) + copied(NODES + 5)) < 1e-5


def test_deeper_is_nearer_and_the_same_seed_gives_the_same():
    state = torch.get_rng_state()
    errors = list(fit(2, (1, 3), steps=60))
    assert 1 > errors[0] > errors[1]
    assert list(fit(1, (1, 2), steps=3, seed=7)) == list(fit(1, (1, 2), steps=3, seed=7))
    assert torch.equal(torch.get_rng_state(), state)
