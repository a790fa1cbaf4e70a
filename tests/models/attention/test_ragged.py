"""Graphs put together by size: each row once, no more rows than allowed."""

from __future__ import annotations

import pytest
import torch

from kmip_data.models.attention.performer import tiles_of
from kmip_data.models.attention.transformer import equal_sizes

PTR = [0, 4, 4, 5, 17, 21, 23, 40]


def test_graphs_of_one_size_go_together_and_none_are_padded() -> None:
    plan = equal_sizes(tuple(PTR), torch.device("cpu"))
    assert plan.groups == ((1, 1), (1, 2), (2, 4), (1, 12), (1, 17))
    assert plan.order is not None
    assert plan.order[plan.inverse].tolist() == list(range(40))
    assert equal_sizes((0, 3, 6, 11), torch.device("cpu")).order is None


@pytest.mark.parametrize(("most", "each"), [(1000, 2), (12, 2), (5, 1), (1, 1)])
def test_tiles_hold_each_row_once_and_no_more_than_they_may(most: int, each: int) -> None:
    groups = tiles_of(tuple(PTR), most, each, torch.device("cpu"))
    rows = []
    for group in groups:
        assert len(group.tiles) == 1 or len(group.graphs) == 1
        for tile in group.tiles:
            assert tile.rows.numel() <= most
            assert len(group.graphs) == 1 or tile.rows.numel() + each * len(group.graphs) <= most
            rows += tile.rows.flatten().tolist() if tile.real is None else tile.rows[tile.real].tolist()
    assert sorted(rows) == list(range(40))
