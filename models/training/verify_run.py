"""Verification of a finished run, and repair of links and of its marker."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kmip_data.files.atomic_writes import (
    displace_obstacles,
    folder_lock,
    make_folder,
    write_file,
    write_marker,
)
from kmip_data.files.folder_marker import MARKER_NAME
from kmip_data.files.small_files import obstacle_problem, sha256_file
from kmip_data.models.training.run.result import read_result
from kmip_data.models.training.run.run_folder import CONFIG_NAME, RESULT_NAME, RUN_MARKER

CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class RunProblem:
    """Problem of one file of a run."""

    file: str  #: path relative to the run
    message: str
    is_repairable: bool  #: True for a link to the right content, and for the marker

    def __str__(self) -> str:
        return f"{self.file}: {self.message}"


def verify_run(run: Path) -> list[RunProblem]:
    """Compare the files of a finished run with the digests in its result.

    A link, folder or pipe in the place of a file is a problem, whatever it contains. Raises the
    errors of :func:`~kmip_data.models.training.run.result.read_result`.
    """
    problems = []
    if message := obstacle_problem(run, MARKER_NAME):
        problems.append(RunProblem(MARKER_NAME, message, is_repairable=True))

    digests = {CONFIG_NAME: None, RESULT_NAME: None, **read_result(run).files}
    for name, digest in digests.items():
        path = run / name
        is_intact = path.is_file() and digest in {None, sha256_file(path)[0]}
        message = obstacle_problem(run, name)
        if message or not is_intact:
            problems.append(RunProblem(name, message or "content differs", is_intact))
    return problems


def repair_run(run: Path, files: Iterable[str]) -> None:
    """Replace links to the right content by this content, and write the marker.

    The target of a link stays, and so does a folder or pipe, as ``NAME.moved``.
    """
    # Files behind a linked folder are found only before the link is removed.
    sources = {name: (run / name).resolve() for name in files}
    with folder_lock(run, wait=False):
        displace_obstacles(run, sources)
        for name, source in sources.items():
            if name == MARKER_NAME:
                write_marker(run, RUN_MARKER)
                continue
            make_folder((run / name).parent, root=run)
            with source.open("rb") as file:
                pieces = iter(functools.partial(file.read, CHUNK_BYTES), b"")
                write_file(run / name, pieces, root=run)
