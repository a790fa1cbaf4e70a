"""Building S3DIS-size blocks: one worker against two, and the most memory a worker ever held."""

from __future__ import annotations

import os
import resource
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.table import Row, apart, compare

from kmip_data.files.changes import remove_scratch

BLOCKS, QUICK_BLOCKS = 2_000, 400
SPEEDUP = 1.6


def rows(*, quick: bool = False) -> list[Row]:
    """Measure both on generated blocks."""
    blocks = QUICK_BLOCKS if quick else BLOCKS
    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as folder:
        home = Path(folder)
        most = apart("building", f"warm({str(home)!r}, {blocks})")
        two, one = (partial(_build, home, blocks, jobs=jobs) for jobs in (2, 1))
        times = compare(two, one, repeats=1 if quick else 3, warmup=0)
    what, note = f"build of {blocks:,} S3DIS-size blocks, 2 jobs", f"building: {os.cpu_count()} cores"
    memory = Row.of(f"most memory a worker held, {blocks:,} blocks", "the limit of 1 GiB", most, 1024, "MiB")
    return [
        Row.compared(what, "itself, 1 job", times, target=SPEEDUP, note=note),
        replace(memory, target="< 1 GiB", met=0 < most < 1024),
    ]


def warm(folder: str, blocks: int) -> float:
    """Generate the raw files and compile the kernels; return the most MiB that any worker held."""
    _build(Path(folder), blocks, jobs=2)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # KiB on Linux


def _build(folder: Path, blocks: int, *, jobs: int) -> None:
    """Build into a new folder each time, from raw files that are generated once."""
    from kmip_data.builds.home import Home
    from kmip_data.pipelines.build import build_dataset

    output = folder / "out"
    remove_scratch(output)
    options = {"jobs": jobs, "output": output, "quiet": True}
    build_dataset("s3dis", home=Home(folder), sample=True, parameters={"limit": blocks}, **options)
