"""Options of the analyses of queries and keys, their source, and their output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.names import RUN
from kmip_data.cli.shared.options import (
    file_option,
    number_list,
    number_option,
    several,
    work_options,
)
from kmip_data.cli.shared.output import beside, check_prefix, print_json, table
from kmip_data.errors import UsageError
from kmip_data.format.card import remark
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.models.analysis.drawing import Curve
    from kmip_data.models.analysis.projections import Projections
    from kmip_data.models.analysis.study import Measure

save_option = click.option(
    "--save",
    metavar="PREFIX",
    help="Write PREFIX.png (or PREFIX.svg, PREFIX.pdf) and PREFIX.csv.  [default: named as the analysis, in "
    "the run folder or here]",
)


class Range(click.ParamType):  # type: ignore[type-arg]
    """Two whole numbers with a separator between them."""

    def __init__(self, separator: str) -> None:
        self.name, self.separator = f"A{separator}B", separator

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Read ``2500x16`` or ``1001..5000``."""
        found = re.fullmatch(rf"(\d{{1,9}}){re.escape(self.separator)}(\d{{1,9}})", str(value))
        if found is None or not all(map(int, found.groups())):
            self.fail(f"{value!r} is not {self.name} of numbers above 0", param, ctx)
        return int(found[1]), int(found[2])


#: Source of the projections, their selection, values of k, and where results go.
analysis_options = several(
    click.argument("run", required=False, type=RUN),
    file_option("--qk", help="Queries, keys and values that `kmip-data evaluate RUN --dump-qk FILE` wrote."),
    click.option(
        "--gaussian", type=Range("x"), metavar="NxD", help="Standard normal numbers, such as 2500x16."
    ),
    number_option("--graphs", "First N graphs; with --gaussian, N draws.  [default: 50; 1]"),
    click.option(
        "--nodes",
        type=Range(".."),
        default="1..5000",
        show_default=True,
        metavar="A..B",
        help="Sizes of graphs; the work grows with the square.",
    ),
    number_option("--queries", "N random nodes of each graph, each against all keys.  [default: all]"),
    click.option("--k", "ks", metavar="LIST", help="Such as 1,10,100.  [default: the paper's 43, up to n]"),
    save_option,
    work_options,
)


def analyse(
    name: str,
    options: Mapping[str, Any],
    measure: Measure,
    lines: Mapping[str, Curve],
    *,
    title: str,
    ylabel: str,
    columns: Mapping[str, str],
    highest: float | None = None,
) -> None:
    """Apply a measure, save its picture and figures, and print its summary.

    ``columns`` maps a curve to its heading in the printed table; ``lines``, ``title``, ``ylabel`` and
    ``highest``, the upper limit of values, are for the picture.
    """
    from kmip_data.files.changes import write_output
    from kmip_data.models.analysis.drawing import draw_study
    from kmip_data.models.analysis.study import Choice, run_study

    saved = save_paths(name, options["save"], options["run"], options["home"])
    least, most = options["nodes"]
    choice = Choice(
        graphs=options["graphs"] or 50,
        min_nodes=least,
        max_nodes=max(most, *(options["gaussian"] or (1,))),
        queries=options["queries"],
    )
    ks = None if options["ks"] is None else sorted(set(number_list("--k", options["ks"])))
    projections = _projections(name, options)
    study = run_study(projections, measure, choice=choice, ks=ks, quiet=options["quiet"])
    about = dict(projections.about)
    summaries = {name: study.summary(name) for name in study.curves}
    titles = {"title": f"{title}\n{_source(about)}", "ylabel": ylabel}
    draw_study(study, saved[0], lines, most=highest, **titles)
    write_output(saved[1], study.to_csv())
    if options["as_json"]:
        curves = {
            name: {"mean": mean.tolist(), "std": std.tolist()} for name, (mean, std) in summaries.items()
        }
        found = {"k": study.ks, "samples": len(study.samples), "curves": curves}
        print_json({"analysis": name, "about": about, **found, "saved": saved})
        return
    # One graph has no deviation.
    figures = 1 if len({graph for _, graph, _ in study.samples}) == 1 else 2
    header = ["k", *(word for heading in columns.values() for word in (heading, "±")[:figures])]
    shown = [figure for name in columns for figure in summaries[name][:figures]]
    click.echo(table(header, ([k, *(f"{x[i]:.4f}" for x in shown)] for i, k in enumerate(study.ks))))
    click.echo(f"{_source(about)}; {counted(len(study.samples), 'sample')} (a layer of a graph)")
    click.echo("saved  " + "  ".join(str(path) for path in saved))


def _projections(name: str, options: Mapping[str, Any]) -> Projections:
    """Return the data to analyse; raise UsageError unless exactly one source is named."""
    run, qk, gaussian = options["run"], options["qk"], options["gaussian"]
    given = [name for name, value in {"RUN": run, "--qk": qk, "--gaussian": gaussian}.items() if value]
    if len(given) != 1:
        raise UsageError(
            "One source of queries and keys must be named.",
            expected="RUN, --qk FILE or --gaussian NxD",
            found=" and ".join(given) or "none",
            next=f"kmip-data analyze {name} --gaussian 2500x16",
        )
    if gaussian:
        from kmip_data.models.analysis.study import gaussian_projections

        return gaussian_projections(*gaussian, graphs=options["graphs"] or 1)
    if qk is not None:
        from kmip_data.models.analysis.projections import read_projections

        return read_projections(qk)
    from kmip_data.models.analysis.recording import record_run

    return record_run(
        run,
        graphs=options["graphs"] or 50,
        sizes=options["nodes"],
        home=options["home"],
    )


def save_paths(name: str, save: str | None, run: str | None = None, home: Any = None) -> list[Path]:
    """Return the paths of picture and figures; raise UsageError if their folder does not exist."""
    prefix = Path(name if save is None else save).expanduser()
    if save is None and run is not None:
        from kmip_data.models.training.run.folder import find_run

        prefix = find_run(run, home) / name
    check_prefix(prefix)
    return [beside(prefix, suffix) for suffix in (".png", ".csv")]


def _source(about: dict[str, Any]) -> str:
    """Return one line with the source of the projections."""
    if about.get("data") == "Gaussian":
        return f"Gaussian queries, keys and values, n = {about['n']:,}, d = {about['d']}"
    extent = remark(bool(about.get("sample")), about.get("complete"))
    run = "/".join(Path(str(about.get("run"))).parts[-3:])  # DATASET/MODEL/NAME, wherever it lies
    return f"{about.get('dataset')}{extent}, part {about.get('part')}, run {run}"
