"""``kmip-data build``: raw files to HDF5 shards."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.list import build_facts
from kmip_data.cli.shared.dataset_command import RECORDS, SOURCES, SPLITS, DatasetCommand, given
from kmip_data.cli.shared.names import DATASET
from kmip_data.cli.shared.options import (
    compression_option,
    engine_options,
    jobs_option,
    output_option,
    raw_options,
    sample_option,
    work_options,
)
from kmip_data.cli.shared.output import facts, print_json, table
from kmip_data.files.disk import human_bytes
from kmip_data.wording import as_options

if TYPE_CHECKING:
    from pathlib import Path

    from kmip_data.builds.home import Build, Home


@click.command(
    cls=DatasetCommand,
    splits=True,
    sources=True,
    examples=[
        "kmip-data build s3dis --k 32 --jobs 8",
        "kmip-data build s3dis --k 16 --test-area 5 --archive indoor3d_sem_seg_hdf5_data.zip",
        "kmip-data build shapenet-part --category Chair --category Lamp --accept-license",
        "kmip-data build s3dis --sample --limit 100",
        "kmip-data build city --name marais --osm-file paris.osm.pbf",
        "kmip-data build superpixels --name photos --images photos --masks masks --classes 3",
        "kmip-data build points --name campus --path scans --k 16 --label-column class",
    ],
)
@click.argument("name", type=DATASET)
@raw_options
@sample_option
@jobs_option
@engine_options
@output_option
@compression_option
@work_options
def command(
    name: str, *, archives: tuple[Path, ...], sample: bool, home: Home, as_json: bool, **options: Any
) -> None:
    """Turn raw files into HDF5 shards.

    Brings the raw files in first where they are missing. A build that was stopped goes on where
    it stopped; a finished one is found at once. The dataset's own parameters are options too:
    `kmip-data build s3dis --help` shows them.
    """
    from kmip_data.manifest import load_manifest
    from kmip_data.pipelines.find import obtain, split_name

    if load_manifest(name).recipe:
        build = _build_recipe(name, archives, sample=sample, home=home, **options)
    else:
        options |= {"home": home, "sample": sample, "archives": archives}
        build = obtain(name, given(RECORDS), given(SPLITS), **options)
    split = split_name(build, given(SPLITS))
    for warning in build.card.statistics.get("city", {}).get("warnings", ()):
        click.echo(f"warning: {warning}", err=True)
    if as_json:
        print_json(result(build, split))
    else:
        click.echo(summary(build, split))


def _build_recipe(
    recipe: str, archives: tuple[Path, ...], *, sample: bool, home: Home, **options: Any
) -> Build:
    from kmip_data.errors import UsageError
    from kmip_data.pipelines.recipes import build_own, source_model

    sources = given(SOURCES)
    name = sources.pop("name", None)
    takes_archive = "archive" in source_model(recipe).model_fields
    if name is None or sample or len(archives) > takes_archive:
        raise UsageError(
            f"A dataset by the recipe {recipe!r} is built under a name of its own, from a source of its own.",
            expected="--name NAME and " + _SOURCES[recipe],
            found="--sample" if sample else "no --name" if name is None else f"{len(archives)} × --archive",
            next="kmip-data build helsinki --sample" if recipe == "city" and sample
            else f"kmip-data build {recipe} --help",
        )  # fmt: skip
    if archives:
        sources["archive"] = archives[0]
    options |= {"parameters": given(RECORDS), "split_parameters": given(SPLITS)}
    return build_own(recipe, name, sources, home=home, **options)


_SOURCES = {
    "city": "one of --osm-file, --graphml, --place, --archive",
    "points": "--path",
    "superpixels": "--images and --masks",
}


def result(build: Build, split: str) -> dict[str, Any]:
    """Return the object of ``build --json``."""
    card = build.card
    return build_facts(build) | {
        "split": split,
        "splits": {part: counts.model_dump() for part, counts in card.splits[split].in_order()},
        "shards": {shard.file: shard.sha256 for shard in card.shards},
    }


def summary(build: Build, split: str) -> str:
    """What was built, where it lies, its split, and what to do with it."""
    from kmip_data.pipelines.raw.license import SHOWN

    card = build.card
    rows = [
        [part, counts.graphs, counts.nodes, counts.edges, counts.digest[:12]]
        for part, counts in card.splits[split].in_order()
    ]
    folder, size = shlex.quote(str(build.path)), human_bytes(sum(entry.bytes for entry in card.shards))
    chosen = "" if split == card.default_split else as_options(card.splits[split].parameters)
    return "\n".join(
        [
            f"{card.dataset}{card.remark} is built.",
            facts(
                [
                    ("path", str(build.path)),
                    *((name, card.counts.get(name)) for name in ("graphs", "nodes", "edges")),
                    ("shards", f"{len(card.shards)} ({size})"),
                    ("split", split),
                    ("license", None if card.manifest in SHOWN else card.license.get("notice")),
                ],
                indent=2,
            ),
            "",
            table(["part", "graphs", "nodes", "edges", "digest"], rows, indent=2),
            "",
            f"Next: kmip-data verify {folder}",
            f"      kmip-data train --dataset {folder} {chosen}".rstrip(),
        ]
    )
