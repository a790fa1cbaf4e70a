"""Steps of an error, completed to whole commands from the typed command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import click

from kmip_data.cli.shared.printed_commands import with_typed_options
from kmip_data.errors import KmipDataError
from kmip_data.steps import Command, Setting, Step, values_of
from kmip_data.text import PARAMETER_OPTIONS, strip_secrets

_PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b")  #: such as ``KEY=VALUE``
#: Commands whose line is not repeated with another name: they remove data.
_DESTRUCTIVE_COMMANDS = {"remove"}
_COMMANDS_WITH_CONFIG_KEYS = {"train", "sweep"}


class TypedLine:
    """Typed command line, from which steps are completed.

    Parameters
    ----------
    args
        Words without the program.
    program
        Name of the program.
    root
        Group of all commands.
    """

    def __init__(self, args: Sequence[str], program: str, root: click.Group) -> None:
        self.args = args
        self.program = program
        self.root = root
        name = "".join(args[:1])
        self.command = root.get_command(click.Context(root), name)
        self.can_repeat = bool(args) and name not in _DESTRUCTIVE_COMMANDS

    @cached_property
    def options(self) -> Mapping[str, click.Option]:
        """Options of the typed command, by each of their names."""
        options = {}
        for param in self.command.params if self.command is not None else ():
            if isinstance(param, click.Option):
                options.update(dict.fromkeys(param.opts, param))
        return options

    def steps(self, error: KmipDataError) -> list[list[str]]:
        """Return the commands that resolve an error, each as its words.

        A word that was probably meant replaces the typed word, instead of all other steps.
        """
        if self.can_repeat and error.correction is not None:
            corrected = _replace_typed_word(self.args, *error.correction)
            if corrected is not None and not _has_secret(corrected):
                return [[self.program, *corrected]]
        commands = []
        for step in error.steps:
            words = self.complete(step)
            if words is not None and words not in commands:
                commands.append(words)
        return commands

    def complete(self, step: Step) -> list[str] | None:
        """Return the words of a step; ``None`` for advice, and if the typed line cannot take it."""
        words = None
        if isinstance(step, Command):
            words = [*step.words]
            if words[0] == self.program:
                words[1:] = with_typed_options(words[1:], self.args, self.root, choose_build=True)
        elif isinstance(step, Setting) and self.can_repeat:
            line = self.with_values(step.values)
            words = None if line is None else [self.program, *line]
        # A command without its password would not work, and one with it must not be logged.
        return None if words is None or _has_secret(words) else words

    def with_values(self, values: Mapping[str, object]) -> list[str] | None:
        """Return the typed line with ``values``; ``None`` if the command takes no such key.

        A key is the option of this name if the command has one, and else a key of ``--set``.
        """
        dropped = set()
        added = []
        for key, value in values.items():
            option = PARAMETER_OPTIONS.get(key, f"--{key.replace('_', '-')}")
            if option not in self.options:
                option = "--set"
            # Values that are added to a repeatable option stay next to those that were typed.
            if option == "--set" or value is None or not self.options[option].multiple:
                dropped |= {(option, key if option == "--set" else ""), ("--set", key)}
            for item in values_of(value):
                if option == "--set" and not self._takes_key(key):
                    return None
                if _PLACEHOLDER.search(str(item)):
                    return None
                if option != "--set":
                    is_flag = self.options[option].is_flag
                    added += [option] if is_flag else [option, str(item)]
                else:
                    added += [option, f"{key}={item}"]
        flags = {name for name, option in self.options.items() if option.is_flag}
        line = [*_drop_options(self.args, dropped, flags), *added]
        # Values that were typed already resolve nothing, but the same line may be typed again.
        return None if values and sorted(line) == sorted(self.args) else line

    def _takes_key(self, key: str) -> bool:
        """True if ``--set`` of the typed command takes a key: of a configuration, or of a build."""
        commands = _COMMANDS_WITH_CONFIG_KEYS if "." in key else {"build"}
        return "--set" in self.options and self.args[0] in commands


def _has_secret(words: Sequence[str]) -> bool:
    line = shlex.join(words)
    return strip_secrets(line) != line


def _drop_options(
    args: Sequence[str], dropped: Collection[tuple[str, str]], flags: Collection[str]
) -> list[str]:
    """Return the line without some options and their values.

    A dropped ``--set`` is given with its key; any other option with an empty text.
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
        key = value.partition("=")[0] if option == "--set" else ""
        if (option, key) in dropped:
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
