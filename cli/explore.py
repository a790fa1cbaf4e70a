"""``kmip-data explore``: an interactive page for a graph and the predictions of runs."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.preview import TYPICAL
from kmip_data.cli.shared.dataset_options import (
    DatasetCommand,
    DatasetParameters,
    source_pictures,
)
from kmip_data.cli.shared.options import (
    Integer,
    device_option,
    force_option,
    number_option,
    part_option,
    path_option,
    plugin_option,
    read_only_options,
    typed_options,
)
from kmip_data.cli.shared.output import (
    Json,
    check_output_path,
    default_output_path,
    print_result,
    wants_json,
)
from kmip_data.cli.shared.targets import RUN_OR_BUILD, find_build_or_run
from kmip_data.errors import Command, Setting, UsageError
from kmip_data.runtime.progress import print_status

if TYPE_CHECKING:
    from kmip_data.arrays import Array
    from kmip_data.builds.home import Build, Home
    from kmip_data.drawing.explorer_page import GraphPredictions
    from kmip_data.drawing.page_graph import PageGraph
    from kmip_data.models.training.run.finished_run import OpenedRun
    from kmip_data.models.training.run.result import RunResult
    from kmip_data.reading.dataset import ShardedDataset

    #: A graph of a page, and the predictions of up to two runs for it.
    GraphWithPredictions = tuple[PageGraph, *tuple[GraphPredictions, ...]]

MAX_RECORDS = 8  #: records of a page
MAX_EDGES = 1_000_000  #: limit of the edges of all records after the first one


@click.command(cls=DatasetCommand)
@click.argument(
    "names",
    metavar="NAME|RUN…",
    nargs=-1,
    type=RUN_OR_BUILD,
)
@number_option(
    "--record",
    f"Position of the record.  [default: 0 for a run, else one of {TYPICAL}]",
    type=Integer(min=0),
)
@part_option("Count positions in this part.  [default: test for a run, else the whole build]")
@path_option("--output", help="Output file.  [default: explore.html in the run or build]")
@force_option
@click.option("--no-open", is_flag=True, help="Write the page without opening a browser.")
@device_option("as in training")
@plugin_option
@read_only_options
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
    seven graphs after it. In a single large graph, --record is the number of a node, shown with
    its neighbourhood. A RUN is shown on its own data: the predictions of its best weights,
    its errors, and the keys that each k-MIP head chose, with their weights. For all RUNs, the page
    has learning curves and the influence of other nodes by distance. It is one file and needs no
    network.
    """
    if output is not None:
        check_output_path(output, force=force)
    if not names:
        raise UsageError(
            "A NAME or RUN is missing.",
            steps=[Command("kmip-data list"), Command("kmip-data runs")],
        )

    # 1. Open the build, or the runs with the build that the first one was trained on.
    runs: _PageRuns | None = None
    first = find_build_or_run(names[0], home, parameters, sample=sample)
    if isinstance(first, Path):
        part = part or "test"
        runs = _open_runs([first, *names[1:]], part, record or 0, home, device)
        build = runs.first.data.build
        folder = runs.first.folder
    else:
        build = first
        folder = build.path
        if len(names) > 1:
            raise UsageError(
                f"A run is shown on its own data: leave out {names[0]}.",
                steps=Command("kmip-data explore", *names[1:]),
            )

    # 2. Draw the city, or some records.
    print_status(f"Drawing the page of {build.path.name}")
    from kmip_data.drawing.explorer_page import EXPLORER_NAME, write_explorer_page
    from kmip_data.graphs.city_columns import is_city

    if is_city(build.card):
        if refused := {"--record", "--split"} & typed_options():
            raise UsageError(
                "A city is a single graph and is shown completely.",
                steps=Setting(dict.fromkeys(option[2:] for option in refused)),
            )
        graphs = [_city_with_predictions(build, runs)]
    else:
        graphs = _records_with_predictions(build, runs, record, part, home)
    page = output or default_output_path(folder / EXPLORER_NAME, force=force)
    write_explorer_page(graphs, [] if runs is None else runs.curves, page)
    result = {
        "path": build.path,
        "saved": page,
        "run": runs and runs.start_predictions.run,
        "sample": build.card.sample,
    }
    print_result(result, f"Saved {page}")
    if not (no_open or wants_json()):
        webbrowser.open(page.absolute().as_uri())


@dataclass
class _PageRuns:
    """Runs of a page: the first one on its data, one to compare it with, and the curves of all."""

    first: OpenedRun
    compared: OpenedRun | None  #: second run on the same data
    curves: list[Json]
    part: str
    start: int  #: position of the first record of the page
    start_predictions: GraphPredictions  #: predictions of the first run for that record

    def predictions_at(self, position: int) -> list[GraphPredictions]:
        """Return the predictions of the first run, and of the compared one, for a record."""
        from kmip_data.models.analysis.explanations import predict_record

        predictions = [self.start_predictions]
        if position != self.start:
            predictions = [predict_record(self.first, split=self.part, position=position)[1]]
        if self.compared is not None:
            predictions.append(predict_record(self.compared, split=self.part, position=position)[1])
        return predictions


def _open_runs(
    names: Sequence[str | Path], part: str, start: int, home: Home, device: str | None
) -> _PageRuns:
    print_status(f"Loading PyTorch and {'/'.join(Path(names[0]).parts[-3:])}")
    from kmip_data.models.analysis.explanations import predict_record
    from kmip_data.models.training.run.finished_run import open_run

    # The first record is predicted before the curves, which take longer.
    first, predictions = predict_record(
        names[0], split=part, position=start, home=home, device=device
    )
    runs = [first, *(open_run(name, home=home, device=device) for name in names[1:])]
    curves = [_run_curves(run, part, start, first, home) for run in runs]
    return _PageRuns(first, _run_to_compare(runs, curves), curves, part, start, predictions)


def _city_with_predictions(build: Build, runs: _PageRuns | None) -> GraphWithPredictions:
    from kmip_data.drawing.page_graph import city_graph

    if runs is None:
        return (city_graph(build),)
    predictions = runs.predictions_at(runs.start)
    split = runs.start_predictions.split
    return (city_graph(build, _node_predictions(predictions), split), *predictions)


def _records_with_predictions(
    build: Build, runs: _PageRuns | None, record: int | None, part: str | None, home: Home
) -> list[GraphWithPredictions]:
    """Return a record and the following ones, up to :data:`MAX_EDGES` edges.

    Without a position, a build of more records than a page has starts at a typical one.
    """
    from kmip_data.cli.preview import typical_records
    from kmip_data.drawing.neighborhoods import NeighborhoodDataset, drawable_dataset
    from kmip_data.reading.dataset import ShardedDataset

    split_name = None if runs is None else runs.start_predictions.split
    dataset = drawable_dataset(ShardedDataset(build, part, split_name=split_name), part)
    is_part = isinstance(dataset, NeighborhoodDataset)
    start = record or 0
    if record is None and (is_part or runs is None) and len(dataset) > MAX_RECORDS:
        start = typical_records([0], dataset)[0]
    positions = [start]
    is_single_graph = is_part or (runs is not None and runs.first.data.part_members == "nodes")
    if not is_single_graph:
        positions += range(start + 1, min(start + MAX_RECORDS, len(dataset)))

    graphs: list[GraphWithPredictions] = []
    following_edges = 0
    for position in positions:
        predictions = []
        if runs is not None:
            predictions = runs.predictions_at(runs.start if is_single_graph else position)
        if is_part:
            nodes = dataset[position].n_id.numpy()
            predictions = [prediction.of_nodes(nodes) for prediction in predictions]
        graph = _record_graph(build, dataset, position, predictions, part, home)
        if position > start:
            following_edges += graph.header["streets"]["count"]
            if following_edges > MAX_EDGES:
                break
        graphs.append((graph, *predictions))
    return graphs


def _run_curves(run: OpenedRun, part: str, position: int, first: OpenedRun, home: Home) -> Json:
    """Return the answers on test, the metrics of a run by epoch and by distance, and its influence.

    The influence of every node is included only if the run was trained on the data of ``first``.
    """
    from kmip_data.models.analysis.explanations import evaluate_by_distance, influence_of
    from kmip_data.models.reports.result_tables import configuration_digest
    from kmip_data.models.training.run.run_folder import metrics_columns
    from kmip_data.models.training.run.summary import answers_on_test

    name = "/".join(run.folder.parts[-3:])
    print_status(f"Measuring curves and influence of {name}")
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
        # Draw a band such as 9–12 or 111+ at its first distance.
        points = []
        for band, value in zip(bands.bands, bands.values, strict=True):
            first_distance, *_ = re.split("[–+]", band)
            points.append((int(first_distance), value))
        columns[f"{bands.metric} by distance"] = points
    return {
        "name": name,
        "group": configuration_digest(run),
        "columns": columns,
        "percent": [name for name in columns if _is_percent(name)],
        "answers": answers_on_test(run.result, name),
        "references": _reference_values(run.result),
        "errors": {f"test_{metric}": error for metric, error in run.result.standard_errors.items()},
        "best": run.result.best_epoch + 1,
        "influence": influence,
    }


def _is_percent(column: str) -> bool:
    """True for a metric on a part, or by distance, that is printed in percent."""
    from kmip_data.models.training.metrics import METRICS

    metric = METRICS.get(re.sub("^(train|val|test)_| by distance$", "", column))
    return metric is not None and metric.percent


def _reference_values(result: RunResult) -> dict[str, dict[str, float]]:
    """Return the reference answers on val and test by name, for the curve of the metric on each part."""
    from kmip_data.models.training.references.reference import short_title

    values: dict[str, dict[str, float]] = {"val": {}, "test": {}}
    for name, reference in result.references.items():
        for part, by_name in values.items():
            value = getattr(reference, part)
            if value is not None:
                by_name[short_title(name)] = value
    return {f"{part}_{result.metric}": by_name for part, by_name in values.items()}


def _run_to_compare(runs: list[OpenedRun], curves: list[Json]) -> OpenedRun | None:
    """Return the run to compare the first one with, if one has the same data, split and task."""
    from kmip_data.drawing.explorer_page import runs_to_compare

    first = runs[0].data
    pair = [curve["name"] for curve in runs_to_compare(curves)]
    for run, curve in zip(runs[1:], curves[1:], strict=True):
        data = run.data
        same_data = data.build.path == first.build.path and data.split_name == first.split_name
        if same_data and data.task == first.task and curve["name"] == pair[-1]:
            return run
    return None


def _node_predictions(predictions: list[GraphPredictions]) -> list[tuple[str, Array]]:
    """Return the name and the predictions for nodes of each run that has any."""
    runs: list[tuple[str, Array]] = []
    for prediction in predictions:
        values = prediction.values if prediction.classes is None else prediction.classes
        if values is not None:
            runs.append((prediction.run, values))
    return runs


def _record_graph(
    build: Build,
    dataset: ShardedDataset,
    position: int,
    predictions: list[GraphPredictions],
    part: str | None,
    home: Home,
) -> PageGraph:
    """Return the graph of a record with its picture and the predictions of runs."""
    from kmip_data.drawing.page_graph import graph_of_record

    picture = None
    if position < len(dataset):  # else `graph_of_record` refuses it
        key = dataset.keys[position]
        picture = source_pictures(build, home, [key]).get(key)
    graph = graph_of_record(dataset, position, _node_predictions(predictions), picture)
    if "numbers" not in graph.header:  # else records are nodes
        where = f" of {part}" if part else ""
        graph.header["place"] = f"Record {position + 1:,} of {len(dataset):,}{where}"
    return graph
