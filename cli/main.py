"""``kmip-data``: the commands, and the exit code and message of every ending."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import math
import os
import re
import shlex
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

import kmip_data
from kmip_data import errors
from kmip_data.cli.shared.command_classes import Group
from kmip_data.cli.shared.corrected_command import complete_step, is_data_name
from kmip_data.cli.shared.output import JSON_PRINTED, strip_control_characters
from kmip_data.files.path_errors import DISK_FULL_ERRNOS, disk_error
from kmip_data.runtime import compiling
from kmip_data.runtime.progress import print_status
from kmip_data.runtime.signals import ENDING, resend_swallowed_signals, unwind_on_signal
from kmip_data.text import PARAMETER_OPTIONS, is_likely_typo, nearest_names

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PROGRAM = "kmip-data"
COMPLETE = "_KMIP_DATA_COMPLETE"  #: set by the shell when it requests completions
#: Words for a choice -> how it is called here.
_SAME = {"gpu": "cuda", "pyg": "pt", "pytorch": "pt", "md": "markdown", "tex": "latex"}
#: Command that takes no name -> what does.
_WITH_NAME = {"list": "info", "runs": "runs --dataset", "doctor": "verify"}
#: PyTorch's RuntimeError, CPU and CUDA.
_NO_MEMORY = re.compile("can't allocate memory|out of memory")

COMMANDS = {
    "demo": "Show what k-MIP attention is for: offline, about a minute of work on two cores.",
    "list": "List your builds and runs with sizes and dates; with --all, list all datasets instead.",
    "info": "Show a dataset, a build or a preset: sources, license, counts, parameters.",
    "fetch": "Download and verify the raw files of a dataset.",
    "build": "Build a dataset: a published one, or one of your own files.",
    "encode": "Add positional encodings to a build.",
    "verify": "Check every byte of a build, and repair a damaged one.",
    "push": "Share a build or a run at any address.",
    "pull": "Download and verify a pushed build or run.",
    "export": "Write a build in the format of another program.",
    "preview": "Draw records of a build, or the map of a city.",
    "explore": "Open an interactive page for a graph and its predictions.",
    "train": "Train a model, building what is missing first.",
    "sweep": "Train a plan of runs: datasets × models × changes × seeds.",
    "runs": "List the runs in the home folder, the newest first.",
    "report": "Compare the results of runs with each other and with the paper.",
    "evaluate": "Evaluate a trained model on every part of the split.",
    "predict": "Write the predictions of a trained model.",
    "analyze": "Study attention, on a trained run or on generated data.",
    "bench": "Measure speed on this machine.",
    "remove": "Remove builds, raw files and runs.",
    "doctor": "Check this machine: versions, devices, search backends.",
}
#: Titles of the help -> commands, the five of a first day first.
GROUPS = {
    "First steps": ("demo", "list", "build", "train", "explore"),
    "Data": ("info", "fetch", "encode", "verify", "preview", "push", "pull", "export", "remove"),
    "Training": ("sweep", "runs", "report", "evaluate", "predict", "analyze"),
    "This machine": ("doctor", "bench"),
}


class LazyGroup(Group):
    """The group of all commands, each the ``command`` of a module in ``kmip_data.cli``, imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in order of use, not alphabetical."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of ``cmd_name`` and return its command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"kmip_data.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by group, without importing any."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name]) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names without importing any command."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(n, help=h) for n, h in COMMANDS.items() if n.startswith(incomplete)]


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=f"NAME is a dataset name or a build folder. `{PROGRAM} COMMAND --help` has an example for each.",
)
@click.version_option(kmip_data.__version__, prog_name=PROGRAM)
def root() -> None:
    """Build graph datasets, published or your own; train graph networks on them; compare the results."""


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, unwind_on_signal)
    sys.unraisablehook = resend_swallowed_signals(sys.unraisablehook)
    # Commands print this themselves.
    warnings.simplefilter("ignore", errors.PartialBuildWarning)
    # What libraries are about to change is nothing that a user of commands can act on.
    for category in (FutureWarning, DeprecationWarning, PendingDeprecationWarning):
        warnings.simplefilter("ignore", category)
    # PyTorch's threads sleep while they wait: next to other processes, spinning costs five to ten
    # times the work. Read when OpenMP is loaded, so set before.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Let PyTorch use huge pages: new memory of a training step then costs a tenth. Read at its first
    # allocation.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    # Without it PyTorch's profiler logs when it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    # Without it pydantic searches every installed package for plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal without © still gets the rest of the line.
            stream.reconfigure(errors="replace")
    if not {"--quiet", "-q"} & {*sys.argv}:
        compiling.announce_compiling(print_status)
    sys.exit(run_command_line(sys.argv[1:]))


def run_command_line(args: list[str]) -> int:
    """Run one command line without raising; return its exit code (:mod:`kmip_data.errors`)."""
    if COMPLETE in os.environ:  # a shell reads completions, whose separators a filter would strip
        from click.shell_completion import shell_complete

        return shell_complete(root, {}, PROGRAM, COMPLETE, os.environ[COMPLETE])
    with strip_control_characters():
        return _run_and_handle_errors(args)


def _run_and_handle_errors(args: list[str]) -> int:
    """Run one command line; each kind of ending has its own exit code."""
    meta = {}
    try:
        if os.environ.get("KMIP_DATA_PLUGINS"):
            from kmip_data.plugins import load_plugins_in_environment

            load_plugins_in_environment()
        with root.make_context(PROGRAM, list(args)) as context:
            meta = context.meta
            root.invoke(context)
        if sys.stdout is not None:  # it was closed before the start
            sys.stdout.flush()
    except click.exceptions.Exit as request:
        return request.exit_code
    except SystemExit as request:
        return request.code if isinstance(request.code, int) else errors.UNKNOWN_ERROR
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted.", err=True)
        return errors.INTERRUPTED
    except BrokenPipeError:
        # Nobody reads stdout any more: what is still buffered must not fail again at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 -- the one place where every error ends
        explained = error_for_user(error, args)
        known = explained or _save_traceback_of_bug(error)
        complete_step(known, args, PROGRAM)
        code = errors.UNKNOWN_ERROR
        if explained is not None:
            code = explained.exit_code
        click.echo(f"Error: {known}", err=True)
        # A script reads one object from stdout: of a command that failed, the error.
        if "--json" in args and not meta.get(JSON_PRINTED):
            lines = {label.replace(" ", "_"): text for label, text in known.labelled_lines.items()}
            body = {
                "class": type(known).__name__,
                "exit_code": code,
                "what": known.message,
                **lines,
            }
            click.echo(json.dumps({"error": body}, indent=2))
        return code
    return 0


def error_for_user(error: Exception, args: Sequence[str]) -> errors.KmipDataError | None:
    """Return ``error`` as one of the classes shown to users, or ``None`` if it is a bug."""
    if isinstance(error, errors.KmipDataError):
        return error
    if isinstance(error, click.ClickException):
        return _error_for_line(error, args)
    of_torch = isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))
    if of_torch or isinstance(error, MemoryError):
        return errors.OutOfResources(
            "Out of memory.",
            found=str(error).partition("\n")[0] or None,
            next="use one worker (--jobs 1) or smaller batches",
        )
    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
        path = Path(error.filename or ".")
        return disk_error(error, path, left="what was finished before")
    if isinstance(error, OSError) and error.filename is not None:
        return errors.UsageError(
            f"{error.filename} cannot be used: {error.strerror}",
            next="use another path, --home or --output",
        )
    return None


def _error_for_line(error: click.ClickException, args: Sequence[str]) -> errors.UsageError:
    """Return the error for a line that does not fit its command."""
    context = getattr(error, "ctx", None) or click.Context(root, info_name=PROGRAM)
    step = f"{context.command_path} --help"
    if isinstance(error, click.NoSuchOption):
        return _unknown_option_error(error.option_name, context, args)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _error_for_value(error, error.param, context, args)

    if key := _key_without_value(error, args):
        refused = errors.UsageError(f"--set {key} has no value.", next=step)
        refused.correction = (key, f"{key}=")
        return refused
    if extra := _extra_name_and_option(error, context, args):
        return _error_with_correction(error, extra)
    instead = _WITH_NAME.get(context.info_name or "")
    if instead and isinstance(error, click.UsageError) and len(args) == 2:
        return errors.UsageError(
            f"kmip-data {context.info_name} takes no name.",
            found=args[1],
            next=f"kmip-data {instead} {shlex.quote(args[1])}",
        )
    if context.info_name == "build" and isinstance(error, click.UsageError):
        step = _line_with_archive_option(args) or step
    usage = context.get_usage().removeprefix("Usage: ")
    return errors.UsageError(error.format_message(), expected=usage, next=step)


def _error_for_value(
    error: click.BadParameter,
    param: click.Parameter,
    context: click.Context,
    args: Sequence[str],
) -> errors.UsageError:
    """Return the error for a wrong or missing value of an option or argument."""
    step = f"{context.command_path} --help"
    option = param.opts[0]
    missing = isinstance(error, click.MissingParameter)
    if isinstance(param.type, click.Choice):
        choices = param.type.choices
        if wrong := _mistyped_choice(args, choices):
            return _error_with_correction(error, wrong)
        if option.startswith("--"):
            step = f"{option} {choices[0]}"
        if missing:
            return errors.UsageError(
                f"{option} is missing.", expected=", ".join(choices), next=step
            )

    # A wrong value has its range in the message; the form of the line would say nothing about it.
    usage = None
    if missing:
        usage = context.get_usage().removeprefix("Usage: ")
    else:
        step = _nearest_number(param, args) or step
    return errors.UsageError(error.format_message(), expected=usage, next=step)


def _error_with_correction(
    error: click.ClickException, wrong: tuple[str, str]
) -> errors.UsageError:
    """Return the error for a word on the line that was meant for another."""
    refused = errors.UsageError(f"{error.format_message()} Did you mean {wrong[1]!r}?")
    refused.correction = wrong
    return refused


def _line_with_archive_option(args: Sequence[str]) -> str | None:
    """Return the line of a build with a file behind its name as ``--archive``; ``None`` without one."""
    from kmip_data.cli.shared.names import dataset_name_of_file
    from kmip_data.manifest import dataset_names, load_manifest

    files = [word for word in args[2:] if Path(word).exists()]
    if not files or args[1] not in dataset_names():
        return None
    if len(files) > 1 and load_manifest(args[1]).recipe:
        return "copy them into a folder or zip, and pass it alone: --name NAME --archive FOLDER"
    if files[0] != args[2] or "--archive" in args:
        return None
    named = "--name" in args or not load_manifest(args[1]).recipe
    name = [] if named else ["--name", dataset_name_of_file(Path(files[0]))]
    return shlex.join([PROGRAM, *args[:2], *name, "--archive", *args[2:]])


def _nearest_number(param: click.Parameter, args: Sequence[str]) -> str | None:
    """Return a numeric option with the nearest number that it takes; of a word, the smallest."""
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
    """Return the key of ``--set KEY VALUE``, if its value became an argument of the command."""
    extra = re.search(r"unexpected extra argument \((\S+)\)", error.format_message())
    if extra is None:
        return None
    line = "\n".join(args)
    setting = re.search(rf"(?m)^--set[=\n]([^=\n]+)\n{re.escape(extra[1])}$", line)
    return setting and setting[1]


def _extra_name_and_option(
    error: click.ClickException, context: click.Context, args: Sequence[str]
) -> tuple[str, str] | None:
    """Return a model or dataset that stands alone on the line, and its option."""
    from kmip_data.strict_model import shipped_names

    extra = re.search(r"unexpected extra argument \((\S+)\)", error.format_message())
    if extra is None:
        return None
    if context.info_name == "train" and extra[1] in shipped_names("models"):
        return extra[1], f"--model {extra[1]}"
    if context.info_name in {"evaluate", "predict"} and is_data_name(extra[1], args):
        return extra[1], f"--dataset {extra[1]}"
    return None


def _mistyped_choice(args: Sequence[str], choices: Sequence[str]) -> tuple[str, str] | None:
    """Return the word on the line that was surely meant for a choice, and that choice."""
    from kmip_data.format.split_files import part_name

    for word in (arg.rpartition("=")[2] for arg in args[1:]):
        if word in choices:
            continue
        # The same thing under another name, such as gpu for cuda or dev for val.
        same = _SAME.get(word) or part_name(word) or ""
        if same in choices:
            return word, same
        close = nearest_names(word, choices)
        if close and is_likely_typo(word, close[0]):
            return word, close[0]
    return None


def _unknown_option_error(
    option: str, context: click.Context, args: Sequence[str]
) -> errors.UsageError:
    """Return the error for an unknown option: a key of ``--set``, or the nearest option."""
    step = f"{context.command_path} --help"
    typed = re.search(rf"(?m)^{re.escape(option)}[=\n](?!-)(.+)", "\n".join(args))
    value = typed[1] if typed else "VALUE"
    names = {param.name for param in context.command.params}

    # The singular of an option that takes a list.
    texts = [text for param in context.command.params for text in param.opts]
    if f"{option}s" in texts:
        error = errors.UsageError(
            f"{context.command_path} has no option {option}. Did you mean {option}s?", next=step
        )
        error.correction = (option, f"{option}s")
        return error

    # A long option with a single dash, such as -all.
    single = next((word for word in args if option == word[:2] and f"-{word}" in texts), None)
    if single is not None:
        error = errors.UsageError(
            f"{context.command_path} has no option {single}. Did you mean -{single}?", next=step
        )
        error.correction = (single, f"-{single}")
        return error

    # A value as an option, such as --json for --format json.
    for param in context.command.params:
        if isinstance(param.type, click.Choice) and option[2:] in param.type.choices:
            error = errors.UsageError(f"{context.command_path} has no option {option}.", next=step)
            error.correction = (option, f"{param.opts[-1]} {option[2:]}")
            return error

    # 1. Many options of other programs are keys here, such as --lr; --label is one of a build.
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
            f"{option} is not an option but a key.", next=shlex.join(line.split("\n"))
        )
    if "overrides" in names and option == "--label":
        return errors.UsageError(
            "--label is no option of a training: the target is chosen when a dataset is built.",
            next=f"kmip-data build graphs --help, for --set label={value}",
        )

    # 2. A slip of the finger.
    close = nearest_names(option[2:], [text[2:] for text in texts if text[:2] == "--"])
    hint = f" Did you mean {' or '.join(f'--{name}' for name in close)}?" if close else ""
    error = errors.UsageError(f"{context.command_path} has no option {option}.{hint}", next=step)
    if close and is_likely_typo(option[2:], close[0]):
        error.correction = (option, f"--{close[0]}")
    return error


def _dataset_parameter(option: str, args: Sequence[str]) -> str:
    """Return the parameter of the dataset on the line that an option names; empty if none."""
    from kmip_data.cli.shared.datasets import parameter_models
    from kmip_data.manifest import dataset_names, load_manifest

    name = option[2:].replace("-", "_")
    if name in PARAMETER_OPTIONS:  # an option has this parameter, under another name
        return ""
    for dataset in set(dataset_names()).intersection(args):
        for model in parameter_models(load_manifest(dataset)).values():
            if name in model.model_fields:
                return name
    return ""


def _configuration_key(option: str) -> str:
    """Return the configuration key that an option names, empty if none.

    ``--lr`` and ``--batchsize`` name the last part of a key, ``--optimizer`` the choice of one.
    """
    from kmip_data.models.training.config.overrides import documented_keys

    name = option.partition("=")[0].replace("-", "").replace("_", "")
    keys = []
    for key in documented_keys():
        section, _, last = key.name.rpartition(".")
        if last in {"name", "kind"}:
            last = section.rpartition(".")[2]
        if last.replace("_", "") == name and section and key.type != "table":  # that --set can take
            keys.append(key.name)
    # A section's own key before the keys of its parts: model.dropout, not model.attention.dropout.
    return min(keys, key=lambda key: key.count("."), default="")


def _save_traceback_of_bug(error: Exception) -> errors.KmipDataError:
    """Save the traceback to a file: the command may have run for hours."""
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error))
    with tempfile.NamedTemporaryFile(
        "w", prefix="kmip-data-error-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(f"{PROGRAM} {kmip_data.__version__}\n{' '.join(sys.argv)}\n\n{text}")
    return errors.KmipDataError(
        f"Unexpected error, a bug in {PROGRAM}: {type(error).__name__}: {error}",
        found=f"the traceback is {file.name}",
        next="report the bug with that traceback",
    )
