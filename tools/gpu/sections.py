"""Sections of ``check``, each a process with a time limit."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tools.gpu.page import summary
from tools.gpu.results import FILE, Recorder, append, read


class Section(NamedTuple):
    """A module of this folder with a function ``run``, and its seconds of the three minutes."""

    name: str
    module: str
    seconds: float


SECTIONS = (
    Section("kernels against plain PyTorch", "exactness", 90),
    Section("training steps", "steps", 60),
    Section("ceilings, searches and attention", "searches", 30),
)


def run(out: Path, seconds: float, only: Sequence[int], *, dry: bool) -> str:
    """Run the sections in order; return a summary table."""
    if dry:  # import once, as the processes are forks
        for section in SECTIONS:
            importlib.import_module(f"tools.gpu.{section.module}")
    out.mkdir(parents=True, exist_ok=True)
    os.environ["KMIP_DATA_SELF_CHECK"] = "off"  # the first section runs it
    chosen = [number for number in range(len(SECTIONS)) if not only or number in only]
    until = time.monotonic() + seconds
    for number in chosen:
        # Time that earlier sections saved goes to the next one.
        later = sum(SECTIONS[other].seconds for other in chosen if other > number) * seconds / 180
        limit = until - time.monotonic() - later
        begun = time.monotonic()
        status = process(number, out, limit, dry=dry) if limit > 0 else "not run: the time was over"
        took = round(time.monotonic() - begun, 1)
        ended = {"section": number, "kind": "section", "what": SECTIONS[number].name}
        append(out, {**ended, "status": status, "value": took, "unit": "s"})
    text = summary(read(out / FILE))
    (out / "summary.md").write_text(text, "utf-8")
    return text


def process(number: int, out: Path, limit: float, *, dry: bool) -> str:
    """Run a section in a process; return ``ok``, or why it failed."""
    # CUDA needs a new process; a dry run forks, to save the imports.
    child = multiprocessing.get_context("fork" if dry else "spawn").Process(
        target=_section, args=(number, out, dry)
    )
    child.start()
    child.join(limit)
    late = child.is_alive()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid or 0, signal.SIGKILL)  # and its remaining child processes
    child.kill()
    child.join()
    code = child.exitcode or 0
    if late:
        return f"stopped after {limit:.0f} s"
    if code < 0:
        return f"died: {signal.Signals(-code).name}"
    return "failed: see log.txt" if code else "ok"


def _section(number: int, out: Path, dry: bool) -> None:
    os.setsid()
    record = Recorder(out, number, dry=dry)
    try:
        importlib.import_module(f"tools.gpu.{SECTIONS[number].module}").run(record)
    except BaseException:
        record.show(traceback.format_exc())
        raise SystemExit(1) from None
