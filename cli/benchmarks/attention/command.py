"""``kmip-data bench attention``: the paper's efficiency experiment on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import json_option, quiet_option
from kmip_data.errors import UsageError

if TYPE_CHECKING:
    from kmip_data.models.profiling.measuring import Protocol
    from kmip_data.models.profiling.workload import Shape

PAPER_BREAKDOWN = 31_622  #: nodes of the paper's stage plot


class Count(click.ParamType):  # type: ignore[type-arg]
    """A whole number of at least 1, also as 1e5."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read ``1e5`` and ``100000``."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is no number", param, ctx)
        if not 1 <= number <= 1e9:
            self.fail(f"{value} is not in 1 … 1e9", param, ctx)
        return int(number)


@dataclass(frozen=True)
class Asked:
    """The options, checked and completed."""

    methods: list[str]
    sizes: list[int]
    settings: list[Any]
    shape: Shape
    protocol: Protocol
    device: str
    threads: int
    save: Path | None
    title: str


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
    ],
)
@click.option(
    "--methods",
    metavar="LIST",
    help="Such as auto,cpu,dense,symbolic,naive,full,sdpa,faiss-flat; `all` for every one there is.  "
    "[default: ours, the paper's, and what else is exact]",
)
@click.option("--min-n", type=Count(), default=100, metavar="N", show_default=True, help="Least nodes.")
@click.option(
    "--max-n",
    type=Count(),
    metavar="N",
    help="Most nodes, such as 1e7; sizes are 10^(i/2): 100, 316, 1,000 …  [default: 1e5]",
)
@click.option(
    "--setting", type=click.Choice(["inference", "training", "both"]), default="both", show_default=True
)
@click.option("--heads", type=click.IntRange(min=1), default=1, show_default=True, metavar="N")
@click.option(
    "--d",
    type=click.IntRange(1, 256),
    default=10,
    show_default=True,
    metavar="N",
    help="Length of a query and a key.",
)
@click.option(
    "--value-dim",
    type=click.IntRange(min=1),
    metavar="N",
    help="Length of a value.  [default: that of a key]",
)
@click.option(
    "--k",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Keys a query attends to.",
)
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
    help="One ragged batch in place of the sizes, such as 2000x150 or 2000x50..250 (graphs x nodes).",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="[default: cores of this process]")
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    metavar="N",
    help="Counted runs of a cell; fewer where one takes long.  [default: 5]",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0.1),
    metavar="S",
    help="A cell whose run takes longer is `time`, larger ones are not tried.  [default: 60]",
)
@click.option(
    "--memory-limit",
    type=click.FloatRange(min=0.1),
    metavar="GIB",
    help="Above it a cell is `oom`.  [default: 80 % of what is free]",
)
@click.option(
    "--protocol",
    type=click.Choice(["corrected", "published"]),
    default="corrected",
    show_default=True,
    help="published: as the paper's code measured, mistakes too (docs/benchmarks.md).",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N")
@click.option(
    "--breakdown",
    is_flag=True,
    help="In place of the sweep: the stages of one step at 31,622 nodes (or --max-n).",
)
@click.option(
    "--table",
    "as_table",
    is_flag=True,
    help="In place of the sweep: the rows of docs/performance.md, both sides in turn. "
    "With --data trained:FILE the row on those alone.",
)
@click.option("--quick", is_flag=True, help="Small sizes and one run: shows that it runs, not how fast.")
@click.option("--save", metavar="PREFIX", help="Write PREFIX.csv and PREFIX.png.")
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
    from kmip_data.cli.benchmarks.attention import report

    if breakdown and as_table:
        raise UsageError(
            "--breakdown and --table are two different things.",
            expected="one of the two, or neither",
            found="both",
            left="nothing was measured",
            next="kmip-data bench attention --help",
        )
    if as_table:
        from kmip_data.cli.bench import machine_line, measured, print_rows
        from kmip_data.cli.benchmarks.attention.table import measure

        kind, _, file = options["data"].partition(":")
        machine = machine_line()
        rows = measure(
            quick=options["quick"],
            trained=file if kind == "trained" else None,
            threads=options["threads"],
        )
        found = measured("attention --table", rows, quiet=quiet)
        print_rows(found, machine, quick=options["quick"], markdown=markdown, as_json=as_json)
        return
    asked = check(**options)
    if breakdown:
        report.show_breakdown(asked, as_json=as_json, quiet=quiet)
    else:
        report.show_sweep(asked, as_json=as_json, quiet=quiet)


def check(  # noqa: PLR0913 -- the options there are
    *,
    methods: str | None,
    min_n: int,
    max_n: int | None,
    setting: str,
    heads: int,
    d: int,
    value_dim: int | None,
    k: int,
    data: str,
    graphs: str | None,
    device: str,
    threads: int | None,
    repeats: int | None,
    time_limit: float | None,
    memory_limit: float | None,
    protocol: str,
    seed: int,
    quick: bool,
    save: str | None,
) -> Asked:
    """Complete the options; raises :class:`UsageError` before anything is measured."""
    from kmip_data.cli.analyses import check_prefix
    from kmip_data.cli.bench import machine_line
    from kmip_data.models.profiling.measuring import Protocol
    from kmip_data.models.profiling.methods import default_methods, get_method, method_names
    from kmip_data.models.profiling.published import SETTINGS
    from kmip_data.models.profiling.sweep import default_memory_limit
    from kmip_data.models.profiling.workload import Shape, Source, graph_sizes, sizes_up_to
    from kmip_data.models.training.memory.machine import choose_device
    from kmip_data.runtime.threads import available_cores

    kind = choose_device(device).kind
    prefix = None if save is None else Path(save).expanduser()
    if prefix is not None:
        check_prefix(prefix)
    if methods is None:
        names = default_methods(kind)
    else:
        names = method_names() if methods == "all" else [name.strip() for name in methods.split(",")]
    for name in names:
        get_method(name)
    shape = Shape(
        heads=heads,
        d=d,
        value_dim=value_dim or d,
        k=k,
        data=data,
        graph_sizes=None if graphs is None else graph_sizes(graphs, seed=seed),
    )
    source = Source(shape)
    if shape.graph_sizes is not None:
        sizes = [sum(shape.graph_sizes)]
    else:
        most = max_n or (1000 if quick else 100_000)
        sizes = sizes_up_to(min(most, source.largest or most), min_n)
        if source.largest is not None and source.largest <= most:
            sizes = sorted({*sizes, source.largest})
    if not sizes:
        raise UsageError(
            "There is no size between --min-n and --max-n.",
            expected="a number 10^(i/2) between them, such as 1000",
            found=f"{min_n:,} … {max_n or 100_000:,}",
            left="nothing was measured",
            next="--min-n 100 --max-n 1e4",
        )
    return Asked(
        methods=list(dict.fromkeys(names)),
        sizes=sizes,
        settings=list(SETTINGS) if setting == "both" else [setting],
        shape=source.shape,
        protocol=Protocol(
            repeats=repeats or (1 if quick else 5),
            seed=seed,
            time_limit=time_limit or (20.0 if quick else 60.0),
            memory_limit=default_memory_limit() if memory_limit is None else int(memory_limit * 2**30),
            published=protocol == "published",
        ),
        device=kind,
        threads=threads or available_cores(),
        save=prefix,
        title=machine_line(),
    )
