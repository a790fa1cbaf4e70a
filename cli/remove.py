"""``kmip-data remove``: remove builds, raw files and runs after a confirmation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.options import home_option, json_option
from kmip_data.cli.shared.output import format_table, print_result, wants_json
from kmip_data.errors import Command, UsageError
from kmip_data.text import human_bytes, list_names

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(cls=ClickCommand)
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@home_option
@json_option
def command(
    names: tuple[str, ...],
    yes: bool,
    home: Home,
) -> None:
    """Remove builds, raw files and runs.

    NAME is a folder in the home's built/, raw/ or runs/, or the end of its path. It may also
    be the name of a dataset that has one build. Raw files are raw/NAME. Only files that kmip-data
    wrote are removed; your own files stay. Refuses a folder that another process is writing to.
    Processes that only read a folder are not detected: stop them first.
    """
    from kmip_data.cli.shared.removable_folders import (
        find_removable_folder,
        folder_bytes,
        remove_folders,
    )

    # 1. Show the folders, without duplicates, and ask.
    folders = list(dict.fromkeys(find_removable_folder(name, home) for name in names))
    sizes = [folder_bytes(folder.path) for folder in folders]
    total = sum(sizes)
    rows = []
    for folder, size in zip(folders, sizes, strict=True):
        rows.append([folder.name, folder.kind, human_bytes(size)])
    click.echo(format_table(["folder", "what", "disk"], rows), err=wants_json())

    if not yes:
        if not (sys.stdin and sys.stdin.isatty()):
            raise UsageError(
                "There is no terminal to confirm the removal.",
                steps=Command("kmip-data remove", *names, "--yes"),
            )
        if not click.confirm(f"Remove {human_bytes(total)}?", err=True):
            click.echo("Nothing was removed.", err=True)
            raise click.exceptions.Exit(1)
    remove_folders(folders)

    # 2. Report files that stay, as kmip-data did not write them.
    removed = []
    notes = []
    for folder, size in zip(folders, sizes, strict=True):
        bytes_left = folder_bytes(folder.path)
        total -= bytes_left
        entry = {"kind": folder.kind, "path": folder.path, "name": folder.name}
        removed.append({**entry, "bytes": size, "bytes_left": bytes_left})
        remaining = []
        if folder.path.is_dir():
            remaining = sorted(path.name for path in folder.path.iterdir())
        if remaining:
            notes.append(
                f"left in {folder.path}, not of kmip-data or pinned: {list_names(remaining)}"
            )
    result = {"home": home.path, "removed": removed}
    print_result(result, f"Removed {human_bytes(total)}.", *notes)
