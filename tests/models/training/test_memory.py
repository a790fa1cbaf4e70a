"""A step that will not fit is refused before any work, with what would make it fit."""

import pytest

from kmip_data.errors import OutOfResources
from kmip_data.models.training import memory
from kmip_data.models.training.machine import Size
from kmip_data.models.training.presets import load_preset

GIB = 2**30
BATCH = Size(8, 8 * 4096, 8 * 4096 * 32)


@pytest.fixture
def config():
    return load_preset("s3dis")


def test_more_of_anything_needs_more_memory(config):
    need = memory.step_bytes(config.model, BATCH)
    assert memory.step_bytes(config.model, Size(4, BATCH.nodes // 2, BATCH.edges // 2)) < need
    assert memory.step_bytes(config.model.model_copy(update={"layers": 9}), BATCH) > need
    assert memory.step_bytes(config.model.model_copy(update={"checkpoint_layers": True}), BATCH) < need


def test_a_step_that_fits_passes(config, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 16 * GIB)
    memory.check_step_fits(config, BATCH)


def test_a_step_that_does_not_fit_is_refused_with_ways_out(config, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 4 * GIB)
    with pytest.raises(OutOfResources) as caught:
        memory.check_step_fits(config, BATCH)
    text = str(caught.value)
    assert "8 graphs, 32,768 nodes, 1,048,576 edges" in text
    assert "4.0 GiB free" in text
    assert "--set model.checkpoint_layers=true" in text
    assert "--set training.batch_size=1 --set training.accumulate=16" in text


def test_a_control_group_limits_what_is_free(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    monkeypatch.setattr(memory, "Path", lambda _: tmp_path)
    assert memory.free_bytes() == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_bytes() > 10**6
