"""A small build of each kind of task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from support.builds import write_build
from support.city_data import streets_build
from support.training_data import learnable_build

from kmip_data.builds.home import Build
from kmip_data.format.schema import Column, Schema
from kmip_data.format.writer import GraphRecord


def rings(folder: Path, target: str, graphs: int = 12) -> Build:
    """Rings of 4 to 14 nodes, some of them complete as expanders, with targets of a kind."""
    rng = np.random.default_rng(2)
    columns = {
        "classes": Column(key="graph/y", attribute="y", stored="uint8", presented="int64", num_classes=3),
        "labels": Column(key="graph/y", attribute="y", stored="uint8", presented="float32", shape=(2,)),
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
            "labels": np.array([number % 2, n > 9], np.uint8),
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
