"""Masks among files of pictures, and the picture of each.

A mask has the name of its picture, apart from words such as ``mask`` or ``labels`` in its path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.companion_files.part_lists import ItemNames
from kmip_data.pipelines.datasets.superpixels.picture_graphs import (
    PICTURE_SUFFIXES,
    may_be_mask,
)

IMAGE_FOLDER = "images"  #: of the raw copy
MASK_FOLDER = "masks"
_MASK_WORD = re.compile(
    r"(?<![^\W_])(annotations?|gt|ground_?truth|l|labels?|masks?|segmentation[a-z]*)(?![^\W_])",
    re.IGNORECASE,
)


def find_masks(files: Mapping[str, Path]) -> set[str]:
    """Return the names of the masks in a folder of pictures; nothing if pictures have others.

    Most names with a word of masks must mean a picture each, and the first must look like a mask,
    because ``mask`` may be a class of pictures, too.
    """
    names = [name for name in files if name.lower().endswith(PICTURE_SUFFIXES)]
    masks = {name for name in names if _name_without_words(name) != _stem(name)}
    pictures = ItemNames([name for name in names if name not in masks])
    pairs = {name: pictures.find(_name_without_words(name)) for name in sorted(masks)}
    matched = [name for name, picture in pairs.items() if picture is not None]
    have_own = len({pairs[name] for name in matched}) == len(matched) > len(masks) / 2
    return masks if have_own and may_be_mask(files[matched[0]]) else set()


def pair_with_masks(members: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return each picture of a raw copy with its mask, in name order.

    Raises ``DamagedInput`` if two pictures or two masks have the same name.
    """
    pictures: dict[str, str] = {}
    found: dict[str, str] = {}
    names = [name for name in sorted(members) if name.lower().endswith(PICTURE_SUFFIXES)]
    for name in names:
        if name.startswith(f"{IMAGE_FOLDER}/"):
            _add_file(pictures, _stem(name), name)

    known = ItemNames([*pictures.values()])
    for name in names:
        folder, _, path = name.partition("/")
        if folder == MASK_FOLDER:
            picture = known.find(_stem(path)) or known.find(_name_without_words(path))
            _add_file(found, _stem(picture or name), name)
    return [(picture, found.get(stem)) for stem, picture in sorted(pictures.items())]


def _stem(name: str) -> str:
    return str(PurePosixPath(name).with_suffix(""))


def _name_without_words(name: str) -> str:
    """Return a path without suffix, folders and words that masks have."""
    parts = [_MASK_WORD.sub("", part).strip("_-. ") for part in PurePosixPath(_stem(name)).parts]
    return "/".join(filter(None, parts))


def _add_file(files: dict[str, str], stem: str, name: str) -> None:
    """Add a picture or a mask by the name of the picture; refuse a second one."""
    first = files.setdefault(stem, name)
    if first != name:
        raise DamagedInput(
            f"Two files are called {PurePosixPath(stem).name}: {first} and {name}.",
            steps="keep one of them in the folder",
        )
