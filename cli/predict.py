"""``kmip-data predict``: write the predictions of a trained model for each record of a part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.options import (
    force_option,
    part_option,
    path_option,
    read_only_options,
    trained_model_options,
)
from kmip_data.cli.shared.output import check_output_path, default_output_path, print_result
from kmip_data.cli.shared.targets import RUN
from kmip_data.errors import Setting, UsageError
from kmip_data.text import count_with_noun, dataset_name_from

if TYPE_CHECKING:
    from kmip_data.models.training.run.predictions import PredictionOrigin


@click.command(cls=ClickCommand)
@click.argument("run", type=RUN, is_eager=True)  # before --dataset, whose error names it
@path_option(
    "--output",
    help="Output file, FILE.npz, or FILE.csv for a table."
    "  [default: predictions.npz in the run; predictions-BUILD.npz with --dataset]",
)
@force_option
@part_option("Part of the split.  [default: test; all of another --dataset]", "all")
@trained_model_options
@read_only_options
def command(
    run: str,
    output: Path | None,
    force: bool,
    part: str | None,
    **data: Any,
) -> None:
    """Write the predictions of a trained model.

    RUN is a run folder or the end of its path. Writes logits and predicted classes or values for
    every graph or node in a part of the split. Rows are identified by the ids in your table, or
    without ids by their number, counted from 0. The data of --dataset need no targets. In Python,
    `kmip_data.models.evaluate_predictions` computes metrics from the .npz file.
    """
    if output is not None:
        if output.suffix not in {".npz", ".csv"}:
            path = output if output.stem.strip("-.") else output.with_name("predictions")
            raise UsageError(
                f"{output} ends in neither .npz nor .csv.",
                steps=Setting(output=path.with_suffix(".npz")),
            )
        check_output_path(output, force=force)
    from kmip_data.models.training.run.predictions import predict, write_predictions

    predictions = predict(run, split=part, **data)
    origin = predictions.origin
    rows = len(next(iter(predictions.arrays.values())))
    assert origin is not None, "predictions of a run have an origin"
    if output is None:
        name = _default_file_name(origin, other_data=data["dataset"] is not None)
        output = default_output_path(Path(origin.run) / name, force=force)
    write_predictions(output, predictions)
    records = "all records" if origin.part == "all" else f"{origin.part}, split {origin.split!r}"
    python = f"numpy.load({str(output)!r})['pred']"
    if output.suffix == ".csv":
        python = f"pandas.read_csv({str(output)!r}, dtype={{'key': str}})"
    elif origin.metric is not None:
        python = f"kmip_data.models.evaluate_predictions({str(output)!r}, {origin.build!r})"
    print_result(
        {"path": output, **origin.model_dump(), "rows": rows},
        f"{output}  {count_with_noun(rows, 'row')} of {records}, {origin.dataset}\n"
        f"run  {origin.run}\nIn Python: {python}",
    )


def _default_file_name(origin: PredictionOrigin, *, other_data: bool) -> str:
    """Return the default file name of predictions.

    Only predictions of the same rows share a name, so that no others are overwritten.
    """
    words = ["predictions"]
    default_part = "test"
    if other_data:
        words.append(dataset_name_from(Path(origin.build).name))
        default_part = "all"
    if origin.part != default_part:
        words.append(origin.part)
    return f"{'-'.join(words)}.npz"
