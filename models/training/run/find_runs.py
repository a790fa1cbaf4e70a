"""Find runs by name or by the data they fit, and the builds they were trained on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kmip_data.builds.home import Build, Home, build_of_folder, list_builds, path_or_none
from kmip_data.columns.column_roles import column_roles_on_card
from kmip_data.errors import Command, KmipDataError, Step, UsageError, unknown_name_error
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.run.result import RunResult, read_result
from kmip_data.models.training.run.run_folder import CONFIG_NAME, RESULT_NAME
from kmip_data.pipelines.find_builds import parameter_names, parameters_with_defaults
from kmip_data.pipelines.raw.copies import list_copies
from kmip_data.text import RUN_NAME_SUFFIXES, option_words


def find_run(run: str | os.PathLike[str], home: Home) -> Path:
    """Resolve a RUN argument: a run's path below ``runs/``, or a run folder.

    The last parts of the path suffice if they are unique. Raises ``UsageError`` unless exactly one
    run matches, which has its configuration.
    """
    text = os.fspath(run)
    matches = home.matching_runs(text)
    path = path_or_none(run)
    if matches:
        path = matches[0] if len(matches) == 1 else None
    if path is not None and (path / CONFIG_NAME).is_file():
        return path
    if path is not None and (path / RESULT_NAME).is_file():
        raise UsageError(
            f"The run {path} has no {CONFIG_NAME}.",
            steps=Command("kmip-data verify {} --repair", path),
        )
    if len(matches) > 1:
        newest = max(matches, key=lambda folder: (folder / CONFIG_NAME).stat().st_mtime)
        error = UsageError(
            f"{len(matches)} runs match {text!r}.",
            found=[*map(str, matches)],
            steps="name the run by its path",
        )
        error.correction = (text, str(newest))
        raise error
    names = [str(folder.relative_to(home.runs)) for folder in home.run_folders()]
    raise unknown_name_error("run", text, names, command=Command("kmip-data runs"))


def find_runs(run: str, home: Home) -> list[Path]:
    """Return the runs that one command trained under a name, one for each seed and fold.

    For any other name, return the single run of :func:`find_run`, or raise its errors.
    """
    matches = home.matching_runs(run, suffix=RUN_NAME_SUFFIXES)
    is_exact = any(folder.name == Path(run).name for folder in matches)
    share_parent = len({folder.parent for folder in matches}) == 1
    if not is_exact and share_parent:
        return matches
    return [find_run(run, home)]


def newest_results(home: Home) -> Iterator[tuple[Path, RunResult]]:
    """Yield each finished run with its result, the newest first, unless it cannot be read."""
    folders = home.run_folders(RESULT_NAME)
    for folder in sorted(
        folders, key=lambda run: (run / RESULT_NAME).stat().st_mtime, reverse=True
    ):
        with contextlib.suppress(KmipDataError, OSError):
            yield folder, read_result(folder)


def find_compatible_run(build: Build, home: Home) -> Path | None:
    """Find the newest finished run that can predict a build without targets; ``None`` without one."""
    described = column_roles_on_card(build.card.statistics)
    schema = build.card.schema_
    if described is None or "x" not in schema.attributes:
        return None
    labels = [role.column for role in described.columns if role.use == "label"]
    for folder, result in newest_results(home):
        classes = result.class_names or tuple(map(str, range(result.num_classes)))
        same_classes = not described.classes or classes == described.classes
        # If the run's build inferred its label, the name is not recorded, and any matches.
        run_labels = result.build_parameters.get("label") or labels
        same_target = result.targets.target_type == described.task and [*run_labels] == labels
        if result.columns == schema.feature_names and same_classes and same_target:
            return folder
    return None


def build_of_result(result: RunResult, home: Home) -> Build | None:
    """Return the build that a run was trained on; ``None`` if the home does not have it."""
    builds = list_builds(home, result.dataset)
    return next((build for build in builds if build.card.key == result.build_key), None)


def dataset_of_run(name: str, home: Home) -> str:
    """Return the dataset, or the build folder, that the run ``name`` was trained on.

    The path of a file, or of a folder other than a run, is returned unchanged.
    """
    is_path = os.path.lexists(name) and not home.matching_runs(name)
    if is_path and not Path(name, CONFIG_NAME).is_file():
        return name
    run = find_run(name, home)
    config = read_config(run / CONFIG_NAME)
    config = config_with_build_folder(config, lambda: read_result(run).build_key, home)
    return config.data.dataset


def config_with_build_folder(
    config: RunConfig, read_build_key: Callable[[], str | None], home: Home
) -> RunConfig:
    """Return a run's configuration with its dataset replaced by the folder of its build.

    The name of your own data would refer to their newest build. ``read_build_key`` is called only if
    the home has several builds of that name. Raises ``UsageError`` if the home has none.
    """
    name = config.data.dataset
    has_moved = os.sep in name and not Path(name).is_dir()
    if not has_moved and (name in dataset_names() or build_of_folder(name, home) is not None):
        return config
    builds = list_builds(home, name)
    if not builds:
        raise UsageError(
            f"The build of {name} that the run was trained on is gone.",
            steps=steps_for_moved_build(config, home),
        )
    if len(builds) == 1:
        return config
    trained_on = read_build_key()
    for build in builds:
        if build.card.key == trained_on:
            return config.with_values("data", dataset=str(build.path))
    return config


def steps_for_moved_build(config: RunConfig, home: Home) -> list[Step]:
    """Return the steps that move the build of a run back, or build your own data again."""
    name = config.data.dataset
    target = name if os.sep in name else f"{home.built}{os.sep}"
    steps: list[Step] = ["FOLDER is the moved build", Command("mv FOLDER", target)]
    if os.sep not in name and name not in dataset_names():
        steps.append(command_of_own_build(name, config.data.parameters))
    return steps


def raw_folder_of_build(build: Build, home: Home) -> str:
    """Return the folder with the raw files of a build, or ``FILE`` if the home has none."""
    for copy in list_copies(home.raw / build.card.dataset):
        if copy.content_digest == build.card.content_digest:
            return str(copy.path)
    return "FILE"


def command_of_own_build(
    name: str, parameters: Mapping[str, object], archive: str = "FILE"
) -> Step:
    """Return the command that builds your own data, from FILE, with these ``parameters``.

    A run records neither the recipe nor the files, so the recipe is inferred from the parameters.
    """
    for recipe in dataset_names():
        if not load_manifest(recipe).recipe or not {*parameters} <= parameter_names(recipe)[0]:
            continue
        defaults = parameters_with_defaults(recipe, {})
        changed = {key: value for key, value in parameters.items() if value != defaults[key]}
        options = option_words(changed)
        words = ("build", recipe, "--name", name, "--archive", archive)
        return Command("kmip-data", *words, *options)
    return f"save or pull {name!r} again"
