"""Optional dependencies (extras): their modules, packages, and the error if one is missing."""

from __future__ import annotations

import importlib

from kmip_data.errors import Command, MissingExtra

#: extra -> modules that it must make importable
MODULES = {
    "chem": ("rdkit.Chem",),
    "images": ("skimage", "PIL"),
    "distributed": ("dask", "distributed"),
    "demo": ("pyrosm",),
    "lightning": ("lightning.pytorch",),
    "lidar": ("laspy", "lazrs"),
}
#: extra for an NVIDIA GPU -> cost of training without it
GPU_EXTRAS = {
    "cuda": "a k-MIP search multiplies every pair (dense): some 100 times as long for 10⁶ keys, by count",
    "gpu": "attention, GatedGCN and norms are PyTorch's operators instead of fused kernels",
}
#: extra -> arguments of ``pip install``
PACKAGES = {
    "demo": "pyrosm",
    "chem": "rdkit",
    "images": "scikit-image pillow",
    "distributed": "dask distributed",
    "cuda": "cuda-core cuda-bindings",
    "lightning": "lightning",
    "hub": "huggingface_hub",
    "gpu": "triton",
    "lidar": "laspy[lazrs]",
}


def install_command(extra: str) -> Command:
    """Return the ``pip`` command that installs the packages of an extra."""
    return Command("pip install", *PACKAGES[extra].split())


def require_extra(extra: str | None, feature: str) -> None:
    """Raise ``MissingExtra`` if a package of the extra needed by ``feature`` is not installed."""
    for module in MODULES[extra] if extra is not None else ():
        try:
            importlib.import_module(module)
        except ImportError as error:
            package = f"{module.partition('.')[0]} of the extra {extra}"
            raise MissingExtra(
                f"{feature} needs the package {package}, which is not installed here.",
                found=str(error),
                steps=install_command(str(extra)),
            ) from error
