"""How a build is made, and from which copies: one object from the command line to the worker processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypedDict

from kmip_data.format.writer import Compression
from kmip_data.manifest import unknown_name

EngineName = Literal["processes", "dask"]


class BuildArguments(TypedDict, total=False):
    """The fields of :class:`BuildOptions` as keyword arguments of a function."""

    archives: Sequence[Path]
    offline: bool
    accept_license: bool | None
    jobs: int | None
    output: Path | None
    compression: Compression | None
    engine: EngineName
    scheduler: str | None
    quiet: bool


@dataclass(frozen=True)
class BuildOptions:
    """How to build; what is built they do not say, but for ``compression``.

    Attributes
    ----------
    archives
        Local copies to take instead of a download.
    offline
        Open no socket.
    accept_license
        Agreement to a license that needs one before a download; ``None`` asks on a terminal.
    jobs
        Worker processes; ``None``: the cores this process may use.
    output
        Build into this folder instead of ``built/`` in the home.
    compression
        ``None``, ``"gzip"`` or ``"zstd"``.
    engine
        ``"processes"`` of this machine, or ``"dask"``: a cluster, with the same bytes.
    scheduler
        With ``"dask"``: address or file of a running scheduler; ``None`` starts one here, with ``jobs``
        workers (a script then needs ``if __name__ == "__main__":``).
    quiet
        No progress.
    """

    archives: Sequence[Path] = ()
    offline: bool = False
    accept_license: bool | None = None
    jobs: int | None = None
    output: Path | None = None
    compression: Compression | None = None
    engine: EngineName = "processes"
    scheduler: str | None = None
    quiet: bool = False

    @classmethod
    def of(cls, dataset: str, arguments: Mapping[str, Any]) -> BuildOptions:
        """Return keyword arguments as one object.

        Raises
        ------
        UsageError
            There is no such option; the nearest is suggested.
        """
        names = [field.name for field in fields(cls)]
        for name in arguments:
            if name not in names:
                raise unknown_name("option", name, names, command=f"kmip-data build {dataset} --help")
        return cls(**arguments)
