"""``kmip-data preview``: pictures of records of a build, or the map of a city."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.dataset_command import DatasetCommand, complete_dataset, resolve
from kmip_data.cli.shared.options import home_option, json_option, sample_option
from kmip_data.cli.shared.output import print_json
from kmip_data.errors import UsageError
from kmip_data.format.parts import PARTS
from kmip_data.wording import as_options

if TYPE_CHECKING:
    from kmip_data.builds.home import Build, Home
    from kmip_data.drawing.maps.layers import Prediction
    from kmip_data.drawing.pictures import Drawing
    from kmip_data.reading.store import ShardStore

SHOWN = 3  #: records drawn unless told which
MOST = 16  #: records in one picture


@click.command(
    cls=DatasetCommand,
    examples=[
        "kmip-data preview s3dis",
        "kmip-data preview shapenet-part --records 0,3,10..12 --html",
        "kmip-data preview s3dis --sample --part test --output blocks.png",
        "kmip-data preview helsinki --html",
    ],
)
@click.argument("target", shell_complete=complete_dataset)
@click.option(
    "--records", metavar="LIST", help="Positions, such as 0,3,10..12.  [default: three, evenly spread]"
)
@click.option(
    "--part",
    type=click.Choice(PARTS),
    help="Count positions in this part of the default split, not in the whole build.",
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where the picture goes.  [default: preview.png in the build folder; with --run, map.png in the "
    "run folder]",
)
@click.option(
    "--html", is_flag=True, help="An interactive HTML file that needs no network, in place of the PNG."
)
@click.option("--run", metavar="RUN", help="Cities: draw where this trained run is right and wrong, too.")
@sample_option
@home_option
@json_option
def command(
    target: str,
    records: str | None,
    part: str | None,
    output: Path | None,
    html: bool,
    run: str | None,
    sample: bool,
    home: Home,
    as_json: bool,
) -> None:
    """Draw records of a build, or the map of a city.

    Each record is one row: its nodes by class (superpixels over their picture, molecules as RDKit draws them,
    call graphs by springs), its edges (dark where they join two classes), the
    degrees of its nodes, and its classes. A city is drawn as maps: by class, by eccentricity, by split,
    and with --run by whether the prediction is right. Where the folder may not be written to, the
    picture goes to the current folder under the name of the build.
    """
    from kmip_data.datasets.city_columns import is_city
    from kmip_data.reading.store import open_store

    build = resolve(target, home, sample=sample)
    if is_city(build.card):
        _check_options("A city is one graph, drawn whole", records=records, part=part)
        _preview_city(build, run, home, output, html=html, as_json=as_json)
        return
    _check_options(f"{build.card.dataset} is no city: there is no map to draw a run on", run=run)
    store = open_store(build)
    pool = _pool(store, part)
    chosen = _positions(records, len(pool), part)
    positions = [pool[position] for position in chosen]
    picture = output or _place(build, build.path, "preview.html" if html else "preview.png")
    draw(store, positions, picture, home, html=html)
    if as_json:
        keys = store.keys()
        print_json(
            {
                "path": build.path,
                "saved": picture,
                "sample": build.card.sample,
                "complete": build.card.complete,
                "records": [{"position": pool[p], "key": keys[pool[p]]} for p in chosen],
            }
        )
    else:
        click.echo(f"Saved {picture}")


def _preview_city(
    build: Build, run: str | None, home: Home, output: Path | None, *, html: bool, as_json: bool
) -> None:
    from kmip_data.drawing.maps.city_map import ATTRIBUTION, read_city_map
    from kmip_data.drawing.maps.layers import city_layers, prediction_layers

    city = read_city_map(build)
    layers = city_layers(city)
    folder, name = build.path, "preview"
    if run is not None:
        prediction, folder = _prediction(run, build, home)
        name = "map"
        layers += prediction_layers(city, prediction)
    picture = output or _place(build, folder, f"{name}.html" if html else f"{name}.png")
    if html:
        from kmip_data.drawing.maps.page import draw_page

        draw_page(city, layers, picture)
    else:
        from kmip_data.drawing.maps.picture import draw_map

        draw_map(city, layers, picture)
    if as_json:
        card = build.card
        facts = {"path": build.path, "saved": picture, "sample": card.sample, "complete": card.complete}
        coloured = [layer.name for layer in layers]
        print_json({**facts, "run": run and folder, "maps": coloured, "attribution": ATTRIBUTION})
    else:
        click.echo(f"Saved {picture}")


def _prediction(run: str, build: Build, home: Home) -> tuple[Prediction, Path]:
    """Return what the run says about the city, and its folder."""
    from kmip_data.drawing.maps.layers import Prediction
    from kmip_data.models.training.run.predict import predict_nodes

    classes, result, folder = predict_nodes(run, build, home=home)
    entry = build.card.splits.get(result.split.name) if result.build_key == build.card.key else None
    known = entry is not None and result.split.digests == {p: e.digest for p, e in entry.parts.items()}
    return Prediction(folder.name, classes, result.split.name if known else None), folder


def _check_options(why: str, **options: str | None) -> None:
    """Refuse options that have no meaning for the build at hand."""
    given = [f"--{name} {value}" for name, value in options.items() if value is not None]
    if given:
        raise UsageError(
            f"{why}.",
            expected="none of " + ", ".join(f"--{name}" for name in options),
            found=" ".join(given),
            left="nothing was changed",
            next="kmip-data preview --help",
        )


def _place(build: Build, folder: Path, name: str) -> Path:
    """Return where a picture goes unless told: into ``folder``, or the current one if it takes no files."""
    from kmip_data.files.changes import refuse_links

    if os.access(folder, os.W_OK):
        refuse_links(folder)  # what the user named is written where a link leads, this is not
        return folder / name
    click.echo(f"{folder} may not be written to: saving in the current folder.", err=True)
    return Path(f"{build.path.name}-{name}").absolute()


def draw(store: ShardStore, positions: list[int], path: Path, home: Home, *, html: bool) -> None:
    """Draw the records at ``positions`` into ``path``."""
    from kmip_data.drawing.html import draw_html
    from kmip_data.drawing.pictures import draw_png, drawing_of
    from kmip_data.manifest import dataset_names, load_manifest

    card = store.build.card
    title = f"{card.heading}   {as_options(card.parameters)}"
    drawings = [drawing_of(store, position) for position in positions]
    if card.pipeline == "superpixels":
        drawings = _over_pictures(drawings, store.build, home)
    (draw_html if html else draw_png)(
        drawings,
        path,
        title=title,
        footer=str(card.license.get("notice", "")),
        class_names=card.class_names,
        up=load_manifest(card.dataset).up_axis if card.dataset in dataset_names() else "z",
    )


def _over_pictures(drawings: list[Drawing], build: Build, home: Home) -> list[Drawing]:
    """Lay the pictures that superpixels were made from below them, where they are still here."""
    from dataclasses import replace

    from kmip_data.pipelines.images.overlay import pictures_of

    pictures = pictures_of(build, home, [drawing.key for drawing in drawings])
    if missing := [drawing.key for drawing in drawings if drawing.key not in pictures]:
        click.echo(f"The pictures of {', '.join(missing)} are not here: drawn without them.", err=True)
    return [replace(drawing, picture=pictures.get(drawing.key)) for drawing in drawings]


def _pool(store: ShardStore, part: str | None) -> list[int]:
    """Positions in the build of the records that ``--records`` counts."""
    if part is None:
        pool = list(range(len(store)))
    else:
        from kmip_data.reading.dataset import ShardedDataset

        pool = ShardedDataset(store.build, part).records.tolist()
    if not pool:
        raise UsageError(
            f"There is nothing to draw: {f'the {part} part' if part else 'the build'} has no records.",
            expected="at least one record",
            found="none",
            left="nothing was changed",
            next=f"kmip-data stats {store.build.path}",
        )
    return pool


def _positions(text: str | None, count: int, part: str | None) -> list[int]:
    """Read ``0,3,10..12``, each position once; without it :data:`SHOWN` positions, evenly spread."""
    if text is None:
        shown = min(SHOWN, count)
        return [count * (2 * i + 1) // (2 * shown) for i in range(shown)]
    found: dict[int, None] = {}
    for item in text.split(","):
        ends = re.fullmatch(r" *([0-9]{1,18})(?:\.\.([0-9]{1,18}))? *", item)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, -1)
        if not first <= last < count:
            raise _no_records(text, count, part, repr(item))
        # One more than may be drawn is enough to refuse a long range.
        found |= dict.fromkeys(range(first, min(last, first + MOST) + 1))
    if len(found) > MOST:
        raise _no_records(text, count, part, f"more than {MOST} positions")
    return list(found)


def _no_records(text: str, count: int, part: str | None, found: str) -> UsageError:
    return UsageError(
        f"--records {text} does not name records of {f'the {part} part' if part else 'the build'}.",
        expected=f"up to {MOST} positions from 0 to {count - 1}, such as 0,3,10..12",
        found=found,
        left="nothing was changed",
        next="kmip-data preview --help",
    )
