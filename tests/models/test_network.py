"""The whole network: parameter counts of the paper's, both edge forms, every option, names."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch_geometric.data import Batch, Data

from kmip_data.errors import UsageError
from kmip_data.models.config import ModelConfig, merged, models
from kmip_data.models.network import build_model

SMALL = {"layers": 2, "hidden_dim": 8, "attention": {"heads": 2, "key_dim": 3, "k": 4}}


def graphs(sizes: tuple[int, ...] = (9, 1, 14), k: int = 3) -> list[Data]:
    generator = torch.Generator().manual_seed(0)
    made = []
    for n in sizes:
        neighbor = torch.randint(0, n, (n, k), generator=generator)
        edge_index = torch.stack([neighbor.flatten(), torch.arange(n).repeat_interleave(k)])
        made.append(Data(x=torch.randn(n, 5, generator=generator), edge_index=edge_index))
    return made


def compact(batch: Batch, k: int = 3) -> Data:
    """The batch as ``GraphLoader(compact=True)`` gives it."""
    neighbor = batch.edge_index[0].view(-1, k).int()
    return Data(x=batch.x, neighbor=neighbor, ptr=batch.ptr, batch=batch.batch)


def network(seed: int = 0, **options) -> torch.nn.Module:
    torch.manual_seed(seed)
    return build_model(ModelConfig(**merged(SMALL, options)), in_channels=5, num_classes=4)


def test_both_edge_forms_agree_in_values_and_gradients() -> None:
    batch = Batch.from_data_list(graphs())
    results = []
    for form in (batch, compact(batch)):
        model = network(dropout=0.0)
        logits = model(form)
        logits.square().sum().backward()
        results.append([logits, *(p.grad for p in model.parameters() if p.requires_grad)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-3)


def test_attention_stays_inside_graphs_that_only_batch_tells_apart() -> None:
    """Fails before: without ``ptr`` the batch was taken as one graph."""
    batch = Batch.from_data_list(graphs())
    model = network(attention={"k": 20}).eval()
    with torch.no_grad():
        apart = model(Data(x=batch.x, edge_index=batch.edge_index, batch=batch.batch))
        assert torch.equal(apart, model(batch))


@pytest.mark.parametrize("norm", ["batch", "graph-layer", "layer", "graph"])
def test_in_eval_a_batch_is_its_graphs_alone(norm: str) -> None:
    model = network(norm=norm)
    model(Batch.from_data_list(graphs()))  # moves the running statistics off their start
    model.eval()
    with torch.no_grad():
        together = model(Batch.from_data_list(graphs()))
        alone = torch.cat([model(graph) for graph in graphs()])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


def test_legacy_padding_breaks_that() -> None:
    model = network(attention={"legacy_padding": True, "k": 8}).eval()
    together = model(Batch.from_data_list(graphs()))
    alone = torch.cat([model(graph) for graph in graphs()])
    assert not torch.allclose(together, alone, atol=1e-3)


@pytest.mark.parametrize(
    "option",
    [
        {"local": {"residual": "inside"}},
        {"local": {"residual": "outside"}},
        {"ffn_activation": "gelu"},
        {"attention": {"output_projection": True}},
        {"attention": {"output_projection": True, "value_dim": 6}},
        {"head_l2norm": False},
        {"head_layers": 1},
        {"head_layers": 3},
        {"attention": {"legacy_padding": True, "k": 12}},
        {"norm": "graph-layer"},
        {"attention": {"key_dim": 7}},
        {"attention": {"k": 1}},
    ],
)
def test_every_option_does_something(option) -> None:
    batch = Batch.from_data_list(graphs())
    plain, changed = network().eval()(batch), network(**option).eval()(batch)
    assert changed.shape == plain.shape
    assert not torch.allclose(plain, changed, atol=1e-5)


@pytest.mark.parametrize("search", ["cpu", "dense"])
def test_search_backends_give_the_same_bits(search: str) -> None:
    batch = Batch.from_data_list(graphs())
    assert torch.equal(network(attention={"search": search}).eval()(batch), network().eval()(batch))


def test_graphs_without_edges() -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    model = network()
    for mode in (model.train(), model.eval()):
        assert mode(Data(x=torch.randn(6, 5), edge_index=none)).isfinite().all()
        assert mode(Data(x=torch.randn(1, 5), edge_index=none)).isfinite().all()


def test_compiles_once_for_batches_of_any_size() -> None:
    """``layer.compile()`` compiles layers in place; the compiler's own code generator is not the point."""
    model, plain = network(dropout=0.0), network(dropout=0.0)
    for layer in model.layers:
        layer.compile(dynamic=True, backend="eager")
    model(compact(Batch.from_data_list(graphs()))).sum().backward()
    batch = compact(Batch.from_data_list(graphs((7, 6))))
    with torch._dynamo.config.patch(error_on_recompile=True):
        logits = model(batch)
    torch.testing.assert_close(logits, plain(batch))


@pytest.mark.parametrize("table", [False, True])
def test_compiled_layers_learn_the_same(table: bool) -> None:
    batch, states = Batch.from_data_list(graphs()), []
    for compiled in (False, True):
        model = network(dropout=0.0)
        for layer in model.layers if compiled else ():
            layer.compile(dynamic=True, backend="eager")
        model(compact(batch) if table else batch).square().sum().backward()
        grads = [p.grad for p in model.parameters() if p.requires_grad]
        states.append([*grads, *model.state_dict().values()])
    torch.testing.assert_close(*states)


def test_names() -> None:
    assert "gps-kmip" in models()
    with pytest.raises(ValidationError, match="gps-kmop") as caught:
        network(name="gps-kmop")
    assert "Did you mean 'gps-kmip'" in str(caught.value)
    with pytest.raises(UsageError, match="Did you mean 'dense'"):
        network(attention={"search": "dens"})


def test_features_that_do_not_fit() -> None:
    with pytest.raises(UsageError, match="node features") as caught:
        network()(Data(x=torch.ones(3, 7), edge_index=torch.zeros(2, 0, dtype=torch.int64)))
    assert "7 columns, the network takes 5" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"hidden_dim": 9}, "heads"),
        ({"attention": {"value_dim": 5}}, "output_projection"),
        ({"attention": {"value_dim": 5}, "parameter_budget": 1000}, "parameter_budget"),
        ({"hiden_dim": 8}, "hiden_dim"),
        ({"norm": "instance"}, "graph-layer"),
        ({"dropout": 1.0}, "less than 1"),
        ({"attention": {"k": 0}}, "greater than or equal to 1"),
    ],
)
def test_configurations_that_make_no_sense(options, word: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ModelConfig(**merged(SMALL, options))
    assert word in str(caught.value)


def test_every_key_of_the_configuration_is_explained() -> None:
    assert all(field.description for field in ModelConfig.model_fields.values())
