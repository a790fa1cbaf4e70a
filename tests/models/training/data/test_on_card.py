"""Batches on their way to a GPU, with a stand-in that notes what is asked of it."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

from kmip_data.models.training.data.on_card import OnCard


def test_a_batch_is_sent_before_the_one_before_it_is_given_out(streams, monkeypatch):
    told: list[str] = []
    batches = OnCard(
        [Data(x=torch.full((2, 1), float(i))) for i in range(3)], torch.device("cpu"), told.append
    )
    assert len(batches) == 3
    for number, batch in enumerate(batches):
        streams.append(f"step {number}")
        assert batch.x[0, 0] == number
    arrives = "the step waits for copies"
    assert streams == [
        *("copied", "waited", "copied", arrives, "step 0"),
        *("copied", arrives, "step 1", arrives, "step 2"),
    ]
    assert [line.partition(":")[0] for line in told] == ["first batch"]
    monkeypatch.setattr(torch.cuda, "Stream", None)  # memory of one stream is of use to no other
    assert len(list(batches)) == 3  # another epoch
    assert len(told) == 1


def test_rows_of_masks_are_looked_up_once(streams):
    graph = Data(x=torch.randn(4, 1), train_mask=torch.tensor([True, False, True, False]))
    batches = OnCard([graph], torch.device("cpu"), lambda _: None)
    first = next(iter(batches)).train_rows
    assert first.tolist() == [0, 2]
    assert next(iter(batches)).train_rows is first
    assert list(OnCard([], torch.device("cpu"), lambda _: None)) == []
