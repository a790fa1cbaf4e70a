"""``kmip-data identify``: tell which published file or build a file is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.options import home_option, json_option
from kmip_data.cli.shared.output import Json, completed, format_facts, print_result

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(cls=ClickCommand)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@home_option
@json_option
def command(files: Sequence[str], home: Home) -> None:
    """Find out which published file or build each file is.

    Looks for SHA-256, MD5 and git blob of each file among the raw files and members of all datasets,
    the published builds, and the builds and raw files in the home.
    """
    from kmip_data.pipelines.raw.identify import identify

    results: list[Json] = []
    text = []
    for file in files:
        digests, known_files = identify(file, home)
        known: list[Json] = []
        results.append({"file": file, "digests": digests, "known": known})
        if not known_files:
            text.append(f"{file}: no known file has its SHA-256 {digests['SHA-256']}.")
        for found in known_files:
            command = completed(found.command)
            known.append(asdict(found) | {"command": command.words})
            text.append(f"{file}: {found.name} of {found.dataset}")
            facts = [
                ("version", found.version),
                ("digest", found.publisher),
                ("use", command),
            ]
            text.append(format_facts(facts, indent=4))
    print_result({"files": results}, *text)
