"""``kmip-data build``: raw files to HDF5 shards."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.build_own_data import (
    PYG_NAME,
    build_command_after_dry_run,
    build_from_class,
    build_in_temporary_home,
    build_own_data,
)
from kmip_data.cli.shared.build_summary import (
    steps_after_build,
    summary_of_build,
    target_candidates,
)
from kmip_data.cli.shared.dataset_options import DatasetCommand, DatasetParameters
from kmip_data.cli.shared.options import (
    dask_option,
    jobs_option,
    long_running_options,
    path_option,
    plugin_option,
    raw_file_options,
    sample_option,
    set_option,
)
from kmip_data.cli.shared.output import (
    build_as_json,
    check_output_path,
    format_table,
    print_result,
)
from kmip_data.cli.shared.targets import NameType
from kmip_data.errors import Command, KmipDataError, Setting, UsageError
from kmip_data.files.folder_marker import PICTURE_NAME
from kmip_data.format.card import CARD_NAME
from kmip_data.runtime.progress import print_status

if TYPE_CHECKING:
    from kmip_data.builds.home import Build, Home


#: Largest graphs whose picture `build` draws, in nodes: springs take 3 s for 5,000 nodes, a map 4 s
#: for 100,000.
MAX_DRAWN_NODES = 5_000
MAX_DRAWN_CITY_NODES = 200_000
#: Recipes with --dry-run and --describe.
DESCRIBED_RECIPES = ("graphs", "points", "superpixels")
#: Section of the help -> options.
OPTION_SECTIONS = {
    "Your own data": (
        "--name", "--archive", "--set", "--like", "--dry-run", "--describe", "--images", "--masks",
        "--place",
    ),
    "Data": (
        "--sample", "--k", "--limit", "--split-rule", "--split-seed", "--test-area", "--output",
    ),
    "Download": ("--accept-license", "--unpinned", "--offline"),
    "Machine": (
        "--jobs", "--memory", "--dask", "--plugin", "--home", "--json", "--quiet", "-h",
    ),
}  # fmt: skip


class _BuildableName(NameType):
    """Name of a dataset, or ``pyg``."""

    def convert(self, value: object, *context: Any) -> str:
        return PYG_NAME if value == PYG_NAME else super().convert(value, *context)


@click.command(
    cls=DatasetCommand,
    parameter_groups=("records", "split", "source"),
    option_sections=OPTION_SECTIONS,
)
@click.argument("name", type=_BuildableName("dataset"))
@raw_file_options
@sample_option
@set_option(
    help="Parameter of the dataset (`kmip-data info NAME` lists them), or picture=false, to draw no"
    " picture; may be repeated.",
    name="settings",
)
@click.option(
    "--unpinned", is_flag=True, help="Accept raw files that differ from the published ones."
)
@jobs_option
@click.option(
    "--memory",
    metavar="SIZE",
    help="Memory limit of a worker process, such as 4GiB."
    "  [default: 4GiB for your own graphs, half of the memory for a city, else no limit]",
)
@dask_option
@plugin_option
@path_option("--output", metavar="DIR", help="Build into DIR instead of the home folder.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Your own data: print how they would be read and a summary of the build, without keeping it.",
)
@path_option("--describe", help="Your own data: write how they are read to FILE, for --like FILE.")
@long_running_options
def command(
    name: str,
    *,
    settings: tuple[str, ...],
    archives: tuple[Path, ...],
    sample: bool,
    home: Home,
    dry_run: bool,
    describe: Path | None,
    parameters: DatasetParameters,
    **options: Any,
) -> None:
    """Build a published dataset, or a dataset from your own files.

    NAME is a published dataset (kmip-data list --all). For your own files, NAME is graphs,
    points, superpixels, city or pyg, and --name names the dataset. Missing raw files are fetched
    first. A stopped build is resumed. `kmip-data info NAME` lists the parameters of a dataset, and
    `kmip-data info graphs` those for your own graphs.
    """
    from kmip_data.manifest import load_manifest
    from kmip_data.pipelines.added_splits import ensure_split
    from kmip_data.pipelines.build import build_dataset

    quiet = options["quiet"]
    output = options["output"]
    folders = [*home.built.glob("*"), Path(output or home.built).absolute()]
    existing_builds = [folder for folder in folders if (folder / CARD_NAME).is_file()]
    draws_picture, settings = _take_picture_setting(settings)

    # 1. Build from a dataset class, whose arguments --set gives.
    if name == PYG_NAME:
        build = build_from_class(parameters.source.get("name"), settings, home, output, quiet=quiet)
        if draws_picture:
            _add_picture(build, home, quiet=quiet)
        _print_build(build, build.card.default_split, parameters)
        return

    # 2. Refuse options that the dataset does not take.
    parameters = parameters.with_settings(name, settings)
    if (dry_run or describe) and name not in DESCRIBED_RECIPES:
        raise UsageError(
            f"{name} takes no --dry-run and no --describe.",
            steps=[
                "for graphs of your own",
                Command("kmip-data build graphs --archive PATH --dry-run"),
            ],
        )
    is_recipe = load_manifest(name).recipe
    if parameters.source and not is_recipe:
        raise UsageError(
            f"{name} takes no --name, --place, --images or --masks: they are for your own data.",
            steps=Command("kmip-data info", name),
        )
    if describe is not None:
        check_output_path(describe, "--describe", force=False)

    # 3. Build, or find the finished build.
    options |= {"sample": sample, "home": home}
    if dry_run:
        _print_dry_run(name, parameters, archives, describe, **options)
        return
    if is_recipe:
        build = build_own_data(name, parameters, archives, **options)
    else:
        build = build_dataset(
            name,
            parameters=parameters.records,
            split_parameters=parameters.split,
            archives=archives,
            **options,
        )
    if build.path in existing_builds:
        print_status(f"already built: {build.path}", quiet=quiet)
    split = ensure_split(build, parameters.split)

    # 4. Write the description and the picture, and print the result.
    if describe is not None:
        step = build_command_after_dry_run(name, parameters, archives, home, description=describe)
        _write_description(build, describe, step)
    _print_warnings(build, name)
    if draws_picture:
        _add_picture(build, home, quiet=quiet)
    _print_build(build, split, parameters)


def _print_dry_run(
    recipe: str,
    parameters: DatasetParameters,
    archives: tuple[Path, ...],
    describe: Path | None,
    *,
    home: Home,
    **options: Any,
) -> None:
    """Print the description and the summary of the build that would result."""
    from kmip_data.pipelines.added_splits import ensure_split
    from kmip_data.pipelines.described_parameters import description_of_build

    step = build_command_after_dry_run(recipe, parameters, archives, home, description=describe)
    with build_in_temporary_home(recipe, parameters, archives, home=home, **options) as build:
        split = ensure_split(build, parameters.split)
        _print_warnings(build, recipe)
        description = description_of_build(build.card)
        if describe is not None:
            _write_description(build, describe, step)
        columns = format_table(description.titles, description.table_rows())
        summary = summary_of_build(build, split, is_kept=False)
        facts = {**_build_facts(build, split), "path": None}
        is_described = describe is not None or "like" in parameters.source
        has_target = is_described or build.card.schema_.y_column is not None
        if not has_target and "label" not in parameters.records and target_candidates(build.card):
            step = Command("", *step.words, "--set", "label=COLUMN")
    print_result(facts, f"{columns}\n\n{summary}\n", steps=[step])


def _write_description(build: Build, path: Path, command: Command) -> None:
    """Write the description of a build as TOML, with the command that builds with it."""
    from kmip_data.files.atomic_writes import write_output
    from kmip_data.pipelines.described_parameters import description_of_build

    write_output(path, description_of_build(build.card).to_toml(str(command)).encode())


def _print_warnings(build: Build, name: str) -> None:
    """Print the warnings on the card of a build of the dataset or recipe ``name``."""
    from kmip_data.manifest import load_manifest

    manifest = load_manifest(name)
    warnings = build.card.statistics.get("city", {}).get("warnings", ())
    if manifest.recipe:
        warnings = [note for note in build.card.notes if note not in manifest.notes]
    for warning in warnings:
        print_status(f"warning: {warning}")


def _take_picture_setting(settings: tuple[str, ...]) -> tuple[bool, tuple[str, ...]]:
    """Return the value of the setting ``picture``, true by default, and the remaining settings."""
    from pydantic import TypeAdapter, ValidationError

    draws_picture = True
    remaining = []
    for item in settings:
        key, _, value = item.partition("=")
        if key != "picture":
            remaining.append(item)
            continue
        try:
            draws_picture = TypeAdapter(bool).validate_python(value)
        except ValidationError as error:
            raise UsageError(
                f"picture cannot be {value!r}.",
                expected="true or false",
                steps=["draw no picture", Setting(picture=False)],
            ) from error
    return draws_picture, tuple(remaining)


def _add_picture(build: Build, home: Home, *, quiet: bool) -> None:
    """Draw the picture at the top of the build's page, unless it exists or would take long.

    A build is complete without its picture, so failing to draw it is not an error.
    """
    from kmip_data.cli.preview import add_picture_to_page, draw_build
    from kmip_data.graphs.city_columns import is_city

    card = build.card
    path = build.path / PICTURE_NAME
    graphs = card.counts["graphs"]
    max_nodes = MAX_DRAWN_NODES * graphs
    records: str | None = str(graphs // 2)
    if is_city(card):
        max_nodes = MAX_DRAWN_CITY_NODES
        records = None
    if os.path.lexists(path):
        return
    nodes = card.counts["nodes"]
    if nodes > max_nodes:
        command = Command("kmip-data preview", build.path)
        print_status(
            f"No picture was drawn: {nodes:,} nodes are more than {max_nodes:,};"
            f" it may take a while: {command}",
            quiet=quiet,
        )
        return
    print_status("Drawing the picture of its page", quiet=quiet)
    try:
        draw_build(build, path, home, records=records)
        add_picture_to_page(build)
    except (KmipDataError, OSError) as error:
        print_status(
            f"No picture was drawn: {getattr(error, 'message', error)}",
            quiet=quiet,
        )


def _print_build(build: Build, split: str, parameters: DatasetParameters) -> None:
    steps = steps_after_build(build, split, parameters)
    print_result(_build_facts(build, split), summary_of_build(build, split), steps=steps)


def _build_facts(build: Build, split: str) -> dict[str, Any]:
    parts = build.card.splits[split].ordered_parts()
    facts = build_as_json(build) | {
        "split": split,
        "splits": {part: dict(counts) for part, counts in parts},
        "shards": {shard.file: shard.sha256 for shard in build.card.shards},
    }
    if "files" in build.card.statistics:
        facts["files"] = build.card.statistics["files"]
    return facts
