"""``kmip-data pull``: download and verify a pushed build or run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.options import long_running_options, path_option
from kmip_data.cli.shared.output import print_result, push_as_json
from kmip_data.errors import Command
from kmip_data.text import count_with_noun, human_bytes

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(cls=ClickCommand)
@click.argument("address")
@path_option(
    "--output", metavar="DIR",
    help="Destination.  [default: its name, in built/ of the home; for a run, in the current folder]",
)  # fmt: skip
@long_running_options
def command(
    address: str,
    home: Home,
    **options: Any,
) -> None:
    """Download and verify a pushed build or run.

    Stores a build in the home, and a run in the current folder. Every file is verified as it
    arrives. The same command resumes a pull that was stopped and repairs a damaged copy. Nothing in
    a push is executed.
    """
    from kmip_data.sharing.pull import pull

    pulled = pull(address, home, **options)
    index = pulled.push_index
    files = [entry for entry in index.files if entry.file in pulled.files]
    result = {
        "path": pulled.path,
        **push_as_json(index, files),
        "was_complete": pulled.was_complete,
    }

    size = human_bytes(result["bytes"])
    state = "already complete" if pulled.was_complete else "verified"
    content = f"{index.kind}: {count_with_noun(len(files), 'file')}, {size}, {state}"
    text = [f"{pulled.path}  {content}", f"digest  {index.computed_digest}"]
    step = Command("kmip-data evaluate {} --dataset NAME", pulled.path)
    if pulled.card is not None:
        text.append(str(pulled.card.license.get("notice") or "The license is not stated."))
        step = Command("kmip-data info", pulled.path)
    print_result(result, *text, steps=[step])
