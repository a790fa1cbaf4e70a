"""Advice of refusals, followed to the letter: it must end otherwise, and lose no row."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from support.cli import Outcome, kmip

_OPTION = re.compile(r"--[a-z]+ (?:[a-z_]+=)?(?:'[^']*'|[^\s;,']+(?:,[^\s;,']+)*)")
#: Advice that no command can follow.
BY_HAND = (
    "repair or replace the file",
    "remove outliers",
    "remove one of them",
    "leave out",
    "need two or three columns",
    "save masks with",
    "convert another format to one of these",
)


def parse_remedies(message: str) -> list[list[str]]:
    """Return the options of each alternative of an error's last line; of a whole command its words."""
    _, _, advice = message.rpartition("next: ")
    alternatives = re.split(r"; or |, or | or (?=--)|[;,] ", advice.splitlines()[0])
    found = []
    for alternative in alternatives:
        command = re.search(r"(?:^|: )kmip-data (build .*)", alternative)
        words = command[1] if command else " ".join(_OPTION.findall(alternative))
        if words:
            found.append(shlex.split(words))
    return found


def replace_options(line: Sequence[object], options: Sequence[str]) -> list[object]:
    """Return a command with options, in place of options of the same key."""
    pairs = list(zip(options[::2], options[1::2], strict=True))
    keys = {f"{option}{value.partition('=')[0] if '=' in value else ''}" for option, value in pairs}
    kept = []
    skip = False
    for word, following in zip(line, [*line[1:], ""], strict=True):
        if skip:
            skip = False
            continue
        name = str(following).partition("=")[0] if "=" in str(following) else ""
        skip = f"{word}{name}" in keys
        if not skip:
            kept.append(word)
    return [*kept, *options]


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
        assert "next: " in first.err, first.err
        self.refusals += 1
        options = parse_remedies(first.err)
        if not options:
            assert any(words in first.err for words in BY_HAND), first.err
            self.by_hand += 1
        for number, remedy in enumerate(options):
            self.tried += 1
            words = remedy if remedy[0] == "build" else replace_options(line, remedy)
            outcome = kmip(*words, "--output", f"{line[-1]}-{self.tried}", "--json")
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
