"""Steps of an error, completed to whole commands from the typed command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import click

from kmip_data.cli.shared.printed_commands import ParsedCommand, options_to_keep
from kmip_data.errors import Command, KmipDataError, Setting, Step, Values
from kmip_data.text import PARAMETER_OPTIONS, strip_secrets, values_of

#: Commands whose line is not repeated with another name: they remove data.
_DESTRUCTIVE_COMMANDS = {"remove"}
_MAX_WORD = 100_000  #: characters of a word; Linux takes none of more than 131,071 bytes


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
        self.can_repeat = bool(args) and args[0] not in _DESTRUCTIVE_COMMANDS

    @cached_property
    def options(self) -> Mapping[str, click.Option]:
        """Options of the typed command, by each of their names."""
        options = {}
        command = self.root.get_command(click.Context(self.root), "".join(self.args[:1]))
        for param in command.params if command is not None else ():
            if isinstance(param, click.Option):
                options.update(dict.fromkeys(param.opts, param))
        return options

    def steps(self, error: KmipDataError) -> list[Command | str]:
        """Return the steps that resolve an error, as whole commands and words.

        A word that was probably meant replaces the typed word, instead of all other steps.
        """
        if self.can_repeat and error.correction is not None:
            corrected = self._corrected(*error.correction)
            if corrected is not None and _is_printable(corrected):
                return [Command(self.program, *corrected)]
        steps = map(self.complete, error.steps)
        return list(dict.fromkeys(step for step in steps if step is not None))

    def complete(self, step: Step) -> Command | str | None:
        """Return a step as a whole command, or as words; ``None`` if it changes nothing.

        A setting that the typed command does not take is words.
        """
        if isinstance(step, str):
            return step
        if isinstance(step, Command):
            words = self.with_options(step, choose_build=True).words
        else:
            line = self.with_values(step.values) if self.can_repeat else None
            if line is None:
                return str(step)
            # Values that were typed already resolve nothing, but the same line may be typed again.
            if step.values and sorted(line) == sorted(self.args):
                return None
            words = (self.program, *line)
        return Command(*words) if _is_printable(words) else None

    def with_options(self, command: Command, *, choose_build: bool = False) -> Command:
        """Return a command of the program with the typed options that it takes and lacks."""
        program, *words = command.words
        if program != self.program:
            return command
        typed = ParsedCommand.from_words(self.args, self.root)
        printed = ParsedCommand.from_words(words, self.root)
        kept = options_to_keep(typed, printed, choose_build=choose_build)
        return Command(program, *words[:1], *kept, *words[1:])

    def _corrected(self, typed: str, meant: str | Setting) -> list[str] | None:
        """Return the line with ``meant`` for ``typed``; ``None`` if that does not occur exactly once."""
        if isinstance(meant, Setting):
            others = [arg for arg in self.args if arg != typed]
            if len(others) != len(self.args) - 1:
                return None
            return self.with_values(meant.values, others)
        # The word may be one of a list, a key, a value, or the end of a path.
        word = re.compile(rf"(?<![\w-]){re.escape(typed)}(?![\w.-])")
        if sum(len(word.findall(arg)) for arg in self.args) != 1:
            return None
        return [word.sub(lambda _: meant, arg) for arg in self.args]

    def with_values(self, values: Values, args: Sequence[str] | None = None) -> list[str] | None:
        """Return the typed line with ``values``; ``None`` if the command takes no such key.

        A key is the option of this name if the command has one, and else a key of ``--set``. Its typed
        values are replaced; only a repeatable option that is read before the others keeps them.
        ``args`` replace the typed line.
        """
        dropped = set()
        added = []
        for key, value in values.items():
            name = PARAMETER_OPTIONS.get(key, f"--{key.replace('_', '-')}")
            option = self.options.get(name)
            if value is None or option is None or not (option.multiple and option.is_eager):
                dropped |= {(name, ""), (f"--{key}", ""), ("--set", key)}
            for item in values_of(value):
                text = str(item).lower() if isinstance(item, bool) else str(item)
                if option is not None:
                    added += [name] if option.is_flag else [name, text]
                elif self._takes_key(key):
                    added += ["--set", f"{key}={text}"]
                else:
                    return None
        return [*self._without(dropped, self.args if args is None else args), *added]

    def _without(self, dropped: Collection[tuple[str, str]], args: Sequence[str]) -> list[str]:
        """Return a line without some options and their values.

        A dropped ``--set`` is given with its key; any other option with an empty text.
        """
        kept: list[str] = []
        position = 0
        while position < len(args):
            name, equals, value = args[position].partition("=")
            option = self.options.get(name)
            count = 1
            if not equals and position + 1 < len(args) and not (option and option.is_flag):
                value = args[position + 1]
                count = 2
            if value.startswith("--"):
                value = ""
                count = 1
            name = option.opts[0] if option else name
            key = value.partition("=")[0] if name == "--set" else ""
            if (name, key) not in dropped:
                count = 1
                kept.append(args[position])
            position += count
        return kept

    def _takes_key(self, key: str) -> bool:
        """True if ``--set`` of the typed command takes a key: of a configuration, or of a build."""
        return "--set" in self.options and ("." in key) != (self.args[0] == "build")


def _is_printable(words: Sequence[str]) -> bool:
    """True if a command has no password, which must not be logged, and can be typed."""
    line = shlex.join(words)
    return strip_secrets(line) == line and max(map(len, words)) <= _MAX_WORD


def is_data_name(word: str, args: Sequence[str]) -> bool:
    """True if a word on the line names a dataset, or a build of the home."""
    from kmip_data.builds.home import Home, is_dataset

    home = None
    if "--home" in args[:-1]:
        home = args[args.index("--home") + 1]
    return is_dataset(word, Home.locate(home))
