"""Exphormer as a kind of attention: counts of parameters, runs of every task, estimate of memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.builds import write_build
from support.city_data import streets_build
from support.cli import kmip
from support.training_data import learnable_build
from torch import Tensor

from kmip_data.builds.columns import added_names
from kmip_data.builds.home import Build, Home
from kmip_data.errors import UsageError
from kmip_data.format.record import GraphRecord
from kmip_data.format.schema import Column, Schema
from kmip_data.models import ModelConfig, build_model
from kmip_data.models.budget import count_parameters
from kmip_data.models.kinds import Size
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.data.obtain import open_data
from kmip_data.models.training.memory.counting import count_kept

CITY = {"in_channels": 67, "num_classes": 10}
ATOMS = {
    "node_encoder": "atom", "edge_encoder": "bond", "positional": "lappe", "head": "graph", "head_layers": 1,
    "in_channels": 9, "edge_channels": 3,
}  # fmt: skip
PIXELS = {
    "node_encoder": "voc", "edge_encoder": "voc", "positional": "lappe", "head_layers": 3,
    "in_channels": 14, "edge_channels": 2,
}  # fmt: skip
#: Dataset: parameters, layers, hidden_dim, heads, permutations (0: configured and switched off), virtual
#: nodes, norm, others. The count of cities is that of upstream's model, those of the others are ours.
COUNTS: dict[str, tuple[int, int, int, int, int, int, str, dict[str, Any]]] = {
    "cities": (503_074, 8, 68, 4, 3, 3, "graph", CITY),
    "pascalvoc-sp": (509_013, 4, 96, 8, 5, 0, "batch", {**PIXELS, "num_classes": 21}),
    "coco-sp": (498_993, 7, 72, 4, 11, 0, "batch", {**PIXELS, "num_classes": 81}),
    "peptides-func": (445_914, 8, 64, 4, 0, 1, "batch", {**ATOMS, "num_classes": 10}),
    "peptides-struct": (425_971, 4, 88, 4, 0, 6, "batch", {**ATOMS, "num_classes": 11}),
    "shapenet-part": (295_046, 8, 52, 4, 3, 3, "batch", {"in_channels": 6, "num_classes": 50}),
    "s3dis": (293_241, 8, 52, 4, 3, 3, "batch", {"in_channels": 9, "num_classes": 13}),
}


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def count_by_hand(name: str) -> int:
    """From the formulas of one layer's parts and the sizes of the encoders."""
    _, layers, d, _, _, virtual, norm, more = COUNTS[name]
    norms, feed_forward = 3 * (3 if norm == "graph" else 2) * d, 4 * d * d + 3 * d
    layer = 5 * d * d + 9 * d + 4 * d * d + norms + feed_forward
    width = d - 16 if "positional" in more else d
    atoms = more.get("node_encoder") == "atom"
    nodes = 174 * width if atoms else linear(more["in_channels"], width)
    position = linear(2, 32) + linear(32, 16) if width < d else 0
    edges = 13 * d if atoms else linear(2, d) if "edge_channels" in more else d
    head = (more.get("head_layers", 2) - 1) * linear(d, d) + linear(d, more["num_classes"])
    return layers * layer + nodes + position + edges + (1 + 3 * virtual) * d + head


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_count_of(name: str) -> None:
    count, layers, dim, heads, expander, virtual, norm, more = COUNTS[name]
    attention = {"kind": "exphormer", "heads": heads, "expander": expander, "virtual_nodes": virtual}
    sizes = {key: more[key] for key in ("in_channels", "num_classes", "edge_channels") if key in more}
    options = {key: value for key, value in more.items() if key not in sizes}
    options |= {"layers": layers, "hidden_dim": dim, "norm": norm, "attention": attention}
    with torch.device("meta"):
        found = count_parameters(build_model(ModelConfig(name="exphormer", **options), **sizes))
    assert found == count_by_hand(name) == count


def rings(folder: Path, target: str, graphs: int = 12) -> Build:
    """Rings of 4 to 14 nodes, some of them complete as expanders, with targets of a kind."""
    rng = np.random.default_rng(2)
    columns = {
        "classes": Column(key="graph/y", attribute="y", stored="uint8", presented="int64", num_classes=3),
        "values": Column(key="graph/y", attribute="y", stored="float32", presented="float32", shape=(2,)),
        "links": Column(
            key="node/contact", attribute="contact", stored="uint8", presented="uint8", shape=(2,)
        ),
    }
    records = []
    for number in range(graphs):
        n = int(rng.integers(4, 15))
        ring = np.arange(n, dtype=np.uint16)
        edges = np.concatenate([[ring, np.roll(ring, 1)], [np.roll(ring, 1), ring]], axis=1)
        bits = np.zeros((n, 16), bool)
        bits[0, 1] = bits[1, 0] = True
        value = {
            "classes": np.uint8(number % 3),
            "values": rng.random(2, dtype=np.float32),
            "links": np.packbits(bits, axis=1, bitorder="little"),
        }[target]
        given = {"node/x": rng.random((n, 3), dtype=np.float32), columns[target].key: value}
        records.append(GraphRecord(key=f"g{number:02d}", num_nodes=n, columns=given, edge_index=edges))
    x = Column(key="node/x", attribute="x", stored="float32", presented="float32", shape=(3,))
    schema = Schema(columns=(x, columns[target]), edges="index", max_nodes=16)
    parts = {"train": range(8), "val": range(8, 10), "test": range(10, 12)}
    return write_build(folder, records, schema, dataset=target, parts=parts)


BUILDS: dict[str, Callable[[Path], Build]] = {
    "nodes with a neighbour table": learnable_build,
    "nodes of one graph": lambda folder: streets_build(folder, nodes=60),
    "graph classes": lambda folder: rings(folder, "classes"),
    "graph values": lambda folder: rings(folder, "values"),
    "links": lambda folder: rings(folder, "links"),
}
SMALL = ["--set", "model.layers=2", "--set", "model.hidden_dim=8", "--device", "cpu", "--jobs", 1]


@pytest.mark.parametrize("task", BUILDS)
def test_the_command_line_trains_on(task: str, tmp_path: Path) -> None:
    """Without a further word: the expander is added to the build, and a resumed or evaluated run finds it."""
    build = BUILDS[task](tmp_path / "build")
    home = ["--home", tmp_path / "home"]
    done = kmip(
        "train", "--dataset", build.path, "--model", "exphormer", "--epochs", 1, *SMALL, *home, "--json"
    )
    assert done.code == 0, done.err
    assert added_names(build.path) == ["expander3-seed0"]
    losses = [values["loss"] for values in done.json["metrics"].values()]
    assert np.isfinite(losses).all()
    again = kmip("evaluate", done.json["run"], *home)
    assert again.code == 0, again.err


def test_sampled_neighbourhoods_have_no_expander(tmp_path: Path) -> None:
    build = streets_build(tmp_path / "build", nodes=60)
    training = {"neighbors": (3,), "batch_size": 8}
    sections = {"training": training, "model": {"name": "exphormer", "hidden_dim": 8}}
    given = {"data": {"dataset": str(build.path)}, "system": {"device": "cpu"}, **sections}
    with pytest.raises(UsageError, match="expander"):
        open_data(config_from_mapping(given, "the test"), home=Home(tmp_path))
    sections["model"]["attention"] = {"kind": "exphormer", "expander": 0}
    assert open_data(config_from_mapping(given, "the test"), home=Home(tmp_path)).label


@pytest.mark.parametrize("layout", ["neighbor", "index"])
@pytest.mark.parametrize("virtual", [3, 12])
def test_the_estimate_of_memory_is_what_autograd_keeps(tmp_path: Path, layout: str, virtual: int) -> None:
    build = learnable_build(tmp_path / "build", layout=layout, nodes=60, graphs=12)
    own = {"kind": "exphormer", "virtual_nodes": virtual}
    model = {"name": "exphormer", "layers": 4, "hidden_dim": 16, "attention": own}
    given = {
        "data": {"dataset": str(build.path)},
        "model": model,
        "training": {"batch_size": 8},
        "system": {"device": "cpu"},
    }
    data = open_data(config_from_mapping(given, "the test"), home=Home(tmp_path), jobs=1, quiet=True)
    (batch,) = list(data.batches(lambda: 0))[:1]
    kept = count_kept(data.config, data, Size.of(batch))
    storages = {}

    def pack(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    network = build_model(data.config.model, in_channels=6, num_classes=4)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = network(batch)
    known = [*network.parameters(), *network.buffers(), *batch.to_dict().values()]
    own_storages = {t.untyped_storage().data_ptr() for t in known if isinstance(t, Tensor)}
    whole = sum(t.untyped_storage().nbytes() for at, t in storages.items() if at not in own_storages)
    assert kept.layers + kept.outside - 3 * output.numel() * 4 == pytest.approx(whole, rel=0.1)
