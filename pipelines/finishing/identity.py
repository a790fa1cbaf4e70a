"""Identity of a build: its key, the name of its folder, the parameters on its card."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from kmip_data import __version__
from kmip_data.builds.home import BuildOptions, Home
from kmip_data.files.errors import located
from kmip_data.files.reading import json_digest
from kmip_data.format.schema import FORMAT_VERSION
from kmip_data.format.writer import Compression
from kmip_data.pipelines.base import Params, Pipeline, RawFolder

KEY_LENGTH = 12


def versions_of_bytes() -> dict[str, str]:
    """Versions of what has a say in the bytes of a build."""
    import h5py

    return {
        "kmip-data": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("numpy", "h5py", "numba")},
        "hdf5": h5py.version.hdf5_version,
    }


def card_parameters(params: Params, compression: Compression) -> dict[str, Any]:
    """Parameters that change the shards, as plain JSON values; ``compression`` only where there is one."""
    values = params.model_dump(mode="json")
    return values if compression is None else {**values, "compression": compression}


def build_key(
    pipeline: Pipeline[Any, Any], params: Params, raw: RawFolder, compression: Compression = None
) -> str:
    """First 12 hex digits of the SHA-256 of everything that decides the bytes of the shards.

    That is: dataset, parameters that change records, digests of the raw members by path (not of
    their container, because mirrors repack), pipeline version and format version.
    """
    identity = {
        "dataset": pipeline.manifest.name,
        "sample": raw.sample,
        "parameters": card_parameters(params, compression),
        "members": dict(raw.members),
        "pipeline_version": pipeline.version,
        "format_version": FORMAT_VERSION,
    }
    return json_digest(identity)[:KEY_LENGTH]


def build_folder_name(
    pipeline: Pipeline[Any, Any],
    params: Params,
    key: str,
    *,
    sample: bool = False,
    compression: Compression = None,
) -> str:
    """``<dataset>[-sample]-<name parts>[-<compression>][-limitN]-<key>``."""
    parts = [pipeline.manifest.name, *(["sample"] if sample else []), *pipeline.name_parts(params)]
    if compression is not None:
        parts.append(compression)
    if params.limit is not None:
        parts.append(f"limit{params.limit}")
    return "-".join([*parts, key])


def given_folder(output: Path) -> Path:
    """Return the folder that ``--output`` names, absolute."""
    return located(output, "output folder")


@dataclass(frozen=True)
class BuildPlan:
    """A build to be made: what, from which raw files, under which key, into which folder, and how."""

    pipeline: Pipeline[Any, Any]
    params: Params
    raw: RawFolder
    options: BuildOptions
    key: str
    folder: Path

    @classmethod
    def of(
        cls, pipeline: Pipeline[Any, Any], params: Params, raw: RawFolder, home: Home, options: BuildOptions
    ) -> Self:
        """Return the plan with its key, and its folder below ``home`` unless the options name one."""
        packed = options.compression
        key = build_key(pipeline, params, raw, packed)
        name = build_folder_name(pipeline, params, key, sample=raw.sample, compression=packed)
        folder = home.built / name if options.output is None else given_folder(options.output)
        return cls(pipeline, params, raw, options, key, folder)
