"""Installed extras of the package, and how to install them."""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path
from typing import Final

#: Extra of the package -> what must be importable with it.
MODULES: Final = {
    "chem": ("rdkit.Chem",),
    "images": ("skimage", "PIL"),
    "distributed": ("dask", "distributed"),
    "slurm": ("submitit",),
    "parquet": ("pyarrow.parquet",),
    "demo": ("pyrosm",),
    "lightning": ("lightning.pytorch",),
}


def install_command(extra: str) -> str:
    """Return the pip command that adds an extra to this installation, from wherever that came.

    Whoever installed a clone gets the path of the clone: no index need have a package of this name.
    """
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution("kmip-data").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # a checkout on the path
        origin = {"url": Path(__file__).resolve().parents[2].as_uri()}
    url, vcs = origin.get("url", ""), origin.get("vcs_info", {}).get("vcs")
    folder = url2pathname(urlsplit(url).path) if url.startswith("file://") else ""
    if folder and Path(folder, "setup.py").is_file():
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{folder}[{extra}]')}"
    if folder and "dir_info" in origin:
        return f"pip install '.[{extra}]' in a clone"
    address = f" @ {vcs}+{url}" if vcs else f" @ {url}" if url else ""
    return f"pip install {shlex.quote(f'kmip-data[{extra}]{address}')}"


def require_extra(extra: str | None, what: str) -> None:
    """Raise MissingExtra, with a command, unless the packages of the extra that ``what`` needs are there."""
    for module in MODULES[extra] if extra is not None else ():
        try:
            importlib.import_module(module)
        except ImportError as error:
            from kmip_data.errors import MissingExtra

            package = f"{module.partition('.')[0]} of the extra {extra}"
            missing = f"{what} needs the package {package}, which is not installed here."
            raise MissingExtra(missing, found=str(error), next=install_command(str(extra))) from error
