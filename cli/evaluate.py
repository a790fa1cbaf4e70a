"""``kmip-data evaluate``: metrics of a run's weights, or of predictions in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from kmip_data.cli.shared.commands import Command
from kmip_data.cli.shared.options import RUN, as_trained_option, file_option, look_options, other_data_option
from kmip_data.cli.shared.output import print_json, table
from kmip_data.errors import UsageError
from kmip_data.format.splits import PARTS


@click.command(
    cls=Command,
    examples=[
        "kmip-data evaluate 20261120-071806-code-seed0",
        "kmip-data evaluate runs/s3dis/gps-kmip/mine --dataset built/s3dis-k16-0123456789ab --device cpu",
        "kmip-data evaluate helsinki/gps-kmip/mine --by-class",
        "kmip-data evaluate --predictions peptides.npz --dataset peptides-func",
    ],
)
@click.argument("run", required=False, type=RUN)
@file_option(
    "--predictions",
    help="Instead of RUN: a file of kmip-data predict, or an .npz with logits (or pred) of any model.",
)
@click.option(
    "--split",
    "part",
    type=click.Choice(PARTS),
    help="With --predictions: part of the split.  [default: that of the file, else test]",
)
@other_data_option
@as_trained_option
@click.option(
    "--by-class", is_flag=True, help="Also print the accuracy of each class; a city's are by distance."
)
@look_options
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
    every part of the split. With --predictions and --dataset, prints the metrics of predictions in a file.
    """
    if predictions is not None or run is None:
        device = data.pop("device")
        others = {"RUN": run, "--device": device, "--by-class": by_class or None}
        _evaluate_file(predictions, part, others, as_json=as_json, **data)
        return
    from kmip_data.models.training.run.evaluate import evaluate

    if part is not None:
        raise UsageError("A run is measured on every part.", next="leave out --split, or add --predictions")
    found = evaluate(run, **data)
    text, further = [found.table(), f"run  {found.run}"], dict[str, Any]()
    if by_class:
        from kmip_data.models.analysis.answers import class_accuracy

        further["classes"] = class_accuracy(run, **data)
        text.append(f"\n{_class_table(**further['classes'])}")
    if as_json:
        print_json({**found.to_dict(), **further})
    else:
        click.echo("\n".join(text))


def _class_table(
    names: Sequence[str], rows: Mapping[str, Sequence[int]], right: Mapping[str, Sequence[int]]
) -> str:
    """Return the classes with their number and accuracy in each part."""
    header = ["class", *(title for part in rows for title in (part, "right [%]"))]
    cells = []
    for number, name in enumerate(names):
        shares = [(rows[part][number], right[part][number]) for part in rows]
        pairs = ((count, f"{100 * hit / count:.1f}" if count else None) for count, hit in shares)
        cells.append([name, *(cell for pair in pairs for cell in pair)])
    return table(header, cells)


def _evaluate_file(
    predictions: Path | None,
    part: str | None,
    others: Mapping[str, object],
    *,
    target: str | None,
    as_json: bool,
    **where: Any,
) -> None:
    given = [name for name, value in others.items() if value is not None]
    if predictions is None or target is None or given:
        raise UsageError(
            "Either a run or a file of predictions is measured.",
            expected="RUN; or --predictions FILE --dataset TARGET, which take no RUN or --device",
            found=", ".join(given) or ("--predictions alone" if predictions else "neither"),
            next="kmip-data evaluate --help",
        )
    from kmip_data.models.training.run.predictions import evaluate_predictions

    measured = evaluate_predictions(predictions, target, split=part, **where)
    if as_json:
        print_json({"predictions": predictions, **measured.to_dict()})
    else:
        click.echo(f"{measured.table()}\npredictions  {predictions}")
