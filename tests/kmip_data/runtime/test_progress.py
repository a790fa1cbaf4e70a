"""Progress: a bar on a terminal, a line now and then elsewhere, nothing when quiet."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from kmip_data.runtime import progress
from kmip_data.runtime.progress import Progress, print_status


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "green"), [("", True), ("1", False)])
def test_a_terminal_gets_a_bar(monkeypatch, no_color, green):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("NO_COLOR", no_color)
    with Progress("build\x1b toy", 2_000_000, unit="B", initial=1_000_000) as bar:
        bar.update(500_000)
        bar.print_line("half\x1b")
    text = sys.stderr.getvalue()
    assert ("\x1b[32m" in text) is green
    assert "build\ufffd toy: " in text
    assert "half\ufffd\n" in text
    assert "1.50M/2.00M" in text


def test_a_bar_ends_with_its_latest_note_in_80_columns(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "81")  # without the last, as tqdm counts
    monkeypatch.setenv("LINES", "24")
    with Progress("training", 12_000, unit="batches") as bar:
        bar.note = "val 88.80 %, epoch 149"
        bar.update(12_000)
        bar.note = "val 89.90 %, epoch 150"
    *_, last = sys.stderr.getvalue().split("\r")
    assert "12000/12000 batches [" in last
    assert last.endswith("val 89.90 %, epoch 150]\n")


def test_without_a_terminal_progress_is_a_line_per_interval(monkeypatch, capsys):
    with Progress("build toy", None, unit="graphs") as lines:
        lines.update(1)
        monkeypatch.setattr(progress, "INTERVAL_SECONDS", 0)
        lines.update(2)
    with Progress("encode", 8, initial=4, quiet=True) as quiet:
        quiet.update(1)
        quiet.print_line("nothing")
    print_status("nothing", quiet=True)
    with Progress("encode", 8, initial=4) as lines:
        lines.note = "starting"
        lines.update(1)
        lines.print_line("done")
    expected = "build toy: 3 graphs\nencode: 5 of 8 it, starting\ndone\n"
    assert capsys.readouterr().err == expected


def test_a_message_takes_the_place_of_a_line_of_progress(monkeypatch, capsys):
    """A line every ten seconds shows that work goes on: none stands between rows of a table."""
    clock = SimpleNamespace(monotonic=lambda: seconds)
    monkeypatch.setattr(progress, "time", clock)
    seconds = 0.0
    with Progress("training", 4, unit="batches") as lines:
        seconds = 9.0
        lines.print_line("epoch 1")
        seconds = 11.0
        lines.update(1)
        seconds = 20.0
        lines.update(1)
    assert capsys.readouterr().err == "epoch 1\ntraining: 2 of 4 batches\n"
