"""Advice of an error, divided into the commands to type and the words about them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from kmip_data.text import QUOTED_NAME

#: Word of a command line in a sentence: quoted, or up to punctuation that a blank follows.
_WORD = rf"(?:{QUOTED_NAME}|[^\s'\",;:`]|[,;:](?=[^\s]))+"
_VALUE = rf"(?!--|(?:and|or|for|with|without)\b){_WORD}(?<!=)"
_PROGRAM = r"(?:kmip-data [a-z-]|pip install |python -[cm] |mv |osmium renumber )"
_END_OF_COMMAND = r"(?:[;,:.](?=\s|$)|[`\n]| \(| which\b| again\b| && | or | then )"
_COMMAND = rf"(?<![\w/.`-])(?={_PROGRAM})(?:{QUOTED_NAME}|(?!{_END_OF_COMMAND}).)+"
_START = r"(?:^|(?<=[:;,] )|(?<=\bor )|(?<=\bthen ))"  #: of a clause
_OPTION = rf"--[a-z-]+ {_VALUE}"
_LEAVE_OUT = rf"--set {_WORD}|--[a-z-]+"
_SAME_COMMAND = rf"(?<!with )the same command(?: again)?(?: with {_OPTION})?"
#: Compiled at the first error, because that takes 5 ms, which no start of a command should pay.
_STEPS = (
    rf"(?P<name>{QUOTED_NAME})"
    rf"|(?P<command>{_COMMAND})"
    rf"|{_START}(?P<leave>leave out (?:{_LEAVE_OUT})(?: and (?:{_LEAVE_OUT}))*)"
    rf"|{_START}(?P<add>{_OPTION}(?: {_OPTION})*)"
    rf"|(?P<repeat>{_SAME_COMMAND})"
)
#: Words that only join commands.
_CONJUNCTIONS = re.compile(r"\b(?:or|and|then|run|again)\b|\W+")
_THIS = "\0"  #: stands for a command in the words about it


@dataclass(frozen=True)
class AdvisedStep:
    """A part of an advice that stands for one command."""

    text: str  #: as it stands in the advice
    start: int  #: its first character there
    kind: str  #: command, add (options), leave (out options), or repeat (the line)
    options: tuple[str, ...] = ()
    is_sequel: bool = False  #: True if it follows the previous step, instead of replacing it

    @property
    def end(self) -> int:
        """Offset of the first character behind it."""
        return self.start + len(self.text)


def divide_advice(advice: str) -> list[AdvisedStep]:
    """Return the steps in an advice that stand for a command, in their order.

    A step is a command, options at the beginning of a clause, "leave out" with options, or "the
    same command". Names in quotes are not divided.

    >>> [step.text for step in divide_advice("--set k=1, if few; or leave out --by")]
    ['--set k=1', 'leave out --by']
    """
    steps: list[AdvisedStep] = []
    end = 0
    for match in re.finditer(_STEPS, advice):
        kind = str(match.lastgroup)
        if kind == "name":
            continue
        # 1. The words since the previous step say whether this one follows it.
        between = re.sub(QUOTED_NAME, "", advice[end : match.start()])
        end = match.end()
        is_sequel = bool(steps) and re.search(r"\bthen\b|&&", between) is not None
        # 2. In "leave out --a or --b", the second option is to be left out, too.
        if between == " or " and steps and steps[-1].kind == "leave":
            kind = "leave"
        # 3. The options of a step that changes the typed line.
        options = re.search("--.*", match[0]) if kind != "command" else None
        words = [word for word in shlex.split(options[0]) if word != "and"] if options else []
        steps.append(
            AdvisedStep(
                match[0].rstrip(),
                match.start(),
                kind,
                tuple(word for word in words if word != "and"),
                is_sequel,
            )
        )
    return steps


def words_of_advice(advice: str, steps: Sequence[AdvisedStep]) -> str | None:
    """Return an advice without the commands of ``steps``; ``None`` if no sentence is left.

    Options stay, because the words around them say when they are right. A command becomes "this
    command", or disappears behind a colon.

    >>> words_of_advice("another: kmip-data x", divide_advice("another: kmip-data x"))
    'another'
    """
    rest = words = ""
    end = 0
    for step in steps:
        between = advice[end : step.start]
        rest += between
        words += between + (_THIS if step.kind == "command" else step.text)
        end = step.end
    rest += advice[end:]
    if not _CONJUNCTIONS.sub("", rest):
        return None

    # A command alone in its clause is named by the words before it, or not at all.
    words = re.sub(rf": {_THIS}(?=$|;)", "", words + advice[end:])
    words = re.sub(rf"(^|; )(?:or )?{_THIS}(?:; (?:or )?|$)", r"\1", words)
    return words.replace(_THIS, "this command").strip("; ")
