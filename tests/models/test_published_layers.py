"""Presets against the layers that the published code ran, written here from its formulas, in float64.

Settings come from the code of each publication (LRGB, Exphormer, the thesis, GraphGym), not from our presets:
a preset that runs another layer fails. Networks only lend their weights.
"""

from __future__ import annotations

import torch
from support.paper_networks import shape
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch_geometric.data import Batch, Data

from kmip_data.models.layers.batch import formed, read_batch
from kmip_data.models.network import build_model, count_parameters, fit_hidden_dim
from kmip_data.models.training.config.presets import load_preset, preset_names, read_preset

LRGB = ("pascalvoc-sp", "coco-sp", "peptides-func", "peptides-struct")
POINTS = ("s3dis", "shapenet-part")
WITHIN = 1e-12
Weights = dict[str, Tensor]


def network_of(dataset: str, model: str, variant: str = "code") -> nn.Module:
    """The preset's network in float64 and evaluation, its norms and running statistics off their start."""
    torch.manual_seed(7)
    config, sizes = load_preset(dataset, model, variant).model, shape(dataset)
    network = build_model(fit_hidden_dim(config, **sizes), **sizes).double().eval()
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
            elif "norm" in name and tensor.is_floating_point():
                tensor.normal_(1.0, 0.3)
    return network


def graphs(dataset: str) -> Batch:
    """Three graphs of different sizes, with edges to themselves and repeated ones."""
    generator, sizes, made = torch.Generator().manual_seed(5), shape(dataset), []
    for n in (9, 1, 14):
        edges = torch.randint(0, n, (2, 4 * n), generator=generator)
        edges = edges[:, edges[1].argsort()]
        made.append(Data(x=torch.randn(n, sizes["in_channels"], generator=generator).double()))
        made[-1].edge_index = edges
        if sizes["edge_channels"]:
            attr = torch.randn(4 * n, sizes["edge_channels"], generator=generator)
            made[-1].edge_attr = attr.double()
    return Batch.from_data_list(made)


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", torch.zeros(()).double())


def batch_norm(w: Weights, name: str, x: Tensor) -> Tensor:
    """By running statistics, epsilon 1e-5."""
    scale = w[f"{name}.weight"] / (w[f"{name}.running_var"] + 1e-5).sqrt()
    return (x - w[f"{name}.running_mean"]) * scale + w[f"{name}.bias"]


def gated_gcn(w: Weights, x: Tensor, e: Tensor, index: Tensor, *, residual: bool) -> tuple[Tensor, Tensor]:
    """``GatedGCNLayer`` of all three repositories: e = D x_i + E x_j + C e, gates g = sigmoid(e).

    x_i' = A x_i + Σ_j g_ij B x_j / (Σ_j g_ij + 1e-6); batch norm, then ReLU; edges always add their
    input.
    """
    source, target = index
    pre = linear(w, "D", x)[target] + linear(w, "E", x)[source] + linear(w, "C", e)
    gate, zeros = torch.sigmoid(pre), torch.zeros_like(x)
    message = zeros.index_add(0, target, gate * linear(w, "B", x)[source])
    new = linear(w, "A", x) + message / (zeros.index_add(0, target, gate) + 1e-6)
    new = torch.relu(batch_norm(w, "norm_x", new))
    return new + x if residual else new, e + torch.relu(batch_norm(w, "norm_e", pre))


def gps_layer(w: Weights, x: Tensor, local: Tensor, attended: Tensor | None) -> Tensor:
    """GraphGPS: both branches normalised and summed, then h + W2 relu(W1 h), normalised."""
    h = batch_norm(w, "norm_local", local)
    if attended is not None:
        h = h + batch_norm(w, "norm_global", attended + x)
    return batch_norm(w, "norm_out", h + linear(w, "linear_out", torch.relu(linear(w, "linear_in", h))))


def under(network: nn.Module, prefix: str) -> Weights:
    state = network.state_dict()
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def layer_difference(dataset: str, model: str, variant: str = "code", *, residual: bool) -> float:
    """Largest difference, in nodes and edges, between a preset's first layer and the published one.

    Attention lends its output: it has oracles of its own.
    """
    network, data = network_of(dataset, model, variant), graphs(dataset)
    layer, batch, w = network.layers[0], read_batch(data, ()), under(network, "layers.0.")
    generator, dim = torch.Generator().manual_seed(1), layer.local.A.in_features
    x, e = (
        torch.randn(rows, dim, generator=generator, dtype=torch.float64)
        for rows in (data.num_nodes, data.num_edges)
    )
    with torch.no_grad():
        found, found_edges, *_ = layer(x, e, batch)
        nodes, edges = gated_gcn(under(network, "layers.0.local."), x, e, data.edge_index, residual=residual)
        if "linear_in.weight" in w:
            nodes = gps_layer(w, x, nodes, None if layer.attention is None else layer.attention(x, batch))
    pairs = (found, nodes), (formed(found_edges), edges)
    return max((a - b).abs().max().item() for a, b in pairs)


def input_difference(dataset: str, model: str, variant: str = "code", *, norm: bool = False) -> float:
    """Largest difference of encoded nodes and edges from raw linear maps, with a batch norm where published.

    Channels of a positional encoding, behind those of the features, are left out.
    """
    network, data = network_of(dataset, model, variant), graphs(dataset)
    batch, state, encoded = read_batch(data, ()), network.state_dict(), []
    encoder = network.node_encoder
    features = getattr(encoder, "features", encoder)
    prefix = "node_encoder." + "features." * (features is not encoder)
    handle = network.layers[0].register_forward_pre_hook(lambda _, given: encoded.append(given[0]))
    with torch.no_grad():
        expected = linear(state, f"{prefix}linear", data.x)
        if (
            norm
        ):  # GraphGym: the batch norm, then its layer before message passing (no bias, rows of length 1)
            expected = batch_norm(state, "node_encoder_norm", expected)
            before = batch_norm(state, "input.0.norm", linear(state, "input.0.linear", expected))
            network(data)
            return (encoded[0] - normalize(torch.relu(before), dim=1)).abs().max().item()
        handle.remove()
        difference = (features(batch) - expected).abs().max()
        edges = network.edge_encoder(batch) - linear(state, "edge_encoder.linear", data.edge_attr)
    return max(difference.item(), edges.abs().max().item())


def test_gated_gcn_of_lrgb_uses_relu() -> None:
    """``CustomGNN`` passes no activation to ``GatedGCNLayer``, whose default is ReLU; residual inside."""
    found = {dataset: layer_difference(dataset, "gated-gcn", residual=True) for dataset in LRGB}
    assert max(found.values()) < WITHIN, found


def test_exphormer_reads_superpixels_as_they_are() -> None:
    """Shirzad's ``VOCNode`` and ``VOCEdge`` are linear layers, for COCO-SP too; the loader scales nothing."""
    found = {dataset: input_difference(dataset, "exphormer") for dataset in LRGB[:2]}
    assert max(found.values()) < WITHIN, found


def test_influence_of_k_reads_superpixels_as_they_are() -> None:
    """The thesis's ``VOCNode`` is a linear layer."""
    assert input_difference("pascalvoc-sp", "gps-kmip", "influence-of-k") < WITHIN


def test_malnet_has_the_batch_norm_of_graphgyms_default() -> None:
    """Its file leaves ``node_encoder_bn`` out, which is True: 128 parameters more."""
    assert input_difference("malnet-tiny", "gps-kmip", norm=True) < WITHIN
    assert count_parameters(network_of("malnet-tiny", "gps-kmip")) == 286_725


def test_thesis_layers_on_point_clouds_add_their_input() -> None:
    """The thesis's ``GatedGCNLayer`` has a residual connection, the paper's own repository none.

    Which of the two ran BigBird, Performer and eight layers of k-MIP is open: a variant has the thesis's.
    """
    certain = [("gps-none", "code"), ("gps-transformer", "code"), ("gps-kmip", "thesis-4-layers")]
    either = ["gps-kmip", "gps-bigbird", "gps-performer"]
    found = {}
    for dataset in POINTS:
        for model, variant in (*certain, *((model, "thesis-code") for model in either)):
            found[dataset, model, variant] = layer_difference(dataset, model, variant, residual=True)
        for model in either:
            found[dataset, model, "code"] = layer_difference(dataset, model, residual=False)
    assert max(found.values()) < WITHIN, found


def test_text_takes_gelu_wherever_the_paper_has_an_activation() -> None:
    """Its tables of LRGB and cities say GeLU: feed-forward block, message passing and head."""
    for name in preset_names():
        dataset, model = name.split("/")
        if dataset not in {*LRGB, "city"} or not read_preset(dataset, model).text:
            continue
        config = load_preset(dataset, model, "text").model
        used = [config.local.activation]
        used += [config.ffn_activation] if config.feed_forward else []
        used += [config.head_activation] if config.head_layers > 1 else []
        assert set(used) == {"gelu"}, name
