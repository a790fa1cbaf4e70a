"""Advice of refusals, followed to the letter: it must end otherwise, and lose no row."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from support.cli import Outcome, kmip

#: Advice that no command can follow.
BY_HAND = (
    "repair or replace the file",
    "repair this line",
    "rename one of them",
    "write a table into it",
    "remove outliers",
    "remove one of them",
    "leave out",
    "need two or three columns",
    "save masks with",
    "convert another format to one of these",
)


def advised_lines(message: str) -> list[list[str]]:
    """Return the words of each command that an error advises, without the program."""
    lines = re.findall(r"(?m)^  (?:next|  or): kmip-data (.*)", message)
    return [*map(shlex.split, lines)]


@dataclass
class Advice:
    """Counts of followed advice."""

    refusals: int = 0
    tried: int = 0
    built: int = 0
    by_hand: int = 0

    def follow(self, line: Sequence[object], rows: int) -> Outcome:
        """Follow each remedy of a refused command, whose files have ``rows``; return the refusal.

        A remedy may meet another error, never the same, and no build has fewer rows.
        """
        first = kmip(*line)
        assert first.code != 0, f"built: {first.out}"
        self.refusals += 1
        lines = advised_lines(first.err)
        if not lines:
            assert any(words in first.err for words in BY_HAND), first.err
            self.by_hand += 1
        for number, remedy in enumerate(lines):
            self.tried += 1
            outcome = kmip(*remedy, "--output", f"{line[-1]}-{self.tried}", "--json")
            assert outcome.err.splitlines()[:1] != first.err.splitlines()[:1], (remedy, first.err)
            if outcome.code:
                continue
            self.built += 1
            if "on_error=skip" not in remedy[-1]:
                left_out = sum(
                    int(count.replace(",", ""))
                    for count in re.findall(r"warning: ([\d,]+) of", outcome.err)
                )
                nodes = outcome.json["counts"]["nodes"] + left_out
                assert nodes >= rows, f"{remedy} ({number}): {nodes} of {rows} rows"
        return first
