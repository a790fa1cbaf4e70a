"""``kmip-data evaluate``: metrics of a run's weights, or of predictions in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared import commands as shared
from kmip_data.cli.shared.output import show, table
from kmip_data.errors import UsageError

if TYPE_CHECKING:
    from kmip_data.models.training.run.predictions import PredictionMetrics


@click.command(cls=shared.Command)
@click.argument("run", required=False, type=shared.RUN)
@shared.path_option(
    "--predictions",
    help="Instead of RUN: a file from predict, or an .npz with logits (or pred), and --dataset.",
)
@shared.part_option(
    "With --predictions: part of the split.  [default: that of the file, else test]"
)
@shared.trained_options
@click.option(
    "--by-class",
    is_flag=True,
    help="Also show metrics by class, or by distance to the answer where known.",
)
@shared.look_options
def command(
    run: str | None,
    predictions: Path | None,
    part: str | None,
    by_class: bool,
    as_json: bool,
    **data: Any,
) -> None:
    """Measure a trained model, or predictions.

    Takes the best weights of RUN, a run folder or the end of its path, and prints the metrics of
    every part of the split. With --predictions, prints the metrics of predictions in a file.
    """
    if predictions is not None or run is None:
        device = data.pop("device")
        if predictions is None or run or device or by_class:
            what = "Either a run or a file of predictions is measured."
            expected = "RUN; or --predictions FILE, which takes no RUN, --device or --by-class"
            raise UsageError(what, expected=expected, next="kmip-data evaluate --help")
        measured = _of_file(predictions, part, **data)
        text = f"{measured.table()}\npredictions  {predictions}"
        show({"predictions": predictions, **measured.to_dict()}, text, as_json=as_json)
        return
    if part is not None:
        raise UsageError(
            "A run is measured on every part.", next="leave out --split, or add --predictions"
        )
    from kmip_data.models.training.run.evaluate import evaluate

    found = evaluate(run, **data)
    lines = [found.table(), f"run  {found.run}"]
    further = dict[str, Any]()
    if by_class:
        from kmip_data.models.analysis.answers import by_distance, class_accuracy

        if bands := by_distance(run, **data):
            further["distances"] = vars(bands)
            rows = zip(bands.bands, bands.nodes, bands.texts(), strict=True)
            lines.append(
                f"\n{table(['edges to its answer, test', 'nodes', bands.metric], [*rows])}"
            )
        else:
            further["classes"] = class_accuracy(run, **data)
            lines.append(f"\n{_class_table(**further['classes'])}")
    show({**found.to_dict(), **further}, "\n".join(lines), as_json=as_json)


def _of_file(file: Path, part: str | None, *, target: str | None, **data: Any) -> PredictionMetrics:
    """Measure predictions on TARGET, or on the build that their file names."""
    from kmip_data.models.training.run.predictions import evaluate_predictions, read_predictions

    found = read_predictions(file)
    if target is None:
        if found.about is None:
            raise UsageError(
                f"{file} does not name its dataset.", next="the same with --dataset TARGET"
            )
        target = found.about.build
        if not Path(target).is_dir():  # another machine's
            target = found.about.dataset
            data["sample"] = found.about.sample
    return evaluate_predictions(found, target, split=part, **data)


def _class_table(
    names: Sequence[str], rows: Mapping[str, Sequence[int]], right: Mapping[str, Sequence[int]]
) -> str:
    header = ["class", *(title for part in rows for title in (part, "right [%]"))]
    cells: list[list[object]] = [[name] for name in names]
    for part, counts in rows.items():
        for row, count, correct in zip(cells, counts, right[part], strict=True):
            row += [count, f"{100 * correct / count:.1f}" if count else None]
    return table(header, cells)
