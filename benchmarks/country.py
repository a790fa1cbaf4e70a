"""Time and memory of generated countries from map to training, by stage and size.

``make bench TOPIC=country`` builds countries of the targets' sizes. ``python -m benchmarks.country
1e4 1e5 1e6 1e7`` prints the table of docs/site/growth.txt, from which ``make docs`` draws the
picture; 1e7 needs 10 GB of disk. The table also states which commands failed or were killed.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import signal
import statistics
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

from benchmarks.table import Row, describe_machine, format_quantity
from benchmarks.turns import seconds
from kmip_data.builds.home import Home
from kmip_data.manifest import load_manifest
from kmip_data.runtime.memory import peak_host_memory

#: Directed edges -> target seconds, and published seconds of other tools without labels and features.
TARGETS: Final = {
    620_000: (7.5, "17.9 to 21"),
    2_200_000: (30, "35 to 73"),
    5_700_000: (90, "116 to 241"),
}
EDGES_PER_NODE: Final = 2.5  #: directed edges per intersection, as OSMnx counts them
MEMORY_TARGET: Final = 4 * 2**30  #: bytes of a build
GOAL_NODES: Final = 10**9  #: intersections of the extrapolated column
STAGES: Final = ("read and simplify", "features", "eccentricity", "write")  #: in a worker process
STAGE_LOG_VARIABLE: Final = "BENCH_STAGES"  #: environment variable with the file for stage logs
MIN_FITTED_NODES: Final = 50_000  #: smaller countries are not fitted
BATCH_SEEDS: Final = 1_000  #: seed nodes per training batch
BATCHES: Final = 5  #: timed training batches
SAMPLING: Final = ("training.neighbors=[10, 10]", f"training.batch_size={BATCH_SEEDS}")
#: Command -> module that runs it, and its words.
COMMANDS: Final = {
    "verify": ("kmip_data", "verify", "country"),
    "info": ("kmip_data", "info", "country", "--json"),
    "training batch": ("benchmarks.country", "batch"),
}


class Cost(NamedTuple):
    """Time and memory of a stage or command."""

    seconds: float = 0.0
    memory: float = 0.0  #: peak resident set, bytes
    reason: str = ""  #: reason for a failure
    processor: float = 0.0  #: processor seconds of a command and its processes

    def __str__(self) -> str:
        return f"{self.reason or format_quantity(self.seconds, 's')}, {self.memory / 2**30:.2f} GiB"


class Country(NamedTuple):
    """Country of one size, with costs by stage and command."""

    nodes: int
    costs: dict[str, Cost]


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Build countries of the targets' sizes."""
    measure_country(1_000, commands=False)  # compiles the kernels
    for edges, (target, published) in {10_000: (8, "none")} if quick else TARGETS.items():
        country = measure_country(round(edges / EDGES_PER_NODE), commands=False)
        build = country.costs["build"]
        yield Row(
            what=f"generated country, {edges:,} directed edges: file to finished build",
            against=f"published for other tools, without labels: {published} s",
            ours=build.seconds,
            unit="s",
            target=f"≤ {target} s, ≤ 4 GiB",
            met=not build.reason and build.seconds <= target and build.memory <= MEMORY_TARGET,
            note="; ".join(f"{name}: {cost}" for name, cost in country.costs.items()),
        )


def measure_country(intersections: int, *, commands: bool = True) -> Country:
    """Generate a country, build it, and run the commands on the build in separate processes."""
    # Import lazily, because it is slow and builds by this module do not need it.
    from support.maps.country import write_country

    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as name:
        folder = Path(name)
        file, log = folder / f"generated-{intersections}.osm.pbf", folder / "stages"
        write_country(file, intersections)
        home = ("--home", str(folder / "home"))
        arguments = ("build", "city", "--name", "country", "--archive", str(file))
        build, printed = run_module(
            "benchmarks.country", (*arguments, "--quiet", "--json", *home), log
        )
        costs = {**_read_stages(log), "build": build}
        if build.reason:
            return Country(intersections, costs)
        stage_seconds = sum(costs[stage].seconds for stage in STAGES)
        costs["copy, split, card"] = Cost(build.seconds - stage_seconds)
        nodes = json.loads(printed)["counts"]["nodes"]
        for command, (module, *rest) in COMMANDS.items() if commands else ():
            costs[command], printed = run_module(module, (*rest, *home))
            if command == "training batch" and not costs[command].reason:
                costs[command] = costs[command]._replace(seconds=float(printed))
        return Country(nodes, costs)


def time_training_batch(home: Home) -> float:
    """Return the median seconds of a training batch with sampled neighbours on the built country."""
    from benchmarks.training import training_step
    from kmip_data.models.training.config.overrides import apply_overrides
    from kmip_data.models.training.config.presets import config_for_data
    from kmip_data.models.training.data.open_data import open_data
    from kmip_data.models.training.devices import choose_device

    config = apply_overrides(config_for_data("country", "gps-kmip", home=home), SAMPLING)
    data = open_data(config, home=home, quiet=True)
    step = training_step(config, data, choose_device("cpu"))
    step()
    return statistics.median(seconds(step) for _ in range(BATCHES))


def run_module(
    module: str,
    words: Sequence[str],
    log: Path | None = None,
    *,
    max_bytes: float = float("inf"),
) -> tuple[Cost, str]:
    """Run a command, killing it if it exceeds ``max_bytes``; return its cost and output.

    Its memory is the peak sum over its processes, sampled 20 times per second.
    """
    environment = {
        **os.environ,
        STAGE_LOG_VARIABLE: str(log),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    }
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start, peak = time.perf_counter(), 0
        processor = _children_seconds()
        command = [sys.executable, "-m", module, *words]
        child = psutil.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=err)
        with suppress(OSError):  # make it the first process to be killed if memory runs out
            Path(f"/proc/{child.pid}/oom_score_adj").write_text("1000")
        while child.poll() is None:
            with suppress(psutil.Error):
                family = [child, *child.children(recursive=True)]
                sizes = [process.memory_info() for process in family]
                peak = max(peak, sum(size.rss for size in sizes))
                if peak > max_bytes:
                    for process in family:
                        process.kill()
            time.sleep(0.05)
        seconds = time.perf_counter() - start
        processor = _children_seconds() - processor
        printed, errors = (file.seek(0) or file.read() for file in (out, err))

    reason = ""
    code = child.returncode
    if peak > max_bytes:
        reason = f"stopped above {max_bytes / 2**30:.0f} GiB"
    elif code < 0:
        reason = f"stopped by {signal.Signals(-code).name}"
    elif code:
        lines = errors.strip().splitlines() or ["without a message"]
        message = next((line for line in lines if line.startswith("Error: ")), lines[-1])
        reason = f"refused: {message.removeprefix('Error: ')}"
    return Cost(seconds, peak, reason, processor), printed


def _children_seconds() -> float:
    """Return the processor seconds of all ended child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _read_stages(log: Path) -> dict[str, Cost]:
    """Return the costs that workers logged; the last stage of a killed worker has no end."""
    costs = dict.fromkeys(STAGES, Cost(reason="not reached"))
    for line in log.read_text().splitlines() if log.exists() else ():
        stage, seconds, memory = json.loads(line)
        previous = costs[stage]
        costs[stage] = Cost(previous.seconds + seconds, max(previous.memory, memory))
        if not memory:
            costs[stage] = costs[stage]._replace(reason="not finished")
    return costs


_current_stage = list[tuple[str, float]]()  #: stage of this worker, and its start time


def _enter_stage(stage: str | None) -> None:
    """Log the end of a stage and the start of the next, and reset the peak memory."""
    with Path(os.environ[STAGE_LOG_VARIABLE]).open("a") as log:
        while _current_stage:
            ended, start = _current_stage.pop()
            print(json.dumps([ended, time.perf_counter() - start, peak_host_memory()]), file=log)
        if stage is not None:
            print(json.dumps([stage, 0, 0]), file=log)
            Path("/proc/self/clear_refs").write_text("5")
            _current_stage.append((stage, time.perf_counter()))


def _log_stage(
    stage: str, function: Callable[..., Any], next_stage: str | None
) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        _enter_stage(stage)
        result = function(*args, **options)
        _enter_stage(next_stage)
        return result

    return wrapper


def run_prepare(*args: Any) -> Any:
    """Prepare a build like a worker, logging the stages."""
    from kmip_data.pipelines.datasets.openstreetmap import city_reader
    from kmip_data.pipelines.engine import pool

    for name in ("land_use_of_nodes", "city_arrays"):
        setattr(city_reader, name, _log_stage("features", getattr(city_reader, name), "features"))
    return _log_stage("read and simplify", pool.run_prepare, None)(*args)


def build_unit(task: Any) -> Any:
    """Build a unit like a worker, logging the stages."""
    from kmip_data.graphs import eccentricity
    from kmip_data.pipelines.engine import pool

    eccentricity.local_eccentricity = _log_stage(
        "eccentricity", eccentricity.local_eccentricity, "write"
    )
    return _log_stage("write", pool.build_unit, None)(task)


def fit_growth(sizes: Sequence[Country], stage: str, field: str) -> tuple[float, float]:
    """Return the exponent of a log-log least-squares fit, and the extrapolation to :data:`GOAL_NODES`.

    Fits sizes of at least :data:`MIN_FITTED_NODES`, after subtracting the smallest size's cost,
    which is that of starting processes.
    """
    measurements = [
        (country.nodes, getattr(country.costs.get(stage, Cost()), field)) for country in sizes
    ]
    start = measurements[0][1] if measurements and measurements[0][0] < MIN_FITTED_NODES else 0.0
    large = [
        (nodes, value - start)
        for nodes, value in measurements
        if nodes >= MIN_FITTED_NODES and value > start
    ]
    if len(large) < 2:
        return float("nan"), float("nan")
    slope = float(np.polyfit(*np.log(np.array(large).T), 1)[0])
    nodes, value = large[-1]
    return slope, start + value * (GOAL_NODES / nodes) ** slope


def table(sizes: Sequence[Country], stages: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the table: a row per stage, a column per size, exponents, extrapolation."""
    ended = [country for country in sizes if not country.costs["build"].reason]
    numbers = [f"{country.nodes:,}" for country in sizes]
    header = ["stage", *numbers, "exponents", f"{GOAL_NODES:,}, extrapolated"]
    yield "| " + " | ".join(header) + " |\n|" + "---|" * len(header)
    for stage in stages:
        cells = [str(country.costs.get(stage, "–")) for country in sizes]
        pace, time_at_goal = fit_growth(ended, stage, "seconds")
        power, memory = fit_growth(ended, stage, "memory")
        if stage == "build":  # its peak is that of another stage
            power = memory = float("nan")
        time_needed = f"{time_at_goal / 3600:,.1f} h"
        if time_at_goal < 1_000:
            time_needed = format_quantity(time_at_goal, "s")
        cells += [f"{pace:.2f}, {power:.2f}", f"{time_needed}, {memory / 2**30:,.1f} GiB"]
        yield f"| {stage} | {' | '.join(cells)} |".replace("nan", "–")


def report(sizes: Sequence[Country]) -> Iterator[str]:
    """Yield the lines of the table, and conclusions from it."""
    stages = (*STAGES, "copy, split, card", "build", *COMMANDS)
    yield from table(sizes, stages)

    ended = [country for country in sizes if not country.costs["build"].reason]
    total = psutil.virtual_memory().total
    limits = dict[str, float]()
    for stage in stages:
        power, memory = fit_growth(ended, stage, "memory")
        if stage != "build" and power > 0.1:  # otherwise it does not grow
            limits[stage] = GOAL_NODES * (total / memory) ** (1 / power)
    if limits:
        first = min(limits, key=lambda stage: limits[stage])
        yield (
            f"\nExtrapolated, {first} is the first to run out of memory: "
            f"{limits[first]:,.0f} intersections fill {total / 2**30:.0f} GiB."
        )
    yield f"A city has {load_manifest('city').max_nodes:,} intersections at max_bytes."
    batches = (country.costs.get("training batch", Cost()) for country in ended)
    speeds = [
        f"{BATCH_SEEDS / batch.seconds:,.0f}"
        for batch in batches
        if batch.seconds and not batch.reason
    ]
    if speeds:
        yield f"Seeds a second, in batches of {BATCH_SEEDS:,} with 10 and 10 neighbours: {', '.join(speeds)}."
    yield f"Machine: {describe_machine()}."


if __name__ == "__main__":
    if sys.argv[1] == "build":
        import benchmarks.country as this_module  # noqa: PLW0406 -- this one is __main__
        from kmip_data.cli.main import main
        from kmip_data.pipelines.engine import resumable_build

        # Workers receive functions by module name.
        resumable_build.run_prepare = this_module.run_prepare
        resumable_build.build_unit = this_module.build_unit  # type: ignore[assignment]
        main()
    elif sys.argv[1] == "batch":
        print(time_training_batch(Home(Path(sys.argv[-1]))))
    else:
        measure_country(1_000, commands=False)  # compiles the kernels
        countries = list[Country]()
        for size in sys.argv[1:]:
            countries.append(measure_country(round(float(size))))
            # Report after each size, because a later one may run out of memory.
            print("\n".join(report(countries)), flush=True)
