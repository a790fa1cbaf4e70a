"""``kmip-data evaluate``: compute the metrics of a trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.options import (
    part_option,
    read_only_options,
    set_option,
    trained_model_options,
)
from kmip_data.cli.shared.output import format_table, print_result
from kmip_data.cli.shared.targets import RUN


@click.command(cls=ClickCommand)
@click.argument("run", type=RUN, is_eager=True)  # before --dataset, whose error names it
@trained_model_options
@part_option("Part of the split.  [default: each]", "all")
@set_option("Key to change at test, such as model.attention.k=5; may be repeated.")
@click.option(
    "--by-class",
    is_flag=True,
    help="Also show metrics by class, or by distance to the answer where known.",
)
@read_only_options
def command(run: str, part: str | None, by_class: bool, **data: Any) -> None:
    """Evaluate a trained model on train, val and test.

    RUN is a run folder or the end of its path. Prints the metrics of its best weights. Other data
    without a split of their own are evaluated as a whole: all of their labelled rows.
    """
    from kmip_data.models.training.run.evaluate_run import evaluate

    evaluation = evaluate(run, split=part, **data)
    result = evaluation.to_dict()
    lines = [evaluation.table(), f"run  {evaluation.run}"]
    if by_class:
        from kmip_data.models.analysis.explanations import counts_by_class, evaluate_by_distance

        # Group by distance instead of class if the distance to the answer is known.
        bands = evaluate_by_distance(run, split=part or "test", **data)
        if bands is None:
            result["classes"] = counts_by_class(run, split=part, **data)
            lines.append(f"\n{_class_table(**result['classes'])}")
        else:
            result["distances"] = vars(bands)
            header = [f"edges to its answer, {part or 'test'}", "nodes", bands.metric]
            rows = zip(bands.bands, bands.nodes, bands.formatted_values(), strict=True)
            lines.append(f"\n{format_table(header, rows)}")
    print_result(result, *lines)
    evaluation.check()


def _class_table(
    names: Sequence[str], rows: Mapping[str, Sequence[int]], right: Mapping[str, Sequence[int]]
) -> str:
    """Return a table of rows and accuracy in each part by class."""
    header = ["class"]
    cells: list[list[object]] = [[name] for name in names]
    for part, counts in rows.items():
        header += [part, "accuracy [%]"]
        for row, count, correct in zip(cells, counts, right[part], strict=True):
            row += [count, f"{100 * correct / count:.1f}" if count else None]
    return format_table(header, cells)
