"""Packages that only some pipelines and commands need, checked before anything else is done."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from kmip_data.errors import UsageError
from kmip_data.runtime.presence import install_command

#: Extra of the package -> what must be importable with it.
MODULES: Final = {
    "chem": ("rdkit.Chem",),
    "images": ("skimage", "PIL"),
    "distributed": ("dask", "distributed"),
    "slurm": ("submitit",),
}


def require_extra(extra: str | None, what: str) -> None:
    """Refuse ``what`` unless the packages of its extra are installed; without an extra there are none.

    Raises ``UsageError`` with the command that installs them.
    """
    for module in MODULES[extra] if extra is not None else ():
        try:
            import_module(module)
        except ImportError as error:
            raise UsageError(
                f"{what} needs the package {module.partition('.')[0]}, which is not installed here.",
                expected=f"the extra {extra!r}",
                found=str(error),
                next=install_command(str(extra)),
            ) from error
