"""Compare two PyTorch Geometric objects bit for bit."""

from __future__ import annotations

import torch
from torch_geometric.data import Batch


def assert_same(found, wanted, *, ordered=True):
    """Same class, attributes (in the same order), types, dtypes, shapes and bits; for batches also
    everything that takes them apart again."""
    assert type(found) is type(wanted)
    assert set(found.keys()) == set(wanted.keys())
    if ordered:
        assert list(found.keys()) == list(wanted.keys())
    for name in wanted.keys():  # noqa: SIM118 -- Data iterates over pairs
        _assert_same_value(found[name], wanted[name], name)
    assert found.num_nodes == wanted.num_nodes
    if isinstance(wanted, Batch):
        assert found.num_graphs == wanted.num_graphs
        for bookkeeping in ("_slice_dict", "_inc_dict"):
            ours, theirs = getattr(found, bookkeeping), getattr(wanted, bookkeeping)
            assert set(ours) == set(theirs)
            for name in theirs:
                _assert_same_value(ours[name], theirs[name], f"{bookkeeping}[{name}]")
        for one, other in zip(found.to_data_list(), wanted.to_data_list(), strict=True):
            assert_same(one, other, ordered=ordered)


def _assert_same_value(found, wanted, name):
    assert type(found) is type(wanted), name
    if isinstance(wanted, torch.Tensor):
        assert found.dtype == wanted.dtype, name
        assert found.shape == wanted.shape, name
        assert found.contiguous().numpy().tobytes() == wanted.contiguous().numpy().tobytes(), name
    else:
        assert found == wanted, name
