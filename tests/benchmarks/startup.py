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
    limits = (
        ("import kmip_data (beyond the bare interpreter)", cost, 0.1),
        ("kmip-data --help (whole process)", help_seconds, 0.3),
    )
    return [
        Row(what=what, against="", ours=seconds, unit="s", target=f"< {most} s", met=seconds < most)
        for what, seconds, most in limits
    ]


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
