"""``kmip-data push``: copy a build or a run to an address from which others can pull it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.datasets import DatasetCommand, resolve
from kmip_data.cli.shared.options import RUN_OR_TARGET, sample_option, work_options
from kmip_data.cli.shared.output import print_json
from kmip_data.errors import UsageError, human_bytes
from kmip_data.wording import counted, shown_address

if TYPE_CHECKING:
    from kmip_data.builds.home import Home
    from kmip_data.sharing.share import Share


@click.command(
    cls=DatasetCommand,
    examples=[
        "kmip-data push helsinki ./share",
        "kmip-data push s3dis hf://datasets/me/s3dis-k32",
        "kmip-data push helsinki/gps-kmip/mine s3://bucket/mine",
    ],
)
@click.argument("target", type=RUN_OR_TARGET)
@click.argument("address")
@sample_option
@work_options
def command(target: str, address: str, sample: bool, home: Home, as_json: bool, quiet: bool) -> None:
    """Share a build or a run at any address.

    TARGET is a build, or a finished run; ADDRESS a folder, or an address of fsspec (hf://,
    s3://, gs://). Every byte is checked first, and no file there is replaced but those of an earlier push
    of the same. Data that may not be passed on are refused.
    """
    share = _push(target, address, home, sample=sample, quiet=quiet)
    size, where = sum(entry.bytes for entry in share.files), shown_address(address)
    if as_json:
        files = {entry.file: entry.sha256 for entry in share.files}
        about = {"kind": share.kind, "name": share.name, "digest": share.sealed}
        print_json({"address": where, **about, "bytes": size, "files": files})
        return
    what = f"{share.kind} {share.name}: {counted(len(share.files), 'file')}, {human_bytes(size)}"
    click.echo(f"{where}  {what}")
    click.echo(f"digest  {share.sealed}\nNext: kmip-data pull {where}")


def _push(target: str, address: str, home: Home, *, sample: bool, quiet: bool) -> Share:
    """Push the build that TARGET means, else the run."""
    from kmip_data.sharing.push import push_build

    try:
        build = resolve(target, home, sample=sample)
    except UsageError:
        from kmip_data.manifest import dataset_names

        if target in dataset_names() or sample:
            raise
        from kmip_data.models.training.run.folder import find_run
        from kmip_data.models.training.sharing import push_run

        return push_run(find_run(target, home), address, quiet=quiet)
    return push_build(build, address, quiet=quiet)
