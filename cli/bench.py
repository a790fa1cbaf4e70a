"""``kmip-data bench``: speed of attention and training on this machine."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.command_classes import Command, Group
from kmip_data.cli.shared.options import (
    Integer,
    device_option,
    force_option,
    json_option,
    long_running_options,
    number_option,
    quiet_option,
    sample_option,
    set_option,
)
from kmip_data.cli.shared.output import (
    Json,
    format_table,
    picture_and_csv_paths,
    print_result,
    rows_as_csv,
)
from kmip_data.cli.shared.targets import BUILD
from kmip_data.models.benchmarking.result_text import describe_machine, format_quantity
from kmip_data.runtime.progress import print_status
from kmip_data.text import count_with_noun

if TYPE_CHECKING:
    from kmip_data.builds.home import Home
    from kmip_data.models.benchmarking.measuring import Measurement
    from kmip_data.models.benchmarking.training_speed import TrainingSpeed

MEMORY_FRACTION = 0.8  #: fraction of the free memory that a method may use
ROUNDS = 5
MAX_BATCHES = 20  #: batches per round
MAX_SECONDS = 60.0  #: seconds for all rounds of a network


@click.group(cls=Group)
def command() -> None:
    """Measure speed on this machine.

    Compared methods take turns, so that a busy machine slows all of them. In a checkout `make
    bench` measures the rows of docs/performance.md.
    """


@command.command("attention", cls=Command)
@click.option(
    "--methods",
    metavar="LIST",
    help="Methods, such as auto,symbolic,naive,full,sdpa; `all`: every method.",
)
@number_option(
    "--max-n",
    "Largest number of nodes; sizes are 100, 316 …",
    100_000,
    type=click.FloatRange(100, 10**9),
)
@number_option("--d", "Dimension of queries, keys and values.", 10, type=Integer(1, 256))
@number_option("--k", "Keys per query.", 10)
@click.option(
    "--data", type=click.Choice(["gaussian", "sphere"]), default="gaussian", show_default=True,
    help="Queries and keys: standard normal, or unit vectors.",
)  # fmt: skip
@device_option()
@click.option("--save", metavar="PREFIX", help="Write PREFIX.csv and PREFIX.png.")
@force_option
@json_option
@quiet_option
def attention(
    methods: str | None,
    max_n: float,
    device: str | None,
    save: str | None,
    force: bool,
    quiet: bool,
    **workload: Any,
) -> None:
    """Repeat the paper's efficiency experiment on this machine.

    Measures time and peak memory of attention methods against the number of nodes, in inference and
    in training. Each method has its own process, so running out of memory or time affects only one
    cell of the table. Shows the paper's A100 measurements below, labelled as such.
    """
    from kmip_data.files.atomic_writes import write_output
    from kmip_data.models.benchmarking.measuring import (
        MODES,
        MeasurementOptions,
        draw_measurements,
        measure_methods,
    )
    from kmip_data.models.benchmarking.methods import WorkloadOptions, paper_sizes_up_to
    from kmip_data.models.training.devices import choose_device
    from kmip_data.runtime.memory import free_host_memory
    from kmip_data.strict_model import read_shipped

    # 1. Check the options.
    saved = None
    if save is not None:
        saved = picture_and_csv_paths(save, force=force)
    device_type = choose_device(device or "auto").type
    names = _requested_methods(methods, device_type)
    sizes = paper_sizes_up_to(max_n)

    # 2. Measure each method in a process of its own, which may run out of memory.
    workload_options = WorkloadOptions(**workload)
    memory_limit = int(MEMORY_FRACTION * free_host_memory())
    options = MeasurementOptions(device=device_type, memory_limit=memory_limit)

    def log(measurement: Measurement) -> None:
        print_status(
            f"{measurement.method}, {measurement.mode}, {measurement.n:,} nodes: {_format_seconds(measurement)}",
            quiet=quiet,
        )

    measurements = measure_methods(
        names,
        sizes,
        workload_options=workload_options,
        options=options,
        log=log,
    )

    # 3. Show a table and draw a picture, with the paper's measurements if the options agree.
    paper = read_shipped("results", "efficiency") if workload_options == WorkloadOptions() else None
    dimensions = f"H = {workload_options.heads}, d = {workload_options.d}, k = {workload_options.k}"
    threads = count_with_noun(options.threads, "thread")
    conditions = f"{dimensions}, {workload_options.data}, {device_type}, {threads}"
    rows = [measurement.as_dict() for measurement in measurements]
    text = []
    for mode in MODES:
        measured = [measurement for measurement in measurements if measurement.mode == mode]
        text.append(f"{_times_by_size(mode, measured, paper)}\n")

    if saved:
        picture, csv_file = saved
        write_output(csv_file, rows_as_csv(rows))
        draw_measurements(
            measurements, picture, title=f"{conditions}\n{describe_machine()}", paper=paper
        )

    # 4. Explain missing measurements, except for sizes skipped after a smaller one failed.
    text += [
        f"{measurement.method}, {measurement.n:,} nodes: {measurement.note}"
        for measurement in measurements
        if measurement.status != "ok" and not measurement.note.startswith("not tried")
    ]
    text.append(f"{conditions}; median of at most {options.repeats} runs\n{describe_machine()}")
    if paper is not None:
        text.append(f"A100: measured by the paper, not on this machine ({paper['source']})")
    result = {"machine": describe_machine(), "what": conditions, "measurements": rows}
    print_result(result, *text)


def _requested_methods(methods: str | None, device: str) -> list[str]:
    """Return the requested methods, or the default ones for this device."""
    from kmip_data.models.benchmarking.methods import default_methods, method_names

    if methods is None:
        return default_methods(device)
    if methods.strip() == "all":
        return method_names()
    return list(dict.fromkeys(methods.replace(" ", "").split(",")))


def _times_by_size(mode: str, measurements: list[Measurement], paper: Json | None) -> str:
    """Return a table of methods by size with growth and memory; the paper's measurements are last."""
    from kmip_data.models.benchmarking.measuring import growth_exponent

    sizes = sorted({measurement.n for measurement in measurements})
    rows = []
    for method, measured in groupby(measurements, key=attrgetter("method")):
        by_size = {measurement.n: measurement for measurement in measured}
        timed = [
            (n, measurement.seconds) for n, measurement in by_size.items() if measurement.seconds
        ]
        peaks = [
            measurement.peak_bytes / n
            for n, measurement in by_size.items()
            if measurement.peak_bytes
        ]
        times = [_format_seconds(by_size[n]) for n in sizes]
        rows.append([method, *times, *_growth_and_node_bytes(growth_exponent(timed), peaks)])
    for curve in paper["curve"] if paper is not None else ():
        if curve["setting"] == mode:
            milliseconds = zip(curve["n"], curve["milliseconds"], strict=True)
            seconds = {n: value / 1e3 for n, value in milliseconds}
            megabytes = zip(curve["n"], curve.get("megabytes", ()), strict=False)
            peaks = [value * 2**20 / n for n, value in megabytes]
            times = [format_quantity(seconds.get(n), "s") for n in sizes]
            costs = _growth_and_node_bytes(growth_exponent(seconds.items()), peaks)
            rows.append([f"A100: {curve['method']}", *times, *costs])
    header = [mode, *(f"{n:,}" for n in sizes), "growth", "bytes per node"]
    return format_table(header, rows)


def _growth_and_node_bytes(growth: float | None, peaks: list[float]) -> list[str | None]:
    """Return the growth exponent and the bytes per node of the largest size, for a table."""
    exponent = None if growth is None else f"n^{growth:.2f}"
    return [exponent, f"{peaks[-1]:,.0f}" if peaks else None]


def _format_seconds(measurement: Measurement) -> str:
    """Format the seconds of a measurement, or its status if it failed."""
    return (
        measurement.status
        if measurement.seconds is None
        else format_quantity(measurement.seconds, "s")
    )


@command.command("train", cls=Command)
@click.argument("name", type=BUILD)
@click.option(
    "--model",
    "models",
    default="gps-kmip",
    show_default=True,
    metavar="LIST",
    help="Model names.",
)
@device_option()
@sample_option
@set_option("Configuration key, as in `train`.")
@long_running_options
def train(
    name: str,
    models: str,
    overrides: tuple[str, ...],
    home: Home,
    quiet: bool,
    **options: Any,
) -> None:
    """Time the training steps of models.

    The models take turns, with batches as in `train`. Prints seconds, graphs per second, memory, and
    hours for the epochs of the preset. On a GPU, kernels are launched one by one, while `train`
    replays CUDA graphs.
    """
    from kmip_data.models.training.config.compose import compose_configuration

    # Check names and keys before importing torch, which takes seconds.
    model_names = list(dict.fromkeys(models.split(",")))
    settings = [*overrides, "system.devices=1"]
    configs = {}
    for model in model_names:
        configs[model] = compose_configuration(
            name, {}, {}, model=model, home=home, overrides=settings, **options
        )
    from kmip_data.models.benchmarking.training_speed import TrainingBenchmark, compare_training
    from kmip_data.models.training.data.open_data import open_data
    from kmip_data.models.training.devices import choose_device

    first = configs[model_names[0]]
    device = choose_device(first.system.device)
    data = {model: open_data(config, home=home, quiet=quiet) for model, config in configs.items()}
    builders = {}
    for model, config in configs.items():
        builders[model] = partial(
            TrainingBenchmark,
            config=config,
            data=data[model],
            device=device,
        )
    log = partial(print_status, quiet=quiet)
    speeds = compare_training(
        builders,
        rounds=ROUNDS,
        max_batches=MAX_BATCHES,
        max_seconds=MAX_SECONDS,
        log=log,
    )

    first_data = data[model_names[0]]
    epochs = f"{first.training.epochs:,} epochs"
    if first.preset:
        epochs += f" of {first.preset}"
    coverage = first_data.build.card.coverage_suffix
    if coverage:
        epochs += f" on these data{coverage}, whose epochs are not the published set's"
    text = [speed_table(speeds)]
    text += [f"{speed.name}: {speed.note}" for speed in speeds if speed.note]
    text += [
        f"hours: for {epochs}, without evaluations; ratio: time relative to {model_names[0]}",
        f"data: {first_data.description}\n{describe_machine()}; device {device.name}",
    ]
    result = {
        "machine": describe_machine(),
        "device": device.name,
        "data": first_data.description,
        "models": list(map(asdict, speeds)),
    }
    print_result(result, *text)


def speed_table(speeds: list[TrainingSpeed]) -> str:
    """Return a table of the training speed of networks."""
    rows = []
    for speed in speeds:
        cells = ["–"] * 5
        if speed.seconds is not None and speed.spread is not None:
            memory = "–" if speed.peak is None else f"{speed.peak / 2**20:,.0f} MiB"
            least, most = speed.spread
            cells = [
                format_quantity(speed.seconds, "s"),
                f"{speed.graphs / speed.seconds:.3g}",
                memory,
                f"{speed.hours:.3g}",
                f"{speed.ratio:.2f}× ({least:.2f} to {most:.2f})",
            ]
        rows.append([speed.name, *cells])
    return format_table(["", "a batch", "graphs/s", "memory", "hours", "ratio"], rows)
