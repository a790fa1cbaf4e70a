"""Note which advised commands tests type, for ``tools/advice.py``."""

from __future__ import annotations

import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterable
from functools import cache
from typing import Any

from kmip_data.errors import Command, KmipDataError, Step
from tools import advice

_STEP = re.compile(r"(?m)^  (?:next|  or): (.*)$")  #: printed below an error
_PLACEHOLDER = re.compile(r"[A-Z]{3,}")  #: to be replaced, such as ``FILE``

#: Modules of lines that are no errors.
_PRINTING_MODULES = {
    "kmip_data.cli.shared.build_summary",
    "kmip_data.cli.shared.printed_tables",
    "kmip_data.models.training.references.advice",
    "kmip_data.models.training.run.run_folder",
    "kmip_data.models.training.run.run_status",
    "kmip_data.models.training.run.fit",
    "kmip_data.models.training.run.train",
    "kmip_data.pipelines.raw.identify",
}
#: Modules that complete an error after it is made, without being on its stack.
_COMPLETING_MODULES = {"kmip_data.pipelines.base"}


@cache
def _advised() -> list[tuple[str, str, re.Pattern[str]]]:
    return [(*command, advice.pattern(command[1])) for command in advice.advised_commands()]


class TypedAdvice:
    """Commands printed in this process, and a note for each of them that a test types later."""

    def __init__(self) -> None:
        self.printed: dict[str, set[str]] = {}  #: command -> modules that may have printed it
        self.modules: set[str] = set()  #: modules on the stacks of the errors of a command
        #: Commands already noted, with the modules that may have printed them.
        self.noted: set[tuple[str, frozenset[str]]] = set()

    def note_error(self, error: KmipDataError) -> None:
        """Note the steps of an error that is made, and the modules on its stack."""
        modules = set()
        frame = sys._getframe(1)
        while frame is not None:
            modules.add(frame.f_globals.get("__name__", ""))
            frame = frame.f_back
        self._note_commands(error.steps, modules)
        self.modules |= modules

    def note_exception(self, error: BaseException) -> None:
        """Note the steps or the message of an error, and the modules that raised it."""
        frames = traceback.walk_tb(error.__traceback__)
        modules = {frame.f_globals.get("__name__", "") for frame, _ in frames}
        self._note_commands(getattr(error, "steps", str(error)), modules)

    def note_page(self, text: str, module: str) -> None:
        """Note the commands of a file, or of a logged line, that ``module`` writes."""
        self._note_commands(text, {module})

    def note_typed(self, words: list[str]) -> None:
        """Note the printed commands that ``words`` repeat; more words may follow."""
        self.modules = set()
        notes = []
        for command, modules in self.printed.items():
            expected = _split(command)[1:]
            if len(words) < len(expected) or not all(map(_is_word_for, words, expected)):
                continue
            key = command, frozenset(modules)
            if key in self.noted:
                continue
            self.noted.add(key)
            notes += [
                f"{module}: {template}\n"
                for module, template, pattern in _advised()
                if module in modules and pattern.fullmatch(command)
            ]
        if notes:
            advice.NOTES.mkdir(parents=True, exist_ok=True)
            with (advice.NOTES / f"{os.getpid()}.txt").open("a", encoding="utf-8") as file:
                file.writelines(notes)

    def note_printed(self, name: str, out: str, err: str) -> None:
        """Note the commands that the command ``name`` printed."""
        printing = {f"kmip_data.cli.{name}", *_PRINTING_MODULES}
        self._note_commands(out, printing)
        for text in (err, _STEP.sub("", err)):
            self._note_commands(text, (self.modules or printing) | _COMPLETING_MODULES)

    def _note_commands(self, advised: str | Iterable[Step], modules: set[str]) -> None:
        for command in commands_in(advised):
            self.printed[command] = self.printed.get(command, set()) | modules


def commands_in(advised: str | Iterable[Step]) -> list[str]:
    """Return the commands among steps, or in a text: printed steps, or up to a punctuation mark."""
    if not isinstance(advised, str):
        steps = [str(step) for step in advised if isinstance(step, Command)]
    else:
        steps = _STEP.findall(advised)
    if steps or not isinstance(advised, str):
        return [step for step in steps if advice.COMMAND.match(step)]
    parts = re.split(rf"(?={advice.COMMAND.pattern})", advised)[1:]
    return [advice.PROSE.split(part)[0].strip().rstrip(".)") for part in parts]


def _is_word_for(word: str, printed: str) -> bool:
    if word == printed:
        return True
    pattern = _placeholder_pattern(printed)
    return pattern is not None and pattern.fullmatch(word) is not None


@cache  # each command typed is compared with all that were printed
def _placeholder_pattern(printed: str) -> re.Pattern[str] | None:
    pattern, count = _PLACEHOLDER.subn(".+", re.escape(printed))
    return re.compile(pattern) if count else None


@cache
def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


typed_advice = TypedAdvice()
_make_error = KmipDataError.__init__


def _make_and_note(error: KmipDataError, *arguments: Any, **options: Any) -> None:
    _make_error(error, *arguments, **options)
    typed_advice.note_error(error)


KmipDataError.__init__ = _make_and_note
