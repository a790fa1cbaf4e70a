"""The paper's efficiency experiment: time and memory of attention methods over the number of nodes.

``python -m benchmarks.attention`` measures the forward pass (inference) and both passes (training).
Running out of memory or time ends a method's row of a table.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from benchmarks.methods import METHODS, SEARCHES, random_inputs
from benchmarks.table import describe_machine, format_quantity
from benchmarks.turns import peak_bytes
from kmip_data.cli.shared.output import format_table, rows_as_csv
from kmip_data.errors import KmipDataError
from kmip_data.models.training.devices import choose_device
from kmip_data.runtime.memory import free_host_memory, is_out_of_memory, limit_memory
from kmip_data.strict_model import read_shipped

MODES = ("inference", "training")
SIZES = [int(10 ** (i / 2) + 1e-9) for i in range(4, 15)]  #: the paper's, 100, 316 … 10⁷
PAPER_SIZES = {"d": 10, "k": 10}
STAGES = ("search", "forward", "backward")  #: of a run; the search is also part of the forward pass
#: Ours, the paper's, and full attention.
DEFAULT_METHODS = ("auto", "symbolic", "naive", "full", "sdpa", "flash")
REPEATS = 5  #: counted runs, each with other inputs
MAX_SECONDS = 60.0  #: longest run
MEMORY_FRACTION = 0.8  #: share of the free memory that a method may use
Measurement = dict[str, Any]  #: method, mode, n, status, seconds, the stages, bytes, note


@click.command()
@click.option(
    "--method", "methods", type=click.Choice([*METHODS]), multiple=True, default=DEFAULT_METHODS
)
@click.option("--max-n", default=1e5, show_default=True, help="Largest number of nodes.")
@click.option("--d", default=10, show_default=True, help="Dimension of queries, keys and values.")
@click.option("--k", default=10, show_default=True, help="Keys per query.")
@click.option("--device", default="auto", type=click.Choice(["auto", "cpu", "cuda"]))
@click.option("--save", type=click.Path(path_type=Path, dir_okay=False), help="Write FILE.csv.")
def main(
    methods: tuple[str, ...], max_n: float, device: str, save: Path | None, **sizes: int
) -> None:
    """Measure attention methods, and show the paper's A100 measurements of the same inputs."""
    # 1. Measure.
    device = choose_device(device).type
    if device == "cpu":
        limit_memory(int(MEMORY_FRACTION * free_host_memory()))
    nodes = [n for n in SIZES if n <= max_n]
    measured = list[Measurement]()
    for mode, method in itertools.product(MODES, methods):
        measured += measure_sizes(method, mode, nodes, device=device, **sizes)

    # 2. Show time and memory, the stages at the largest size of each method, and the failures.
    paper = list(paper_rows()) if sizes == PAPER_SIZES else []
    for mode in MODES:
        of_mode = [row for row in (*measured, *paper) if row["mode"] == mode]
        click.echo(f"{times_table(mode, of_mode, nodes)}\n")
    timed = [row for row in measured if row["mode"] == "training" and row["seconds"]]
    cells = []
    for row in {row["method"]: row for row in timed}.values():
        stages = [format_quantity(row[stage] or None, "s") for stage in STAGES]
        cells.append([row["method"], row["n"], *stages])
    click.echo(format_table(["stages of training", "nodes", *STAGES], cells))
    for row in measured:
        if row["note"]:
            click.echo(f"{row['method']}, {row['mode']}, {row['n']:,} nodes: {row['note']}")
    click.echo(f"{device}, d = {sizes['d']}, k = {sizes['k']}\n{describe_machine()}")
    if save is not None:
        save.write_bytes(rows_as_csv(measured))


def measure_sizes(
    method: str, mode: str, nodes: Sequence[int], **options: Any
) -> Iterator[Measurement]:
    """Measure a method at ascending sizes; the first that does not work is the last row."""
    for n in nodes:
        row: Measurement = {"method": method, "mode": mode, "n": n, "status": "ok"}
        row |= dict.fromkeys(("seconds", *STAGES, "bytes", "note"))
        try:
            row |= measure(method, n, training=mode == "training", **options)
        except Exception as error:
            lines = str(error).splitlines() or [type(error).__name__]
            row |= {"status": "oom" if is_out_of_memory(error) else "failed", "note": lines[0]}
        yield row
        if row["status"] != "ok":
            break


def measure(method: str, n: int, *, training: bool, d: int, k: int, device: str) -> Measurement:
    """Return the median seconds of a run and of its stages, and the peak memory of another run."""
    dtype = torch.float16 if method == "flash" else torch.float32

    def run(seed: int) -> dict[str, float]:
        tensors = random_inputs(n, d=d, seed=seed, device=device)
        inputs = [tensor.to(dtype).requires_grad_(training) for tensor in tensors]
        out, forward = _timed(lambda: METHODS[method](*inputs, k), device)
        stages = {"search": 0.0, "forward": forward, "backward": 0.0}
        if training:
            _, stages["backward"] = _timed(lambda: out.sum().backward(), device)
        if method in SEARCHES:
            queries, keys, _ = (tensor.detach() for tensor in inputs)
            _, stages["search"] = _timed(lambda: SEARCHES[method](queries, keys, k), device)
        return stages

    first = run(0)  # compiles, and decides how many runs fit
    total = first["forward"] + first["backward"]
    if total > MAX_SECONDS:
        return {"status": "time", "note": f"longer than {MAX_SECONDS:g} s"}
    repeats = max(1, min(REPEATS, int(MAX_SECONDS / total)))
    runs = [run(seed) for seed in range(1, repeats + 1)]
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        run(0)
        peak = torch.cuda.max_memory_allocated()
    else:
        peak = peak_bytes(lambda: run(0))
    row = {stage: statistics.median(map(itemgetter(stage), runs)) for stage in STAGES}
    seconds = row["forward"] + row["backward"]
    return {"seconds": seconds, "bytes": peak, **row}


def _timed(function: Callable[[], Any], device: str) -> tuple[Any, float]:
    """Return the result of a call and its seconds, including the work that it left to the device."""
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    synchronize()
    start = time.perf_counter()
    result = function()
    synchronize()
    return result, time.perf_counter() - start


def paper_rows() -> Iterator[Measurement]:
    """Yield the paper's measurements on an A100."""
    for curve in read_shipped("results", "efficiency")["curve"]:
        cells = itertools.zip_longest(curve["n"], curve["milliseconds"], curve.get("megabytes", ()))
        for n, milliseconds, megabytes in cells:
            row = {"method": f"A100: {curve['method']}", "mode": curve["setting"], "n": n}
            yield {**row, "seconds": milliseconds / 1e3, "bytes": megabytes and megabytes * 2**20}


def times_table(mode: str, measured: Sequence[Measurement], nodes: Sequence[int]) -> str:
    """Return a table of methods by size, with growth over the last decade and memory at the last size."""
    cells = []
    for method, group in itertools.groupby(measured, key=itemgetter("method")):
        by_size = {row["n"]: row for row in group}
        times = []
        for row in map(by_size.get, nodes):
            times.append(
                row and (format_quantity(row["seconds"], "s") if row["seconds"] else row["status"])
            )
        timed = [(n, row["seconds"]) for n, row in by_size.items() if row["seconds"]][-3:]
        growth = f"n^{np.polyfit(*np.log(timed).T, 1)[0]:.2f}" if len(timed) > 1 else None
        memory = [row["bytes"] / n for n, row in by_size.items() if row["bytes"]]
        cells.append([method, *times, growth, f"{memory[-1]:,.0f}" if memory else None])
    return format_table([mode, *(f"{n:,}" for n in nodes), "growth", "bytes per node"], cells)


if __name__ == "__main__":
    try:
        main()
    except KmipDataError as error:  # such as no GPU
        raise SystemExit(f"Error: {error}") from None
