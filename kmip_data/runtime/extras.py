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
    """Return the pip command that adds an extra to this installation, from wherever that came.

    For an installed clone it has the path of the clone: no index needs to have this package.
    """
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution("kmip-data").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # a checkout on the path
        origin = {"url": Path(__file__).resolve().parents[2].as_uri()}
    url = origin.get("url", "")
    vcs = origin.get("vcs_info", {}).get("vcs")
    folder = url2pathname(urlsplit(url).path) if url.startswith("file://") else ""
    if folder and Path(folder, "setup.py").is_file():
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{folder}[{extra}]')}"
    if folder and "dir_info" in origin:
        return f"pip install '.[{extra}]' in a clone"
    address = f" @ {vcs}+{url}" if vcs else f" @ {url}" if url else ""
    return f"pip install {shlex.quote(f'kmip-data[{extra}]{address}')}"


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
