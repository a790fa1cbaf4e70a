"""One generated city of London's size on one process and on two: seconds of a step, peak memory, bytes.

One thread a process; of two steps the second is timed, and nothing is evaluated. Three layers of
half the preset's width, so that both processes together, and the one alone, stay within 16 GB.
"""

from __future__ import annotations

import functools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from benchmarks.eccentricity import SIDE, road_like
from benchmarks.table import Row
from support.runs.processes import on_processes
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.cli.train import configuration
from kmip_data.models.layers import partition
from kmip_data.models.training import machine
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.graphs import open_data
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.module import TrainingModule
from kmip_data.runtime.memory import peak_host_memory

LAYERS: Final = 3
STEPS: Final = 2


def rows(*, quick: bool = False, side: int = SIDE) -> Iterator[Row]:
    """Train the same steps on one process and on two, of a city of ``side``² nodes."""
    with tempfile.TemporaryDirectory() as folder:
        city = _city(100 if quick else side)
        build = kmip_data.save(city, Path(folder) / "grid")
        keys = [f"model.layers={LAYERS}", "model.hidden_dim=28", "model.attention.key_dim=5"]
        config = configuration(
            str(build.path), {}, {}, model="gps-kmip", variant="code", overrides=keys
        )
        paper = _on_paper(city, config.model.model_dump())
        what = f"step of {LAYERS} GPS layers with k-MIP, {city.num_nodes:,} nodes: 2 processes"
        del city  # forks would begin with it
        one, two = (_measured(config, Home(Path(folder)), processes) for processes in (1, 2))
        note = f"Loss of step {STEPS}: {one['loss']:.7f} on one process, {two['loss']:.7f} on two."
        yield Row.of(what, "1 process", two["seconds"], one["seconds"], "s", note=note)
        target, what = round(1 / 0.6, 2), "its peak memory, each process"
        memory = (each["memory"] / 2**20 for each in (two, one))
        yield Row.of(what, "1 process", *memory, "MiB", target=target, note=note)
        yield Row.of(
            "bytes that a process sends in it", "on paper", two["sent"], paper, "B", note=note
        )


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


def _measured(config: RunConfig, home: Home, processes: int) -> dict[str, Any]:
    """Train in processes of their own; return the loss, seconds and bytes of the last step."""
    system = config.system.model_copy(update={"device": "cpu", "devices": processes})
    asked = config.model_copy(update={"system": system})
    found = home.root / f"{processes}.json"

    def act(rank: int) -> None:
        sent = _counting()
        data = open_data(asked, home=home, quiet=True)
        own = data.pinned(asked)
        device = machine.join(own, "cpu")
        data.divide(rank, processes)
        torch.manual_seed(0)
        loop = Loop(TrainingModule(own, data), data, device)
        for step in range(STEPS):
            loop.epoch, loop.batch, sent[0] = step, 0, 0.0
            begun = time.perf_counter()
            loop.train_epoch()
            seconds = time.perf_counter() - begun
        values = {
            "seconds": seconds,
            "sent": sent[0],
            "loss": float(loop.module.meter.values[0, 0]),
        }
        memory = max(machine.gathered(peak_host_memory()))
        if rank == 0:
            found.write_text(json.dumps(values | {"memory": memory}))

    on_processes(processes, act)
    return json.loads(found.read_text())  # type: ignore[no-any-return]


def _counting() -> list[float]:
    """Count the bytes that exchanges send, of a scatter without the own half."""
    sent = [0.0]

    def counted(exchange: Callable[..., Any], share: float, *given: Any) -> Any:
        sent[0] += given[1].nbytes * share
        return exchange(*given)

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
    return 4.0 * LAYERS * (width * 2 * max(part.sizes) + borders)
