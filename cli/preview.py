"""``kmip-data preview``: pictures of records of a build, or the map of a city."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.datasets import DatasetCommand, resolve
from kmip_data.cli.shared.options import RUN, TARGET, look_options, style_option
from kmip_data.cli.shared.output import place_of_page, print_json
from kmip_data.format.splits import PARTS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kmip_data.builds.home import Build, Home
    from kmip_data.drawing.maps import Prediction


@click.command(
    cls=DatasetCommand,
    examples=[
        "kmip-data preview s3dis",
        "kmip-data preview shapenet-part --records 0,3,10..12",
        "kmip-data preview s3dis --sample --split test --output blocks.png",
        "kmip-data preview helsinki --style paper --output helsinki.pdf",
    ],
)
@click.argument("target", type=TARGET)
@click.option(
    "--records", metavar="LIST", help="Positions, such as 0,3,10..12.  [default: three, evenly spread]"
)
@click.option(
    "--split",
    "part",
    type=click.Choice(PARTS),
    help="Count positions in this part of the default split, not in the whole build.",
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where the picture goes: a PNG, SVG or PDF by its ending.  [default: preview.png in the build "
    "folder; with --run, map.png in the run folder]",
)
@click.option(
    "--run", metavar="RUN", type=RUN, help="Cities: draw where this trained run is right and wrong, too."
)
@style_option
@look_options
def command(
    target: str,
    records: str | None,
    part: str | None,
    output: Path | None,
    run: str | None,
    sample: bool,
    home: Home,
    as_json: bool,
) -> None:
    """Draw records of a build, or the map of a city.

    Each record is one row: its nodes by class (superpixels over their picture, molecules as RDKit draws them,
    call graphs by springs), its edges (highlighted where they join two classes), the
    degrees of its nodes, and its classes. A city is drawn as maps: by class, by eccentricity, by split,
    and with --run by whether the prediction is right. Where the folder may not be written to, the
    picture goes to the current folder under the name of the build.
    """
    from kmip_data.drawing.style import check_kind
    from kmip_data.drawing.views import view_of

    if output is not None:
        check_kind(output)
    build = resolve(target, home, sample=sample)
    card = build.card
    view = view_of(
        build,
        records=records,
        part=part,
        predict=None if run is None else partial(_prediction, run, build, home),
        pictures=partial(_pictures, build, home),
    )
    picture = output or place_of_page(build.path.name, view.folder, f"{view.stem}.png")
    view.draw(picture)
    if as_json:
        facts = {"path": build.path, "saved": picture, "sample": card.sample, "complete": card.complete}
        print_json({**facts, **view.facts})
    else:
        click.echo(f"Saved {picture}")


def _prediction(run: str, build: Build, home: Home) -> Prediction:
    from kmip_data.drawing.maps import Prediction
    from kmip_data.models.training.run.evaluate import predict_nodes

    classes, result, folder = predict_nodes(run, build, home=home)
    entry = build.card.splits.get(result.split.name) if result.build_key == build.card.key else None
    known = entry is not None and result.split.digests == {p: e.digest for p, e in entry.parts.items()}
    return Prediction(folder.name, classes, result.split.name if known else None, folder)


def _pictures(build: Build, home: Home, keys: Sequence[str]) -> Mapping[str, NDArray[np.uint8]]:
    """Return the pictures that the records were made from, where they are still here."""
    from kmip_data.manifest import dataset_names
    from kmip_data.pipelines.base import pipeline_of

    card = build.card
    pipeline = pipeline_of(card) if card.manifest in dataset_names() else None
    found = {} if pipeline is None else pipeline.pictures(card, home.raw / card.dataset, keys)
    if missing := [key for key, picture in found.items() if picture is None]:
        click.echo(f"The pictures of {', '.join(missing)} are not here: drawn without them.", err=True)
    return {key: picture for key, picture in found.items() if picture is not None}
