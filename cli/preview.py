"""``kmip-data preview``: pictures of records of a build."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.dataset_command import DatasetCommand, complete_dataset, resolve
from kmip_data.cli.options import home_option, json_option, sample_option
from kmip_data.cli.output import print_json
from kmip_data.errors import UsageError
from kmip_data.parts import PARTS
from kmip_data.wording import as_options

if TYPE_CHECKING:
    from kmip_data.home import Build, Home
    from kmip_data.store import ShardStore

SHOWN = 3  #: records drawn unless told which
MOST = 16  #: records in one picture


@click.command(
    cls=DatasetCommand,
    examples=[
        "kmip-data preview s3dis",
        "kmip-data preview shapenet-part --records 0,3,10..12 --html",
        "kmip-data preview s3dis --sample --part test --output blocks.png",
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
    help="Where the picture goes.  [default: preview.png in the build folder]",
)
@click.option(
    "--html", is_flag=True, help="An interactive HTML file that needs no network, in place of the PNG."
)
@sample_option
@home_option
@json_option
def command(
    target: str,
    records: str | None,
    part: str | None,
    output: Path | None,
    html: bool,
    sample: bool,
    home: Home,
    as_json: bool,
) -> None:
    """Draw records of a build.

    Each record is one row: its points by class, its edges (dark where they join two classes), the
    degrees of its nodes, and its classes. Where the build folder may not be written to, the picture
    goes to the current folder under the name of the build.
    """
    from kmip_data.store import open_store

    build = resolve(target, home, sample=sample)
    store = open_store(build)
    pool = _pool(store, part)
    chosen = _positions(records, len(pool), part)
    positions = [pool[position] for position in chosen]
    picture = output if output is not None else _place(build, "preview.html" if html else "preview.png")
    draw(store, positions, picture, html=html)
    if as_json:
        keys = store.keys()
        print_json(
            {
                "path": build.path,
                "saved": picture,
                "sample": build.card.sample,
                "records": [{"position": pool[p], "key": keys[pool[p]]} for p in chosen],
            }
        )
    else:
        click.echo(f"Saved {picture}")


def _place(build: Build, name: str) -> Path:
    """Return where a picture goes unless told: into the build, or beside where it may not be changed."""
    if os.access(build.path, os.W_OK):
        return build.path / name
    click.echo(f"{build.path} may not be written to: saving in the current folder.", err=True)
    return Path(f"{build.path.name}-{name}").absolute()


def draw(store: ShardStore, positions: list[int], path: Path, *, html: bool) -> None:
    """Draw the records at ``positions`` into ``path``."""
    from kmip_data.drawing import draw_png, drawing_of
    from kmip_data.drawing_html import draw_html
    from kmip_data.manifest import dataset_names, load_manifest

    card = store.build.card
    kind = " (sample: generated, not the real data)" if card.sample else ""
    title = f"{card.title}{kind}   {as_options(card.parameters)}"
    drawings = [drawing_of(store, position) for position in positions]
    (draw_html if html else draw_png)(
        drawings,
        path,
        title=title,
        footer=str(card.license.get("notice", "")),
        class_names=card.class_names,
        up=load_manifest(card.dataset).up_axis if card.dataset in dataset_names() else "z",
    )


def _pool(store: ShardStore, part: str | None) -> list[int]:
    """Positions in the build of the records that ``--records`` counts."""
    if part is None:
        pool = list(range(len(store)))
    else:
        from kmip_data.sharded import ShardedDataset

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
    """Read ``0,3,10..12``; without it :data:`SHOWN` positions, evenly spread."""
    if text is None:
        shown = min(SHOWN, count)
        return [count * (2 * i + 1) // (2 * shown) for i in range(shown)]
    where = f"the {part} part" if part else "the build"
    try:
        ranges = [item.split("..") for item in text.split(",")]
        found = [number for item in ranges for number in range(int(item[0]), min(int(item[-1]), count) + 1)]
    except ValueError:
        found = []
    wrong = [number for number in found if not 0 <= number < count]
    if not found or wrong or len(found) > MOST:
        raise UsageError(
            f"--records {text} does not name records of {where}.",
            expected=f"up to {MOST} positions from 0 to {count - 1}, such as 0,3,10..12",
            found=f"{wrong[0]}" if wrong else f"{len(found)} positions",
            left="nothing was changed",
            next="kmip-data preview --help",
        )
    return found
