"""What can go wrong, one class and one exit code each.

Every error says what happened, what was expected, what was found, what is left on disk and the
command to run next. The parts are keyword arguments; :func:`str` joins those that are given.
"""

from __future__ import annotations

from typing import ClassVar

from kmip_data.wording import without_controls, without_secrets

#: Exit codes beside those of the classes: an error nobody foresaw, Ctrl-C, the reader of stdout went away.
UNKNOWN_ERROR, INTERRUPTED, PIPE_CLOSED = 70, 130, 141


class KmipDataError(Exception):
    """Base of all errors that a user can meet; never raised itself.

    Parameters
    ----------
    what
        What happened, one sentence.
    expected, found
        What should have been there, and what was.
    left
        What is now on disk (or that nothing is); :attr:`untouched` where a ``next`` step is given.
    next
        The command or step that leads on.
    """

    exit_code: ClassVar[int] = 1
    untouched: ClassVar[str | None] = None  #: what ``left`` is for most errors of the class

    def __init__(
        self,
        what: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        left: str | None = None,
        next: str | None = None,  # noqa: A002 -- the word the user reads
    ) -> None:
        # Names, headers and texts of servers stand in them: neither a terminal nor a log may suffer.
        left = left or (self.untouched if next else None)
        parts = {"expected": expected, "found": found, "on disk": left, "next": next}
        self.what = _shown(what)
        self.parts = {name: None if text is None else _shown(text) for name, text in parts.items()}
        super().__init__(self.what)

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  {name}: {text}" for name, text in self.parts.items() if text]
        return "\n".join(lines)


def _shown(text: str) -> str:
    return without_controls(without_secrets(str(text)))


class CheckFailed(KmipDataError):
    """A verification found something broken (exit code 1)."""


class UsageError(KmipDataError, ValueError):
    """An argument, option, name or configuration key is wrong (exit code 2)."""

    exit_code = 2
    untouched = "nothing was changed"


class SourceUnavailable(KmipDataError):
    """No mirror, archive or copy of a source could be had (exit code 3)."""

    exit_code = 3


class DamagedInput(KmipDataError):
    """Input is damaged, hostile or not what it claims to be (exit code 4)."""

    exit_code = 4
    untouched = "the file is as it was"


class LicenseNotAccepted(KmipDataError):
    """A download needs an agreement that was not given (exit code 5)."""

    exit_code = 5


class OutOfResources(KmipDataError):
    """Disk or memory ran out (exit code 6)."""

    exit_code = 6


class PartialBuildWarning(UserWarning):
    """A build was opened that has part of the published set."""
