"""Small builds that a network can learn, for tests of the trainer."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from support.builds import write_build

from kmip_data.builds.home import Build
from kmip_data.format.schema import Column, Schema
from kmip_data.format.writer import GraphRecord
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.overrides import config_from_mapping

CLASSES = 4
OPERATORS = (
    984  #: of a step of :func:`tiny_config`'s network, which ``test_without_waiting.py`` asserts
)

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
            Column(key="node/x", attribute="x", stored="float32", presented="float32", shape=(6,)),
            Column(
                key="node/y", attribute="y", stored="uint8", presented="int64", num_classes=classes
            ),
        ),
        edges=layout,
        k=k if layout == "neighbor" else None,
        max_nodes=4096,
    )
    if parts is None:
        order = list(range(graphs))
        parts = {"train": order[:-4], "val": order[-4:-2], "test": order[-2:]}
    return write_build(
        folder, records, schema, dataset="clouds", parts=parts, sample=sample, complete=complete
    )


ATTENTION_KEYS = {"heads", "k", "key_dim", "value_dim", "output_projection", "warm_start", "search"}


def tiny_config(build: Build, **sections: dict[str, object]) -> RunConfig:
    """A run of two small layers, three graphs a batch and two batches a step on the CPU; None: left out.

    Keys of the attention may be given among those of the model.
    """
    values = {
        "data": {"dataset": str(build.path)},
        "model": {"layers": 2, "hidden_dim": 8, "heads": 2, "k": 3, "key_dim": 2, "dropout": 0.1},
        "optimiser": {"lr": 1e-2},
        "schedule": {"warmup_epochs": 0},
        "training": {"epochs": 3, "batch_size": 3, "accumulate": 2},
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
