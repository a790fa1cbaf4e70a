"""Batches on their way to a GPU, with a stand-in that notes what is asked of it."""

from __future__ import annotations

import pytest
import torch
from support.city_data import streets_build
from support.training_data import learnable_build, tiny_config
from torch_geometric.data import Data

from kmip_data.builds.home import Home
from kmip_data.models.training.data.graphs import open_data
from kmip_data.models.training.data.run_data import SentAhead
from kmip_data.models.training.run import module as module_file
from kmip_data.models.training.run.module import TrainingModule, evaluate_parts

CPU = torch.device("cpu")


def test_a_batch_is_sent_before_the_one_before_it_is_given_out(streams, monkeypatch):
    batches = SentAhead([Data(x=torch.full((2, 1), float(i))) for i in range(3)], CPU)
    for number, batch in enumerate(batches):
        streams.append(f"step {number}")
        assert batch.x[0, 0] == number
    arrives = "the step waits for copies"
    assert streams == ["copied", "copied", arrives, "step 0", "copied", arrives, "step 1", arrives, "step 2"]
    monkeypatch.setattr(torch.cuda, "Stream", None)  # memory of one stream is of use to no other
    assert len(list(batches)) == 3  # another epoch


def test_rows_of_masks_are_looked_up_once(streams):
    graph = Data(x=torch.randn(4, 1), train_mask=torch.tensor([True, False, True, False]))
    batches = SentAhead([graph], CPU)
    first = next(iter(batches)).train_rows
    assert first.tolist() == [0, 2]
    assert next(iter(batches)).train_rows is first
    assert list(SentAhead([], CPU)) == []


@pytest.mark.parametrize("build", [learnable_build, streets_build])
def test_an_evaluation_is_sent_ahead_too(build, tmp_path, streams, monkeypatch):
    config = tiny_config(build(tmp_path / "build"))
    data = open_data(config, home=Home(tmp_path))
    module = TrainingModule(data.pinned(config), data)
    plain = evaluate_parts(module, data, data.parts, CPU)
    assert streams == []
    monkeypatch.setattr(module_file, "sent_ahead", SentAhead)
    assert evaluate_parts(module, data, data.parts, CPU) == plain
    assert streams[:2] == ["copied", "copied" if data.unit == "graphs" else "the step waits for copies"]
    if data.unit == "nodes":  # it is trained on, too
        assert not data.graph.train_rows.is_inference()
