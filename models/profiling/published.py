"""What the paper measured on its A100, read from the manifests."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Literal

from kmip_data.strict import Strict

Setting = Literal["inference", "training"]
SETTINGS: tuple[Setting, Setting] = ("inference", "training")


class PublishedCurve(Strict):
    """One method in one setting, at several numbers of nodes."""

    method: str
    label: str
    setting: Setting
    n: tuple[int, ...]
    milliseconds: tuple[float, ...]
    megabytes: tuple[float, ...] = ()


class Published(Strict):
    """The paper's efficiency tables. Never ours."""

    source: str
    machine: str
    protocol: str
    curve: tuple[PublishedCurve, ...]


@functools.cache
def published() -> Published:
    """Read ``manifests/results/efficiency.toml``."""
    file = resources.files("kmip_data.manifests.results") / "efficiency.toml"
    return Published.model_validate(tomllib.loads(file.read_text("utf-8")))
