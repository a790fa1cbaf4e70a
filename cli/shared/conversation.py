"""Questions that a build leaves open, asked on a terminal."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping

import click

from kmip_data.text import one_line

_SETTING = re.compile(r"\w+=.*", re.DOTALL)  #: such as ``task=regression``


def can_ask() -> bool:
    """True if someone reads the questions, and can type answers."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def ask(questions: Mapping[str, str]) -> list[str]:
    """Ask all questions, and return the words of the options that answer them.

    Parameters
    ----------
    questions
        Question, which lists its answers -> options of the likeliest answer, the default.

    Raises
    ------
    click.Abort
        If the user presses Ctrl-C or Ctrl-D.
    """
    words = []
    for number, (question, likeliest) in enumerate(questions.items(), 1):
        click.echo(f"\nQuestion {number} of {len(questions)}: {one_line(question)}", err=True)
        words += click.prompt("Answer", default=likeliest, value_proc=options_of_answer, err=True)
    return words


def options_of_answer(answer: str) -> list[str]:
    """Return the words of options such as ``--set task=regression``; ``--set`` may be left out.

    >>> options_of_answer("--set missing=-1")
    ['--set', 'missing=-1']
    >>> options_of_answer("task=regression")
    ['--set', 'task=regression']
    """
    try:
        words = shlex.split(answer)
    except ValueError as error:
        raise click.UsageError(f"{answer} has an open quote.") from error
    options: list[str] = []
    for word in words:
        if _SETTING.fullmatch(word) and options[-1:] != ["--set"]:
            options.append("--set")
        options.append(word)
    is_complete = options[-1:] != ["--set"] and options[:1] > ["--"]
    if not is_complete or any(not word.startswith("--") for word in options[::2]):
        raise click.UsageError(f"{answer!r} is not an option, such as --set missing=none.")
    return options
