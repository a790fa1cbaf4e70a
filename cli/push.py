"""``kmip-data push``: copy a build or a run to an address, from which others can pull it."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.dataset_options import (
    DatasetCommand,
    DatasetParameters,
)
from kmip_data.cli.shared.options import long_running_options, plugin_option, sample_option
from kmip_data.cli.shared.output import print_result, push_as_json
from kmip_data.cli.shared.targets import RUN_OR_BUILD, find_build_or_run
from kmip_data.errors import Command
from kmip_data.text import address_without_secrets, count_with_noun, human_bytes

if TYPE_CHECKING:
    from kmip_data.builds.home import Home

#: OWNER/NAME of a repository on the Hugging Face hub.
_HUB_REPOSITORY = re.compile(r"\w[\w-]*/\w[\w.-]*")


@click.command(cls=DatasetCommand)
@click.argument("name", type=RUN_OR_BUILD)
@click.argument("address")
@plugin_option
@sample_option
@long_running_options
def command(
    name: str,
    address: str,
    sample: bool,
    home: Home,
    parameters: DatasetParameters,
    quiet: bool,
) -> None:
    """Share a build or a run at any address.

    NAME is a build or a finished run. ADDRESS is a folder or an fsspec URL (hf://, s3://, gs://).
    It must be empty, or contain an earlier push of the same build or run. Checks every byte
    first, and keeps an existing README.md. A build also gets Parquet files. Refuses data that may
    not be redistributed.
    """
    from kmip_data.sharing.remote import Remote

    source = find_build_or_run(name, home, parameters, sample=sample)
    if isinstance(source, Path):
        from kmip_data.models.training.push_run import push_run
        from kmip_data.models.training.run.find_runs import find_run

        index = push_run(find_run(source, home), address, quiet=quiet)
    else:
        from kmip_data.saving.export import parquet_view
        from kmip_data.sharing.push import push_build

        view = functools.partial(parquet_view, quiet=quiet)
        index = push_build(source, address, view=view, quiet=quiet)
    where = address_without_secrets(address)
    result = {"address": where, **push_as_json(index, index.files)}
    content = f"{count_with_noun(len(index.files), 'file')}, {human_bytes(result['bytes'])}"
    lines = [
        f"{where}  {index.kind} {index.name}: {content}",
        f"digest  {index.computed_digest}",
    ]
    steps = [Command("kmip-data pull", where)]
    if folder := Remote(address).folder:
        lines.append(f"Saved into the folder {folder}")
        if _HUB_REPOSITORY.fullmatch(address):
            kind = "datasets/" if index.kind == "build" else ""
            path = source if isinstance(source, Path) else source.path
            steps.insert(0, Command("kmip-data push", path, f"hf://{kind}{address}"))
    print_result(result, *lines, steps=steps)
