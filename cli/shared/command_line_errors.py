"""Errors of a command line: click's and Python's errors as errors for users, with a next command."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data import errors
from kmip_data.cli.shared.command_classes import help_command
from kmip_data.cli.shared.completed_steps import is_data_name
from kmip_data.cli.shared.printed_commands import ParsedCommand
from kmip_data.errors import Command, Setting, Step
from kmip_data.files.path_errors import DISK_FULL_ERRNOS, disk_error
from kmip_data.text import PARAMETER_OPTIONS, is_likely_typo, nearest_names

if TYPE_CHECKING:
    from kmip_data.builds.home import Home

PROGRAM = "kmip-data"
#: Word of other programs -> the choice that means the same here.
_CHOICE_SYNONYMS = {"gpu": "cuda", "md": "markdown", "tex": "latex"}
#: Command without arguments -> command that takes the name typed after it.
_COMMAND_WITH_NAME = {"list": "info", "doctor": "verify"}


def error_for_user(
    error: Exception, args: Sequence[str], root: click.Group
) -> errors.KmipDataError | None:
    """Return ``error`` as one of the classes shown to users, or ``None`` if it is a bug."""
    from kmip_data.plugins import fault_of_plugin
    from kmip_data.runtime.memory import is_out_of_memory

    if isinstance(error, errors.KmipDataError):
        return error
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None) or click.Context(root, info_name=PROGRAM)
        return _usage_error(error, context, args)

    if is_out_of_memory(error):
        return errors.OutOfResources(
            "Out of memory.",
            found=str(error) or None,
            steps=["use smaller batches, or one worker", Setting(jobs=1)],
        )
    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
        path = Path(error.filename or ".")
        return disk_error(error, path, left="what was finished before")
    if plugin_error := fault_of_plugin(error):
        return plugin_error
    if isinstance(error, OSError) and error.filename is not None:
        return errors.UsageError(
            f"{error.filename} cannot be used: {error.strerror}",
            steps="use another file, home or output",
        )
    return None


def _usage_error(
    error: click.ClickException, context: click.Context, args: Sequence[str]
) -> errors.UsageError:
    """Return the error for a command line that click refused."""
    if isinstance(error, click.NoSuchOption):
        return _unknown_option_error(error.option_name, context, args)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _value_error(error, error.param, context, args)

    message = error.format_message()
    steps: list[Step] = [help_command(context)]
    root = context.find_root().command
    assert isinstance(root, click.Group)
    if extra := ParsedCommand.from_words(args, root).extra:
        if refusal := _extra_arguments_error(message, extra, context, args):
            return refusal
        if context.info_name == "build":
            steps = _steps_with_archive(args, context.params.get("home")) or steps
    usage = context.get_usage().removeprefix("Usage: ")
    return errors.UsageError(message, expected=usage, steps=steps)


def _extra_arguments_error(
    message: str, extra: Sequence[str], context: click.Context, args: Sequence[str]
) -> errors.UsageError | None:
    """Return the error for ``extra`` arguments that are settings, or a name with an option."""
    from kmip_data.strict_model import shipped_names

    takes_settings = any("--set" in param.opts for param in context.command.params)
    if takes_settings and all("=" in word for word in extra):
        line = [PROGRAM]
        for arg in args:
            line += ["--set", arg] if arg in extra else [arg]
        return errors.UsageError(message, steps=Command(*line))

    word, *others = extra
    meant = None
    if context.info_name == "train" and word in shipped_names("models"):
        meant = "model"
    elif context.info_name in {"evaluate", "predict"} and is_data_name(word, args):
        meant = "dataset"
    if meant is not None and not others:
        message += f" Did you mean --{meant} {word}?"
        return errors.error_with_correction(message, word, Setting({meant: word}))

    other_command = _COMMAND_WITH_NAME.get(context.info_name or "")
    if other_command and len(args) == 2:
        return errors.UsageError(
            f"{PROGRAM} {context.info_name} takes no name.",
            found=word,
            steps=Command(PROGRAM, other_command, word),
        )
    return None


def _value_error(
    error: click.BadParameter,
    param: click.Parameter,
    context: click.Context,
    args: Sequence[str],
) -> errors.UsageError:
    """Return the error for a wrong value of an option, or a wrong or missing argument."""
    step: Step = help_command(context)
    message = error.format_message()
    if isinstance(param.type, click.Choice):
        choices = param.type.choices
        if correction := _mistyped_choice(args, choices):
            message += f" Did you mean {correction[1]!r}?"
            return errors.error_with_correction(message, *correction)
        if isinstance(param, click.Option):
            step = Setting({_key(param): choices[0]})

    if isinstance(error, click.MissingParameter):
        usage = context.get_usage().removeprefix("Usage: ")
        return errors.UsageError(message, expected=usage, steps=step)
    # The message has the range of valid values.
    return errors.UsageError(message, steps=_nearest_number(param, args) or step)


def _steps_with_archive(args: Sequence[str], home: Home | None) -> list[Step]:
    """Return the typed build command with ``--archive`` before a file; nothing if no file was typed."""
    from kmip_data.builds.home import Home as HomeFolder
    from kmip_data.cli.shared.build_own_data import one_archive_steps
    from kmip_data.cli.shared.targets import dataset_name_of_file
    from kmip_data.manifest import dataset_names, load_manifest

    files = [word for word in args[2:] if Path(word).exists()]
    if not files or args[1] not in dataset_names():
        return []
    is_recipe = load_manifest(args[1]).recipe
    if len(files) > 1 and is_recipe:
        return one_archive_steps(args[1], _typed_value("--name", args) or "NAME")
    if files[0] != args[2] or "--archive" in args:
        return []
    name = []
    if is_recipe and "--name" not in args:
        name = ["--name", dataset_name_of_file(Path(files[0]), HomeFolder.locate(home))]
    return [Command(PROGRAM, *args[:2], *name, "--archive", *args[2:])]


def _key(param: click.Parameter) -> str:
    """Return the key of a setting that is an option."""
    return param.opts[0].removeprefix("--")


def _typed_value(option: str, args: Sequence[str]) -> str | None:
    """Return the typed value of an option; ``None`` if it is missing."""
    for word, following in zip_longest(args, args[1:], fillvalue="-"):
        name, equals, value = word.partition("=")
        if name == option:
            value = value if equals else following
            return value if value[:1] != "-" else None
    return None


def _nearest_number(param: click.Parameter, args: Sequence[str]) -> Setting | None:
    """Return a numeric option with the valid number nearest to the typed one, or the smallest."""
    if not isinstance(param, click.Option) or not isinstance(
        param.type, (click.types.IntParamType, click.FloatRange)
    ):
        return None
    smallest: float | None = getattr(param.type, "min", None)
    largest: float | None = getattr(param.type, "max", None)
    try:
        number = float(_typed_value(param.opts[0], args) or "")
    except ValueError:
        return None if smallest is None else Setting({_key(param): smallest})
    number = max(number, -math.inf if smallest is None else smallest)
    number = min(number, math.inf if largest is None else largest)
    return Setting({_key(param): round(number)}) if math.isfinite(number) else None


def _mistyped_choice(args: Sequence[str], choices: Sequence[str]) -> tuple[str, str] | None:
    """Return a typed word that is a misspelling or synonym of a choice, and that choice."""
    from kmip_data.format.split_files import part_name

    for word in (arg.rpartition("=")[2] for arg in args[1:]):
        if word in choices:
            continue
        synonym = _CHOICE_SYNONYMS.get(word) or part_name(word) or ""  # such as gpu, or dev for val
        if synonym in choices:
            return word, synonym
        nearest = nearest_names(word, choices)
        if nearest and is_likely_typo(word, nearest[0]):
            return word, nearest[0]
    return None


def _unknown_option_error(
    option: str, context: click.Context, args: Sequence[str]
) -> errors.UsageError:
    """Return the error for an unknown option: with a similar option, or the key that it names."""
    command = context.command_path
    step = help_command(context)
    params = context.command.params
    flags = [flag for param in params for flag in param.opts]

    # 1. The singular of an option that takes a list, and a long option with a single dash.
    if f"{option}s" in flags:
        message = f"{command} has no option {option}. Did you mean {option}s?"
        return errors.error_with_correction(message, option, f"{option}s", step)
    single = next((word for word in args if option == word[:2] and f"-{word}" in flags), None)
    if single is not None:
        message = f"{command} has no option {single}. Did you mean -{single}?"
        return errors.error_with_correction(message, single, f"-{single}", step)

    # 2. A choice typed as an option, such as --json for --format json.
    name = option[2:]
    for param in params:
        if isinstance(param.type, click.Choice) and name in param.type.choices:
            message = f"{command} has no option {option}."
            meant = Setting({_key(param): name})
            return errors.error_with_correction(message, option, meant, step)

    # 3. A key typed as an option, such as --lr of a training or --label of a build.
    names = {param.name for param in params}
    key = ""
    if "overrides" in names and name:
        key = _configuration_key(name)
    elif "settings" in names:
        key = _dataset_parameter(name, args)
    if key:
        value = _typed_value(option, args) or "VALUE"
        return errors.UsageError(
            f"{option} is not an option but a key.", steps=Setting({name: None, key: value})
        )
    if "overrides" in names and name == "label":
        return errors.UsageError(
            "The target is chosen when a dataset is built; training has no option --label.",
            steps=Command("kmip-data build graphs --help"),
        )

    # 4. A misspelt option.
    nearest = nearest_names(name, [flag[2:] for flag in flags if flag[:2] == "--"])
    hint = f" Did you mean {' or '.join(f'--{other}' for other in nearest)}?" if nearest else ""
    error = errors.UsageError(f"{command} has no option {option}.{hint}", steps=step)
    if nearest and is_likely_typo(name, nearest[0]):
        error.correction = (option, f"--{nearest[0]}")
    return error


def _dataset_parameter(name: str, args: Sequence[str]) -> str:
    """Return the parameter that an option names, of the dataset on the line; empty if none."""
    from kmip_data.cli.shared.dataset_options import parameter_models
    from kmip_data.manifest import dataset_names, load_manifest

    name = name.replace("-", "_")
    if name in PARAMETER_OPTIONS:  # the parameter has an option with another name
        return ""
    for dataset in set(dataset_names()).intersection(args):
        for model in parameter_models(load_manifest(dataset)).values():
            if name in model.model_fields:
                return name
    return ""


def _configuration_key(name: str) -> str:
    """Return the configuration key that an option names, empty if none.

    ``--lr`` and ``--batchsize`` name the last part of a key, ``--optimizer`` the choice of one, and
    ``--hidden`` is another program's name of a key.
    """
    from kmip_data.models.training.config.overrides import KEY_SYNONYMS, documented_keys

    name = name.replace("-", "_")
    names = {name.replace("_", ""), KEY_SYNONYMS.get(name, name).replace("_", "")}
    keys = []
    for key in documented_keys():
        section, _, last = key.name.rpartition(".")
        if last in {"name", "kind"}:
            last = section.rpartition(".")[2]
        if (
            last.replace("_", "") in names and section and key.type != "table"
        ):  # --set takes no table
            keys.append(key.name)
    # Prefer the shortest path: model.dropout to model.attention.dropout.
    return min(keys, key=lambda key: key.count("."), default="")
