"""Options of a build: one object from the command line to the worker processes."""

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
    """Options of a build that do not change its bytes, except ``compression``."""

    archives: Sequence[Path] = ()  #: local copies to take instead of a download
    offline: bool = False  #: open no socket
    #: agreement to a license that needs one before a download; ``None`` asks on a terminal
    accept_license: bool | None = None
    jobs: int | None = None  #: worker processes; ``None``: the cores this process may use
    output: Path | None = None  #: build into this folder instead of ``built/`` in the home
    compression: Compression | None = None  #: ``None``, ``"gzip"`` or ``"zstd"``
    #: ``"processes"`` of this machine, or ``"dask"``: a cluster, with the same bytes
    engine: EngineName = "processes"
    #: with ``"dask"``: address or file of a running scheduler; ``None`` starts one here, with ``jobs``
    #: workers (a script then needs ``if __name__ == "__main__":``)
    scheduler: str | None = None
    quiet: bool = False  #: no progress

    @classmethod
    def of(cls, dataset: str, arguments: Mapping[str, Any]) -> BuildOptions:
        """Return keyword arguments as one object.

        Raises ``UsageError``, which suggests the nearest, where there is no such option.
        """
        names = [field.name for field in fields(cls)]
        for name in arguments:
            if name not in names:
                raise unknown_name("option", name, names, command=f"kmip-data build {dataset} --help")
        return cls(**arguments)
