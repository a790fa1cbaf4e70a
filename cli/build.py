"""``kmip-data build``: raw files to HDF5 shards."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.build_summary import summary_of_build, target_candidates
from kmip_data.cli.shared.datasets import (
    RECORDS,
    SOURCES,
    SPLITS,
    DatasetCommand,
    requested_values,
    store_settings,
)
from kmip_data.cli.shared.names import NameType, dataset_name_of_file
from kmip_data.cli.shared.options import (
    dask_option,
    force_option,
    jobs_option,
    options_on_line,
    path_option,
    plugin_option,
    raw_options,
    sample_option,
    work_options,
)
from kmip_data.cli.shared.output import (
    check_output_path,
    facts_of_build,
    format_table,
    print_result,
)
from kmip_data.errors import DamagedInput, KmipDataError, UsageError
from kmip_data.files.folder_marker import PICTURE_NAME
from kmip_data.format.card import CARD_NAME
from kmip_data.runtime.progress import print_status
from kmip_data.text import parameters_as_options

if TYPE_CHECKING:
    from kmip_data.builds.home import Build, Home


#: Largest graph that `build` draws, in nodes: 5,000 by springs take 3 s, 100,000 of a map 4 s.
MOST_NODES = 5_000
MOST_OF_CITY = 200_000
PYG = "pyg"  #: builds from a class that the command line names
#: Options that it takes.
_OF_PYG = {"--name", "--set", "--output", "--home", "--json", "--quiet"}


#: Section of the help -> its options.
GROUPS = {
    "Your own data": (
        "--name", "--archive", "--set", "--like", "--dry-run", "--describe", "--images", "--masks",
        "--place",
    ),
    "Data": (
        "--sample", "--k", "--limit", "--split-rule", "--split-seed", "--test-area", "--output", "--force",
    ),
    "Download": ("--accept-license", "--unpinned", "--offline"),
    "Machine": (
        "--jobs", "--memory", "--dask", "--plugin", "--home", "--json", "--quiet", "-h",
    ),
}  # fmt: skip


class _Buildable(NameType):
    """The name of a dataset, or ``pyg``."""

    def convert(self, value: object, *context: Any) -> str:
        return PYG if value == PYG else super().convert(value, *context)


@click.command(cls=DatasetCommand, stores=(RECORDS, SPLITS, SOURCES), groups=GROUPS)
@click.argument("name", type=_Buildable("dataset"))
@raw_options
@sample_option
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Parameter of the dataset (`kmip-data info NAME` lists them), or picture=false, to draw no"
    " picture; may be repeated.",
)
@click.option("--unpinned", is_flag=True, help="Accept other raw files than the published ones.")
@jobs_option
@click.option(
    "--memory",
    metavar="SIZE",
    help="Memory limit of a worker process, such as 4GiB."
    "  [default: 4GiB to read your own graphs, half of the memory for a city, else no limit]",
)
@dask_option
@plugin_option
@path_option("--output", metavar="DIR", help="Build into DIR instead of the home folder.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="graphs: print the use of each column and a summary of the build, and keep nothing.",
)
@path_option("--describe", help="graphs: write the uses of the columns into FILE, for --like FILE.")
@force_option
@work_options
def command(
    name: str,
    *,
    settings: tuple[str, ...],
    archives: tuple[Path, ...],
    sample: bool,
    home: Home,
    dry_run: bool,
    describe: Path | None,
    force: bool,
    **options: Any,
) -> None:
    """Build a dataset: a published one, or one of your own files.

    NAME is a published dataset (kmip-data list --all). For your own files it is graphs, points,
    superpixels, city or pyg, and --name names the result. Missing raw files are fetched first. A
    build that was stopped is resumed. `kmip-data info NAME` lists the parameters of a dataset,
    `kmip-data info graphs` the keys for your own graphs.
    """
    from kmip_data.manifest import load_manifest
    from kmip_data.pipelines.added_splits import ensure_split
    from kmip_data.pipelines.build import build_dataset

    folders = [*home.built.glob("*"), Path(options["output"] or home.built).absolute()]
    existing = [folder for folder in folders if (folder / CARD_NAME).is_file()]
    draws, settings = _separate_picture_setting(settings)
    if name == PYG:
        build = _build_class(settings, home, options["output"], quiet=options["quiet"])
        if draws:
            _add_picture(build, home, quiet=options["quiet"])
        _print_build(build, build.card.default_split)
        return
    store_settings(name, settings)
    options |= {
        "home": home,
        "parameters": requested_values(RECORDS),
        "split_parameters": requested_values(SPLITS),
    }
    if (dry_run or describe) and name != "graphs":
        raise UsageError(
            f"{name} takes no --dry-run and no --describe.",
            next="kmip-data build graphs --archive PATH --dry-run, for graphs of your own",
        )
    if describe is not None:
        check_output_path(describe, "--describe", force=force)
    if dry_run:
        _dry_run(requested_values(SOURCES), archives, describe, sample=sample, **options)
        return
    if load_manifest(name).recipe:
        build = _build_recipe(name, requested_values(SOURCES), archives, sample=sample, **options)
    elif requested_values(SOURCES):
        raise UsageError(
            f"{name} takes no --name, --place, --images or --masks: they are for your own data.",
            next=f"kmip-data info {name}",
        )
    else:
        build = build_dataset(name, sample=sample, archives=archives, **options)
    if build.path in existing:
        print_status(f"already built: {build.path}", quiet=options["quiet"])
    split = ensure_split(build, requested_values(SPLITS))
    if describe is not None:
        sources = requested_values(SOURCES)
        _write_description(build, describe, _build_command(sources["name"], archives, describe))
    _print_warnings(build, name)
    if draws:
        _add_picture(build, home, quiet=options["quiet"])
    _print_build(build, split)


def _print_warnings(build: Build, name: str) -> None:
    """Print the warnings on the card of a build of the dataset or recipe ``name``."""
    from kmip_data.manifest import load_manifest

    manifest = load_manifest(name)
    warnings = build.card.statistics.get("city", {}).get("warnings", ())
    if manifest.recipe:
        warnings = [note for note in build.card.notes if note not in manifest.notes]
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def _build_command(name: str, archives: tuple[Path, ...], describe: Path | None) -> str:
    """Return the command that builds your own graphs, after a dry run or from an edited description.

    A description has the parameters that say how columns are used, and replaces them.
    """
    from kmip_data.columns.column_uses import DESCRIBED_PARAMETERS

    parameters = {**requested_values(RECORDS), **requested_values(SPLITS)}
    if like := requested_values(SOURCES).get("like"):
        parameters["like"] = like
    if describe is not None:
        parameters = {
            key: value for key, value in parameters.items() if key not in DESCRIBED_PARAMETERS
        }
        parameters["like"] = str(describe)
    words = ["kmip-data", "build", "graphs", "--name", name]
    for archive in archives:
        words += ["--archive", str(archive)]
    if "--home" in options_on_line():
        words += ["--home", str(click.get_current_context().params["home"].path)]
    return f"{shlex.join(words)} {parameters_as_options(parameters)}".strip()


def _write_description(build: Build, path: Path, command: str) -> None:
    """Write the uses of the columns of a build as TOML, with the command that builds with them."""
    from kmip_data.columns.column_uses import description_on_card
    from kmip_data.files.atomic_writes import write_output

    if described := description_on_card(build.card.statistics):
        write_output(path, described.to_toml(command).encode())


def _dry_run(
    sources: Mapping[str, Any],
    archives: tuple[Path, ...],
    describe: Path | None,
    *,
    sample: bool,
    home: Home,
    **options: Any,
) -> None:
    """Print the use of each column and the build that it gives, which is made in a temporary folder."""
    import tempfile

    from kmip_data.builds.home import Home as HomeFolder
    from kmip_data.columns.column_uses import description_on_card
    from kmip_data.pipelines.added_splits import ensure_split
    from kmip_data.pipelines.find import find

    sources = {"name": "mine", **sources}
    name = sources["name"]
    # The temporary home has no build of this name.
    if (like := sources.get("like")) and not Path(like).is_file():
        sources["like"] = str(find(_data_of_like(like, home), home=home).path)
    with tempfile.TemporaryDirectory() as folder:
        options |= {"home": HomeFolder(Path(folder)), "output": None, "quiet": True}
        build = _build_recipe("graphs", sources, archives, sample=sample, **options)
        split = ensure_split(build, requested_values(SPLITS))
        _print_warnings(build, "graphs")
        described = description_on_card(build.card.statistics)
        assert described is not None, "a build of graphs describes its columns"
        step = _build_command(name, archives, describe)
        if describe is not None:
            _write_description(build, describe, step)
        header = ["rows", "column", "use", "values", "distinct", "missing", "because"]
        summary = summary_of_build(build, split, kept=False)
        has_target = build.card.schema_.label_column is not None or " --like " in step
        if not has_target and "label" not in requested_values(RECORDS):
            step += " --set label=COLUMN" if target_candidates(build.card) else ""
        columns = format_table(header, described.table_rows())
        print_result(
            {**_build_facts(build, split), "path": None},
            f"{columns}\n\n{summary}\n\nNext: {step}",
        )


def _separate_picture_setting(settings: tuple[str, ...]) -> tuple[bool, tuple[str, ...]]:
    """Return True if ``build`` draws the picture of its page, and the other settings."""
    from pydantic import TypeAdapter, ValidationError

    draws = True
    others = []
    for item in settings:
        key, equals, value = item.partition("=")
        if key != "picture" or not equals:
            others.append(item)
            continue
        try:
            draws = TypeAdapter(bool).validate_python(value)
        except ValidationError as error:
            raise UsageError(
                f"picture cannot be {value!r}.",
                expected="true or false",
                next="--set picture=false, which saves drawing one",
            ) from error
    return draws, tuple(others)


def _add_picture(build: Build, home: Home, *, quiet: bool) -> None:
    """Draw the picture that the page begins with, of one record, unless it exists or takes long.

    A picture that cannot be drawn is no fault of the build.
    """
    from kmip_data.cli.preview import draw_build, show_on_page
    from kmip_data.graphs.city_columns import is_city

    card = build.card
    path = build.path / PICTURE_NAME
    graphs = card.counts["graphs"]
    city = is_city(card)
    most = MOST_OF_CITY if city else MOST_NODES
    if os.path.lexists(path) or card.counts["nodes"] > most * graphs:
        return
    print_status("Drawing the picture of its page", quiet=quiet)
    try:
        draw_build(build, path, home, records=None if city else str(graphs // 2))
        show_on_page(build)
    except (KmipDataError, OSError) as error:
        print_status(f"No picture was drawn: {str(error).splitlines()[0]}", quiet=quiet)


def _print_build(build: Build, split: str) -> None:
    print_result(_build_facts(build, split), summary_of_build(build, split))


def _build_facts(build: Build, split: str) -> dict[str, Any]:
    parts = build.card.splits[split].ordered_parts()
    result = facts_of_build(build) | {
        "split": split,
        "splits": {part: dict(counts) for part, counts in parts},
        "shards": {shard.file: shard.sha256 for shard in build.card.shards},
    }
    if "files" in build.card.statistics:
        result["files"] = build.card.statistics["files"]
    return result


#: Sources of a recipe, as its error lists them.
_SOURCES = {
    "city": "one of --archive (a map, a street graph or tensors) and --place",
    "graphs": "--archive, a file, a folder or an archive of graphs",
    "points": "--archive, a folder of point clouds or one",
    "superpixels": "--images and --masks",
}


def _build_recipe(
    recipe: str,
    sources: Mapping[str, Any],
    archives: tuple[Path, ...],
    *,
    sample: bool,
    **options: Any,
) -> Build:
    """Build a dataset of your own from its ``sources``, by key, and ``archives``."""
    from kmip_data.pipelines.build import build_own

    sources = {**sources}
    name = sources.pop("name", None)
    if sample:
        raise UsageError(
            f"{recipe!r} builds from your own files; a sample is generated without any.",
            next="leave out --sample",
        )
    if len(archives) > (recipe != "superpixels"):
        raise _several_archives_error(recipe, archives)
    if name is None:
        raise UsageError(
            f"{recipe!r} builds a dataset from your own files, and needs a name for it.",
            expected=f"--name NAME and {_SOURCES[recipe]}",
            found="no --name",
            next=f"a name: --name {dataset_name_of_file(archives[0]) if archives else 'my-data'}",
        )
    if like := sources.get("like"):
        sources["like"] = _data_of_like(like, options["home"])
    for path in archives:
        sources["path" if recipe in {"graphs", "points"} else _city_source(path)] = path
    return build_own(recipe, name, sources, **options)


def _several_archives_error(recipe: str, archives: tuple[Path, ...]) -> UsageError:
    """Return the error for more paths than the recipe takes."""
    step = "copy them into a folder or zip, and pass it alone: --archive FOLDER"
    if recipe == "graphs":
        step += "; names of tables need the word nodes, edges or graphs, such as nodes.csv"
    elif recipe != "points":
        step = f"kmip-data info {recipe}"
    return UsageError(
        f"{recipe!r} takes {'no --archive' if recipe == 'superpixels' else 'one --archive'}.",
        expected=_SOURCES[recipe],
        found=", ".join(map(str, archives)),
        next=step,
    )


def _data_of_like(like: str, home: Home) -> str:
    """Return the data of ``--like``: a file, a dataset, or the build that a run was trained on."""
    if os.sep not in like:
        return like
    from kmip_data.models.training.run.result import resolve_dataset

    return resolve_dataset(like, home)


def _build_class(
    settings: tuple[str, ...], home: Home, output: Path | None, *, quiet: bool
) -> Build:
    """Build from a dataset class, whose code runs: only the command line can name it."""
    from kmip_data.models.training.config.overrides import toml_value

    if others := options_on_line() - _OF_PYG:
        raise UsageError(
            f"build {PYG} does not take {min(others)}.",
            next="give each argument of the class by --set KEY=VALUE",
        )
    texts = dict(item.split("=", 1) for item in settings if "=" in item)
    address = texts.pop("class", None)
    name = requested_values(SOURCES).get("name")
    if address is None or name is None or len(texts) + 1 != len(settings):
        raise UsageError(
            f"{PYG!r} builds a dataset from a class, and needs its address and a name.",
            expected="--set class=MODULE:CLASS, --set KEY=VALUE once for each other argument, and --name NAME",
            found=" ".join(settings) or "no --set",
            next=f"kmip-data build {PYG} --set class=torch_geometric.datasets:WebKB"
            " --set name=cornell --name my-cornell",
        )

    from kmip_data.saving.save import check_new_folder
    from kmip_data.saving.save_class import save_class

    root = home.raw / name
    folder = output or home.built / name
    check_new_folder(folder, name)
    if not quiet:
        click.echo(
            f"Running {address}, which downloads and processes by default in {root}.", err=True
        )
    arguments = {key: toml_value(text) for key, text in texts.items()}
    return save_class(address, arguments, root, folder, name=name)


def _city_source(path: Path) -> str:
    """Return the source of a city given by ``--archive``: a map or a street graph, by its content."""
    head = b""
    with contextlib.suppress(OSError, ValueError):  # refused by name later; a pipe is never read
        if path.expanduser().is_file():  # else a folder of tensors
            with path.expanduser().open("rb") as file:
                head = file.read(4096)
    if b"<graphml" in head:
        return "graphml"
    xml = head.lstrip().startswith((b"<", b"\xef\xbb\xbf<"))
    if b"OSMHeader" in head[:20] or xml or ".osm." in path.name.lower():
        return "osm_file"

    from kmip_data.pipelines.raw.archives import sniff_format

    if head and not sniff_format(head):
        line = head[:60].decode("latin-1").splitlines()[0]
        raise DamagedInput(
            f"{path} is not a city.",
            expected="an OpenStreetMap extract (.osm.pbf, .osm, .osm.gz, .osm.bz2), GraphML of"
            " osmnx.save_graphml, or a folder, zip or tar of City-Networks tensors",
            found=f"a file that begins with {line!a}",
            next="kmip-data info city",
        )
    return "archive"
