"""Files for a GPU machine without network: missing packages, unpacked, and builds."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CARRIED = ROOT / "build" / "gpu-carry"  #: what travels
UNPACKED = ROOT / "build" / "gpu-home"  #: home folder on the machine
#: Packages that a usual image with PyTorch, PyG, Triton and Numba lacks.
PACKAGES = (
    "annotated-types",
    "isal",
    "loky",
    "platformdirs",
    "pydantic",
    "pydantic-core",
    "tomli-w",
    "typing-inspection",
)
PYTHON, PLATFORMS = "3.12", ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64")  #: of that image
HOME = "home.tar.gz"  #: the builds of a home


def pack(into: Path, arguments: Sequence[str]) -> None:
    """Fill ``into`` with ``site``, the packages, and ``home.tar.gz``, the build of peptides-func.

    It is a tenth of the shards, an eighth of RDKit's wheel, and needs no building there.
    """
    shutil.rmtree(into / "site", ignore_errors=True)
    command = ["pip", "install", "--quiet", "--no-deps", "--no-compile", "--target"]
    command += [str(into / "site"), "--only-binary=:all:", "--python-version", PYTHON]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    command += ["-c", str(ROOT / "constraints.txt"), *PACKAGES]
    subprocess.run([sys.executable, "-m", *command], check=True)

    home = into.with_name(f"{into.name}-home")  # stays: packing again builds nothing
    command = ["kmip_data", "build", "peptides-func", "--home", str(home), *arguments]
    subprocess.run([sys.executable, "-m", *command], check=True)
    archive(into / HOME, home, [home / "built"])


def archive(path: Path, home: Path, entries: Iterable[Path]) -> None:
    """Write files and folders of a home into an archive, which is complete or absent."""
    part = path.with_suffix(".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(part, "w:gz", compresslevel=6) as tar:
        for entry in entries:
            tar.add(entry, entry.relative_to(home))
    part.replace(path)


def unpack(home: Path, carried: Path = CARRIED) -> None:
    """Unpack the carried archives into a new home; one that exists has gone on and stays."""
    archives = sorted(carried.glob("*.tar.gz"))
    if home.exists() or not archives:
        return
    home.mkdir(parents=True)
    for path in archives:
        with tarfile.open(path) as tar:
            tar.extractall(home, filter="data")


def unpacked_build(dataset: str) -> Path | None:
    """Return the carried build of a dataset, unpacked; None without one."""
    unpack(UNPACKED)
    return next(UNPACKED.glob(f"built/{dataset}-*"), None)
