"""``make gpu``: measure on a GPU machine without network.

``python -m tools.gpu pack`` gathers the files to copy there; ``check`` and ``row`` run there. Each ends
within ``--minutes``, and writes its results into ``--out``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import click

from tools.gpu import packing

ROOT = packing.ROOT
OUT = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder of the results.",
)
#: Arguments for ``kmip-data``, after ``--``.
REST = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)


@click.group()
def main() -> None:
    """Check and time the GPU kernels."""
    paths = [str(ROOT), str(ROOT / "tests")]
    if importlib.util.find_spec("pydantic") is None:
        paths.append(str(packing.CARRIED / "site"))
    sys.path[:0] = paths
    # Child processes use the same paths, and later commands the compiled kernels.
    cache = ROOT / "build" / "gpu-cache"
    os.environ |= {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "XDG_CACHE_HOME": str(cache),
    }


@main.command()
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=packing.CARRIED,
    show_default=True,
    help="Folder to copy to the GPU machine.",
)
@REST
def pack(into: Path, arguments: tuple[str, ...]) -> None:
    """Gather the packages that the machine lacks, and the build of peptides-func.

    ARGUMENTS, after ``--``, are passed to `kmip-data build peptides-func`.
    """
    packing.pack(into, arguments)


@main.command()
@OUT
@click.option(
    "--minutes", type=float, default=3.0, show_default=True, help="Time of all sections together."
)
@click.option("--only", type=int, multiple=True, help="Run this section.")
@click.option("--dry", is_flag=True, help="Run on a CPU, by emulation and in tiny sizes.")
def check(out: Path, minutes: float, only: tuple[int, ...], dry: bool) -> None:
    """Compare every kernel with PyTorch, then time training steps and searches."""
    if dry:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported
    import torch

    from tools.gpu import sections

    if not dry and not torch.cuda.is_available():
        raise click.UsageError("PyTorch sees no GPU; --dry tries it on a CPU.")
    click.echo(sections.run(out, 60 * minutes, only, dry=dry))


@main.command()
@OUT
@click.option("--minutes", type=float, default=9.0, show_default=True, help="Time limit.")
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    default=packing.UNPACKED,
    show_default=True,
    help="Home folder; a new one gets the carried archives.",
)
@REST
def row(out: Path, minutes: float, home: Path, arguments: tuple[str, ...]) -> None:
    """Train peptides-func/gps-kmip, seed 0, or continue the run of the home or the archive.

    ARGUMENTS, after ``--``, are passed to `kmip-data train`.
    """
    from tools.gpu import training

    raise SystemExit(training.run(out, 60 * minutes, home, arguments))


if __name__ == "__main__":
    main(prog_name="python -m tools.gpu")
