"""Small builds that a network can learn: clouds, one graph with masks as a city is, each kind of task."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.builds.records import column_of
from support.builds.written import write_build
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Build
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.config.run_config import RunConfig

CLASSES = 4
#: Operators of a step of :func:`tiny_config`'s network, which ``test_without_waiting.py`` asserts.
OPERATORS = 984

#: Columns of ``metrics.csv`` that no two runs have alike.
OF_THE_MACHINE = {"seconds", "seconds_train", "peak_memory"}

#: Options of `kmip-data train` for a network that is trained in seconds.
TINY_RUN = [
    "--device",
    "cpu",
    "-q",
    "--json",
    "--set",
    "model.layers=2",
    "--set",
    "model.hidden_dim=8",
]


def read_history(run: Path) -> list[dict[str, float]]:
    """Read a run's ``metrics.csv`` back; what was not measured is left out of a row."""
    with (run / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return [
            {name: float(cell) for name, cell in row.items() if cell}
            for row in csv.DictReader(file)
        ]


def learnable_build(
    folder: Path,
    *,
    graphs: int = 10,
    nodes: int = 24,
    k: int = 3,
    layout: str = "neighbor",
    parts: dict[str, list[int]] | None = None,
    sample: bool = False,
    complete: bool | None = None,
    one_class: bool = False,
    classes: int = CLASSES,
    class_names: Sequence[str] = (),
    seed: int = 0,
    varied: int = 2,
) -> Build:
    """Point clouds whose class is the quarter of the unit interval that their first feature lies in."""
    rng = np.random.default_rng(seed)
    records = []
    for graph in range(graphs):
        size = nodes + graph % (varied + 1)  # graphs of a batch differ in size
        x = rng.random((size, 6), dtype=np.float32)
        label = np.full(size, 2) if one_class else x[:, 0] * classes
        distance = ((x[:, None, :3] - x[None, :, :3]) ** 2).sum(-1)
        np.fill_diagonal(distance, np.inf)
        table = np.argsort(distance, axis=1)[:, :k].astype(np.uint16)
        edges = {"neighbor": table}
        if layout == "index":
            index = np.stack([table.ravel(), np.repeat(np.arange(size, dtype=np.uint16), k)])
            edges = {"edge_index": index}
        records.append(
            GraphRecord(
                key=f"graph/{graph:03d}",
                num_nodes=size,
                columns={"node/x": x, "node/y": label.astype(np.uint8)},
                **edges,
            )
        )
    schema = Schema(
        columns=(
            column_of("node/x", shape=(6,)),
            column_of("node/y", "uint8", "int64", num_classes=classes),
        ),
        edges=layout,
        k=k if layout == "neighbor" else None,
        max_nodes=4096,
    )
    if parts is None:
        order = list(range(graphs))
        parts = {"train": order[:-4], "val": order[-4:-2], "test": order[-2:]}
    about: dict[str, Any] = {"sample": sample, "complete": complete, "class_names": class_names}
    drawn = b"".join(record.columns["node/x"].tobytes() for record in records)  # not the labels
    about["content"] = hashlib.sha256(drawn).hexdigest()
    return write_build(folder, records, schema, dataset="clouds", parts=parts, **about)


CITY_CLASSES = 4


def streets(nodes: int = 300, seed: int = 0) -> Data:
    """A ring with chords; the class of a node is the quarter its first feature lies in."""
    rng = np.random.default_rng(seed)
    ring = np.arange(nodes)
    chords = rng.integers(0, nodes, (2, nodes // 3))
    pairs = np.concatenate([np.stack([ring, (ring + 1) % nodes]), chords], axis=1)
    edges = np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1)
    x = rng.random((nodes, 5), dtype=np.float32)
    draw = rng.random(nodes)
    masks = {
        "train_mask": draw < 0.3,
        "val_mask": (draw >= 0.3) & (draw < 0.5),
        "test_mask": draw >= 0.5,
    }
    return Data(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(edges),
        y=torch.from_numpy((x[:, 0] * CITY_CLASSES).astype(np.int64)),
        **{name: torch.from_numpy(mask) for name, mask in masks.items()},
    )


def streets_build(folder: Path, **options: int) -> Build:
    """Build those streets."""
    return kmip_data.save(streets(**options), folder)


TARGETS = {
    "classes": column_of("graph/y", "uint8", "int64", num_classes=3, low=0, high=2),
    "labels": column_of("graph/y", "uint8", "float32", shape=(2,)),
    "one-hot": column_of("graph/y", "uint8", "float32", shape=(3,)),
    "values": column_of("graph/y", shape=(2,)),
    "value": column_of("graph/y"),
    "links": column_of("node/contact", "uint8", shape=(2,)),
}


def rings(
    folder: Path, target: str, graphs: int = 12, *, features: bool = True, unknown: bool = False
) -> Build:
    """Rings of 4 to 14 nodes, some of them complete as expanders, with targets of a kind.

    Targets of a graph follow from the mean of its features, links from the colour of their ends, a
    feature.
    """
    rng = np.random.default_rng(2)
    records = []
    for number in range(graphs):
        n, level = int(rng.integers(4, 15)), rng.random()
        x = np.clip(rng.normal(level, 0.05, (n, 3)), 0, 1).astype(np.float32)
        colour = rng.permutation(n) < 3
        if target == "links":
            x[:, 0], x[:, 1] = colour, ~colour
        bits = np.zeros((n, 16), bool)
        bits[:, :n] = np.outer(colour, colour) & ~np.eye(n, dtype=bool)
        value = {
            "classes": np.uint8(min(2, int(3 * level))),
            "one-hot": np.eye(3, dtype=np.uint8)[min(2, int(3 * level))],
            "labels": np.array([level > 0.5, level > 0.25], np.uint8),
            "values": np.array([level, 1 - level], np.float32),
            "value": np.float32(level),
            "links": np.packbits(bits, axis=1, bitorder="little"),
        }[target]
        if unknown and number % 3 == 0:
            value[0] = np.nan
        ring = np.arange(n, dtype=np.uint16)
        edges = np.concatenate([[ring, np.roll(ring, 1)], [np.roll(ring, 1), ring]], axis=1)
        arrays = {
            TARGETS[target].key: value,
            "edge/attr": rng.random((2 * n, 1), dtype=np.float32),
        }
        arrays |= {"node/x": x} if features else {}
        records.append(
            GraphRecord(key=f"g{number:02d}", num_nodes=n, columns=arrays, edge_index=edges)
        )
    columns = [
        replace(TARGETS[target], finite=False) if unknown else TARGETS[target],
        column_of("edge/attr", attribute="edge_attr", shape=(1,)),
    ]
    columns += [column_of("node/x", shape=(3,))] if features else []
    train = 2 * graphs // 3
    test = (train + graphs) // 2
    parts = {"train": range(train), "val": range(train, test), "test": range(test, graphs)}
    schema = Schema(columns=tuple(columns), edges="index", max_nodes=16)
    return write_build(folder, records, schema, dataset=target, parts=parts)


BUILDS: dict[str, Callable[[Path], Build]] = {
    "nodes with a neighbour table": learnable_build,
    "nodes of one graph": lambda folder: streets_build(folder, nodes=60),
    "graph classes": lambda folder: rings(folder, "classes"),
    "graph values": lambda folder: rings(folder, "values"),
    "links": lambda folder: rings(folder, "links"),
}


ATTENTION_KEYS = {"heads", "k", "key_dim", "value_dim", "output_projection", "search"}


def tiny_config(build: Build, **sections: dict[str, object]) -> RunConfig:
    """A run of two small layers on numbers as stored, three graphs a batch and two batches a step.

    A key that is None is left out. Keys of the attention may stand among the keys of the model.
    """
    values = {
        "data": {"dataset": str(build.path), "scale": "none"},
        "model": {"layers": 2, "hidden_dim": 8, "heads": 2, "k": 3, "key_dim": 2, "dropout": 0.1},
        "optimizer": {"lr": 1e-2},
        "schedule": {"warmup_epochs": 0},
        "training": {"epochs": 3, "batch_size": 3, "accumulate": 2, "references": False},
        "system": {"device": "cpu"},
    }
    for name, keys in sections.items():
        values[name] = {k: v for k, v in {**values.get(name, {}), **keys}.items() if v is not None}
    model = values["model"]
    among = {key: model.pop(key) for key in ATTENTION_KEYS & model.keys()}
    attention = model.get("attention", {})
    if not isinstance(attention, str):
        model["attention"] = {**among, **attention}
    return config_from_mapping(values, "the test")
