"""What a step keeps, counted on a cut, is what autograd keeps."""

from __future__ import annotations

import pytest
import torch
from support.training_data import learnable_build, tiny_config

from kmip_data.builds.home import Home
from kmip_data.models.kinds import Size
from kmip_data.models.network import build_model
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.data.obtain import open_data
from kmip_data.models.training.memory.counting import HOLES, MAPPED, count_kept


@pytest.mark.parametrize("layout", ["neighbor", "index"])
def test_what_is_counted_is_what_autograd_keeps(tmp_path, layout):
    """Against the saved tensors of a forward pass over a whole batch."""
    build = learnable_build(tmp_path / "build", layout=layout, nodes=200)
    data = open_data(tiny_config(build, model={"layers": 4}), home=Home(tmp_path))
    (batch,) = list(data.batches(lambda: 0))[:1]
    kept = count_kept(data.config, data, Size.of(batch))
    storages = {}

    def pack(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    model = build_model(data.config.model, in_channels=6, num_classes=4)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(batch)
    given = [*model.parameters(), *model.buffers(), *batch.to_dict().values()]
    own = {t.untyped_storage().data_ptr() for t in given if isinstance(t, torch.Tensor)}
    whole = sum(t.untyped_storage().nbytes() for pointer, t in storages.items() if pointer not in own)
    found = kept.layers + kept.outside - 3 * output.numel() * 4
    assert found == pytest.approx(whole, rel=0.05)
    assert kept.layer * 4 == pytest.approx(kept.layers, rel=0.2)


@pytest.mark.parametrize("kind", ["transformer", "performer"])
def test_attention_is_counted_as_autograd_keeps_it(tmp_path, kind):
    """Weights of all pairs, which a cut of other size has in another ratio; no features."""
    build = learnable_build(tmp_path / "build", nodes=300)
    keys = [f"model.attention.kind={kind}", "model.attention.dropout=0.5", "model.local.kind=none"]
    data = open_data(apply_overrides(tiny_config(build), keys), home=Home(tmp_path))
    batch, size = next(iter(data.batches(lambda: 0))), data.largest_batch
    kept = count_kept(data.config, data, size)
    storages = {}

    def pack(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    model = build_model(data.config.model, in_channels=6, num_classes=4)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(batch)
    own = {t.untyped_storage().data_ptr() for t in (*model.state_dict().values(), *batch.to_dict().values())}
    whole = sum(t.untyped_storage().nbytes() for pointer, t in storages.items() if pointer not in own)
    assert kept.layers + kept.outside - 3 * output.numel() * 4 == pytest.approx(whole, rel=0.05)
    assert bool(kept.pairs) is (kind == "transformer")


def test_generators_are_left_alone(tmp_path):
    data = open_data(tiny_config(learnable_build(tmp_path / "build")), home=Home(tmp_path))
    before = torch.get_rng_state()
    count_kept(data.config, data, Size(8, 8 * 4096, 8 * 4096 * 3))
    assert torch.equal(torch.get_rng_state(), before)


def test_tensors_in_the_heap_of_a_cpu_leave_holes(tmp_path):
    data = open_data(tiny_config(learnable_build(tmp_path / "build")), home=Home(tmp_path))
    config = apply_overrides(data.config, ["model.layers=3"])
    mapped = MAPPED // (4 * config.model.hidden_dim)
    small, large = (count_kept(config, data, Size(1, nodes, nodes)) for nodes in (mapped - 1, mapped))
    assert small.holes == int(HOLES * small.layers) > 0
    assert large.holes == 0
