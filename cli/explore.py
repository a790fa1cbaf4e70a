"""``kmip-data explore``: an interactive page for a graph and the predictions of runs."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.dataset_command import DatasetCommand, resolve
from kmip_data.cli.shared.names import RUN_OR_TARGET
from kmip_data.cli.shared.options import as_trained_option, file_option, look_options
from kmip_data.cli.shared.output import check_prefix, place_of_page, print_json
from kmip_data.errors import UsageError
from kmip_data.format.splits import PARTS

if TYPE_CHECKING:
    from kmip_data.builds.home import Build, Home
    from kmip_data.drawing.graphs import Graph
    from kmip_data.drawing.page import Answer
    from kmip_data.models.training.run.evaluate import OpenedRun


@click.command(
    cls=DatasetCommand,
    examples=[
        "kmip-data explore helsinki",
        "kmip-data explore helsinki/gps-kmip/mine helsinki/gcn/mine",
        "kmip-data explore s3dis/gps-kmip/mine --record 12",
    ],
)
@click.argument("targets", metavar="TARGET|RUN…", nargs=-1, type=RUN_OR_TARGET)
@click.option(
    "--record", type=click.IntRange(min=0), metavar="N", help="Position of the record.  [default: 0]"
)
@click.option(
    "--split",
    "part",
    type=click.Choice(PARTS),
    help="Count positions in this part.  [default: test for a run, else the whole build]",
)
@file_option(
    "--output", help="Where the page goes.  [default: explore.html in the folder of the run or build]"
)
@click.option("--no-open", is_flag=True, help="Write the page, and leave the browser alone.")
@as_trained_option
@look_options
def command(
    targets: tuple[str, ...], record: int | None, part: str | None, output: Path | None, no_open: bool,
    device: str | None, sample: bool, home: Home, as_json: bool,
) -> None:  # fmt: skip
    """Open an interactive page for a graph and its predictions.

    TARGET is a city, or a build whose --record is shown. With a RUN its own data are shown, with what its
    best weights predict, the keys that each k-MIP head chose and their weights, and its errors; of all the
    RUNs named the learning curves and the influence of other nodes by distance. The page is one file that
    needs no network.
    """
    from kmip_data.drawing.page import PAGE, draw_explorer
    from kmip_data.drawing.style import chosen

    if output is not None:
        check_prefix(output, "--output")
    if not targets:
        raise UsageError(
            "Nothing is named to explore.", next="kmip-data list and kmip-data runs show what is here"
        )
    build, answer, folder, curves = _read(targets, record, part, device, sample, home)
    with chosen("dark"):  # whose scales of colours are seen on light ground, too
        graph = _graph(build, answer, record, part)
    page = output or place_of_page(folder.name, folder, PAGE)
    draw_explorer(graph, answer, curves, page)
    found = {"path": build.path, "saved": page, "run": answer and answer.run, "sample": build.card.sample}
    _tell(page, found, as_json=as_json, no_open=no_open)


def _graph(build: Build, answer: Answer | None, record: int | None, part: str | None) -> Graph:
    """Return the city, or the record of another build."""
    from kmip_data.drawing.graphs import city_graph, record_graph
    from kmip_data.graphs.city_columns import is_city
    from kmip_data.manifest import dataset_names, load_manifest
    from kmip_data.reading.dataset import ShardedDataset

    classes, run = (None, "") if answer is None else (answer.classes, answer.run)
    if is_city(build.card):
        if record is not None or part is not None:
            raise UsageError(
                "A city is one graph, shown whole.",
                expected="neither --record nor --split",
                found="--split" if record is None else "--record",
                next="kmip-data explore --help",
            )
        return city_graph(build, classes, None if answer is None else answer.split, run)
    part = part if answer is None else part or "test"
    dataset = ShardedDataset(build, part, split_name=None if answer is None else answer.split)
    known = build.card.dataset in dataset_names()
    up = load_manifest(build.card.dataset).up_axis if known else "z"
    return record_graph(dataset, record or 0, classes, run, up)


def _tell(page: Path, found: Mapping[str, Any], *, as_json: bool, no_open: bool) -> None:
    if as_json:
        print_json(found)
        return
    click.echo(f"Saved {page}")
    if not no_open:
        webbrowser.open(page.absolute().as_uri())


def _curves(runs: Sequence[OpenedRun], part: str, position: int) -> list[dict[str, Any]]:
    """Return the curves of runs, under their paths below ``runs/``: by epoch, and influence by distance."""
    from kmip_data.models.analysis.answers import influence_by_hop
    from kmip_data.models.training.run.folder import metrics_columns

    found = []
    for run in runs:
        columns: dict[str, Any] = metrics_columns(run.folder)
        if reach := influence_by_hop(run, part, position):
            columns["influence by hop"] = reach
        found.append({"name": "/".join(run.folder.parts[-3:]), "columns": columns})
    return found


def _read(
    targets: tuple[str, ...],
    record: int | None,
    part: str | None,
    device: str | None,
    sample: bool,
    home: Home,
) -> tuple[Build, Answer | None, Path, list[dict[str, Any]]]:
    """Return the build, what the run says, the folder of the page, and the learning curves."""
    from kmip_data.builds.home import list_builds
    from kmip_data.format.card import CARD_NAME
    from kmip_data.manifest import dataset_names

    first = targets[0]
    names = {*dataset_names(), *(build.card.dataset for build in list_builds(home))}
    if first in names or (Path(first).expanduser() / CARD_NAME).is_file():
        if len(targets) > 1:
            raise UsageError(
                "A run names its own data.",
                expected="one TARGET, or RUNs alone",
                found=" ".join(targets),
                next=f"kmip-data explore {' '.join(targets[1:])}",
            )
        build = resolve(first, home, sample=sample)
        return build, None, build.path, []
    from kmip_data.models.analysis.answers import ask
    from kmip_data.models.training.run.evaluate import open_run

    where = part or "test"
    opened, answer = ask(first, part=where, position=record or 0, home=home, device=device)
    others = [open_run(run, home=home, device=device) for run in targets[1:]]
    return opened.data.build, answer, opened.folder, _curves([opened, *others], where, record or 0)
