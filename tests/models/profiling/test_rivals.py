"""The networks that a step is compared with: upstream's attention gives what ours gives."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch, Data

from kmip_data.models.config import ModelConfig
from kmip_data.models.network import build_model
from kmip_data.models.profiling.rivals import rivals


def _batch(*sizes: int) -> Batch:
    graphs = []
    for size in sizes:
        edges = torch.randint(size, (2, 3 * size))
        graphs.append(Data(x=torch.randn(size, 5), edge_index=edges, edge_attr=torch.randn(3 * size, 2)))
    return Batch.from_data_list(graphs)


CONFIG = ModelConfig(hidden_dim=16, layers=2, dropout=0.0, edge_encoder="linear")


@pytest.mark.parametrize("sizes", [(30,), (30, 30), (14, 30, 21)])
def test_upstreams_form_of_the_layer_computes_the_same(sizes):
    torch.manual_seed(0)
    network = build_model(CONFIG, in_channels=5, num_classes=3, edge_channels=2)
    batch = _batch(*sizes)
    ours = network(batch)
    ours.square().sum().backward()
    gradients = [weight.grad.clone() for weight in network.parameters() if weight.grad is not None]
    network.zero_grad()
    for norm in (module for module in network.modules() if hasattr(module, "num_batches_tracked")):
        norm.reset_running_stats()
    replace = rivals(CONFIG, "cpu")["k-MIP as upstream (padded, matrix product and topk)"]
    replace(network, CONFIG)
    theirs = network(batch)
    theirs.square().sum().backward()
    assert torch.allclose(ours, theirs, atol=1e-4)
    again = [weight.grad for weight in network.parameters() if weight.grad is not None]
    assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-2) for a, b in zip(gradients, again, strict=True))


@pytest.mark.parametrize("attention", ["multihead", "performer"])
@pytest.mark.parametrize("encoder", ["linear", "dummy"])
def test_pygs_layers_have_its_width_and_depth(attention, encoder):
    config = CONFIG.model_copy(update={"edge_encoder": encoder})
    network = build_model(config, in_channels=5, num_classes=3, edge_channels=2)
    rivals(config, "cpu")[f"PyG GPSConv, {attention}"](network, config)
    assert [layer.layer.channels for layer in network.layers] == [16, 16]
    assert network(_batch(7, 12)).shape == (19, 3)


def test_without_k_mip_there_is_no_form_of_upstream():
    config = ModelConfig.model_validate({"attention": {"kind": "transformer"}})
    assert not any("upstream" in name for name in rivals(config, "cpu"))
