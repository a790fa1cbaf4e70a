"""``make gpu``: prove or disprove each claim about a GPU within eight minutes of one.

``python -m tools.gpu --out DIR --minutes 8 [--only N]``; with ``DRY=1`` on a CPU, by emulation or
in tiny sizes. Each section is a process with a limit of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import click  # noqa: E402 -- after the path


class Section(NamedTuple):
    """A function of a module of this folder, and its share of eight minutes, in seconds."""

    name: str
    module: str
    function: str
    seconds: float


SECTIONS = (
    Section("versions, ceilings, all kernels compiled", "machine", "run", 90),
    Section("self-check, fuzzed searches, tests of the search", "exactness", "run", 70),
    Section("compute-sanitizer", "tools", "sanitizer", 50),
    Section("tests of attention and edges", "tools", "kernels", 60),
    Section("tests of captured steps", "tools", "capture", 45),
    Section("searches", "searches", "run", 60),
    Section("training steps", "steps", "run", 60),
    Section("a city of 570,000 nodes", "steps", "city", 45),
    Section("profile of kernels", "tools", "profile", 15),
)


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder of the results.",
)
@click.option(
    "--minutes", type=float, default=8.0, show_default=True, help="Time of all sections together."
)
@click.option(
    "--only", type=click.IntRange(0, len(SECTIONS) - 1), multiple=True, help="Run this section."
)
def main(out: Path, minutes: float, only: tuple[int, ...]) -> None:
    """Run the sections one after the other, and print a table of what they found."""
    dry, until = os.environ.get("DRY") == "1", time.monotonic() + 60 * minutes
    if dry:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported
    from tools.gpu.page import summary
    from tools.gpu.results import FILE, append, read

    if dry:  # imported once, for the processes are forks
        for section in SECTIONS:
            importlib.import_module(f"tools.gpu.{section.module}")
    out.mkdir(parents=True, exist_ok=True)
    cache = ROOT / "build" / "gpu-cache"  # of kernels: a second run on the machine finds them
    os.environ |= {"TRITON_CACHE_DIR": str(cache / "triton"), "XDG_CACHE_HOME": str(cache)}
    os.environ["KMIP_DATA_SELF_CHECK"] = (
        "off"  # section 1 has it; tests that train are of many sizes
    )
    for number, section in enumerate(SECTIONS):
        if only and number not in only:
            continue
        left = until - time.monotonic()
        limit = left if len(only) == 1 else min(left, section.seconds * minutes / 8)
        click.echo(f"{number} {section.name} (at most {limit:.0f} s) …", err=True)
        begun = time.monotonic()
        status = _run(number, out, limit, dry=dry) if limit > 0 else "not run: the time was over"
        seconds = round(time.monotonic() - begun, 1)
        ended = {"section": number, "kind": "section", "what": section.name, "status": status}
        append(out, {**ended, "value": seconds, "unit": "s"})
    text = summary(read(out / FILE))
    (out / "summary.md").write_text(text, "utf-8")
    click.echo(text)


def _run(number: int, out: Path, limit: float, *, dry: bool) -> str:
    """Run a section in a process; return ``ok``, or why it did not end by itself."""
    # A process of CUDA begins anew; a dry one has the libraries of this one.
    process = multiprocessing.get_context("fork" if dry else "spawn").Process(
        target=_section, args=(number, out, dry)
    )
    process.start()
    process.join(limit)
    late = process.is_alive()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid or 0, signal.SIGKILL)  # with what it started and left
    process.kill()
    process.join()
    code = process.exitcode or 0
    if late:
        return f"stopped after {limit:.0f} s"
    return (
        "ok"
        if code == 0
        else f"died: {signal.Signals(-code).name}"
        if code < 0
        else "failed: see log.txt"
    )


def _section(number: int, out: Path, dry: bool) -> None:
    os.setsid()
    from tools.gpu.results import Recorder

    record = Recorder(out, number, dry=dry)
    try:
        getattr(
            importlib.import_module(f"tools.gpu.{SECTIONS[number].module}"),
            SECTIONS[number].function,
        )(record)
    except BaseException:
        record.show(traceback.format_exc())
        raise SystemExit(1) from None


if __name__ == "__main__":
    main(prog_name="python -m tools.gpu")
