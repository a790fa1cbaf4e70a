"""Plan of a build: pipeline, parameters and raw files, and the key and folder that follow."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

from kmip_data import __version__
from kmip_data.builds.execution_options import ExecutionOptions
from kmip_data.builds.home import Home
from kmip_data.files.path_errors import absolute_path
from kmip_data.files.small_files import json_digest
from kmip_data.format.schema import FORMAT_VERSION
from kmip_data.pipelines.base import AnyPipeline, RawCopy
from kmip_data.pipelines.parameters import BuildParams


@dataclass(frozen=True)
class BuildPlan:
    """Everything that determines a build, its key and its folder."""

    pipeline: AnyPipeline
    params: BuildParams
    raw: RawCopy
    home: Home
    options: ExecutionOptions

    @cached_property
    def key(self) -> str:
        """See :func:`build_key`."""
        return build_key(self.pipeline, self.params, self.raw)

    @cached_property
    def folder(self) -> Path:
        """Output folder; by default ``<dataset>[-sample]-<name pieces>[-limitN]-<key>`` in the home."""
        if self.options.output is not None:
            return absolute_path(self.options.output, "output folder")
        pieces = [
            self.pipeline.manifest.name,
            "sample" if self.raw.sample else "",
            *self.pipeline.folder_name_pieces(self.params),
            "" if self.params.limit is None else f"limit{self.params.limit}",
            self.key,
        ]
        return self.home.built / "-".join(filter(None, pieces))


def build_key(pipeline: AnyPipeline, params: BuildParams, raw: RawCopy) -> str:
    """Return 12 hex digits of a SHA-256 over everything that determines the bytes of the shards.

    Raw files enter by the digests of their members, because mirrors repack archives.
    """
    identity = {
        "dataset": pipeline.manifest.name,
        "sample": raw.sample,
        "parameters": params.identity(),
        "members": dict(raw.members),
        "pipeline_version": pipeline.version,
        "format_version": FORMAT_VERSION,
    }
    layout = pipeline.manifest.layout
    if layout.columns and layout.columns_in_key:
        identity["layout"] = layout.model_dump(mode="json")
    return json_digest(identity)[:12]


def versions_affecting_bytes() -> dict[str, str]:
    """Return versions of packages that affect the bytes of a build."""
    import h5py

    return {
        "kmip-data": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("numpy", "h5py", "numba")},
        "hdf5": h5py.version.hdf5_version,
    }
