"""``kmip-data preview``: pictures of records of a build, or the map of a city."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.commands import TARGET, look_options, part_option, path_option
from kmip_data.cli.shared.datasets import DatasetCommand, resolve
from kmip_data.cli.shared.output import default_output, show

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kmip_data.builds.home import Build, Home


@click.command(cls=DatasetCommand)
@click.argument("target", type=TARGET)
@click.option("--records", metavar="LIST", help="Such as 0,3,10..12.  [default: three, evenly spread]")
@part_option("Count positions in this part of the default split, not in the whole build.")
@path_option("--output", help="PNG, SVG or PDF by its ending.  [default: preview.png in the build folder]")
@click.option(
    "--style", type=click.Choice(["light", "dark", "paper"]), default="light", show_default=True,
    help="Colours and size; paper: no headline, at most 7 inches wide, 300 dots per inch.",
)  # fmt: skip
@look_options
def command(
    target: str, records: str | None, part: str | None, output: Path | None, style: str, sample: bool,
    home: Home, as_json: bool,
) -> None:  # fmt: skip
    """Draw records of a build, or the map of a city.

    Each record is one row: its nodes by class (superpixels over their picture, molecules as RDKit draws them,
    call graphs by springs), its edges (highlighted where they join two classes), the
    degrees of its nodes, and its classes. A city is drawn as maps: by class, by eccentricity and by split.
    """
    from kmip_data.drawing.style import check_kind, chosen

    if output is not None:
        check_kind(output)
    build = resolve(target, home, sample=sample)  # names are checked before PyTorch is imported
    from kmip_data.drawing.views import view_of

    with chosen(style):
        draw, facts = view_of(build, records=records, part=part, pictures=partial(pictures_of, build, home))
        picture = output or default_output(build.path / "preview.png")
        draw(picture)
    about = {"path": build.path, "saved": picture, "sample": build.card.sample}
    show({**about, "complete": build.card.complete, **facts}, f"Saved {picture}", as_json=as_json)


def pictures_of(build: Build, home: Home, keys: Sequence[str]) -> Mapping[str, NDArray[np.uint8]]:
    """Return the pictures that the records were made from, where they are still here."""
    from kmip_data.manifest import dataset_names
    from kmip_data.pipelines.base import pipeline_of

    card = build.card
    pipeline = pipeline_of(card) if card.manifest in dataset_names() else None
    found = {} if pipeline is None else pipeline.pictures(card, home.raw / card.dataset, keys)
    if missing := [key for key, picture in found.items() if picture is None]:
        click.echo(f"The pictures of {', '.join(missing)} are not here: drawn without them.", err=True)
    return {key: picture for key, picture in found.items() if picture is not None}
