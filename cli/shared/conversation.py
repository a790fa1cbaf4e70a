"""Questions that a build leaves open, asked on a terminal."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping

import click

from kmip_data.errors import Setting, joined_setting
from kmip_data.text import one_line, values_of

_SETTING = re.compile(r"\w+=.*", re.DOTALL)  #: such as ``task=regression``


def can_ask() -> bool:
    """True if someone reads the questions, and can type answers."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def ask(questions: Mapping[str, Setting]) -> list[Setting]:
    """Ask all questions, and return their answers.

    Parameters
    ----------
    questions
        Question, which lists its answers -> the likeliest answer, the default.

    Raises
    ------
    click.Abort
        If the user presses Ctrl-C or Ctrl-D.
    """
    answers = []
    for number, (question, likeliest) in enumerate(questions.items(), 1):
        click.echo(f"\nQuestion {number} of {len(questions)}: {one_line(question)}", err=True)
        default = shlex.join(
            f"{key}={value}"
            for key, values in likeliest.values.items()
            for value in values_of(values)
        )
        answers.append(click.prompt("Answer", default=default, value_proc=read_answer, err=True))
    return answers


def read_answer(answer: str) -> Setting:
    """Read an answer such as ``task=regression``; ``--set`` may stand before each.

    >>> print(read_answer("--set missing=-1 decimal=,"))
    missing='-1', decimal=','
    """
    try:
        words = [word for word in shlex.split(answer) if word != "--set"]
    except ValueError as error:
        raise click.UsageError(f"{answer} has an open quote.") from error
    if not words or not all(map(_SETTING.fullmatch, words)):
        raise click.UsageError(f"{answer!r} is no KEY=VALUE, such as missing=none.")
    pairs = (word.split("=", 1) for word in words)
    return joined_setting(Setting({key: value}) for key, value in pairs)
