"""Start-up: how long ``import kmip_data`` and ``kmip-data --help`` take, as fresh processes."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.table import Row, compare


def rows(*, quick: bool = False) -> list[Row]:
    """Return the import over the bare interpreter, and the help as a user waits for it."""
    repeats = 5 if quick else 21
    bare, imported = [sys.executable, "-c", "pass"], [sys.executable, "-c", "import kmip_data"]
    helped = [sys.executable, "-m", "kmip_data", "--help"]
    with_import, without, _, _ = compare(lambda: _run(imported), lambda: _run(bare), repeats=repeats)
    help_seconds, _, _, _ = compare(lambda: _run(helped), lambda: _run(bare), repeats=repeats)
    cost = max(0.0, with_import - without)
    return [
        Row(
            what="import kmip_data (beyond the bare interpreter)",
            against="",
            ours=cost,
            theirs=None,
            unit="s",
            ratio=None,
            target="< 0.1 s",
            met=cost < 0.1,
        ),
        Row(
            what="kmip-data --help (whole process)",
            against="",
            ours=help_seconds,
            theirs=None,
            unit="s",
            ratio=None,
            target="< 0.3 s",
            met=help_seconds < 0.3,
        ),
    ]


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
