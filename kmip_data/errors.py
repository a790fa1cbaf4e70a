"""Errors that a user can meet, each class with its exit code.

Every error states what happened, with the value that was found, and what to do next. ``expected``
and ``found`` are given where an option, a file or a server is at fault; ``left`` only where
something was written. The lines are keyword arguments; :func:`str` joins those that are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kmip_data.text import is_likely_typo, nearest_names, replace_controls, strip_secrets

#: Exit codes besides the exit codes of the classes: an unexpected error, Ctrl-C, a closed stdout.
UNKNOWN_ERROR = 70
INTERRUPTED = 130
PIPE_CLOSED = 141


class KmipDataError(Exception):
    """Base of all errors that a user can meet; never raised itself.

    Parameters
    ----------
    what
        What happened, in one sentence, with the value that was found.
    expected, found
        What an option, a file or a server should have given, and what it gave.
    left
        What an unfinished command wrote and left on disk. Omit it where nothing was written.
    next
        The command or step that resolves the error.
    """

    exit_code: ClassVar[int] = 1
    #: Word that was typed, and the one that was probably meant.
    meant: tuple[str, str] | None = None
    #: True if the sentence names file and line, and needs no other place.
    located = False

    def __init__(
        self,
        what: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        left: str | None = None,
        next: str | None = None,  # noqa: A002 -- the word the user reads
    ) -> None:
        # The lines may quote names, headers and replies of servers, so control characters are
        # masked.
        lines = {"expected": expected, "found": found, "on disk": left, "next": next}
        self.what = _printable(what)
        self.lines = {name: text and _printable(text) for name, text in lines.items()}
        super().__init__(self.what)

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  {name}: {text}" for name, text in self.lines.items() if text]
        return "\n".join(lines)


def _printable(text: str) -> str:
    return replace_controls(strip_secrets(str(text)))


class CheckFailed(KmipDataError):
    """A check found something broken (exit code 1)."""


class UsageError(KmipDataError, ValueError):
    """An argument, option, name or configuration key is wrong (exit code 2)."""

    exit_code = 2


class MissingExtra(UsageError):
    """A package is not installed that comes with an extra (exit code 2)."""


class SourceUnavailable(KmipDataError):
    """No mirror, archive or copy of a source is available (exit code 3)."""

    exit_code = 3


class NotReproduced(CheckFailed):
    """A repeated training differs from its published row (exit code 1)."""


class DamagedInput(KmipDataError):
    """Input is damaged, hostile or mislabelled (exit code 4)."""

    exit_code = 4


class LicenseNotAccepted(KmipDataError):
    """A download needs an agreement that was not given (exit code 5)."""

    exit_code = 5


class OutOfResources(KmipDataError):
    """Disk space or memory ran out (exit code 6)."""

    exit_code = 6


class PartialBuildWarning(UserWarning):
    """The build covers only part of the published dataset."""


MAX_SHOWN = 16  #: names that an error lists
FEW = MAX_SHOWN  #: names that are also listed after the nearest one


def given_twice_error(option: str, value: object, setting: str) -> UsageError:
    """Return the error for a key that ``option`` and ``--set setting`` give different values."""
    key = setting.partition("=")[0].strip()
    return UsageError(
        f"{option} {value} and --set {setting} give two values of {key}.",
        next=f"leave out {option} or --set {key}",
    )


def unknown_name_error(
    noun: str,
    name: str,
    known: Sequence[str],
    *,
    command: str = "kmip-data list --all",
    own: Sequence[str] | None = None,
    where: str = "",
) -> UsageError:
    """Return the error for an unknown name, with the three nearest known ones, or else a list.

    ``noun`` says what has the name, such as "dataset"; ``command`` lists all known names. ``own``
    are the names that are listed where only some of the known ones are the user's. ``where`` ends
    the sentence, such as "among the runs".
    """
    # The nearest name first, so that a typing error is seen at once.
    close = nearest_names(name, known)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    listed = known if own is None else own
    shown: str | None = ", ".join(listed[:MAX_SHOWN]) + (", …" if len(listed) > MAX_SHOWN else "")
    if close and len(known) > FEW:
        shown = None
    error = UsageError(
        f"There is no {noun} called {name!r}{where and f' {where}'}.{hint}",
        expected=shown,
        next=command,
    )
    if close and _is_surely_meant(name, close[0], known):
        error.meant = (name, close[0])
    return error


def _is_surely_meant(name: str, nearest: str, known: Sequence[str]) -> bool:
    """True if no other known name could be meant: a typing error, or the beginning of only one."""
    # Of a path, as many last parts as were typed; several runs may share them.
    parts = name.count("/") + 1
    endings = ["/".join(word.split("/")[-parts:]) for word in known]
    ending = "/".join(nearest.split("/")[-parts:])
    if endings.count(ending) > 1:
        return False
    longer = [word for word in endings if word.startswith(name)]
    return is_likely_typo(name, ending) or (len(name) > 2 and longer == [ending])
