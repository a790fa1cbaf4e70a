"""Extras of the package: what each installs, and the error where one is missing."""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path

from kmip_data.errors import MissingExtra

#: Extra of the package -> what must be importable with it.
MODULES = {
    "chem": ("rdkit.Chem",),
    "images": ("skimage", "PIL"),
    "distributed": ("dask", "distributed"),
    "slurm": ("submitit",),
    "parquet": ("pyarrow.parquet",),
    "demo": ("pyrosm",),
    "lightning": ("lightning.pytorch",),
    "lidar": ("laspy", "lazrs"),
}
#: Extra for an NVIDIA GPU -> the cost of training without it.
GPU_EXTRAS = {
    "cuda": "a k-MIP search multiplies every pair (dense): some 100 times as long for 10⁶ keys, by count",
    "gpu": "attention, GatedGCN and norms are PyTorch's operators instead of fused kernels",
}


def install_command(extra: str) -> str:
    """Return the pip command that adds an extra to this installation.

    Of an installed package pip installs what the extra lacks and nothing else: no index needs to
    have it. A checkout on the path is installed by its folder.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        distribution("kmip-data")
    except PackageNotFoundError:
        folder = Path(__file__).resolve().parents[2]
        return f"pip install -e {shlex.quote(f'{folder}[{extra}]')}"
    return f"pip install 'kmip-data[{extra}]'"


def require_extra(extra: str | None, feature: str) -> None:
    """Raise MissingExtra, with a command, unless the packages of the extra that ``feature`` needs are there."""
    for module in MODULES[extra] if extra is not None else ():
        try:
            importlib.import_module(module)
        except ImportError as error:
            package = f"{module.partition('.')[0]} of the extra {extra}"
            raise MissingExtra(
                f"{feature} needs the package {package}, which is not installed here.",
                found=str(error),
                next=install_command(str(extra)),
            ) from error
