"""What ``bench train`` measured of a model on this machine, kept in the home beside its runs."""

from __future__ import annotations

import platform
from pathlib import Path

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput
from kmip_data.files.changes import make_folder, write_json
from kmip_data.files.digests import json_digest
from kmip_data.files.small import read_model
from kmip_data.models.kinds import Section


class Benched(Section):
    """The pace of one preset."""

    device: str  #: as results of runs name it
    machine: str  #: for people: processor, cores, versions, load
    seconds_epoch: float  #: without evaluations
    parameters: int
    preset: str
    measured: str  #: when


def keep_benched(home: Home, label: str, model: str, found: Benched) -> Path:
    """Write it, instead of what was measured here before; ``label`` is that of the data."""
    path = _path(home.runs / label / model, found.device)
    make_folder(path.parent, root=home.root)
    write_json(path, found.model_dump(), root=home.root)
    return path


def read_benched(folder: Path, device: str) -> Benched | None:
    """Return what was measured here on ``device`` of the model whose runs are in ``folder``, if anything."""
    try:
        return read_model(
            _path(folder, device), Benched, "cannot be read", expected="a pace", next="bench train"
        )
    except (FileNotFoundError, DamagedInput):
        return None


def _path(folder: Path, device: str) -> Path:
    """One a machine, for several may share a home."""
    return folder / f"bench-{json_digest([platform.node(), device])[:8]}.json"
