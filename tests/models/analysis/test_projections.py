"""Recording what attention layers see, and the file that keeps it."""

import json
import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.cases import check_each
from torch import nn

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.models import KMIPAttention, kmip_attention
from kmip_data.models.analysis.projections import (
    Projections,
    gaussian_projections,
    read_projections,
    recording,
    write_projections,
)


class TwoLayers(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.first = KMIPAttention(6, heads=2, key_dim=4, k=3, **options)
        self.second = KMIPAttention(6, heads=3, key_dim=2, k=2, **options)

    def forward(self, x, ptr):
        return self.second(self.first(x, ptr), ptr=ptr)


def test_recorded_projections_give_the_layers_output_again():
    def check(legacy):
        torch.manual_seed(0)
        model = TwoLayers(legacy_padding=legacy).eval()
        batches = [(torch.randn(9, 6), [0, 4, 9]), (torch.randn(7, 6), torch.tensor([0, 7]))]
        with torch.no_grad(), recording(model) as recorder:
            for x, ptr in batches:
                model(x, ptr)
        found = recorder.projections(k=3)
        assert found.sizes == [4, 5, 7]
        assert [tuple(t.shape) for t in found.layers[1]] == [(3, 16, 2), (3, 16, 2), (3, 16, 2)]
        assert all(not module._forward_pre_hooks for module in model.modules())
        with torch.no_grad():
            x = batches[0][0]
            expected = torch.cat([model.first(x[:4]), model.first(x[4:])])  # alone, so that nothing is padded
            queries, keys, values = (tensor[:, :9] for tensor in found.layers[0])
            again = kmip_attention(queries, keys, values, 3, query_ptr=[0, 4, 9])
        torch.testing.assert_close(again.transpose(0, 1).flatten(1), expected)

    check_each(check, [False, True])


def test_only_graphs_of_the_sizes_asked_for():
    model = TwoLayers().eval()
    with torch.no_grad(), recording(model, sizes=(4, 6)) as recorder:
        model(torch.randn(18, 6), [0, 3, 8, 15, 18])
        model(torch.randn(6, 6), [0, 6])
    assert recorder.projections().sizes == [5, 6]
    assert recorder.projections(1).layers[0][0].shape == (2, 5, 4)
    with torch.no_grad(), recording(model, sizes=(50, None)) as recorder:
        model(torch.randn(3, 6), [0, 3])
    with pytest.raises(UsageError, match="no graph to record"):
        recorder.projections()


def test_a_model_without_attention_is_refused():
    with pytest.raises(UsageError, match="no k-MIP attention"), recording(nn.Linear(2, 2)):
        pass


def test_file_holds_what_was_written(tmp_path):
    path = tmp_path / "qk.safetensors"
    one = gaussian_projections(5, 3, heads=2, graphs=3)
    layers = (*one.layers, tuple(tensor.half() for tensor in one.layers[0]))
    write_projections(path, Projections(layers, one.ptr, {"sample": True, "k": 4}))
    found = read_projections(path)
    assert found.ptr == (0, 5, 10, 15)
    assert found.about == {"sample": True, "k": 4}
    for ours, theirs in zip(found.layers, layers, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype == b.dtype
            assert torch.equal(a, b)
    assert set(load_file(path)) >= {"ptr", "layer0/queries", "layer1/values"}  # any safetensors reader
    assert [entry.name for entry in tmp_path.iterdir()] == ["qk.safetensors"]


def test_a_damaged_file_is_refused(tmp_path):
    def check(damage, base=tmp_path):
        tmp_path = Path(tempfile.mkdtemp(dir=base))
        path = tmp_path / "qk.safetensors"
        write_projections(path, gaussian_projections(5, 3))
        tensors = load_file(path)
        metadata = {"format": "kmip-data projections", "version": "1", "about": "{}"}
        if damage == "cut":
            path.write_bytes(path.read_bytes()[:-20])
        elif damage == "text":
            path.write_text("queries")
        else:
            if damage == "format":
                metadata = {"format": "pt"}
            elif damage == "layer":
                del tensors["layer0/keys"]
            elif damage == "ptr":
                tensors["ptr"] = torch.tensor([0, 9, 5])
            elif damage == "shape":
                tensors["layer0/keys"] = torch.zeros(1, 5, 4)
            elif damage == "nan":
                tensors["layer0/keys"][0, 0, 0] = torch.nan
            else:
                metadata["about"] = "{"
            save_file(tensors, path, metadata)
        with pytest.raises(DamagedInput, match="cannot be read as projections"):
            read_projections(path)

    check_each(check, ["cut", "text", "format", "layer", "ptr", "shape", "nan", "json"])


def test_about_is_plain():
    assert json.dumps(dict(gaussian_projections(3, 2).about))
