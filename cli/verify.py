"""``kmip-data verify``: check every byte of a build, and build a damaged one again on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.commands import (
    TARGET,
    jobs_option,
    raw_options,
    sample_option,
    work_options,
)
from kmip_data.cli.shared.datasets import DatasetCommand, resolve
from kmip_data.cli.shared.output import print_json
from kmip_data.errors import CheckFailed
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(cls=DatasetCommand)
@click.argument("target", type=TARGET)
@click.option("--repair", is_flag=True, help="Rebuild what is damaged; other files stay.")
@click.option("--published", is_flag=True, help="Also compare digests with the published ones.")
@sample_option
@raw_options
@jobs_option
@work_options
def command(
    target: str,
    repair: bool,
    published: bool,
    sample: bool,
    home: Home,
    as_json: bool,
    **options: Any,
) -> None:
    """Check every byte of a build, and repair a damaged one.

    Checks card, splits, columns, digests, schema, pointers, indices, finite features and label
    ranges. Ends with exit code 1 and names each broken shard if something is wrong.
    """
    from kmip_data.builds.verify import verify_build

    path = resolve(target, home, sample=sample).path
    report = verify_build(path)
    repaired: list[str] = []
    tried = repair and not report.ok
    if tried:
        from kmip_data.pipelines.engine.encode import repair_build

        repaired = repair_build(path, home=home, **options)
        report = verify_build(path)
    compared = published and report.ok
    if compared:
        from kmip_data.builds.verify import unlike_published
        from kmip_data.format.card import read_card

        if unlike := unlike_published(read_card(path)):
            what = f"{path} is sound, but not the published build: {', '.join(unlike)}."
            again = (
                "compare the versions of numpy, h5py and scipy with those of the constraints file"
            )
            raise CheckFailed(what, next=again)
    if as_json:
        facts = {"path": path, "ok": report.ok, "checked": report.checked}
        facts |= {
            "broken_shards": report.broken_shards,
            "problems": [vars(each) for each in report.problems],
        }
        print_json({**facts, "repaired": repaired, "remarks": report.remarks})
    else:
        checked = ", ".join(
            counted(count, what.removesuffix("s")) for what, count in report.checked.items()
        )
        lines = [f"Rebuilt: {', '.join(repaired)}"] if repaired else []
        lines += [f"{path} is sound: {checked}."] if report.ok else []
        lines += ["All digests are the published ones."] if compared else []
        for line in [*lines, *report.remarks]:
            click.echo(line)
    if not report.ok:
        broken = ": " * bool(report.broken_shards) + ", ".join(report.broken_shards)
        raise CheckFailed(
            f"{path} is {'still broken after the repair' if tried else 'broken'}{broken}.",
            found="".join(f"\n    {problem}" for problem in report.problems),
            left=f"rebuilt: {', '.join(repaired) or 'nothing'}; the rest as it was"
            if tried
            else None,
            next=f"check the disk, then remove {path} and build it again"
            if tried
            else f"kmip-data verify {path} --repair",
        )
