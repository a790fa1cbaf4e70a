"""``kmip-data explore``: an interactive page for a graph and the predictions of runs."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.datasets import DatasetCommand, DatasetParameters, find_build_or_run
from kmip_data.cli.shared.names import RUN_OR_BUILD
from kmip_data.cli.shared.options import (
    Integer,
    device_option,
    force_option,
    inspect_options,
    number_option,
    options_on_line,
    part_option,
    path_option,
    plugin_option,
)
from kmip_data.cli.shared.output import (
    Json,
    check_output_path,
    default_output_path,
    print_result,
    wants_json,
)
from kmip_data.errors import UsageError
from kmip_data.runtime.progress import print_status

if TYPE_CHECKING:
    from kmip_data.arrays import Array
    from kmip_data.builds.home import Build, Home
    from kmip_data.drawing.graphs import PageGraph
    from kmip_data.drawing.page import GraphPredictions
    from kmip_data.models.training.run.evaluate import OpenedRun
    from kmip_data.reading.dataset import ShardedDataset

RECORDS = 8  #: in a page
MAX_EDGES = 1_000_000  #: most edges of all records of a page but the first


@click.command(cls=DatasetCommand)
@click.argument(
    "names",
    metavar="NAME|RUN…",
    nargs=-1,
    type=RUN_OR_BUILD,
)
@number_option("--record", "Position of the record.  [default: 0]", type=Integer(min=0))
@part_option("Count positions in this part.  [default: test for a run, else the whole build]")
@path_option("--output", help="Output file.  [default: explore.html in the run or build]")
@force_option
@click.option("--no-open", is_flag=True, help="Write the page without opening a browser.")
@device_option("as the run was trained")
@plugin_option
@inspect_options
def command(
    names: tuple[str, ...],
    record: int | None,
    part: str | None,
    output: Path | None,
    force: bool,
    no_open: bool,
    device: str | None,
    sample: bool,
    home: Home,
    parameters: DatasetParameters,
) -> None:
    """Open an interactive page for a graph and its predictions.

    NAME is a city or another build. For a build, the page shows graph number --record and up to
    seven graphs that follow. In a single large graph, --record is the number of a node, shown with
    a sampled neighbourhood. A RUN is shown on its own data: the predictions of its best weights,
    its errors, and the keys that each k-MIP head chose, with their weights. For all RUNs, the page
    has learning curves and the influence of other nodes by distance. It is one file and needs no
    network.
    """
    if output is not None:
        check_output_path(output, force=force)
    if not names:
        raise UsageError("A NAME or RUN is missing.", next="kmip-data list, or kmip-data runs")

    # The first name says which data are shown: a build's, or a run's, whose
    # predictions are shown with them. Curves of further runs are drawn next to its own.
    answer = None
    second = None
    curves = []
    start = record or 0
    where = part or "test"  # a run's part
    first = find_build_or_run(names[0], home, parameters, sample=sample)
    if isinstance(first, Path):
        print_status(f"Loading PyTorch and {'/'.join(first.parts[-3:])}")
        from kmip_data.models.analysis.explanations import predict_record
        from kmip_data.models.training.run.evaluate import open_run

        part = where
        opened, answer = predict_record(first, split=part, position=start, home=home, device=device)
        build = opened.data.build
        folder = opened.folder
        runs = [opened, *(open_run(run, home=home, device=device) for run in names[1:])]
        curves = [_run_curves(run, where, start, opened, home) for run in runs]
        second = _run_to_compare(runs, curves)
    else:
        build = first
        folder = build.path
        if len(names) > 1:
            raise UsageError(
                f"A run is shown on its own data: leave out {names[0]}.",
                next=f"kmip-data explore {' '.join(names[1:])}",
            )

    print_status(f"Drawing the page of {build.path.name}")
    from kmip_data.drawing.graphs import city_graph
    from kmip_data.drawing.neighborhoods import drawable_dataset
    from kmip_data.drawing.page import PAGE, draw_explorer
    from kmip_data.graphs.city_columns import is_city
    from kmip_data.reading.dataset import ShardedDataset

    def answers_at(position: int) -> list[GraphPredictions]:
        if answer is None:
            return []
        predictions = [answer]
        if position != start:
            predictions = [predict_record(opened, split=where, position=position)[1]]
        if second is not None:
            predictions.append(predict_record(second, split=where, position=position)[1])
        return predictions

    answers = answers_at(start)
    graphs: list[tuple[PageGraph, *tuple[GraphPredictions, ...]]]
    if is_city(build.card):
        if refused := {"--record", "--split"} & options_on_line():
            raise UsageError(
                "A city is a single graph and is shown completely.",
                next=f"leave out {min(refused)}",
            )
        predicted, other = _node_predictions(answers)
        run, split = ("", None) if answer is None else (answer.run, answer.split)
        graphs = [(city_graph(build, predicted, split, run, other=other), *answers)]
    else:
        split_name = None if answer is None else answer.split
        dataset = drawable_dataset(ShardedDataset(build, part, split_name=split_name), part)
        graphs = [(_record_with_predictions(build, dataset, start, answers, part, home), *answers)]
        if answer is None or opened.data.unit != "nodes":
            graphs += _following_records(build, dataset, start, answers_at, part, home)
    page = output or default_output_path(folder / PAGE, force=force)
    draw_explorer(graphs, curves, page)
    result = {
        "path": build.path,
        "saved": page,
        "run": answer and answer.run,
        "sample": build.card.sample,
    }
    print_result(result, f"Saved {page}")
    if not (no_open or wants_json()):
        webbrowser.open(page.absolute().as_uri())


def _following_records(
    build: Build,
    dataset: ShardedDataset,
    start: int,
    answers_at: Callable[[int], list[GraphPredictions]],
    part: str | None,
    home: Home,
) -> list[tuple[PageGraph, *tuple[GraphPredictions, ...]]]:
    """Return the records after ``start`` with the answers to each, as far as they are small."""
    graphs: list[tuple[PageGraph, *tuple[GraphPredictions, ...]]] = []
    edges = 0
    for position in range(start + 1, min(start + RECORDS, len(dataset))):
        answers = answers_at(position)
        graph = _record_with_predictions(build, dataset, position, answers, part, home)
        edges += graph.header["streets"]["count"]
        if edges > MAX_EDGES:
            break
        graphs.append((graph, *answers))
    return graphs


def _run_curves(run: OpenedRun, part: str, position: int, first: OpenedRun, home: Home) -> Json:
    """Return the curves of a run by epoch and by distance, keyed by its path below ``runs/``.

    The influence of every node is kept where the run is of the data of the ``first``.
    """
    from kmip_data.models.analysis.explanations import evaluate_by_distance, influence_of
    from kmip_data.models.reports.result_tables import configuration_digest
    from kmip_data.models.training.run.run_folder import metrics_columns

    print_status(f"Measuring curves and influence of {'/'.join(run.folder.parts[-3:])}")
    columns: Json = metrics_columns(run.folder)
    influence = influence_of(run, part, position)
    if influence is not None:
        columns["influence by hop"] = influence.by_hop
        same_build = run.data.build.path == first.data.build.path
        if not same_build or run.data.split_name != first.data.split_name:
            influence = None
    bands = evaluate_by_distance(
        run.folder,
        split=part,
        home=home,
        device=run.device.type,
    )
    if bands is not None:
        # A band such as 9–12 or 111+ is drawn at its first distance.
        points = []
        for band, value in zip(bands.bands, bands.values, strict=True):
            first_distance, *_ = re.split("[–+]", band)
            points.append((int(first_distance), value))
        columns[f"{bands.metric} by distance"] = points
    return {
        "name": "/".join(run.folder.parts[-3:]),
        "group": configuration_digest(run),
        "columns": columns,
        "best": run.result.best_epoch + 1,
        "influence": influence,
    }


def _run_to_compare(runs: list[OpenedRun], curves: list[Json]) -> OpenedRun | None:
    """Return the run that the first one is compared with, if it is of the same data and split."""
    from kmip_data.drawing.page import runs_to_compare

    first = runs[0].data
    pair = [curve["name"] for curve in runs_to_compare(curves)]
    for run, curve in zip(runs[1:], curves[1:], strict=True):
        data = run.data
        same_data = data.build.path == first.build.path and data.split_name == first.split_name
        if same_data and data.task == first.task and curve["name"] == pair[-1]:
            return run
    return None


def _node_predictions(
    answers: list[GraphPredictions],
) -> tuple[Array | None, tuple[str, Array] | None]:
    """Return the first run's predictions for nodes, and the other run's name and predictions."""
    values = [answer.values if answer.classes is None else answer.classes for answer in answers]
    if not values or values[0] is None:
        return None, None
    if len(values) < 2 or values[1] is None:
        return values[0], None
    return values[0], (answers[1].run, values[1])


def _record_with_predictions(
    build: Build,
    dataset: ShardedDataset,
    position: int,
    answers: list[GraphPredictions],
    part: str | None,
    home: Home,
) -> PageGraph:
    """Return a record with its picture and the predictions of runs."""
    from kmip_data.cli.shared.datasets import source_pictures
    from kmip_data.drawing.graphs import graph_of_record

    picture = None
    if position < len(dataset):  # else refused below
        key = dataset.keys[position]
        picture = source_pictures(build, home, [key]).get(key)
    predicted, other = _node_predictions(answers)
    run = answers[0].run if answers else ""
    graph = graph_of_record(dataset, position, predicted, run, picture, other=other)
    where = f" of {part}" if part else ""
    graph.header["place"] = f"Record {position + 1:,} of {len(dataset):,}{where}"
    return graph
