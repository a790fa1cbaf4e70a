"""The ``next`` line of an error, completed from the typed command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from itertools import zip_longest

import click

from kmip_data.cli.shared.divided_advice import AdvisedStep, divide_advice, words_of_advice
from kmip_data.errors import KmipDataError
from kmip_data.text import one_line, strip_secrets

_PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b")  #: such as ``KEY=VALUE``
#: Key of ``--set`` -> option that is often typed instead.
_OPTION_MEANT_AS_KEY = {"model.attention.k": "--k"}
#: Options and keys of a fold, which ``--folds`` and ``--split-rule`` replace.
_FOLD_OPTIONS = {("--folds", ""), ("--set", "data.split.fold"), ("--set", "fold")}
#: Repeatable options of which an error names a further value.
_ACCUMULATED_OPTIONS = {"--plugin"}
#: Commands whose line is not repeated with another name: they remove data.
_DESTRUCTIVE_COMMANDS = {"remove"}
_COMMANDS_WITH_CONFIG_KEYS = {"train", "sweep"}


def complete_next_line(
    error: KmipDataError, args: Sequence[str], program: str, command: click.Command | None = None
) -> None:
    """Divide the advice of ``error`` into ``next``, whole commands, and ``remedy``, words about them.

    A word that was probably meant replaces the typed word. Options that the error advises are added
    to the line, in place of earlier values, if ``command`` takes them; options to leave out are
    removed; "the same command" becomes the line. ``command`` is the typed command.
    """
    can_repeat = bool(args) and args[0] not in _DESTRUCTIVE_COMMANDS
    if can_repeat and error.correction is not None:
        corrected = _replace_typed_word(args, *error.correction)
        if corrected is not None and not _has_secret(corrected):
            error.next = one_line(shlex.join([program, *corrected]))
            return
    if not error.next:
        return

    options_of_command = set()
    flags = set()
    for param in command.params if command is not None else ():
        options_of_command.update(param.opts)
        if isinstance(param, click.Option) and param.is_flag:
            flags.update(param.opts)

    lines: list[str] = []
    completed = []
    for step in divide_advice(error.next):
        line: str | None = step.text
        if step.kind != "command":
            words = None
            if can_repeat:
                words = _line_with_step(args, step, options_of_command, flags)
            # A command without its password would not work, and one with it must not be logged.
            line = None
            if words is not None and not _has_secret(words):
                line = one_line(shlex.join([program, *words]))
        if line is None:
            continue
        completed.append(step)
        if step.is_sequel and lines:
            lines[-1] += f" && {line}"
        elif line not in lines:
            lines.append(line)
    error.remedy = words_of_advice(error.next, completed)
    error.next = "\n".join(lines) or None


def _has_secret(words: Sequence[str]) -> bool:
    line = shlex.join(words)
    return strip_secrets(line) != line


def _line_with_step(
    args: Sequence[str], step: AdvisedStep, options_of_command: set[str], flags: set[str]
) -> list[str] | None:
    """Return the typed line with the options of a step; ``None`` if it cannot take them."""
    options = step.options
    if step.kind == "leave":
        words = _drop_options(args, _options_with_values(options), flags)
        return words if len(words) < len(args) else None

    if any(_PLACEHOLDER.search(word) for word in options):
        return None
    added = {option for option, _ in _options_with_values(options)}
    if options_of_command and not added <= options_of_command:
        return None
    for key in (word.partition("=")[0] for word in options if "=" in word):
        if key.startswith("model.") and args[0] not in _COMMANDS_WITH_CONFIG_KEYS:
            return None
        # Keys without a dot are parameters of a build, which other commands spell differently.
        if "." not in key and args[0] != "build":
            return None
    words = add_options(args, options, flags)
    if step.kind == "add" and sorted(words) == sorted(args):  # the advice was already typed
        return None
    return words


def add_options(
    args: Sequence[str], options: Sequence[str], flags: Collection[str] = ()
) -> list[str]:
    """Return the line with ``options`` at its end, without the values that they replace."""
    replaced = set()
    for option, value in _options_with_values(options):
        key = value.partition("=")[0] if option == "--set" else ""
        if option not in _ACCUMULATED_OPTIONS:
            replaced |= {(option, key), ("--set", option[2:])}
        if key in _OPTION_MEANT_AS_KEY:
            replaced.add((_OPTION_MEANT_AS_KEY[key], ""))
        if option in {"--split-rule", "--folds"}:
            replaced |= _FOLD_OPTIONS
    return [*_drop_options(args, replaced, flags), *options]


def _options_with_values(words: Sequence[str]) -> set[tuple[str, str]]:
    """Return the options in ``words`` with their values, which are empty for flags."""
    options = set()
    for word, value in zip_longest(words, words[1:], fillvalue=""):
        if word.startswith("--"):
            options.add((word, "" if value.startswith("--") else value))
    return options


def _drop_options(
    args: Sequence[str], dropped: Collection[tuple[str, str]], flags: Collection[str]
) -> list[str]:
    """Return the line without some options and their values.

    A dropped ``--set`` is given with its KEY, or with KEY=VALUE; any other option without value.
    """
    kept: list[str] = []
    position = 0
    while position < len(args):
        option, equals, value = args[position].partition("=")
        count = 1
        if not equals and option not in flags and position + 1 < len(args):
            value = args[position + 1]
            count = 2
        if value.startswith("--"):
            value = ""
            count = 1

        keys = {""}
        if option == "--set":
            keys = {value, value.partition("=")[0]}
        if any((option, key) in dropped for key in keys):
            position += count
            continue
        kept.append(args[position])
        position += 1
    return kept


def _replace_typed_word(args: Sequence[str], typed: str, meant: str) -> list[str] | None:
    """Return the line with ``meant`` for ``typed``, or None if ``typed`` does not occur exactly once."""
    word = re.compile(rf"(?<![\w-]){re.escape(typed)}(?![\w.-])")
    # A dataset without its option may also begin the name of a run.
    is_bare = meant.startswith("--") and args.count(typed) == 1
    if sum(len(word.findall(arg)) for arg in args) != 1 and not is_bare:
        return None
    line = []
    for arg in args:
        # An option may be meant by a word, as --model gcn by gcn.
        if arg == typed and meant.startswith("--"):
            line += shlex.split(meant)
        elif is_bare:
            line.append(arg)
        else:
            line.append(word.sub(lambda _: meant, arg))
    if meant.endswith("="):  # of a key whose value follows a blank
        position = next(number for number, word in enumerate(line) if word.endswith(meant))
        value = "".join(line[position + 1 : position + 2])
        if not value or value.startswith("--") or is_data_name(value, args):
            return None
        line[position : position + 2] = [line[position] + value]
    return line


def is_data_name(word: str, args: Sequence[str]) -> bool:
    """True if a word on the line names a dataset, or a build of the home."""
    from kmip_data.builds.home import Home, is_dataset

    home = None
    if "--home" in args[:-1]:
        home = args[args.index("--home") + 1]
    return is_dataset(word, Home.locate(home))
