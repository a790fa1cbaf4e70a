"""Colour on a terminal, none elsewhere; names from outside bring none of their own."""

from __future__ import annotations

import contextlib
import io
import sys

import click
import pytest

from kmip_data.cli.shared.output import annotated, filtered, table

TEXT = "Error: no such \x1b[31mname\x1e\n  next: kmip-data list"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream: io.StringIO) -> str:
    with contextlib.redirect_stdout(stream), filtered():
        click.echo(annotated(table(["part", "graphs"], [["train", 3]]), [["shuffled"]]))
        click.echo(TEXT)
        sys.stdout.write("\x1b[0m")
    return stream.getvalue()


def test_colour_on_a_terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    text = shown(Terminal())
    assert "\x1b[1mpart   graphs\x1b[0m\ntrain       3\n    shuffled\n" in text
    assert "\x1b[31m\x1b[1mError:\x1b[0m no such \ufffd[31mname\ufffd\n" in text
    assert text.endswith("\x1b[32m  next:\x1b[0m kmip-data list\n")


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_none_elsewhere_nor_where_it_is_not_wanted(monkeypatch, stream):
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown(stream())
    assert "\x1b" not in text
    assert "\x1e" not in text
    assert text.startswith("part   graphs\n")
