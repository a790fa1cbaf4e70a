"""``kmip-data pull``: copy a pushed build or run to this machine, verified."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.commands import Command
from kmip_data.cli.shared.options import work_options
from kmip_data.cli.shared.output import print_json
from kmip_data.errors import human_bytes
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(
    cls=Command,
    examples=[
        "kmip-data pull ./share",
        "kmip-data pull hf://datasets/me/peptides --columns rwse20",
        "kmip-data pull https://example.org/mine --to ./mine",
    ],
)
@click.argument("address")
@click.option(
    "--to",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder that it becomes.  [default: its name below the home's built/; of a run, in this folder]",
)
@click.option(
    "--columns", metavar="LIST", help="Added columns to take, such as rwse20,lappe10.  [default: all of them]"
)
@work_options
def command(
    address: str, columns: str | None, home: Home, as_json: bool, quiet: bool, **options: Any
) -> None:
    """Download what was pushed to an address, verified.

    Every block is verified as it arrives. The same command resumes a pull that was stopped and mends a
    damaged copy. Nothing in it is executed.
    """
    from kmip_data.sharing.pull import pull

    names = None if columns is None else [name for name in columns.replace(" ", "").split(",") if name]
    found = pull(address, home, columns=names, quiet=quiet, **options)
    entries, share = found.share.by_name(), found.share
    size = sum(entries[name].bytes for name in found.files)
    if as_json:
        about = {"path": found.path, "kind": share.kind, "name": share.name, "digest": share.sealed}
        files = {name: entries[name].sha256 for name in found.files}
        print_json({**about, "bytes": size, "files": files, "there": found.there})
        return
    what = f"{share.kind}: {counted(len(found.files), 'file')}, {human_bytes(size)}"
    click.echo(f"{found.path}  {what}, {'there already' if found.there else 'verified'}")
    click.echo(f"digest  {share.sealed}")
    if found.card is None:
        click.echo(f"Next: kmip-data evaluate {found.path} --dataset TARGET")
        return
    click.echo(f"{found.card.license.get('notice') or 'The licence is not stated.'}")
    click.echo(f"Next: kmip-data info {found.path}")
