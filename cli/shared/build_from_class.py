"""``kmip-data build pyg``: a build from a dataset class, such as one of PyTorch Geometric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.options import typed_options
from kmip_data.errors import UsageError

if TYPE_CHECKING:
    from kmip_data.builds.home import Build, Home

PYG_NAME = "pyg"  #: NAME on the command line that selects such a build
_ACCEPTED_OPTIONS = {"--name", "--set", "--output", "--home", "--json", "--quiet"}


def build_from_class(
    name: str | None,
    settings: tuple[str, ...],
    home: Home,
    output: Path | None,
    *,
    quiet: bool,
) -> Build:
    """Build the dataset ``name`` from the class and the arguments in ``settings``.

    The code of the class runs, so only the command line can name it.
    """
    from kmip_data.builds.home import unused_name
    from kmip_data.models.training.config.overrides import parse_toml_value

    if refused := typed_options() - _ACCEPTED_OPTIONS:
        raise UsageError(
            f"build {PYG_NAME} does not take {min(refused)}.",
            next="give each argument of the class by --set KEY=VALUE",
        )
    texts = dict(item.split("=", 1) for item in settings if "=" in item)
    address = texts.pop("class", None)
    if address is None or name is None or len(texts) + 1 != len(settings):
        raise UsageError(
            f"{PYG_NAME!r} builds a dataset from a class, and needs its address and a name.",
            expected="--set class=MODULE:CLASS, --set KEY=VALUE once for each other argument, and --name NAME",
            found=" ".join(settings) or "no --set",
            next=f"kmip-data build {PYG_NAME} --set class=torch_geometric.datasets:WebKB"
            f" --set name=cornell --name {unused_name('my-cornell', home)}",
        )

    from kmip_data.saving.save import check_new_folder
    from kmip_data.saving.save_items_of_class import save_items_of_class

    root = home.raw / name
    folder = output or home.built / name
    check_new_folder(folder, name)
    if not quiet:
        click.echo(
            f"Running {address}, which downloads and processes by default in {root}.", err=True
        )
    arguments = {key: parse_toml_value(text) for key, text in texts.items()}
    return save_items_of_class(address, arguments, root, folder, name=name)
