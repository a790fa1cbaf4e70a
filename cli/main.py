"""``kmip-data``: the group of all commands, exit codes, and the messages of errors."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import json
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import click

import kmip_data
from kmip_data import errors
from kmip_data.cli.shared.command_classes import Group
from kmip_data.cli.shared.command_line_errors import PROGRAM, error_for_user
from kmip_data.cli.shared.completed_steps import TypedLine
from kmip_data.cli.shared.conversation import ask, can_ask
from kmip_data.cli.shared.output import JSON_PRINTED_META_KEY, filtered_output
from kmip_data.errors import Command, joined_setting
from kmip_data.runtime import compiling
from kmip_data.runtime.current_folder import ignore_current_folder
from kmip_data.runtime.progress import print_status
from kmip_data.runtime.signals import (
    TERMINATION_SIGNALS,
    resend_swallowed_signals,
    unwind_on_signal,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_PLUGINS_VARIABLE = "KMIP_DATA_PLUGINS"  #: variable of plugins to import
#: variable set by the shell when it requests completions
COMPLETION_VARIABLE = "_KMIP_DATA_COMPLETE"

#: Command -> one sentence for the list of commands.
COMMANDS = {
    "demo": "Show offline, in about a minute on two cores, what k-MIP attention is for.",
    "list": "List your builds and runs with their sizes; with --all, list all datasets instead.",
    "info": "Show a dataset, a build or a preset: sources, license, counts, parameters.",
    "fetch": "Download and verify the raw files of a dataset.",
    "build": "Build a published dataset, or a dataset from your own files.",
    "encode": "Add positional encodings to a build.",
    "verify": "Check every byte of a build, and repair a damaged one.",
    "diff": "Compare two datasets; exit with code 1 if they differ.",
    "identify": "Find out which published file or build each file is.",
    "push": "Share a build or a run at any address.",
    "pull": "Download and verify a pushed build or run.",
    "export": "Write a build as files of PyTorch Geometric.",
    "preview": "Draw records of a build, or the map of a city.",
    "explore": "Open an interactive page for a graph and its predictions.",
    "train": "Train a model, after building its dataset if necessary.",
    "sweep": "Train a plan of runs: datasets × models × changes × seeds.",
    "runs": "List the runs in the home folder, newest first.",
    "report": "Compare the results of runs with each other and with the paper.",
    "evaluate": "Evaluate a trained model on train, val and test.",
    "predict": "Write the predictions of a trained model.",
    "remove": "Remove builds, raw files and runs.",
    "doctor": "Check this machine: versions, devices, search backends.",
}
#: Section of the help -> commands.
COMMAND_SECTIONS = {
    "First steps": ("demo", "list", "build", "train", "explore"),
    "Data": (
        "info",
        "fetch",
        "encode",
        "verify",
        "diff",
        "identify",
        "preview",
        "push",
        "pull",
        "export",
        "remove",
    ),
    "Training": ("sweep", "runs", "report", "evaluate", "predict"),
    "This machine": ("doctor",),
}


class LazyGroup(Group):
    """Group of all commands: NAME is the ``command`` of the module ``kmip_data.cli.NAME``, imported on use."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the line, and keep it for ``typed_words`` and to complete commands."""
        ctx.obj = TypedLine(args, PROGRAM, self)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help, not alphabetically."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of ``cmd_name`` and return its command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"kmip_data.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by group, without importing any."""
        for title, names in COMMAND_SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name]) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names without importing any command."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(n, help=h) for n, h in COMMANDS.items() if n.startswith(incomplete)]


@click.group(
    cls=LazyGroup,
    context_settings={"max_content_width": 110},
    epilog=f"NAME is a dataset name or a build folder. `{PROGRAM} COMMAND --help` has an example for each.",
)
@click.version_option(kmip_data.__version__, prog_name=PROGRAM)
def root() -> None:
    """Build graph datasets, published or your own; train graph networks on them; compare the results."""


def main() -> NoReturn:
    """Run the command line of this process, and exit with its code."""
    for number in TERMINATION_SIGNALS:
        is_ignored = signal.getsignal(number) is signal.SIG_IGN  # by nohup
        if not is_ignored:
            signal.signal(number, unwind_on_signal)
    sys.unraisablehook = resend_swallowed_signals(sys.unraisablehook)
    ignore_current_folder()
    # Commands print the state of a build themselves.
    warnings.simplefilter("ignore", errors.IncompleteBuildWarning)
    # Users of commands cannot act on future changes of libraries.
    for category in (FutureWarning, DeprecationWarning, PendingDeprecationWarning):
        warnings.simplefilter("ignore", category)
    defaults = {
        # Idle threads of PyTorch sleep: next to other processes, spinning costs five to ten times the
        # work. OpenMP reads this when it is loaded.
        "OMP_WAIT_POLICY": "PASSIVE",
        # Huge pages: new memory of a training step costs a tenth. PyTorch reads this at its first
        # allocation.
        "THP_MEM_ALLOC_ENABLE": "1",
        # PyTorch's profiler does not log that it starts and stops.
        "KINETO_LOG_LEVEL": "6",
        # Pydantic does not search every installed package for plugins.
        "PYDANTIC_DISABLE_PLUGINS": "__all__",
    }
    os.environ.update({**defaults, **os.environ})
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Print a line even if the terminal's encoding lacks one of its characters, such as ©.
            stream.reconfigure(errors="replace")
    if not {"--quiet", "-q"} & {*sys.argv}:
        compiling.announce_compiling(print_status)
    # Registered before those of other modules, this function is the last to be called at exit.
    exit_codes: list[int] = []
    atexit.register(_end_without_freeing, os.getpid(), exit_codes)
    exit_codes.append(run_command_line(sys.argv[1:]))
    sys.exit(exit_codes[0])


def _end_without_freeing(process: int, exit_codes: list[int]) -> None:
    """End a process that loaded PyTorch without freeing its objects one by one, which takes 1.4 s."""
    # A fork inherits this function, and an exception leaves no exit code.
    if "torch" not in sys.modules or os.getpid() != process or not exit_codes:
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):  # the reader is gone, which Python reports
        return
    os._exit(exit_codes[0])


def run_command_line(args: list[str]) -> int:
    """Run one command line without raising; return its exit code (:mod:`kmip_data.errors`)."""
    # Completions are not filtered: control characters separate them.
    if COMPLETION_VARIABLE in os.environ:
        from click.shell_completion import shell_complete

        return shell_complete(
            root, {}, PROGRAM, COMPLETION_VARIABLE, os.environ[COMPLETION_VARIABLE]
        )
    with filtered_output(), _restored_plugin_variable():
        return _run_and_handle_errors(args)


@contextlib.contextmanager
def _restored_plugin_variable() -> Iterator[None]:
    """Restore ``KMIP_DATA_PLUGINS``, which passes a command's plugins on to its child processes."""
    before = os.environ.get(_PLUGINS_VARIABLE)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_PLUGINS_VARIABLE, None)
        else:
            os.environ[_PLUGINS_VARIABLE] = before


def _run_and_handle_errors(args: list[str]) -> int:
    """Run one command line, print its error if it fails, and return the exit code."""
    meta = {}
    try:
        if os.environ.get(_PLUGINS_VARIABLE):
            from kmip_data.plugins import load_plugins_in_environment

            load_plugins_in_environment()
        with root.make_context(PROGRAM, list(args)) as context:
            meta = context.meta
            root.invoke(context)
        if sys.stdout is not None:  # None: it was closed before the start
            sys.stdout.flush()
    except click.exceptions.Exit as request:
        return request.exit_code
    except SystemExit as request:
        return request.code if isinstance(request.code, int) else errors.UNKNOWN_ERROR
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted.", err=True)
        return errors.INTERRUPTED
    except BrokenPipeError:
        # The reader of stdout is gone. Discard the buffer, which would fail again at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 -- every error ends here
        shown = error_for_user(error, args, root)
        if isinstance(shown, errors.OpenQuestions) and can_ask():
            answered = _args_with_answers(shown, args)
            if answered != args:
                return _run_and_handle_errors(answered)
        if shown is None:
            code = errors.UNKNOWN_ERROR
            shown = _save_traceback_of_bug(error)
        else:
            code = shown.exit_code
        steps = TypedLine(args, PROGRAM, root).steps(shown)
        lines = shown.labelled_lines(steps)
        click.echo(f"{errors.ERROR_PREFIX}{errors.format_error(shown.message, lines)}", err=True)
        # Scripts read one object from stdout: the error, unless the result is already printed.
        if "--json" in args and not meta.get(JSON_PRINTED_META_KEY):
            lines.pop("next", None)
            facts = {
                "class": type(shown).__name__,
                "exit_code": code,
                "what": shown.message,
                **{label.replace(" ", "_"): text for label, text in lines.items()},
                "steps": [step.words for step in steps if isinstance(step, Command)],
            }
            click.echo(json.dumps({"error": facts}, indent=2))
        return code
    return 0


def _args_with_answers(error: errors.OpenQuestions, args: list[str]) -> list[str]:
    """Return the line with the answers that the user types, and print it; ``args`` without any."""
    try:
        answers = joined_setting(ask(error.questions))
        answered = TypedLine(args, PROGRAM, root).with_values(answers.values) or args
    except click.Abort:
        click.echo(err=True)
        return args
    click.echo(f"\n{shlex.join([PROGRAM, *answered])}", err=True)
    return answered


def _save_traceback_of_bug(error: Exception) -> errors.KmipDataError:
    """Save the traceback to a file, and return an error that names the file."""
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
        steps="report the bug with that traceback",
    )


if __name__ == "__main__":
    main()
