"""Rows against alternative libraries, each in a separate environment.

The first run creates the environments in ``build/peers``, on top of this checkout's environment,
and needs the network. Their versions may contradict ``constraints.txt``. The measurements are
programs in ``against/``.
"""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks import training
from benchmarks.table import Row

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "peers"

#: Requirements by environment. faiss-cpu is in the extra ``dev``; do not install faiss-cpu-avx512,
#: which downloads binaries.
ENVIRONMENTS = {
    "search": ("faiss-cpu==1.15.1", "scann==1.4.2"),
    "formats": (
        "litdata==0.2.76",
        "webdataset==1.0.2",
        "spdl==0.8.0",
        "grain==0.2.18",
        "pylance==14.0.2",
    ),
    # QuackOSM needs DuckDB 1, and would otherwise download DuckDB's extension.
    "streets": (
        "pyrosm==0.25.0",
        "quackosm==0.19.0",
        "duckdb==1.5.5",
        "duckdb-extensions==1.5.5",
        "duckdb-extension-spatial==1.5.5",
    ),
    "sampling": (),  # starts GraphBolt in a separate environment
    "start": (),
}


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Run all programs sequentially, then measure training steps in this environment."""
    for name, requirements in ENVIRONMENTS.items():
        python = environment(name, requirements)
        yield from run_program(name, python, quick=quick)
    yield from training.rows(quick=quick)


def environment(name: str, requirements: tuple[str, ...]) -> Path:
    """Return the Python of an environment with these requirements on top of this one's packages.

    An environment that requires torch does not use this one's packages.
    """
    if not requirements:
        return Path(sys.executable)
    folder = FOLDER / name
    python = folder / "bin" / "python"
    installed = folder / "requirements.txt"
    requirement_lines = "\n".join(requirements)
    if installed.is_file() and installed.read_text("utf-8") == requirement_lines:
        return python

    venv.create(folder, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "-q", "--no-warn-conflicts"]
    if any(requirement.startswith("torch==") for requirement in requirements):
        subprocess.run([*command, *requirements], check=True)
        installed.write_text(requirement_lines, "utf-8")
        return python

    packages = next(folder.glob("lib/*/site-packages"))
    # Folders in a .pth file are searched after the environment's packages.
    packages.joinpath("below.pth").write_text("\n".join(site.getsitepackages()), "utf-8")
    import torch

    pinned = folder / "torch.txt"
    pinned.write_text(f"torch=={torch.__version__}\n", "utf-8")
    subprocess.run([*command, "-c", str(pinned), *requirements], check=True)
    installed.write_text(requirement_lines, "utf-8")
    return python


def run_program(name: str, python: Path, *, quick: bool) -> Iterator[Row]:
    """Run one program in its environment and yield the rows that it prints."""
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "src")]
    command = [str(python), "-m", f"benchmarks.against.{name}", *["--quick"] * quick]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield Row(**json.loads(line))
    if process.returncode:
        raise SystemExit(f"benchmarks.against.{name} ended with exit code {process.returncode}")


def print_rows(measurements: Iterator[Row]) -> None:
    """Print rows for :func:`run_program` as they are measured."""
    for row in measurements:
        print(json.dumps(asdict(row)), flush=True)
