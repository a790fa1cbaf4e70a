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
_MASK_WORDS = "annotations?|gt|ground_?truth|l|labels?|masks?|segmentation[a-z]*"
_MASK_WORD = re.compile(rf"(?<![^\W_])({_MASK_WORDS})(?![^\W_])", re.IGNORECASE)
_WORDS = re.compile(rf"(?<![^\W_])({_MASK_WORDS}|images?|img|photos?)(?![^\W_])", re.IGNORECASE)


def find_masks(files: Mapping[str, Path]) -> set[str]:
    """Return the names of the masks in a folder of pictures; nothing if pictures have others.

    Most names with a word of masks must mean a picture each, and the first must look like a mask,
    because ``mask`` may be a class of pictures, too. Raises ``DamagedInput`` if half of the files look
    like masks, but none is of a picture.
    """
    names = [name for name in files if name.lower().endswith(PICTURE_SUFFIXES)]
    masks = {name for name in names if _MASK_WORD.search(_stem(name))}
    pictures = ItemNames([_name_without_words(name) for name in names if name not in masks])
    pairs = {name: pictures.find(_name_without_words(name)) for name in sorted(masks)}
    matched = [name for name, picture in pairs.items() if picture is not None]
    if masks and not matched and 2 * len(masks) == len(names):
        mask = min(masks)
        if may_be_mask(files[mask]):
            raise DamagedInput(
                f"{mask} looks like a mask, but no picture is called {_name_without_words(mask)}.",
                steps="name masks like their pictures, with _mask, _label or _gt behind it",
            )
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
    bare_names = {_name_without_words(name): name for name in pictures.values()}
    known_bare = ItemNames(bare_names)
    for name in names:
        folder, _, path = name.partition("/")
        if folder == MASK_FOLDER:
            bare_name = known_bare.find(_name_without_words(path)) or ""
            picture = known.find(_stem(path)) or bare_names.get(bare_name, name)
            _add_file(found, _stem(picture), name)
    return [(picture, found.get(stem)) for stem, picture in sorted(pictures.items())]


def _stem(name: str) -> str:
    return str(PurePosixPath(name).with_suffix(""))


def _name_without_words(name: str) -> str:
    """Return a path without suffix, folders and words that masks or pictures have."""
    parts = [_WORDS.sub("", part).strip("_-. ") for part in PurePosixPath(_stem(name)).parts]
    return "/".join(filter(None, parts))


def _add_file(files: dict[str, str], stem: str, name: str) -> None:
    """Add a picture or a mask by the name of the picture; refuse a second one."""
    first = files.setdefault(stem, name)
    if first != name:
        raise DamagedInput(
            f"Two files are called {PurePosixPath(stem).name}: {first} and {name}.",
            steps="keep one of them in the folder",
        )
