"""Data that are published in parts: the lists that say so, and the split that they become."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from kmip_data.errors import DamagedInput
from kmip_data.format.splits import PARTS
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import RawFolder, Split

Name = TypeVar("Name", str, int)


def check_digests(raw: RawFolder, manifest: Manifest) -> None:
    """Refuse lists of the complete set that have other digests than the manifest knows."""
    for name, expected in manifest.known_sha256.items():
        found = hashlib.sha256((raw.path / name).read_bytes()).hexdigest()
        if found != expected:
            raise DamagedInput(
                f"{name} is not the published list.",
                expected=f"SHA-256 {expected}, as the complete {manifest.expected.graphs:,} graphs have",
                found=f"SHA-256 {found}",
            )


def split_by_lists(
    lists: Mapping[str, Iterable[Name]], names: Sequence[Name], what: str, rule: str = "upstream"
) -> Split:
    """Return the published split: positions of the records of each part, in the order of its list.

    Names of a list that are none of ``names``, those of the build's records, are left out; ``what`` the
    lists are, the note says.
    """
    position = {name: i for i, name in enumerate(names)}
    parts = {part: [position[name] for name in listed if name in position] for part, listed in lists.items()}
    return Split(rule, rule, {}, parts, f"the {what} of the raw data, in their order")


def split_by_keys(keys: Iterable[str], note: str) -> Split:
    """Return the published split of records whose keys begin with their part (``val/000012``)."""
    parts: dict[str, list[int]] = {part: [] for part in PARTS}
    for position, key in enumerate(keys):
        parts[key.partition("/")[0]].append(position)
    return Split("upstream", "upstream", {}, parts, note)
