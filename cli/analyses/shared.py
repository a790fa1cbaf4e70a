"""What the analyses share: options, where queries and keys come from, what is printed and saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.names import RUN
from kmip_data.cli.shared.options import (
    F,
    file_option,
    number_list,
    number_option,
    several,
    style_option,
    work_options,
)
from kmip_data.cli.shared.output import beside, check_prefix, print_json, table
from kmip_data.errors import UsageError
from kmip_data.format.card import remark
from kmip_data.format.parts import PARTS
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.models.analysis.drawing import Curve, Panel
    from kmip_data.models.analysis.projections import Projections
    from kmip_data.models.analysis.study import Measure

save_option = several(
    click.option(
        "--save",
        metavar="PREFIX",
        help="Write PREFIX.png and PREFIX.csv, or, as PREFIX.svg or PREFIX.pdf, that picture and PREFIX.csv."
        "  [default: the analysis' name, in the run folder or here]",
    ),
    style_option,
)
seed_option = number_option("--seed", "Seed of everything that is drawn.", 0, type=click.IntRange(min=0))
#: The runs of an analysis that sets several side by side.
runs_argument = click.argument("runs", metavar="RUN…", nargs=-1, required=True, type=RUN)


def part_option(usual: str, what: str = "Part of the split.") -> Callable[[F], F]:
    """Make the option that names a part."""
    return click.option(
        "--split", "part", type=click.Choice(PARTS), default=usual, show_default=True, help=what
    )


#: Where the projections come from, which of them, which k, where the results go.
analysis_options = several(
    click.argument("run", required=False, type=RUN),
    file_option("--qk", help="Queries, keys and values that `kmip-data evaluate RUN --dump-qk FILE` wrote."),
    click.option("--gaussian", is_flag=True, help="Independent standard normal queries, keys and values."),
    number_option("--n", "With --gaussian: nodes.  [default: 2500]"),
    number_option("--d", "With --gaussian: row length.  [default: 16]"),
    number_option("--heads", "With --gaussian: heads.  [default: 1]"),
    part_option("test", "With RUN: the part whose graphs are taken."),
    number_option("--graphs", "Take the first N graphs; with --gaussian, N draws.  [default: 50; 1]"),
    click.option(
        "--layers",
        metavar="LIST",
        help="Such as 1..7 or 0,3, from 0.  [default: all but the first, as in the paper]",
    ),
    number_option("--min-nodes", "No smaller graphs.", 1),
    number_option("--max-nodes", "No larger graphs: the work grows with the square.", 5000),
    number_option("--queries", "Only N random nodes of each graph, each against all keys.  [default: all]"),
    click.option("--k", "ks", metavar="LIST", help="Such as 1,10,100.  [default: the paper's 43, up to n]"),
    seed_option,
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
    """Apply a measure as the options say, save its picture and figures, and print its summary.

    ``columns`` maps a curve to its heading in the printed table; ``lines``, ``title``, ``ylabel`` and
    ``highest``, where values end, are of the picture.
    """
    from kmip_data.files.changes import write_output
    from kmip_data.models.analysis.drawing import draw_study
    from kmip_data.models.analysis.study import Choice, run_study

    saved = save_paths(name, options["save"], options["run"], options["home"])
    layers, most = options["layers"], options["max_nodes"]
    choice = Choice(
        layers=None if layers is None else tuple(number_list("--layers", layers)),
        graphs=options["graphs"] or 50,
        min_nodes=options["min_nodes"],
        max_nodes=max(most, options["n"] or 2500) if options["gaussian"] else most,
        queries=options["queries"],
        seed=options["seed"],
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
    """What is analysed; raises :class:`UsageError` unless exactly one source is named."""
    run, qk, gaussian = options["run"], options["qk"], options["gaussian"]
    given = [name for name, value in {"RUN": run, "--qk": qk, "--gaussian": gaussian}.items() if value]
    if len(given) != 1:
        raise UsageError(
            "One source of queries and keys must be named.",
            expected="RUN, --qk FILE or --gaussian",
            found=" and ".join(given) or "none",
            next=f"kmip-data analyze {name} --gaussian --n 2500 --d 16",
        )
    shape = {name: options[name] for name in ("n", "d", "heads") if options[name] is not None}
    if shape and not gaussian:
        raise UsageError(
            f"{', '.join(f'--{name}' for name in shape)} can only be given with --gaussian.",
            expected="--gaussian with them",
            found=given[0],
            next="leave them out, or take --gaussian",
        )
    if gaussian:
        from kmip_data.models.analysis.study import gaussian_projections

        return gaussian_projections(
            **{"n": 2500, "d": 16, **shape}, graphs=options["graphs"] or 1, seed=options["seed"]
        )
    if qk is not None:
        from kmip_data.models.analysis.projections import read_projections

        return read_projections(qk)
    from kmip_data.models.analysis.recording import record_run

    return record_run(
        run,
        part=options["part"],
        graphs=options["graphs"] or 50,
        sizes=(options["min_nodes"], options["max_nodes"]),
        home=options["home"],
    )


def save_paths(name: str, save: str | None, run: str | None = None, home: Any = None) -> list[Path]:
    """Picture and figures of an analysis; their folder exists or this raises UsageError."""
    prefix = Path(name if save is None else save).expanduser()
    if save is None and run is not None:
        from kmip_data.models.training.run.folders import find_run

        prefix = find_run(run, home) / name
    check_prefix(prefix)
    return [beside(prefix, suffix) for suffix in (".png", ".csv")]


def finish(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, Any],
    *,
    panels: Sequence[Panel],
    title: str,
    notes: Sequence[str],
    saved: Sequence[Path],
    as_json: bool,
) -> None:
    """Save the rows of an analysis and their picture; print columns, or what is made of a row, or JSON."""
    from kmip_data.files.changes import csv_bytes, write_output
    from kmip_data.models.analysis.drawing import draw_panels

    draw_panels(panels, saved[0], title=title)
    write_output(saved[1], csv_bytes([*rows[0]], (row.values() for row in rows)))
    if as_json:
        print_json({"analysis": name, "rows": rows, "notes": notes, "saved": saved})
        return
    cells = ([of(row) if callable(of) else row[of] for of in columns.values()] for row in rows)
    click.echo(table([*columns], cells))
    click.echo("\n".join([*notes, "saved  " + "  ".join(map(str, saved))]))


def _source(about: dict[str, Any]) -> str:
    """One line that says where the projections come from."""
    if about.get("data") == "Gaussian":
        return f"Gaussian queries, keys and values, n = {about['n']:,}, d = {about['d']}"
    extent = remark(bool(about.get("sample")), about.get("complete"))
    run = "/".join(Path(str(about.get("run"))).parts[-3:])  # DATASET/MODEL/NAME, wherever it lies
    return f"{about.get('dataset')}{extent}, part {about.get('part')}, run {run}"
