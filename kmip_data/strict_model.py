"""Base class of typed data, and files shipped in ``manifests/``."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class StrictModel(BaseModel):
    """Base of all typed data: a frozen model that refuses unknown keys, NaN and infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@functools.cache
def shipped_datasets() -> tuple[str, ...]:
    """Return the sorted names of the shipped datasets: the folders in ``manifests/datasets``."""
    folders = (resources.files("kmip_data.manifests") / "datasets").iterdir()
    names = (folder.name for folder in folders if (folder / "dataset.toml").is_file())
    return tuple(sorted(names))


@functools.cache
def shipped_names(folder: str) -> tuple[str, ...]:
    """Return the sorted names of the files in ``manifests/<folder>``, without ``.toml``."""
    files = (resources.files("kmip_data.manifests") / folder).iterdir()
    names = (file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))
    return tuple(sorted(names))


def read_shipped(folder: str, name: str) -> dict[str, Any]:
    """Read ``manifests/<folder>/<name>.toml``."""
    file = resources.files("kmip_data.manifests") / folder / f"{name}.toml"
    return tomllib.loads(file.read_text("utf-8"))
