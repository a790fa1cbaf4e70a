"""Building S3DIS-size blocks: one worker against two, and the most memory a worker ever held."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.table import Row, compare

from kmip_data.files.changes import remove_scratch

BLOCKS, QUICK_BLOCKS = 2_000, 400
SPEEDUP = 1.6
MEMORY_MIB = 1024.0


def rows(*, quick: bool = False) -> list[Row]:
    """Measure both on generated blocks."""
    blocks = QUICK_BLOCKS if quick else BLOCKS
    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as folder:
        home = Path(folder)
        _build(home, blocks, jobs=2)  # generates the raw files, compiles the kernels
        with _peak_of_workers() as peak:
            times = compare(
                lambda: _build(home, blocks, jobs=2),
                lambda: _build(home, blocks, jobs=1),
                repeats=1 if quick else 3,
                warmup=0,
            )
        what, note = f"build of {blocks:,} S3DIS-size blocks, 2 jobs", f"building: {os.cpu_count()} cores"
        return [
            Row.compared(what, "itself, 1 job", times, target=SPEEDUP, note=note),
            _memory_row(blocks, peak),
        ]


def _build(folder: Path, blocks: int, *, jobs: int) -> None:
    """Build into a new folder each time, from raw files that are generated once."""
    from kmip_data.builds.home import Home
    from kmip_data.pipelines.build import build_dataset

    output = folder / "out"
    remove_scratch(output)
    build_dataset(
        "s3dis",
        home=Home(folder),
        sample=True,
        parameters={"limit": blocks},
        jobs=jobs,
        output=output,
        quiet=True,
    )


def _memory_row(blocks: int, peak: dict[int, float]) -> Row:
    most = max(peak.values(), default=0.0)
    return Row(
        what=f"most memory a worker held, {blocks:,} blocks",
        against="the limit of 1 GiB",
        ours=most,
        theirs=MEMORY_MIB,
        unit="MiB",
        ratio=MEMORY_MIB / most if most else None,
        target="< 1 GiB",
        met=0 < most < MEMORY_MIB,
        note=f"memory: most resident memory of any of {len(peak)} worker processes",
    )


@contextlib.contextmanager
def _peak_of_workers() -> Iterator[dict[int, float]]:
    """Watch the worker processes of this process: process id to its peak resident MiB, while inside."""
    import psutil

    peak: dict[int, float] = {}
    stop = threading.Event()
    myself = psutil.Process()

    def watch() -> None:
        while not stop.wait(0.05):
            for child in myself.children(recursive=True):
                with contextlib.suppress(psutil.Error, OSError):
                    if "popen_loky" in " ".join(child.cmdline()):
                        peak[child.pid] = max(peak.get(child.pid, 0.0), _resident_mib(child))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def _resident_mib(process: Any) -> float:
    """Most memory the process ever held, where the system says (Linux), else what it holds now."""
    status = Path(f"/proc/{process.pid}/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return float(process.memory_info().rss) / 2**20
