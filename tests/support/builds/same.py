"""Compare two PyTorch Geometric objects bit for bit."""

from __future__ import annotations

import torch
from torch_geometric.data import Batch


def assert_same_data(item, wanted, *, ordered=True):
    """Same class, attributes (in the same order), types, dtypes, shapes and bits; for batches also
    everything that takes them apart again."""
    assert type(item) is type(wanted)
    assert set(item.keys()) == set(wanted.keys())
    if ordered:
        assert list(item.keys()) == list(wanted.keys())
    for name in wanted.keys():  # noqa: SIM118 -- Data iterates over pairs
        _assert_same_value(item[name], wanted[name], name)
    assert item.num_nodes == wanted.num_nodes
    if isinstance(wanted, Batch):
        assert item.num_graphs == wanted.num_graphs
        for bookkeeping in ("_slice_dict", "_inc_dict"):
            ours, theirs = getattr(item, bookkeeping), getattr(wanted, bookkeeping)
            assert set(ours) == set(theirs)
            for name in theirs:
                _assert_same_value(ours[name], theirs[name], f"{bookkeeping}[{name}]")
        for one, other in zip(item.to_data_list(), wanted.to_data_list(), strict=True):
            assert_same_data(one, other, ordered=ordered)


def _assert_same_value(value, wanted, name):
    assert type(value) is type(wanted), name
    if isinstance(wanted, torch.Tensor):
        assert value.dtype == wanted.dtype, name
        assert value.shape == wanted.shape, name
        assert value.contiguous().numpy().tobytes() == wanted.contiguous().numpy().tobytes(), name
    else:
        assert value == wanted, name
