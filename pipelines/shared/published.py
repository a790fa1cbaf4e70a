"""Data that are published in parts: advice where raw files are damaged, lists and what they become."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from kmip_data.errors import DamagedInput
from kmip_data.format.parts import PARTS
from kmip_data.pipelines.base import RawFolder, Split

Name = TypeVar("Name", str, int)


@contextmanager
def advised(dataset: str) -> Iterator[None]:
    """Give errors about raw files the parts that are the same for all: what is left, what to do next."""
    try:
        yield
    except DamagedInput as error:
        error.parts["on disk"] = error.parts["on disk"] or "the raw files, which a build only reads"
        advice = f"use an undamaged copy: kmip-data build {dataset} --archive PATH"
        error.parts["next"] = error.parts["next"] or advice
        raise


def check_digests(raw: RawFolder, known: Mapping[str, str], graphs: int) -> None:
    """Refuse lists of the complete set of ``graphs`` graphs that are not the published ones.

    Parameters
    ----------
    known
        Member of the raw folder to the SHA-256 that it must have.

    Raises
    ------
    DamagedInput
        One is another file.
    """
    for name, expected in known.items():
        found = hashlib.sha256((raw.path / name).read_bytes()).hexdigest()
        if found != expected:
            raise DamagedInput(
                f"{name} is not the published list.",
                expected=f"SHA-256 {expected}, as the complete set of {graphs:,} graphs has",
                found=f"SHA-256 {found}",
            )


def split_by_lists(
    lists: Mapping[str, Iterable[Name]], names: Sequence[Name], what: str, rule: str = "upstream"
) -> Split:
    """Return the published split: positions of the records of each part, in the order of its list.

    Parameters
    ----------
    lists
        Part to the names of its records; what was not built is left out.
    names
        Name of each record of the build.
    what
        What the lists are, for the note.
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
