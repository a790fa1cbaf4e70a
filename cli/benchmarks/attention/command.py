"""``kmip-data bench attention``: the paper's efficiency experiment on this machine."""

from __future__ import annotations

from typing import Any

import click

from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import json_option, number_option, quiet_option, style_option
from kmip_data.errors import UsageError


class Count(click.ParamType):  # type: ignore[type-arg]
    """A whole number of at least 1, also as 1e5."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read ``1e5`` and ``100000``."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not 1 <= number <= 1e9:
            self.fail(f"{value} is not in 1 … 1e9", param, ctx)
        return int(number)


@click.command(
    "attention",
    cls=Command,
    examples=[
        "kmip-data bench attention --max-n 1e4 --save attention",
        "kmip-data bench attention --methods auto,cpu,dense,keops,faiss-flat --max-n 1e5 --k 100",
        "kmip-data bench attention --methods auto,faiss-ivf,faiss-pq,faiss-lsh --setting inference",
        "kmip-data bench attention --data sphere --d 64 --max-n 1e5",
        "kmip-data bench attention --graphs 2000x150 --k 15 --methods auto,naive,sdpa",
        "kmip-data bench attention --breakdown --save attention",
        "kmip-data bench attention --table",
        "kmip-data bench attention --table --device cuda",
    ],
)
@click.option(
    "--methods",
    metavar="LIST",
    help="Such as auto,cpu,dense,symbolic,naive,full,sdpa,faiss-flat; `all` for every one there is.  "
    "[default: ours, the paper's, and what else is exact]",
)
@number_option("--min-n", "Smallest number of nodes.", 100, type=Count())
@number_option(
    "--max-n",
    "Largest number of nodes, such as 1e7; sizes are 10^(i/2): 100, 316, 1,000 …  [default: 1e5]",
    type=Count(),
)
@click.option(
    "--setting", type=click.Choice(["inference", "training", "both"]), default="both", show_default=True
)
@number_option("--heads", default=1)
@number_option("--d", "Length of a query and a key.", 10, type=click.IntRange(1, 256))
@number_option("--value-dim", "Length of a value.  [default: that of a key]")
@number_option("--k", "Keys that a query attends to.", 10)
@click.option(
    "--data",
    default="gaussian",
    show_default=True,
    metavar="KIND",
    help="gaussian, sphere, clustered or trained:FILE (of `kmip-data evaluate RUN --dump-qk FILE`).",
)
@click.option(
    "--graphs",
    metavar="GxN",
    help="One ragged batch instead of the sizes, such as 2000x150 or 2000x50..250 (graphs x nodes).",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@number_option("--threads", "Threads of every library.  [default: the cores this process may use]")
@number_option("--repeats", "Runs of a cell that count; fewer where one takes long.  [default: 5]")
@number_option(
    "--time-limit",
    "A cell whose run takes longer shows `time`; larger ones are not tried.  [default: 60]",
    type=click.FloatRange(min=0.1),
    metavar="S",
)
@number_option(
    "--memory-limit",
    "A cell that needs more shows `oom`.  [default: 80 % of what is free]",
    type=click.FloatRange(min=0.1),
    metavar="GIB",
)
@click.option(
    "--protocol",
    type=click.Choice(["corrected", "published"]),
    default="corrected",
    show_default=True,
    help="published: as the paper's code measured, mistakes too (docs/benchmarks.md).",
)
@number_option("--seed", "Seed of the inputs.", 0, type=click.IntRange(min=0))
@click.option(
    "--breakdown",
    is_flag=True,
    help="Instead of the sweep: the stages of one step at 31,622 nodes (or --max-n).",
)
@click.option(
    "--table",
    "as_table",
    is_flag=True,
    help="Instead of the sweep: the rows of docs/performance.md, both sides in turn. "
    "With --data trained:FILE the row on those alone, with --device cuda those of one GPU.",
)
@click.option("--quick", is_flag=True, help="Small sizes and one run: shows that it runs, not how fast.")
@click.option(
    "--save",
    metavar="PREFIX",
    help="Write PREFIX.csv and PREFIX.png; as PREFIX.svg or PREFIX.pdf, that picture.",
)
@style_option
@click.option("--markdown", is_flag=True, help="With --table: as docs/performance.md has it.")
@json_option
@quiet_option
def command(
    breakdown: bool, as_table: bool, markdown: bool, as_json: bool, quiet: bool, **options: Any
) -> None:
    """The paper's efficiency experiment on this machine.

    Time and peak memory of attention methods against the number of nodes, in inference and in
    training, each method in a process of its own: out of memory or time is a cell of the table. The
    paper's A100 figures stand beside them, named as such.
    """
    if breakdown and as_table:
        raise UsageError(
            "--breakdown and --table exclude each other.",
            expected="one of the two, or neither",
            found="both",
            left="nothing was measured",
            next="kmip-data bench attention --help",
        )
    if as_table:
        from kmip_data.cli.bench import machine_line, measured, print_rows
        from kmip_data.cli.benchmarks.attention.cuda_table import measure_on_gpu
        from kmip_data.cli.benchmarks.attention.table import measure
        from kmip_data.models.training.machine import choose_device

        quick, (kind, _, file) = options["quick"], options["data"].partition(":")
        machine, trained = machine_line(), file if kind == "trained" else None
        if options["device"] == "cuda":
            machine = f"{choose_device('cuda').name}, {machine}"
            rows = measure_on_gpu(quick=quick)
        else:
            rows = measure(quick=quick, trained=trained, threads=options["threads"])
        found = measured("attention --table", rows, quiet=quiet)
        print_rows(found, machine, quick=quick, markdown=markdown, as_json=as_json)
        return
    from kmip_data.cli.benchmarks.attention import report
    from kmip_data.cli.benchmarks.attention.asked import complete

    show = report.show_breakdown if breakdown else report.show_sweep
    show(complete(options), as_json=as_json, quiet=quiet)
