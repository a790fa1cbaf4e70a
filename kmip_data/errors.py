"""Exceptions with a message for the user, steps that resolve them, and the exit code of each class.

A step is a :class:`Setting`, a :class:`Command`, or words, which are printed and never read: names of
files, columns and runs may stand in them. Whoever prints a step completes it.
"""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

from kmip_data.text import is_likely_typo, nearest_names, one_line, strip_secrets, values_of

#: Exit codes of an unexpected error, of Ctrl-C and of a closed stdout.
UNKNOWN_ERROR = 70
INTERRUPTED = 130
PIPE_CLOSED = 141
ERROR_PREFIX = "Error: "  #: prefix of a failed command's message


#: Values of a setting: a list sets its key several times, ``None`` leaves the key out.
Values = Mapping[str, object]


@dataclass(frozen=True, init=False)
class Setting:
    """Values to add to the call or command that failed; without values, the same one again.

    A key is a parameter of a build, a key of a configuration, or an option of a command without its
    dashes. The command line prints the typed command with these values, Python prints arguments.

    >>> print(Setting(label="toxic", k=None))
    label='toxic', without k
    >>> print(Setting({"model.attention.k": 3}))
    model.attention.k=3
    """

    values: Values

    def __init__(self, values: Values | None = None, /, **more: object) -> None:
        object.__setattr__(self, "values", {**(values or {}), **more})

    def __str__(self) -> str:
        pieces = []
        for key, value in self.values.items():
            pieces.append(f"without {key}" if value is None else f"{key}={_literal(value)}")
        return ", ".join(pieces) or "the same again"


SAME_AGAIN = Setting()


@dataclass(frozen=True, init=False)
class Command:
    """A whole command, by its words: those of ``template``, with ``values`` for ``{}`` and at the end.

    A value is one word, whatever is in it.

    >>> print(Command("kmip-data info {} --json", "owner's data"))
    kmip-data info 'owner'"'"'s data' --json
    """

    words: tuple[str, ...]

    def __init__(self, template: str, *values: object) -> None:
        rest = [*map(str, values)]
        words = [rest.pop(0) if word == "{}" else word for word in template.split()]
        object.__setattr__(self, "words", (*words, *rest))

    def __str__(self) -> str:
        return shlex.join(self.words)


Step = Setting | Command | str


def joined_setting(settings: Iterable[Setting]) -> Setting:
    """Return one setting with all values; a key with several values has a list of them.

    >>> print(joined_setting([Setting(ignore="a"), Setting(ignore="b", header="no")]))
    ignore=['a', 'b'], header='no'
    """
    joined: dict[str, object] = {}
    for setting in settings:
        for key, value in setting.values.items():
            earlier = values_of(joined.get(key))
            values = [*earlier, *(added for added in values_of(value) if added not in earlier)]
            joined[key] = values if len(values) > 1 else value
    return Setting(joined)


def as_steps(steps: Step | Sequence[Step] | None) -> list[Step]:
    """Return the steps of an error, given as one, as several or as none."""
    if steps is None:
        return []
    return [steps] if isinstance(steps, Setting | Command | str) else list(steps)


def _literal(value: object) -> str:
    """Return a value as Python writes it; numbers and booleans may be texts of a command line."""
    if isinstance(value, str) and value in {"true", "false"}:
        return value.title()
    if isinstance(value, str) and value.isdecimal():
        return value
    return repr(value)


class KmipDataError(Exception):
    """Base class of all errors shown to users; never raised itself.

    :func:`str` prints the message, then a labelled line for each of the other arguments given.

    Parameters
    ----------
    message
        What happened, in one sentence, with the value that was found.
    expected, found
        Value that an option, a file or a server should have given, and the value it gave; a list
        has a line for each item.
    left
        Files that an unfinished command left on disk. Omit it if nothing was written.
    steps
        What resolves the error: a step or a list of them .
    """

    exit_code: ClassVar[int] = 1
    #: Typed word, and the likely word or setting instead; used to print a corrected command.
    correction: tuple[str, str | Setting] | None = None
    #: True if the message already names file and line.
    has_location = False

    def __init__(
        self,
        message: str,
        *,
        expected: str | list[str] | None = None,
        found: str | list[str] | None = None,
        left: str | None = None,
        steps: Step | Sequence[Step] | None = None,
    ) -> None:
        self.message = _printable(message) or ""
        self.expected = _printable(expected)
        self.found = _printable(found)
        self.left = _printable(left)
        self.steps = as_steps(steps)
        super().__init__(self.message)

    def labelled_lines(self, steps: Sequence[Step] | None = None) -> dict[str, str]:
        """Return the lines printed below the message, by label, with completed ``steps`` if given."""
        words = []
        commands = []
        for step in self.steps if steps is None else steps:
            if isinstance(step, str):
                words.append(_printable(step))
            else:
                commands.append(one_line(str(step)))
        lines = {
            "expected": self.expected,
            "found": self.found,
            "on disk": self.left,
            "remedy": "; ".join(filter(None, words)),
            "next": "\n".join(commands),
        }
        return {label: text for label, text in lines.items() if text}

    def __str__(self) -> str:
        return format_error(self.message, self.labelled_lines())


def format_error(message: str, labelled_lines: Mapping[str, str]) -> str:
    """Return the message of an error with its labelled lines, each alternative on a line."""
    lines = [message]
    for label, text in labelled_lines.items():
        beginning = "    or: " if label == "next" else "    "
        lines.append(f"  {label}: " + text.replace("\n", f"\n{beginning}"))
    return "\n".join(lines)


def _printable(text: str | list[str] | None) -> str | None:
    """Return a text on one line, or a line for each item of a list."""
    if isinstance(text, list):
        return "\n".join(filter(None, map(_printable, text)))
    # Messages may quote file names, headers and replies of servers.
    line = text and one_line(strip_secrets(str(text))).replace(_ADVICE_OF_PYTHON, "")
    if line and len(line) > _MAX_LETTERS:
        half = _MAX_LETTERS // 2
        line = f"{line[:half]}… ({len(line):,} characters) …{line[-half:]}"
    return line


class CheckFailed(KmipDataError):
    """A check found something broken (exit code 1)."""


class UsageError(KmipDataError, ValueError):
    """An argument, option, name or configuration key is wrong (exit code 2)."""

    exit_code = 2


class MissingExtra(UsageError):
    """A package is not installed that comes with an extra (exit code 2)."""


class FolderInUse(UsageError):
    """Another process holds the lock of a folder (exit code 2)."""


class SourceUnavailable(KmipDataError):
    """No mirror, archive or copy of a source is available (exit code 3)."""

    exit_code = 3


class NotReproduced(CheckFailed):
    """A repeated training differs from its published row (exit code 1)."""


class DamagedInput(KmipDataError):
    """Input is damaged, malicious or mislabelled (exit code 4)."""

    exit_code = 4
    #: Problem of a damaged file, without its path.
    problem: str | None = None


class OpenQuestions(DamagedInput):
    """Files can be read in several ways (exit code 4).

    Parameters
    ----------
    questions
        Each question, which lists its answers -> the likeliest answer.
    """

    def __init__(self, questions: Mapping[str, Setting]) -> None:
        self.questions = questions
        problem = next(iter(questions))
        found = None
        if len(questions) > 1:
            problem = f"{len(questions)} questions are open."
            found = "; ".join(questions)[:2_000]
        super().__init__(problem, found=found, steps=joined_setting(questions.values()))

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process sends its error as bytes.
        return type(self), (self.questions,), vars(self)


class LicenseNotAccepted(KmipDataError):
    """A download needs an agreement that was not given (exit code 5)."""

    exit_code = 5


class OutOfResources(KmipDataError):
    """Disk space or memory ran out (exit code 6)."""

    exit_code = 6


class IncompleteBuildWarning(UserWarning):
    """The build covers only part of the published dataset."""


F = TypeVar("F", bound=Callable[..., Any])

MAX_LISTED_NAMES = 16  #: largest number of names that an error lists
_MAX_LETTERS = 4_000  #: of a line of an error
#: End of a message of Python about a number, which no reader of a file can follow.
_ADVICE_OF_PYTHON = "; use sys.set_int_max_str_digits() to increase the limit"


def conflicting_values_error(option: str, value: object, setting: str) -> UsageError:
    """Return the error for a key to which ``option`` and ``--set setting`` give different values."""
    key, _, other_value = map(str.strip, setting.partition("="))
    name = option.removeprefix("--")
    return UsageError(
        f"{option} {value} and --set {setting} give two values of {key}.",
        steps=[Setting({name: None, key: other_value}), Setting({key: None, name: value})],
    )


def error_with_correction(
    message: str,
    typed: str,
    meant: str | Setting,
    step: Step | Sequence[Step] | None = None,
    *,
    expected: str | None = None,
) -> UsageError:
    """Return the error for the word ``typed``; the command line prints its line with ``meant``."""
    error = UsageError(message, expected=expected, steps=step)
    error.correction = (typed, meant)
    return error


def unknown_name_error(
    noun: str,
    name: str,
    known: Sequence[str],
    *,
    command: Step | Sequence[Step] = Command("kmip-data list --all"),
    listed: Sequence[str] | None = None,
    where: str = "",
) -> UsageError:
    """Return the error for an unknown name, with up to three similar names, or else a list.

    ``noun`` is the kind of thing named, such as "dataset"; ``command`` is the step that shows
    all known names.
    ``listed`` replaces ``known`` in the list, for example by the user's names only. ``where`` ends
    the sentence, such as "among the runs".
    """
    similar = nearest_names(name, known)
    hint = f" Did you mean {' or '.join(map(repr, similar))}?" if similar else ""
    expected = None
    if not similar or len(known) <= MAX_LISTED_NAMES:
        names = known if listed is None else listed
        expected = ", ".join(names[:MAX_LISTED_NAMES]) + (
            ", …" if len(names) > MAX_LISTED_NAMES else ""
        )
    error = UsageError(
        f"There is no {noun} called {name!r}{where and f' {where}'}.{hint}",
        expected=expected,
        steps=command,
    )
    if similar and _is_unambiguous(name, similar[0], known):
        error.correction = (name, similar[0])
    return error


def answer_unknown_keywords(**equivalents: str) -> Callable[[F], F]:
    """Decorate a public function: an unknown keyword is a ``UsageError`` with the name to use.

    ``equivalents`` maps keywords of PyTorch and its libraries to what has their effect here.
    """

    def decorate(function: F) -> F:
        parameters = inspect.signature(function).parameters
        name = function.__qualname__.removesuffix(".__init__")
        known = [key for key in parameters if key != "self"]
        takes_others = any(p.kind is p.VAR_KEYWORD for p in parameters.values())

        @functools.wraps(function)
        def checked(*arguments: object, **keywords: object) -> object:
            for key in keywords.keys() - parameters.keys():
                if key in equivalents:
                    raise UsageError(f"{name} has no argument {key}.", steps=equivalents[key])
                if not takes_others:
                    noun = f"argument of {name}"
                    raise unknown_name_error(noun, key, known, command=f"help({name})")
            return function(*arguments, **keywords)

        return cast("F", checked)

    return decorate


def _is_unambiguous(name: str, nearest: str, known: Sequence[str]) -> bool:
    """True if only ``nearest`` can be meant: a typo of it, or the beginning of no other name."""
    # Compare as many trailing path components as were typed; several runs may share them.
    depth = name.count("/") + 1
    endings = ["/".join(word.split("/")[-depth:]) for word in known]
    ending = "/".join(nearest.split("/")[-depth:])
    if endings.count(ending) > 1:
        return False
    completions = [word for word in endings if word.startswith(name)]
    return is_likely_typo(name, ending) or (len(name) > 2 and completions == [ending])
