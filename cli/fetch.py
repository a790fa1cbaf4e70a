"""``kmip-data fetch``: download and verify raw files, so that a compute node can build offline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.options import archive_options, long_running_options, plugin_option
from kmip_data.cli.shared.output import format_table, print_result
from kmip_data.cli.shared.targets import DATASET
from kmip_data.text import human_bytes

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(cls=ClickCommand)
@click.argument("name", type=DATASET)
@archive_options
@plugin_option
@long_running_options
def command(name: str, home: Home, **options: Any) -> None:
    """Download and verify the raw files of a dataset.

    An interrupted download is resumed. On a cluster, fetch on the login node and build on a compute
    node with --offline.
    """
    from kmip_data.manifest import load_manifest, require_dataset
    from kmip_data.pipelines.raw.find_or_download import fetch_dataset

    manifest = require_dataset(load_manifest(name))
    receipts = fetch_dataset(manifest, home, **options)
    folder = home.raw / name
    rows = []
    for entry in receipts:
        size = human_bytes(entry.bytes)
        rows.append([entry.name, size, entry.sha256[:12], entry.origin])
    text = f"""\
{name}: {len(receipts)} verified in {folder}
{format_table(["file", "size", "sha256", "from"], rows, indent=2)}

Next: kmip-data build {name} --offline"""
    result = {
        "dataset": name,
        "path": folder,
        "receipts": [receipt.model_dump() for receipt in receipts],
    }
    print_result(result, text)
