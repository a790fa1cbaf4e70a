"""Options of a build that do not change its bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from pydantic import ByteSize, TypeAdapter, ValidationError

from kmip_data.errors import UsageError, unknown_name_error
from kmip_data.runtime.extras import require_extra

EngineName = Literal["processes", "dask"]


class BuildArguments(TypedDict, total=False):
    """The fields of :class:`ExecutionOptions` as keyword arguments of a function."""

    archives: Sequence[Path]
    offline: bool
    accept_license: bool | None
    unpinned: bool
    jobs: int | None
    output: Path | None
    engine: EngineName
    scheduler: str | None
    memory: int | str | None
    quiet: bool


MIN_MEMORY = 2**29  #: bytes of a worker: its libraries take 0.3 GB


@dataclass(frozen=True)
class ExecutionOptions:
    """Options of a build that do not change its bytes."""

    archives: Sequence[Path] = ()  #: local copies to take instead of a download
    offline: bool = False  #: open no socket
    #: agreement to a license that needs one before a download; ``None``:
    #: ``KMIP_DATA_ACCEPT_LICENSE``
    accept_license: bool | None = None
    unpinned: bool = False  #: accept raw files that differ from the digests of the manifest
    jobs: int | None = None  #: worker processes; ``None``: the cores this process may use
    output: Path | None = None  #: build into this folder instead of ``built/`` in the home
    #: ``"processes"`` of this machine, or ``"dask"``: a cluster, with the same bytes
    engine: EngineName = "processes"
    #: with ``"dask"``: address or file of a running scheduler; ``None`` starts one here, with
    #: ``jobs`` workers (a script then needs ``if __name__ == "__main__":``)
    scheduler: str | None = None
    #: bytes, or a size such as ``"4GiB"``, of a worker process beyond mapped files; ``None``: half
    #: memory of the machine for the one worker of a city, no bound for others
    memory: int | str | None = None
    quiet: bool = False  #: no progress

    @classmethod
    def from_arguments(cls, dataset: str, arguments: Mapping[str, Any]) -> ExecutionOptions:
        """Collect and check keyword arguments before anything is read or written.

        Raises ``UsageError`` where there is no such option (the nearest is suggested), a value is
        wrong, or what the engine needs is not installed.
        """
        names = [field.name for field in fields(cls)]
        for name in arguments:
            if name not in names:
                raise unknown_name_error(
                    "option",
                    name,
                    names,
                    command=f"kmip-data build {dataset} --help",
                )
        options = cls(**arguments)
        if options.jobs is not None and options.jobs < 1:
            raise UsageError(f"jobs must be 1 or more, not {options.jobs}.")
        if options.engine not in get_args(EngineName):
            raise UsageError(
                f"There is no engine {options.engine!r}.", expected="processes or dask"
            )
        if options.engine == "dask":
            require_extra("distributed", "The engine dask")
            if options.memory is not None:
                raise UsageError(
                    "--memory does not reach Dask workers.", next="dask worker --memory-limit"
                )
        elif options.scheduler is not None:
            raise UsageError(
                f"A scheduler ({options.scheduler}) belongs to the engine dask.",
                next=f"--dask {options.scheduler}",
            )
        if options.memory is None:
            return options
        with contextlib.suppress(ValidationError):
            if (size := TypeAdapter(ByteSize).validate_python(options.memory)) >= MIN_MEMORY:
                return replace(options, memory=int(size))
        raise UsageError(
            f"memory must be a size from 512MiB, such as 4GiB, not {options.memory!r}."
        )
