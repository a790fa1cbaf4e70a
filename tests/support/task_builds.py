"""A small build of each kind of task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from support.builds import write_build
from support.city_data import streets_build
from support.training_data import learnable_build

from kmip_data.builds.home import Build
from kmip_data.format.schema import Column, Schema
from kmip_data.format.writer import GraphRecord


def _graph_column(stored: str, presented: str, **more: Any) -> Column:
    return Column(key="graph/y", attribute="y", stored=stored, presented=presented, **more)


TARGETS = {
    "classes": _graph_column("uint8", "int64", num_classes=3, low=0, high=2),
    "labels": _graph_column("uint8", "float32", shape=(2,)),
    "values": _graph_column("float32", "float32", shape=(2,)),
    "value": _graph_column("float32", "float32"),
    "links": Column(
        key="node/contact", attribute="contact", stored="uint8", presented="uint8", shape=(2,)
    ),
}


def rings(
    folder: Path, target: str, graphs: int = 12, *, features: bool = True, unknown: bool = False
) -> Build:
    """Rings of 4 to 14 nodes, some of them complete as expanders, with targets of a kind.

    Those of a graph follow from the mean of its features, links from the colour of their ends, a feature.
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
            "labels": np.array([level > 0.5, level > 0.25], np.uint8),
            "values": np.array([level, 1 - level], np.float32),
            "value": np.float32(level),
            "links": np.packbits(bits, axis=1, bitorder="little"),
        }[target]
        if unknown and number % 3 == 0:
            value[0] = np.nan
        ring = np.arange(n, dtype=np.uint16)
        edges = np.concatenate([[ring, np.roll(ring, 1)], [np.roll(ring, 1), ring]], axis=1)
        given = {TARGETS[target].key: value, "edge/attr": rng.random((2 * n, 1), dtype=np.float32)}
        given |= {"node/x": x} if features else {}
        records.append(
            GraphRecord(key=f"g{number:02d}", num_nodes=n, columns=given, edge_index=edges)
        )
    floats = {"stored": "float32", "presented": "float32"}
    columns = [
        TARGETS[target],
        Column(key="edge/attr", attribute="edge_attr", shape=(1,), **floats),
    ]
    columns += [Column(key="node/x", attribute="x", shape=(3,), **floats)] if features else []
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
