"""``kmip-data stats``: sizes, degrees and classes of a build as tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.info import added_table
from kmip_data.cli.shared.dataset_command import DatasetCommand, resolve
from kmip_data.cli.shared.names import TARGET
from kmip_data.cli.shared.options import look_options
from kmip_data.cli.shared.output import print_json, table
from kmip_data.errors import UsageError
from kmip_data.wording import as_options

if TYPE_CHECKING:
    from kmip_data.builds.home import Build, Home


@click.command(
    cls=DatasetCommand,
    examples=["kmip-data stats s3dis", "kmip-data stats shapenet-part --k 16 --output shapes.txt"],
)
@click.argument("target", type=TARGET)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Save the tables here.  [default: statistics.txt in the build folder]",
)
@look_options
def command(target: str, output: Path | None, sample: bool, home: Home, as_json: bool) -> None:
    """Sizes, degrees and classes of a build.

    Prints the tables for all records and each part of each split, and saves them. Where the build
    folder may not be written to, it says so and goes on.
    """
    from kmip_data.builds.columns import added_facts
    from kmip_data.drawing.tables import class_deviations

    build = resolve(target, home, sample=sample)
    text, card = report(build), build.card
    if not as_json:
        click.echo(text)
    saved = _save(text, build, output)
    if as_json:
        print_json(
            {
                "path": build.path,
                "saved": saved,
                "sample": card.sample,
                "complete": card.complete,
                "counts": card.counts,
                "splits": {name: split.model_dump()["parts"] for name, split in card.splits.items()},
                "class_names": card.class_names,
                "class_deviations": class_deviations(card),
                "statistics": card.statistics,
                "added_columns": [entry["name"] for entry in added_facts(build)],
            }
        )
    elif saved is not None:
        click.echo(f"\nSaved in {saved}")


def _save(text: str, build: Build, output: Path | None) -> Path | None:
    """Save the tables; ``None`` where the build folder does not take them."""
    from kmip_data.files.changes import write_file, write_output

    data = f"{text}\n".encode()
    if output is not None:
        write_output(output, data)
        return output
    path = build.path / "statistics.txt"
    try:
        write_file(path, data)
    except UsageError as error:
        click.echo(f"\nNot saved: {error.what} --output FILE names another place.", err=True)
        return None
    return path


def report(build: Build) -> str:
    """Return the tables as text."""
    from kmip_data.drawing.tables import tables_of

    card = build.card
    texts = [f"{card.dataset} {as_options(card.parameters)}, key {card.key}{card.remark}"]
    for header, rows, note in tables_of(build):
        texts += [table(header, rows), note]
    if added := added_table(build):
        texts.append(f"Added columns\n{added}")
    return "\n\n".join(text for text in texts if text)
