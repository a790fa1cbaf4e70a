"""Builds of the user's own data: files, or a class; and what a build of ``graphs`` would contain."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.dataset_options import DatasetParameters
from kmip_data.cli.shared.options import typed_options
from kmip_data.cli.shared.targets import dataset_name_of_file
from kmip_data.errors import Command, DamagedInput, Setting, Step, UsageError
from kmip_data.text import option_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kmip_data.builds.home import Build, Home

PYG_NAME = "pyg"  #: NAME on the command line that selects a build from a class
_ACCEPTED_OPTIONS = {"--name", "--set", "--output", "--home", "--json", "--quiet"}

#: Recipe -> options that name its source files, for an error.
_SOURCE_OPTIONS = {
    "city": "one of --archive (a map, a street graph or tensors) and --place",
    "graphs": "--archive, a file, a folder or an archive of graphs",
    "points": "--archive, a folder of point clouds or one",
    "superpixels": "--archive, a folder of pictures, perhaps with masks; or --images and --masks",
}

#: Recipe -> field of its source that ``--archive`` is.
_SOURCE_FIELDS = {"graphs": "path", "points": "path", "superpixels": "images"}


def build_own_data(
    recipe: str,
    parameters: DatasetParameters,
    archives: tuple[Path, ...],
    *,
    sample: bool,
    home: Home,
    **options: Any,
) -> Build:
    """Build a dataset from the user's files by a recipe."""
    from kmip_data.pipelines.build import build_own

    if sample:
        raise UsageError(
            f"{recipe!r} builds from your own files; a sample is generated without any.",
            steps=Setting(sample=None),
        )
    if len(archives) + ("images" in parameters.source) > 1:
        raise _too_many_archives_error(recipe, archives, parameters.source.get("name", "NAME"))
    source = {**parameters.source}
    name = source.pop("name", None)
    if name is None:
        example = archives[0] if archives else Path("my-data")
        raise UsageError(
            f"{recipe!r} builds a dataset from your own files, and needs a name for it.",
            expected=f"--name NAME and {_SOURCE_OPTIONS[recipe]}",
            found="no --name",
            steps=Setting(name=dataset_name_of_file(example, home)),
        )

    if like := source.get("like"):
        source["like"] = _data_to_imitate(like, home)
    for path in archives:
        field = _SOURCE_FIELDS.get(recipe) or _city_source_field(path)
        source[field] = path
    return build_own(
        recipe,
        name,
        source,
        parameters=parameters.records,
        split_parameters=parameters.split,
        home=home,
        **options,
    )


@contextlib.contextmanager
def build_in_temporary_home(
    recipe: str,
    parameters: DatasetParameters,
    archives: tuple[Path, ...],
    *,
    sample: bool,
    home: Home,
    **options: Any,
) -> Iterator[Build]:
    """Build the user's data by a recipe in a temporary home, for a dry run."""
    from kmip_data.builds.home import Home as HomeFolder

    source = {"name": "mine", **parameters.source}
    # The temporary home has no build that --like could name.
    if like := source.get("like"):
        source["like"] = _data_to_imitate(like, home)
    with tempfile.TemporaryDirectory() as folder:
        options |= {"home": HomeFolder(Path(folder)), "output": None, "quiet": True}
        temporary = DatasetParameters(parameters.records, parameters.split, source)
        yield build_own_data(recipe, temporary, archives, sample=sample, **options)


def build_command_after_dry_run(
    recipe: str,
    parameters: DatasetParameters,
    archives: tuple[Path, ...],
    home: Home,
    *,
    description: Path | None,
) -> Command:
    """Return the command that builds the user's data after a dry run.

    With a ``description`` file, the parameters that it contains are left out.
    """
    from kmip_data.builds.home import unused_name
    from kmip_data.columns.column_roles import DESCRIBED_PARAMETERS

    options = {**parameters.records, **parameters.split}
    if like := parameters.source.get("like"):
        options["like"] = like
    if description is not None:
        described = DESCRIBED_PARAMETERS
        if recipe != "graphs":
            described = parameters.records.keys() - {"limit", "on_error"}
        options = {key: value for key, value in options.items() if key not in described}
        options["like"] = str(description)

    name = parameters.source.get("name") or unused_name("mine", home)
    words: list[object] = []
    for archive in archives:
        words += ["--archive", archive]
    for option in ("images", "masks"):
        if folder := parameters.source.get(option):
            words += [f"--{option}", folder]
    if "--home" in typed_options():
        words += ["--home", home.path]
    return Command("kmip-data build {} --name", recipe, name, *words, *option_words(options))


def one_archive_steps(recipe: str, name: str) -> list[Step]:
    """Return how to build a dataset from several files."""
    command = Command("kmip-data build {} --name {} --archive FOLDER", recipe, name)
    return ["copy them into a folder or zip, and pass it alone", command]


def _too_many_archives_error(recipe: str, archives: tuple[Path, ...], name: str) -> UsageError:
    """Return the error for more ``--archive`` options than a recipe takes."""
    steps = one_archive_steps(recipe, name)
    if recipe == "city":
        steps = [Command("kmip-data info", recipe)]
    return UsageError(
        f"{recipe!r} takes one --archive.",
        expected=_SOURCE_OPTIONS[recipe],
        found=", ".join(map(str, archives)),
        steps=steps,
    )


def _data_to_imitate(like: str, home: Home) -> str:
    """Return the file or build of ``--like``; of a run, the build that it was trained on."""
    from kmip_data.builds.home import path_or_none
    from kmip_data.pipelines.find_builds import find_build

    if os.sep in like:
        from kmip_data.models.training.run.find_runs import dataset_of_run

        like = dataset_of_run(like, home)
    path = path_or_none(like, home)
    if path is None or not path.is_file():
        path = find_build(like, home=home).path
    return str(path)


def _city_source_field(path: Path) -> str:
    """Return the source field of the city recipe for an archive, by the content of the file."""
    head = b""
    # An unreadable file is refused later. A folder has tensors; a pipe is never read.
    with contextlib.suppress(OSError, ValueError):
        if path.expanduser().is_file():
            with path.expanduser().open("rb") as file:
                head = file.read(4096)
    if b"<graphml" in head:
        return "graphml"
    is_xml = head.lstrip().startswith((b"<", b"\xef\xbb\xbf<"))
    if b"OSMHeader" in head[:20] or is_xml or ".osm." in path.name.lower():
        return "osm_file"

    from kmip_data.pipelines.raw.archives import sniff_format

    if head and not sniff_format(head):
        first_line = head[:60].decode("latin-1").splitlines()[0]
        raise DamagedInput(
            f"{path} is not a city.",
            expected="an OpenStreetMap extract (.osm.pbf, .osm, .osm.gz, .osm.bz2), GraphML of"
            " osmnx.save_graphml, or a folder, zip or tar of City-Networks tensors",
            found=f"a file that begins with {first_line!a}",
            steps=Command("kmip-data info city"),
        )
    return "archive"


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
            steps=["the arguments of the class are settings", Setting({min(refused)[2:]: None})],
        )
    texts = dict(item.split("=", 1) for item in settings)
    address = texts.pop("class", None)
    if address is None or name is None or len(texts) + 1 != len(settings):
        raise UsageError(
            f"{PYG_NAME!r} builds a dataset from a class, and needs its address and a name.",
            expected="--set class=MODULE:CLASS, --set KEY=VALUE once for each other argument, and --name NAME",
            found=" ".join(settings) or "no --set",
            steps=Command(
                "kmip-data build {} --set class=torch_geometric.datasets:WebKB --set name=cornell --name",
                PYG_NAME,
                unused_name("my-cornell", home),
            ),
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
