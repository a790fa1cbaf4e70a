"""Which files of a build folder are its own."""

from __future__ import annotations

import contextlib

from kmip_data.builds.columns import COLUMNS, added_names, read_columns
from kmip_data.builds.home import Build
from kmip_data.errors import DamagedInput
from kmip_data.format.card import CARD_NAME
from kmip_data.format.card_page import PAGE_NAME

#: What commands put beside the card unless told otherwise.
BESIDE = ("preview.png", "preview.html", "explore.html", "croissant.json")


def files_of_build(build: Build) -> list[str]:
    """Names, below its folder, of what a build consists of and what commands put there; the card last."""
    card, names = build.card, list(BESIDE)
    for column in added_names(build.path):
        with contextlib.suppress(DamagedInput):
            names += [f"{COLUMNS}/{column}/{entry.file}" for entry in read_columns(build, column).files]
        names.append(f"{COLUMNS}/{column}/{CARD_NAME}")
    names += [shard.file for shard in card.shards] + [split.file for split in card.splits.values()]
    return [*names, PAGE_NAME, CARD_NAME]
