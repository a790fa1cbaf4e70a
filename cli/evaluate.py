"""``kmip-data evaluate``: metrics of a run's weights, or of predictions in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.dataset_command import other_data_option
from kmip_data.cli.shared.names import RUN
from kmip_data.cli.shared.options import as_trained_option, file_option, look_options
from kmip_data.cli.shared.output import check_prefix, print_json, table
from kmip_data.errors import UsageError
from kmip_data.format.splits import PARTS
from kmip_data.wording import counted

DUMPED = 10  #: graphs in a file of --dump-qk, from the first


@click.command(
    cls=Command,
    examples=[
        "kmip-data evaluate 20261120-071806-code-seed0",
        "kmip-data evaluate runs/s3dis/gps-kmip/mine --dataset built/s3dis-k16-0123456789ab --device cpu",
        "kmip-data evaluate helsinki/gps-kmip/mine --by-class",
        "kmip-data evaluate s3dis/gps-kmip/mine --dump-qk qk.safetensors",
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
    help="With --predictions or --dump-qk: part of the split.  [default: that of the file, else test]",
)
@other_data_option
@as_trained_option
@click.option(
    "--by-class", is_flag=True, help="Also print the accuracy of each class; a city's are by distance."
)
@file_option(
    "--dump-qk",
    "dump",
    help="Also write queries, keys and values of every layer, of at most 10 graphs, as safetensors.",
)
@look_options
def command(
    run: str | None,
    predictions: Path | None,
    part: str | None,
    dump: Path | None,
    by_class: bool,
    as_json: bool,
    **data: Any,
) -> None:
    """Measure a trained model, or predictions.

    Takes the best weights of RUN, a run folder or the end of its path, and prints the metrics of
    every part of the split. With --dump-qk it also writes the input of the attention layers, for
    `kmip-data analyze` and `bench attention`. With --predictions and --dataset, prints the metrics of
    predictions in a file.
    """
    if predictions is not None or run is None:
        others = {"RUN": run, "--device": data.pop("device"), "--dump-qk": dump}
        others |= {"--by-class": by_class or None}
        _evaluate_file(predictions, part, others, as_json=as_json, **data)
        return
    from kmip_data.models.training.run.evaluate import evaluate

    if part is not None and dump is None:
        expected = "--split with --predictions or --dump-qk"
        raise _usage("A run is measured on every part.", expected, "--split with RUN alone")
    dump_part = part or "test"
    if dump is not None:
        check_prefix(dump, "--dump-qk")
    found = evaluate(run, **data)
    dumped: dict[str, Any] = {}
    if dump is not None:
        from kmip_data.models.analysis.projections import write_projections
        from kmip_data.models.analysis.recording import record_run

        projections = record_run(run, part=dump_part, graphs=DUMPED, **data)
        write_projections(dump, projections)
        dumped = {
            "file": dump,
            "part": dump_part,
            "graphs": len(projections.sizes),
            "layers": len(projections.layers),
            "nodes": projections.ptr[-1],
        }
    classes: dict[str, Any] = {}
    if by_class:
        from kmip_data.models.analysis.classes import class_accuracy

        classes = vars(class_accuracy(run, **data))
    if as_json:
        further = {"dump": dumped, "classes": classes}
        print_json({**found.to_dict(), **{name: value for name, value in further.items() if value}})
        return
    click.echo(f"{found.table()}\nrun  {found.run}")
    if classes:
        click.echo(f"\n{_class_table(**classes)}")
    if dumped:
        click.echo(
            f"dump  {dump}: {counted(dumped['layers'], 'layer')}, "
            f"{counted(dumped['graphs'], 'graph')} of {dump_part}, {counted(dumped['nodes'], 'node')}"
        )


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
        found = ["--predictions"] * (predictions is not None) + ["--dataset"] * (target is not None) + given
        raise _usage(
            "Either a run or a file of predictions is measured.",
            "RUN; or --predictions FILE --dataset TARGET, which take no RUN, --device or --dump-qk",
            ", ".join(found) or "neither",
        )
    from kmip_data.models.training.run.predictions import evaluate_predictions

    measured = evaluate_predictions(predictions, target, part=part, **where)
    if as_json:
        print_json({"predictions": predictions, **measured.to_dict()})
        return
    click.echo(f"{measured.table()}\npredictions  {predictions}")


def _usage(what: str, expected: str, found: str) -> UsageError:
    return UsageError(what, expected=expected, found=found, next="kmip-data evaluate --help")
