"""Errors of a command line: click's and Python's errors as errors for users, with a next command."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from kmip_data.cli.shared.corrected_command import is_data_name

from kmip_data import errors
from kmip_data.files.path_errors import DISK_FULL_ERRNOS, disk_error
from kmip_data.text import PARAMETER_OPTIONS, is_likely_typo, nearest_names

if TYPE_CHECKING:
    from kmip_data.builds.home import Home

PROGRAM = "kmip-data"
#: Word of other programs -> the choice that means the same here.
_CHOICE_SYNONYMS = {"gpu": "cuda", "md": "markdown", "tex": "latex"}
#: Command without arguments -> command that takes the name typed after it.
_COMMAND_WITH_NAME = {"list": "info", "doctor": "verify"}
#: Messages of PyTorch's RuntimeError, on CPU and CUDA.
_OUT_OF_MEMORY = re.compile("can't allocate memory|out of memory")
_EXTRA_ARGUMENT = re.compile(r"unexpected extra argument \((\S+)\)")  #: message of click
_EXTRA_ARGUMENTS = re.compile(r"unexpected extra arguments? \((.+)\)", re.DOTALL)
_SETTING = re.compile(r"[a-z][\w.]*=.*")  #: such as ``label=toxic``


def error_for_user(
    error: Exception, args: Sequence[str], root: click.Group
) -> errors.KmipDataError | None:
    """Return ``error`` as one of the classes shown to users, or ``None`` if it is a bug."""
    from kmip_data.plugins import fault_of_plugin

    if isinstance(error, errors.KmipDataError):
        return error
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None) or click.Context(root, info_name=PROGRAM)
        return _usage_error(error, context, args)

    is_torch_error = isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error))
    if is_torch_error or isinstance(error, MemoryError):
        return errors.OutOfResources(
            "Out of memory.",
            found=str(error).partition("\n")[0] or None,
            steps="use one worker (--jobs 1) or smaller batches",
        )
    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
        path = Path(error.filename or ".")
        return disk_error(error, path, left="what was finished before")
    if plugin_error := fault_of_plugin(error):
        return plugin_error
    if isinstance(error, OSError) and error.filename is not None:
        return errors.UsageError(
            f"{error.filename} cannot be used: {error.strerror}",
            steps="use another path, --home or --output",
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

    step = f"{context.command_path} --help"
    if key := _key_without_value(error, args):
        return errors.error_with_correction(f"--set {key} has no value.", key, f"{key}=", step)
    if line := _line_with_settings(error, context, args):
        return errors.UsageError(error.format_message(), steps=line)
    if extra := _extra_name_and_option(error, context, args):
        name, option = extra
        message = f"{error.format_message()} Did you mean {option!r}?"
        return errors.error_with_correction(message, name, option)

    other_command = _COMMAND_WITH_NAME.get(context.info_name or "")
    if other_command and isinstance(error, click.UsageError) and len(args) == 2:
        return errors.UsageError(
            f"{PROGRAM} {context.info_name} takes no name.",
            found=args[1],
            steps=f"{PROGRAM} {other_command} {shlex.quote(args[1])}",
        )
    if context.info_name == "build" and isinstance(error, click.UsageError):
        step = _build_command_with_archive(args, context.params.get("home")) or step
    usage = context.get_usage().removeprefix("Usage: ")
    return errors.UsageError(error.format_message(), expected=usage, steps=step)


def _value_error(
    error: click.BadParameter,
    param: click.Parameter,
    context: click.Context,
    args: Sequence[str],
) -> errors.UsageError:
    """Return the error for a wrong value of an option, or a wrong or missing argument."""
    step = f"{context.command_path} --help"
    option = param.opts[0]
    if isinstance(param.type, click.Choice):
        choices = param.type.choices
        if correction := _mistyped_choice(args, choices):
            typed, choice = correction
            message = f"{error.format_message()} Did you mean {choice!r}?"
            return errors.error_with_correction(message, typed, choice)
        if option.startswith("--"):
            step = f"{option} {choices[0]}"

    if isinstance(error, click.MissingParameter):
        usage = context.get_usage().removeprefix("Usage: ")
        return errors.UsageError(error.format_message(), expected=usage, steps=step)
    # The message has the range of valid values.
    step = _option_with_nearest_number(param, args) or step
    return errors.UsageError(error.format_message(), steps=step)


def _build_command_with_archive(args: Sequence[str], home: Home | None) -> str | None:
    """Return the typed build command with ``--archive`` before a file; ``None`` if no file was typed."""
    from kmip_data.builds.home import Home as HomeFolder
    from kmip_data.cli.shared.targets import dataset_name_of_file
    from kmip_data.manifest import dataset_names, load_manifest

    files = [word for word in args[2:] if Path(word).exists()]
    if not files or args[1] not in dataset_names():
        return None
    is_recipe = load_manifest(args[1]).recipe
    if len(files) > 1 and is_recipe:
        return "copy them into a folder or zip, and pass it alone: --name NAME --archive FOLDER"
    if files[0] != args[2] or "--archive" in args:
        return None
    name = []
    if is_recipe and "--name" not in args:
        name = ["--name", dataset_name_of_file(Path(files[0]), HomeFolder.locate(home))]
    return shlex.join([PROGRAM, *args[:2], *name, "--archive", *args[2:]])


def _option_with_nearest_number(param: click.Parameter, args: Sequence[str]) -> str | None:
    """Return a numeric option with the valid number nearest to the typed one, or the smallest."""
    if not isinstance(param, click.Option) or not isinstance(
        param.type, (click.types.IntParamType, click.FloatRange)
    ):
        return None
    smallest: float | None = getattr(param.type, "min", None)
    largest: float | None = getattr(param.type, "max", None)
    option = param.opts[0]
    typed = re.search(rf"(?m)^{re.escape(option)}[=\n](.+)", "\n".join(args))
    try:
        number = float(typed[1] if typed else "")
    except ValueError:
        return None if smallest is None else f"{option} {smallest}"
    number = max(number, -math.inf if smallest is None else smallest)
    number = min(number, math.inf if largest is None else largest)
    return f"{option} {round(number)}" if math.isfinite(number) else None


def _key_without_value(error: click.ClickException, args: Sequence[str]) -> str | None:
    """Return the key of ``--set KEY VALUE``, if click took the value for an argument."""
    extra = _EXTRA_ARGUMENT.search(error.format_message())
    if extra is None:
        return None
    setting = re.search(rf"(?m)^--set[=\n]([^=\n]+)\n{re.escape(extra[1])}$", "\n".join(args))
    return setting and setting[1]


def _line_with_settings(
    error: click.ClickException, context: click.Context, args: Sequence[str]
) -> str | None:
    """Return the typed line with ``--set`` before each KEY=VALUE that was typed without it."""
    takes_settings = any("--set" in param.opts for param in context.command.params)
    extra = _EXTRA_ARGUMENTS.search(error.format_message())
    if extra is None or not takes_settings:
        return None
    line = [PROGRAM]
    for word in args:
        if _SETTING.fullmatch(word) and f" {word} " in f" {extra[1]} ":
            line.append("--set")
        line.append(word)
    return shlex.join(line) if len(line) > len(args) + 1 else None


def _extra_name_and_option(
    error: click.ClickException, context: click.Context, args: Sequence[str]
) -> tuple[str, str] | None:
    """Return an extra argument that names a model or a dataset, and the option that takes it."""
    from kmip_data.strict_model import shipped_names

    extra = _EXTRA_ARGUMENT.search(error.format_message())
    if extra is None:
        return None
    name = extra[1]
    if context.info_name == "train" and name in shipped_names("models"):
        return name, f"--model {name}"
    if context.info_name in {"evaluate", "predict"} and is_data_name(name, args):
        return name, f"--dataset {name}"
    return None


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
    step = f"{command} --help"
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
    for param in params:
        if isinstance(param.type, click.Choice) and option[2:] in param.type.choices:
            meant = f"{param.opts[-1]} {option[2:]}"
            return errors.error_with_correction(
                f"{command} has no option {option}.", option, meant, step
            )

    # 3. A key typed as an option, such as --lr of a training or --label of a build.
    names = {param.name for param in params}
    typed = re.search(rf"(?m)^{re.escape(option)}[=\n](?!-)(.+)", "\n".join(args))
    value = typed[1] if typed else "VALUE"
    key = ""
    if "overrides" in names:
        key = _configuration_key(option)
        step += ", or --set KEY=VALUE"
    elif "settings" in names:
        key = _dataset_parameter(option, args)
    if key:
        line = re.sub(
            rf"(?m)^{re.escape(option)}(?:[=\n](?!-).+)?$",
            lambda _: f"--set\n{key}={value}",
            "\n".join([PROGRAM, *args]),
        )
        return errors.UsageError(
            f"{option} is not an option but a key.", steps=shlex.join(line.split("\n"))
        )
    if "overrides" in names and option == "--label":
        return errors.UsageError(
            "The target is chosen when a dataset is built; training has no option --label.",
            steps=f"{PROGRAM} build graphs --help, for --set label={value}",
        )

    # 4. A misspelt option.
    nearest = nearest_names(option[2:], [flag[2:] for flag in flags if flag[:2] == "--"])
    hint = f" Did you mean {' or '.join(f'--{name}' for name in nearest)}?" if nearest else ""
    error = errors.UsageError(f"{command} has no option {option}.{hint}", steps=step)
    if nearest and is_likely_typo(option[2:], nearest[0]):
        error.correction = (option, f"--{nearest[0]}")
    return error


def _dataset_parameter(option: str, args: Sequence[str]) -> str:
    """Return the parameter that an option names, of the dataset on the line; empty if none."""
    from kmip_data.cli.shared.dataset_options import parameter_models
    from kmip_data.manifest import dataset_names, load_manifest

    name = option[2:].replace("-", "_")
    if name in PARAMETER_OPTIONS:  # the parameter has an option with another name
        return ""
    for dataset in set(dataset_names()).intersection(args):
        for model in parameter_models(load_manifest(dataset)).values():
            if name in model.model_fields:
                return name
    return ""


def _configuration_key(option: str) -> str:
    """Return the configuration key that an option names, empty if none.

    ``--lr`` and ``--batchsize`` name the last part of a key, ``--optimizer`` the choice of one, and
    ``--hidden`` is another program's name of a key.
    """
    from kmip_data.models.training.config.overrides import KEY_SYNONYMS, documented_keys

    name = option.partition("=")[0].lstrip("-").replace("-", "_")
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
