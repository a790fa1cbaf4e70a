"""Compose the configuration of a run from a preset or file, data, options, and finally ``--set``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from kmip_data.builds.home import Home
from kmip_data.errors import Command, Setting, UsageError, conflicting_values_error
from kmip_data.files.small_files import read_toml
from kmip_data.models.config import dotted_keys
from kmip_data.models.training.config.overrides import (
    apply_overrides,
    find_grid,
    grid_values,
    read_config,
    refuse_unread_keys,
    with_epochs,
)
from kmip_data.models.training.config.presets import (
    BASE_MODEL,
    adapt_config_to_data,
    adapt_preset_to_data,
    config_for_data,
)
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.run.run_folder import is_run_folder
from kmip_data.plugins import import_installed_plugins
from kmip_data.runtime.progress import print_status
from kmip_data.strict_model import shipped_names
from kmip_data.text import PARAMETER_OPTIONS

#: Default epochs on a sample, which take at most two minutes for any dataset on two cores.
SAMPLE_EPOCHS = 3


class KeyOptions(TypedDict, total=False):
    """Command-line options that set a configuration key; ``None`` and ``False`` leave it unchanged."""

    sample: bool
    neighbors: Sequence[int] | None
    init_from: str | None
    stop_after: int | None
    device: str | None
    devices: int | None


class ConfigurationOptions(KeyOptions, total=False):
    """All command-line options that :func:`compose_configuration` takes."""

    model: str | None
    preset: str | None
    variant: str | None
    epochs: int | None
    overrides: Sequence[str]


#: Configuration keys by the command-line option that sets them.
KEYS_BY_OPTION = {
    "sample": "data.sample",
    "epochs": "training.epochs",
    "neighbors": "training.neighbors",
    "init_from": "training.init_from",
    "stop_after": "training.stop_after",
    "device": "system.device",
    "devices": "system.devices",
}
_OPTION_NAMES = {**PARAMETER_OPTIONS, "neighbors": "--neighbor-sampling"}


def compose_configuration(  # noqa: PLR0913 -- options, by keyword
    dataset: str | None,
    build_parameters: Mapping[str, object],
    split_parameters: Mapping[str, object],
    *,
    model: str | None = None,
    home: Home | None = None,
    file: Path | None = None,
    preset: str | None = None,
    variant: str | None = None,
    epochs: int | None = None,
    overrides: Sequence[str] = (),
    quiet: bool = False,
    **options: Unpack[KeyOptions],
) -> RunConfig:
    """Return the dataset's preset or the file's configuration, changed by options and ``overrides``.

    Without a ``model``, the network is the dataset's default, ``gps-kmip`` for published datasets.
    On a sample, ``epochs`` defaults to :data:`SAMPLE_EPOCHS` unless ``file`` or
    ``stop_after`` is set. A warm-up that would fill all epochs is shortened.
    """
    # 1. Start from a preset or a file.
    messages = list[str]()
    if preset is not None:
        config, messages = adapt_preset_to_data(str(dataset), preset, variant, home=home)
    elif file is None:
        import_installed_plugins(model=model)
        config = config_for_data(str(dataset), model, variant, home=home)
    else:
        config = read_users_config(file)
        if dataset is not None and dataset != config.data.dataset:
            config, messages = adapt_config_to_data(config, dataset, home=home)
    for line in messages:
        print_status(line, quiet=quiet)

    # 2. Set the parameters of the data. Another split rule replaces the preset's split, whose seed
    #    and fractions it may not take.
    preset_split = config.data.split
    split_rule = split_parameters.get("split_rule")
    replaces_split = split_rule not in {None, preset_split.get("split_rule", split_rule)}
    config = config.with_values(
        "data",
        parameters={**config.data.parameters, **build_parameters},
        split={**({} if replaces_split else preset_split), **split_parameters},
        # An explicit split seed takes precedence over the run's seed.
        split_seed_follows_run=config.data.split_seed_follows_run
        and not replaces_split
        and "split_seed" not in split_parameters,
    )

    # 3. Apply the options, then the overrides.
    set_options = {
        name: value for name, value in options.items() if value is not None and value is not False
    }
    settings = [f"{KEYS_BY_OPTION[name]}={value}" for name, value in set_options.items()]
    _refuse_conflicts(
        {**set_options, "epochs": epochs}, build_parameters, split_parameters, overrides
    )
    config = apply_overrides(config, settings)
    has_length = file is not None or config.training.stop_after is not None
    if epochs is None and config.data.sample and not has_length:
        epochs = min(SAMPLE_EPOCHS, config.training.epochs)
    if epochs is not None:
        config = with_epochs(config, epochs)
    try:
        config = apply_overrides(config, overrides)
    except UsageError as error:
        # A sweep starts from the preset of its dataset.
        data = None
        if not (file or preset or variant):
            _advise_on_model(error, str(dataset), overrides, home)
            data = [f"data.parameters.{name}={value}" for name, value in build_parameters.items()]
            data += [f"data.split.{name}={value}" for name, value in split_parameters.items()]
        _advise_on_grid(error, find_grid(config, overrides), str(dataset), data)
        raise
    refuse_unread_keys(config, _typed_keys(file), file)
    set_keys = [item.partition("=")[0].strip() for item in overrides]
    refuse_unread_keys(config, set_keys)
    if file is None and not config.preset:
        print_status(f"{dataset} has no preset: {config.model.name} uses its defaults", quiet=quiet)
    return config


def _advise_on_grid(
    error: UsageError, grid: Sequence[str], dataset: str, data: Sequence[str] | None
) -> None:
    """Advise one value of each setting ``KEY=A,B``, and a sweep of all values.

    ``data`` are settings of the sweep that select a build of ``dataset``; ``None``: no sweep trains
    the configuration.
    """
    if not grid:
        return
    error.correction = None
    error.steps = [Setting(dict(grid_values(setting)[0].split("=", 1) for setting in grid))]
    if data is not None:
        options = [word for setting in [*data, *grid] for word in ("--set", setting)]
        sweep = Command("kmip-data sweep --dataset", dataset, *options)
        error.steps.append(sweep)


def _advise_on_model(
    error: UsageError, dataset: str, overrides: Sequence[str], home: Home | None
) -> None:
    """Advise a model that has all keys of ``overrides``, the paper's first, if there is one."""
    if error.correction is not None:
        return
    for model in sorted(shipped_names("models"), key=lambda name: name != BASE_MODEL):
        try:
            apply_overrides(config_for_data(dataset, model, home=home), overrides)
        except UsageError:
            continue
        error.steps = [Setting(model=model)]
        return


def read_users_config(file: Path) -> RunConfig:
    """Read a configuration that the user named, and import the plugins it lists.

    In the folder of a run, which may be a stranger's, it is data like all others, also if ``file`` is
    a link into such a folder.
    """
    is_of_run = is_run_folder(file.parent) or is_run_folder(file.resolve().parent)
    return read_config(file, plugins_in=None if is_of_run else file.parent)


def _typed_keys(file: Path | None) -> list[str]:
    """Return the keys in a file that its user wrote.

    A file of a run, which has a version, lists keys that nobody typed.
    """
    if file is None:
        return []
    keys = [key for key, _ in dotted_keys(read_toml(file))]
    return [] if "version" in keys else keys


def _refuse_conflicts(
    options: Mapping[str, object],
    build_parameters: Mapping[str, object],
    split_parameters: Mapping[str, object],
    overrides: Sequence[str],
) -> None:
    """Raise ``UsageError`` if an option and ``--set`` give a key different values."""
    options_by_key = {
        f"data.parameters.{name}": (name, value) for name, value in build_parameters.items()
    }
    options_by_key |= {
        f"data.split.{name}": (name, value) for name, value in split_parameters.items()
    }
    options_by_key |= {KEYS_BY_OPTION[name]: (name, value) for name, value in options.items()}
    for item in overrides:
        key, _, text = item.partition("=")
        name, value = options_by_key.get(key.strip(), ("", None))
        if value is not None and str(value).lower() != text.strip().lower():
            option = _OPTION_NAMES.get(name, f"--{name.replace('_', '-')}")
            raise conflicting_values_error(option, value, item)
