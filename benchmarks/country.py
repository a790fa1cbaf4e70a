"""Generated countries from file to training: time and memory of each stage, and how they grow.

``make bench TOPIC=country`` builds countries of the targets' sizes. ``python -m benchmarks.country
1e4 1e5 1e6 1e7`` prints the table of docs/site/growth.txt, from which ``make docs`` draws the
picture; 1e7 needs 10 GB of disk. A command that is killed or refuses becomes a cell of the table.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import psutil
from support.shared import ROOT

from benchmarks.table import Row
from kmip_data.manifest import load_manifest
from kmip_data.models.profiling.number_format import format_quantity, machine_line
from kmip_data.runtime.memory import peak_host_memory

#: Directed edges -> seconds of the target, and those published of other tools, without labels and
#: features.
TARGETS: Final = {
    620_000: (7.5, "17.9 to 21"),
    2_200_000: (30, "35 to 73"),
    5_700_000: (90, "116 to 241"),
}
EDGES: Final = 2.5  #: directed edges per intersection, as OSMnx counts them
MEMORY: Final = 4 * 2**30  #: bytes, target of a build
PAPER: Final = 10**9  #: intersections of the last column, by the exponents
STAGES: Final = ("read and simplify", "features", "eccentricity", "write")  #: in a worker process
LOG: Final = "BENCH_STAGES"  #: environment variable: the file where workers log stages
FITTED: Final = 50_000  #: intersections from which sizes count for the exponents
SEEDS: Final = 1_000  #: seed nodes of a training batch
SAMPLED: Final = (
    *("--set", "training.neighbors=[10, 10]", "--set", f"training.batch_size={SEEDS}"),
    *("--set", "training.eval_neighbors=[10, 10]"),  # batches are read from the map
)
COMMANDS: Final = {
    "verify": ("verify", "country"),
    "info": ("info", "country", "--json"),
    "training batch": ("bench", "train", "country", "--device", "cpu", "--json", *SAMPLED),
}


class Cost(NamedTuple):
    """Of a stage or command; one that did not end has a reason."""

    seconds: float = 0.0
    memory: float = 0.0  #: peak resident set, bytes
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.reason or format_quantity(self.seconds, 's')}, {self.memory / 2**30:.2f} GiB"


class Country(NamedTuple):
    """One size: nodes, and costs by stage and command."""

    nodes: int
    costs: dict[str, Cost]


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Build countries of as many edges as the targets name."""
    measured(1_000, commands=False)  # compiles what no earlier run has compiled
    for edges, (target, published) in {10_000: (8, "none")} if quick else TARGETS.items():
        country = measured(round(edges / EDGES), commands=False)
        build = country.costs["build"]
        yield Row(
            what=f"generated country, {edges:,} directed edges: file to finished build",
            against=f"published of other tools, without labels: {published} s",
            ours=build.seconds,
            unit="s",
            target=f"≤ {target} s, ≤ 4 GiB",
            met=not build.reason and build.seconds <= target and build.memory <= MEMORY,
            note="; ".join(f"{name}: {cost}" for name, cost in country.costs.items()),
        )


def measured(intersections: int, *, commands: bool = True) -> Country:
    """Generate a country, build it, and run the commands on the build, each in a process of its own."""
    # Slow to import: a build by this module does not wait for it.
    from support.maps.country import write_country

    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as name:
        folder = Path(name)
        file, log = folder / f"generated-{intersections}.osm.pbf", folder / "stages"
        write_country(file, intersections)
        home = ("--home", str(folder / "home"))
        words = (
            "build",
            "city",
            "--name",
            "country",
            "--archive",
            str(file),
            "--quiet",
            "--json",
            *home,
        )
        build, printed = run_module("benchmarks.country", words, log)
        costs = {**_stages(log), "build": build}
        if build.reason:
            return Country(intersections, costs)
        inside = sum(costs[stage].seconds for stage in STAGES)
        costs["copy, split, card"] = Cost(build.seconds - inside)
        nodes = json.loads(printed)["counts"]["nodes"]
        for command, rest in COMMANDS.items() if commands else ():
            costs[command], printed = run_module("kmip_data", (*rest, *home))
            if command == "training batch" and not costs[command].reason:
                (pace,) = json.loads(printed)["models"]
                costs[command] = costs[command]._replace(
                    seconds=pace["seconds"] or 0, reason=pace["note"]
                )
        return Country(nodes, costs)


def run_module(
    module: str,
    words: Sequence[str],
    log: Path | None = None,
    *,
    most: float = float("inf"),
    mapped: bool = True,
) -> tuple[Cost, str]:
    """Run a command, and stop it when it takes more than ``most`` bytes.

    Its memory is the sum of all its processes at one moment, the highest of 20 a second. False for
    ``mapped`` leaves out mapped files, whose pages the system takes back.
    """
    environment = {
        **os.environ,
        LOG: str(log),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    }
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start, peak = time.perf_counter(), 0
        command = [sys.executable, "-m", module, *words]
        child = psutil.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=err)
        with suppress(OSError):  # if memory runs out, it goes, not this process
            Path(f"/proc/{child.pid}/oom_score_adj").write_text("1000")
        while child.poll() is None:
            with suppress(psutil.Error):
                family = [child, *child.children(recursive=True)]
                sizes = [process.memory_info() for process in family]
                peak = max(peak, sum(size.rss - (0 if mapped else size.shared) for size in sizes))
                if peak > most:
                    for process in family:
                        process.kill()
            time.sleep(0.05)
        seconds = time.perf_counter() - start
        texts = [file.seek(0) or file.read() for file in (out, err)]
    lines = texts[1].strip().splitlines() or ["without a word"]
    said = next((line for line in lines if line.startswith("Error: ")), lines[-1])
    code = child.returncode
    if peak > most:
        return Cost(seconds, peak, f"stopped above {most / 2**30:.0f} GiB"), texts[0]
    said = said.removeprefix("Error: ")
    reason = (
        f"stopped by {signal.Signals(-code).name}"
        if code < 0
        else f"refused: {said}"
        if code
        else ""
    )
    return Cost(seconds, peak, reason), texts[0]


def _stages(log: Path) -> dict[str, Cost]:
    """Return what workers logged; the last stage of one that died has no end."""
    costs = dict.fromkeys(STAGES, Cost(reason="not reached"))
    for line in log.read_text().splitlines() if log.exists() else ():
        stage, seconds, memory = json.loads(line)
        before = costs[stage]
        costs[stage] = Cost(before.seconds + seconds, max(before.memory, memory))
        if not memory:
            costs[stage] = costs[stage]._replace(reason="not finished")
    return costs


_now = list[tuple[str, float]]()  #: stage of this worker and its begin


def _enter(stage: str | None) -> None:
    """Log the end of a stage and the begin of the next; peak memory begins anew."""
    with Path(os.environ[LOG]).open("a") as log:
        while _now:
            before, start = _now.pop()
            print(json.dumps([before, time.perf_counter() - start, peak_host_memory()]), file=log)
        if stage is not None:
            print(json.dumps([stage, 0, 0]), file=log)
            Path("/proc/self/clear_refs").write_text("5")
            _now.append((stage, time.perf_counter()))


def _within(stage: str, function: Callable[..., Any], after: str | None) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        _enter(stage)
        result = function(*args, **options)
        _enter(after)
        return result

    return called


def run_pass(*args: Any) -> Any:
    """Prepare a build as a worker does, with a log of the stages."""
    from kmip_data.pipelines.datasets.openstreetmap import reading
    from kmip_data.pipelines.engine import pool

    for name in ("land_use_of_nodes", "city_arrays"):
        setattr(reading, name, _within("features", getattr(reading, name), "features"))
    return _within("read and simplify", pool.run_pass, None)(*args)


def build_unit(task: Any) -> Any:
    """Build a unit as a worker does, with a log of the stages."""
    from kmip_data.graphs import eccentricity
    from kmip_data.pipelines.engine import pool

    eccentricity.local_eccentricity = _within(
        "eccentricity", eccentricity.local_eccentricity, "write"
    )
    return _within("write", pool.build_unit, None)(task)


def grown(
    sizes: Sequence[Country], stage: str, field: str, goal: int = PAPER
) -> tuple[float, float]:
    """Return the exponent fitted by least squares in log-log, and what ``goal`` nodes need by it.

    Sizes from :data:`FITTED` nodes on count, without what the smallest size takes: the start of
    processes.
    """
    measurements = [
        (country.nodes, getattr(country.costs.get(stage, Cost()), field)) for country in sizes
    ]
    start = measurements[0][1] if measurements and measurements[0][0] < FITTED else 0.0
    large = [
        (nodes, value - start) for nodes, value in measurements if nodes >= FITTED and value > start
    ]
    if len(large) < 2:
        return float("nan"), float("nan")
    slope = float(np.polyfit(*np.log(np.array(large).T), 1)[0])
    nodes, value = large[-1]
    return slope, start + value * (goal / nodes) ** slope


def table(sizes: Sequence[Country], stages: Sequence[str], goal: int = PAPER) -> Iterator[str]:
    """Yield the lines of the table: a stage each, a column each size, exponents, and ``goal`` nodes."""
    ended = [country for country in sizes if not country.costs["build"].reason]
    numbers = [f"{country.nodes:,}" for country in sizes]
    header = ["stage", *numbers, "exponents", f"{goal:,}, extrapolated"]
    yield "| " + " | ".join(header) + " |\n|" + "---|" * len(header)
    for stage in stages:
        cells = [str(country.costs.get(stage, "–")) for country in sizes]
        pace, seconds = grown(ended, stage, "seconds", goal)
        power, memory = grown(ended, stage, "memory", goal)
        if stage == "build" and "write" in stages:  # whose peak is another stage's
            power = memory = float("nan")
        hours = f"{seconds / 3600:,.1f} h"
        time_needed = format_quantity(seconds, "s") if seconds < 1_000 else hours
        cells += [f"{pace:.2f}, {power:.2f}", f"{time_needed}, {memory / 2**30:,.1f} GiB"]
        yield f"| {stage} | {' | '.join(cells)} |".replace("nan", "–")


def report(sizes: Sequence[Country]) -> Iterator[str]:
    """Yield the lines of the table, and what follows from it."""
    stages = (*STAGES, "copy, split, card", "build", *COMMANDS)
    yield from table(sizes, stages)

    ended = [country for country in sizes if not country.costs["build"].reason]
    total = psutil.virtual_memory().total
    limits = dict[str, float]()
    for stage in stages:
        power, memory = grown(ended, stage, "memory")
        if stage != "build" and power > 0.1:  # else it does not grow
            limits[stage] = PAPER * (total / memory) ** (1 / power)
    if limits:
        first = min(limits, key=lambda stage: limits[stage])
        yield (
            f"\nExtrapolated, {first} is the first to run out of memory: "
            f"{limits[first]:,.0f} intersections fill {total / 2**30:.0f} GiB."
        )
    yield f"A city has {load_manifest('city').max_nodes:,} intersections at most."
    batches = (country.costs.get("training batch", Cost()) for country in ended)
    speeds = [
        f"{SEEDS / batch.seconds:,.0f}" for batch in batches if batch.seconds and not batch.reason
    ]
    if speeds:
        yield f"Seeds a second, in batches of {SEEDS:,} with 10 and 10 neighbours: {', '.join(speeds)}."
    yield f"Machine: {machine_line()}."


if __name__ == "__main__":
    if sys.argv[1] == "build":
        import benchmarks.country as here  # noqa: PLW0406 -- this one is __main__
        from kmip_data.cli.main import main
        from kmip_data.pipelines.engine import run

        # Workers receive functions by name, and log their stages inside.
        run.run_pass, run.build_unit = here.run_pass, here.build_unit  # type: ignore[assignment]
        main()
    else:
        measured(1_000, commands=False)  # compiles what no earlier run has compiled
        done = list[Country]()
        for size in sys.argv[1:]:
            done.append(measured(round(float(size))))
            # What is done, if a later size takes all down.
            print("\n".join(report(done)), flush=True)
