"""Verification of a finished run, and repair of links, its marker and its configuration."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kmip_data.files.atomic_writes import (
    displace_obstacles,
    folder_lock,
    make_folder,
    set_aside,
    write_file,
    write_marker,
)
from kmip_data.files.folder_marker import MARKER_NAME
from kmip_data.files.small_files import obstacle_problem, sha256_file
from kmip_data.models.training.run.result import read_result, stored_configuration
from kmip_data.models.training.run.run_folder import CONFIG_NAME, RESULT_NAME, RUN_MARKER

CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class RunProblem:
    """Problem of one file of a run."""

    file: str  #: path relative to the run
    message: str
    #: True for a link to the right content, for the marker, and for a configuration that the result has
    is_repairable: bool

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

    result = read_result(run)
    digests = {CONFIG_NAME: None, RESULT_NAME: None, **result.files}
    for name, digest in digests.items():
        path = run / name
        is_intact = path.is_file() and digest in {None, sha256_file(path)[0]}
        message = obstacle_problem(run, name)
        if message or not is_intact:
            is_stored = name == CONFIG_NAME and stored_configuration(result) is not None
            message = message or ("content differs" if path.exists() else "is missing")
            problems.append(RunProblem(name, message, is_intact or is_stored))
    return problems


def repair_run(run: Path, files: Iterable[str]) -> None:
    """Replace links to the right content by this content; write the marker and the configuration.

    The target of a link stays. A folder or pipe, and a configuration that was edited, are kept as
    ``NAME.moved``.
    """
    # Files behind a linked folder are found only before the link is removed.
    sources = {name: (run / name).resolve() for name in files}
    configuration = stored_configuration(read_result(run))
    with folder_lock(run, wait=False):
        displace_obstacles(run, sources)
        for name, source in sources.items():
            if name == MARKER_NAME:
                write_marker(run, RUN_MARKER)
                continue
            if name == CONFIG_NAME and configuration is not None:
                if os.path.lexists(run / name):
                    set_aside(run / name)
                write_file(run / name, configuration, root=run)
                continue
            make_folder((run / name).parent, root=run)
            with source.open("rb") as file:
                pieces = iter(functools.partial(file.read, CHUNK_BYTES), b"")
                write_file(run / name, pieces, root=run)
