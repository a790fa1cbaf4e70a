"""``kmip-data export``: write a build as files of PyTorch Geometric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(cls=DatasetCommand)
@click.argument("name", type=BUILD)
@path_option(
    "--output", metavar="DIR", help="New folder.  [default: BUILD-pt in the current folder]"
)
@sample_option
@long_running_options
def command(
    name: str,
    output: Path | None,
    sample: bool,
    home: Home,
    parameters: DatasetParameters,
    quiet: bool,
) -> None:
    """Write a build as files of PyTorch Geometric.

    Each part of the default split becomes a file, such as train.pt. A single graph with masks
    becomes graphs.pt. Existing files are never replaced. For Parquet, push the build into a folder.
    """
    from kmip_data.saving.export import export

    build = find_selected_build(name, home, parameters, sample=sample)
    folder = absolute_path(output or Path(f"{build.path.name}-pt"), "folder")
    exists = folder.is_dir()
    parts = export(build, folder, quiet=quiet)
    if exists:  # `export` accepts only an unchanged export
        print_status("already exported:", quiet=quiet)
    result = {"path": folder, "parts": parts}
    print_result(result, *map(str, parts.values()))
