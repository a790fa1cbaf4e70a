"""``kmip-data export``: write a build in the format of another program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from kmip_data.cli.shared.dataset_options import (
    DatasetCommand,
    DatasetParameters,
)
from kmip_data.cli.shared.options import long_running_options, path_option, sample_option
from kmip_data.cli.shared.output import print_result
from kmip_data.cli.shared.targets import BUILD, find_selected_build
from kmip_data.files.path_errors import absolute_path
from kmip_data.runtime.progress import print_status
from kmip_data.saving import ExportFormat

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(cls=DatasetCommand)
@click.argument("name", type=BUILD)
@click.option(
    "--format",
    "to",
    required=True,
    type=click.Choice(get_args(ExportFormat)),
    help="Output format.",
)
@path_option(
    "--output", metavar="DIR", help="New folder.  [default: BUILD-FORMAT in the current folder]"
)
@sample_option
@long_running_options
def command(
    name: str,
    to: ExportFormat,
    output: Path | None,
    sample: bool,
    home: Home,
    parameters: DatasetParameters,
    quiet: bool,
) -> None:
    """Write a build in another program's format.

    Each part of the default split becomes a file, such as train.pt. A single graph with masks
    becomes graphs.pt. Existing files are never replaced.
    """
    from kmip_data.saving.export import export

    build = find_selected_build(name, home, parameters, sample=sample)
    folder = absolute_path(output or Path(f"{build.path.name}-{to}"), "folder")
    exists = folder.is_dir()
    parts = export(build, to, folder, quiet=quiet)
    if exists:  # `export` accepts only an unchanged export
        print_status("already exported:", quiet=quiet)
    result = {"path": folder, "format": to, "parts": parts}
    print_result(result, *map(str, parts.values()))
