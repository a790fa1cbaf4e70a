"""Execution options of a build, which do not affect its bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from pydantic import ByteSize, TypeAdapter, ValidationError

from kmip_data.errors import Command, Setting, UsageError, unknown_name_error
from kmip_data.runtime.extras import require_extra

EngineName = Literal["processes", "dask"]


class BuildArguments(TypedDict, total=False):
    """Keyword arguments of functions that build: the fields of :class:`ExecutionOptions`."""

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


MIN_MEMORY_BYTES = 2**29  #: smallest limit of a worker, whose libraries take 0.3 GB


@dataclass(frozen=True)
class ExecutionOptions:
    """Execution options of a build, which do not affect its bytes."""

    archives: Sequence[Path] = ()  #: local copies to use instead of downloads
    offline: bool = False  #: open no network connection
    #: agreement to a license before a download; by default, ``KMIP_DATA_ACCEPT_LICENSE``
    accept_license: bool | None = None
    unpinned: bool = False  #: accept raw files that differ from the digests of the manifest
    jobs: int | None = None  #: worker processes; by default, the available cores
    output: Path | None = None  #: folder of the build, instead of ``built/`` in the home
    engine: EngineName = "processes"  #: local ``"processes"``, or a ``"dask"`` cluster
    #: with ``"dask"``: address or file of a running scheduler. By default, one with ``jobs`` workers
    #: is started here; a script then needs ``if __name__ == "__main__":``.
    scheduler: str | None = None
    #: memory limit of a worker without mapped files, in bytes or as ``"4GiB"``. By default, half of
    #: the machine's memory for the single worker of a city, and no limit for others.
    memory: int | str | None = None
    quiet: bool = False  #: print no progress

    @classmethod
    def from_arguments(cls, dataset: str, arguments: Mapping[str, Any]) -> ExecutionOptions:
        """Check keyword arguments before anything is read or written.

        Raises ``UsageError`` for an unknown option (with the nearest one), an invalid value, or an
        engine that is not installed.
        """
        names = [field.name for field in fields(cls)]
        for name in arguments:
            if name not in names:
                raise unknown_name_error(
                    "option",
                    name,
                    names,
                    command=Command("kmip-data build {} --help", dataset),
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
                    "memory does not reach Dask workers.",
                    steps="limit the memory of the workers where they are started",
                )
        elif options.scheduler is not None:
            raise UsageError(
                f"A scheduler ({options.scheduler}) belongs to the engine dask.",
                steps=Setting(engine="dask"),
            )
        if options.memory is None:
            return options
        with contextlib.suppress(ValidationError):
            size = TypeAdapter(ByteSize).validate_python(options.memory)
            if size >= MIN_MEMORY_BYTES:
                return replace(options, memory=int(size))
        raise UsageError(
            f"memory must be a size from 512MiB, such as 4GiB, not {options.memory!r}."
        )
