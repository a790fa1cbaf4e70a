"""One generated city on one process and on two: seconds of an epoch, peak memory, bytes exchanged.

One thread a process; the second epoch of two is measured.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from benchmarks.eccentricity import SIDE, road_like
from benchmarks.table import Row
from support.processes import on_processes
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.cli.train import configuration
from kmip_data.models.layers import partition
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.train import train

LAYERS: Final = 3
EPOCHS: Final = 2


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Train the same epochs on one process and on two."""
    with tempfile.TemporaryDirectory() as folder:
        city = _city(100 if quick else SIDE)
        build = kmip_data.save(city, Path(folder) / "grid")
        one, two = (_measured(str(build.path), Home(Path(folder) / str(n)), n) for n in (1, 2))
        what = f"epoch of {LAYERS} GPS layers with k-MIP, {city.num_nodes:,} nodes: 2 processes"
        note = f"train loss of epoch {EPOCHS}: {one['loss']:.7f} on one process, {two['loss']:.7f} on two."
        yield Row.of(what, "1 process", two["seconds"], one["seconds"], "s", note=note)
        what = "its peak memory, each process"
        yield Row.of(
            what, "1 process", two["memory"], one["memory"], "B", target=round(1 / 0.6, 2), note=note
        )
        what, sent, paper = "bytes that a process sends in a step", two["sent"], _on_paper(city, two["model"])
        yield Row.of(what, "on paper", sent, paper, "B", note=note)


def _city(side: int) -> Data:
    """Return streets of a grid with ten classes, a tenth of the nodes each to learn and to choose from."""
    edges, _, nodes = road_like(side)
    rng = np.random.default_rng(0)
    part = torch.from_numpy(rng.random(nodes))
    return Data(
        x=torch.from_numpy(rng.standard_normal((nodes, 37), dtype=np.float32)),
        edge_index=torch.from_numpy(edges),
        y=torch.from_numpy(rng.integers(0, 10, nodes)),
        train_mask=part < 0.1,
        val_mask=(part >= 0.1) & (part < 0.2),
        test_mask=part >= 0.2,
    )


def _measured(build: str, home: Home, processes: int) -> dict[str, Any]:
    """Train in processes of their own."""
    keys = [f"model.layers={LAYERS}", "training.eval_every=100", f"system.devices={processes}"]
    config = configuration(
        build, {}, {}, model="gps-kmip", variant="code", epochs=EPOCHS, device="cpu", overrides=keys
    )
    found = home.root / "found.json"

    def act(rank: int) -> None:
        sent = _counting()
        result = train(config, home=home, quiet=True, name="run").results[0]
        if rank == 0:
            (folder,) = home.runs.glob("*/*/run")
            lines = [line.split(",") for line in (folder / "metrics.csv").read_text().splitlines()]
            last = dict(zip(lines[0], lines[-1], strict=True))
            values = {"seconds": float(last["seconds_train"]), "loss": float(last["train_loss"])}
            values |= {"memory": result.memory.host, "sent": sent[0], "model": result.config["model"]}
            found.write_text(json.dumps(values))

    home.root.mkdir(parents=True)
    on_processes(processes, act)
    return json.loads(found.read_text())  # type: ignore[no-any-return]


def _counting() -> list[float]:
    """Count the bytes that exchanges send in each training step, of a scatter without the own half."""
    sent, step = [0.0], Loop.plain_step

    def counted(exchange: Callable[..., Any], share: float, *given: Any) -> Any:
        sent[-1] += given[1].nbytes * share
        return exchange(*given)

    def counted_step(*given: Any, **options: Any) -> Any:
        sent[-1] = 0.0  # of an evaluation before it
        learned = step(*given, **options)
        sent.insert(0, sent[-1])
        return learned

    Loop.plain_step = counted_step  # type: ignore[method-assign]
    partition._all_gather = functools.partial(counted, partition._all_gather, 1)
    partition._reduce_scatter = functools.partial(counted, partition._reduce_scatter, 1 / 2)
    exchange = partition.distributed.all_to_all_single
    partition.distributed.all_to_all_single = functools.partial(counted, exchange, 1)
    return sent


def _on_paper(city: Data, model: dict[str, Any]) -> float:
    """Float32 keys and values, then their gradients; borders of E x and B x, both ways."""
    part, _ = partition.divided(city.edge_index, int(city.num_nodes), 0, 2)
    attention, dim = model["attention"], model["hidden_dim"]
    width = (
        attention["heads"] * attention["key_dim"]
        + (attention["value_dim"] or dim // attention["heads"]) * attention["heads"]
    )
    borders = 2 * dim * (len(part.sent) + part.halo)
    return 4.0 * LAYERS * (width * part.nodes.total + borders)
