"""Files for a GPU machine without network: missing packages and builds."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CARRIED = ROOT / "build" / "gpu-carry"  #: folder to copy to the machine
UNPACKED = ROOT / "build" / "gpu-home"  #: home folder on the machine
#: Packages that an image with PyTorch, PyG, Triton and Numba usually lacks.
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
PYTHON, PLATFORMS = (
    "3.12",
    ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64"),
)  #: versions in that image
HOME = "home.tar.gz"  #: archive of builds


def pack(into: Path, arguments: Sequence[str]) -> None:
    """Write the packages into ``into/site``, and the build of peptides-func into ``home.tar.gz``.

    The archive is a tenth of the shards' size and an eighth of RDKit's wheel.
    """
    shutil.rmtree(into / "site", ignore_errors=True)
    command = ["pip", "install", "--quiet", "--no-deps", "--no-compile", "--target"]
    command += [str(into / "site"), "--only-binary=:all:", "--python-version", PYTHON]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    command += ["-c", str(ROOT / "constraints.txt"), *PACKAGES]
    subprocess.run([sys.executable, "-m", *command], check=True)

    home = into.with_name(f"{into.name}-home")  # kept, so that packing again builds nothing
    command = ["kmip_data", "build", "peptides-func", "--home", str(home), *arguments]
    subprocess.run([sys.executable, "-m", *command], check=True)
    archive(into / HOME, home, [home / "built"])


def archive(path: Path, home: Path, entries: Iterable[Path]) -> None:
    """Write files and folders of a home into an archive, atomically."""
    part = path.with_suffix(".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(part, "w:gz", compresslevel=6) as tar:
        for entry in entries:
            tar.add(entry, entry.relative_to(home))
    part.replace(path)


def unpack(home: Path, carried: Path = CARRIED) -> None:
    """Unpack the copied archives into a new home; leave an existing home unchanged."""
    archives = sorted(carried.glob("*.tar.gz"))
    if home.exists() or not archives:
        return
    home.mkdir(parents=True)
    for path in archives:
        with tarfile.open(path) as tar:
            tar.extractall(home, filter="data")


def unpacked_build(dataset: str) -> Path | None:
    """Return the copied build of a dataset, unpacked, or None."""
    unpack(UNPACKED)
    return next(UNPACKED.glob(f"built/{dataset}-*"), None)
