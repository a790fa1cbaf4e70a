"""Rows against the libraries that users would pick instead, each in an environment that has it.

The first run makes the environments below ``build/peers``, on top of the one of this checkout, and
needs the network for it. Nothing of them is in ``constraints.txt``: versions that contradict ours
stay among themselves. The measurements are programs in ``against/``.
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

#: Requirements by environment. faiss-cpu comes from the extra ``dev``; faiss-cpu-avx512 fetches
#: binaries and is never installed.
ENVIRONMENTS = {
    "search": ("faiss-cpu==1.15.1", "scann==1.4.2"),
    "formats": (
        "litdata==0.2.76",
        "webdataset==1.0.2",
        "spdl==0.8.0",
        "grain==0.2.18",
        "pylance==14.0.2",
    ),
    # QuackOSM calls what DuckDB 2 removed, and would load DuckDB's extension from the network.
    "streets": (
        "pyrosm==0.25.0",
        "quackosm==0.19.0",
        "duckdb==1.5.5",
        "duckdb-extensions==1.5.5",
        "duckdb-extension-spatial==1.5.5",
    ),
    "sampling": (),  # starts GraphBolt in an environment of its own
    "start": (),
}


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Measure all programs, one after the other; training steps need no other environment."""
    for name, requirements in ENVIRONMENTS.items():
        python = environment(name, requirements)
        yield from measured(name, python, quick=quick)
    yield from training.rows(quick=quick)


def environment(name: str, requirements: tuple[str, ...]) -> Path:
    """Return the Python of an environment with these requirements over this one's packages.

    Requirements with a torch of their own stand alone.
    """
    if not requirements:
        return Path(sys.executable)
    folder = FOLDER / name
    python = folder / "bin" / "python"
    ready = folder / "requirements.txt"
    listed = "\n".join(requirements)
    if ready.is_file() and ready.read_text("utf-8") == listed:
        return python

    venv.create(folder, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "-q", "--no-warn-conflicts"]
    if any(requirement.startswith("torch==") for requirement in requirements):
        subprocess.run([*command, *requirements], check=True)
        ready.write_text(listed, "utf-8")
        return python

    packages = next(folder.glob("lib/*/site-packages"))
    # A line of a .pth file is a folder searched after the environment's own packages.
    packages.joinpath("below.pth").write_text("\n".join(site.getsitepackages()), "utf-8")
    import torch

    pinned = folder / "torch.txt"
    pinned.write_text(f"torch=={torch.__version__}\n", "utf-8")
    subprocess.run([*command, "-c", str(pinned), *requirements], check=True)
    ready.write_text(listed, "utf-8")
    return python


def measured(name: str, python: Path, *, quick: bool) -> Iterator[Row]:
    """Run one program in its environment and read the rows that it prints."""
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
    """Print rows for :func:`measured`, each when it is measured."""
    for row in measurements:
        print(json.dumps(asdict(row)), flush=True)
