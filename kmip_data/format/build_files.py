"""Final files of a build: splits, page, Croissant metadata, and last the card."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from kmip_data.arrays import I64, U8
from kmip_data.files.atomic_writes import build_marker_content, write_file, write_marker
from kmip_data.files.folder_marker import PICTURE_NAME, unchanged_outputs
from kmip_data.files.small_files import open_regular_file, readable_json
from kmip_data.format.card import CARD_NAME, Card, SplitEntry, SplitPart
from kmip_data.format.card_page import render_card
from kmip_data.format.croissant import build_croissant
from kmip_data.format.split_files import PART_CODES, encode_node_split, encode_split

PAGE_NAME = "README.md"
CROISSANT_NAME = "croissant.json"


def write_split_file(
    folder: Path,
    name: str,
    parts_or_codes: Mapping[str, I64] | U8,
    keys: Sequence[str],
    sizes: I64,
    *,
    rule: str,
    parameters: Mapping[str, object],
    note: str = "",
) -> SplitEntry:
    """Write ``splits/<name>.h5``, and return its entry for the card.

    ``parts_or_codes`` holds the positions of the records of each part, or, for a single graph, the
    part codes of its nodes. ``keys`` are the keys of all records, ``sizes`` (G, 2) their numbers of
    nodes and edges.
    """
    parts = {}
    if isinstance(parts_or_codes, np.ndarray):
        codes = parts_or_codes
        data, digests = encode_node_split(codes, rule=rule, parameters=parameters)
        # All parts are in the same graph, and use all its edges.
        edges = int(sizes[:, 1].sum())
        for part, code in PART_CODES.items():
            nodes = int((codes == code).sum())
            parts[part] = SplitPart(graphs=1, nodes=nodes, edges=edges, digest=digests[part])
    else:
        data, digests = encode_split(parts_or_codes, rule=rule, parameters=parameters, keys=keys)
        for part, positions in parts_or_codes.items():
            nodes, edges = sizes[positions].sum(axis=0).tolist()
            parts[part] = SplitPart(
                graphs=len(positions), nodes=nodes, edges=edges, digest=digests[part]
            )
    file = f"splits/{name}.h5"
    write_file(folder / file, data, root=folder)
    return SplitEntry(
        file=file,
        sha256=hashlib.sha256(data).hexdigest(),
        rule=rule,
        parameters=dict(parameters),
        parts=parts,
        note=note,
    )


def make_read_only(path: Path) -> None:
    """Make a finished shard read-only, because readers map it."""
    # Some network file systems have no permissions.
    with contextlib.suppress(OSError), open_regular_file(path, follow=False) as file:
        status = os.fstat(file.fileno())
        if status.st_nlink == 1:  # otherwise the permissions of another file would change
            os.fchmod(file.fileno(), status.st_mode & ~0o222)


def metadata_files(card: Card, *, picture: bool = False) -> dict[str, bytes]:
    """Return the page, with or without a picture, the Croissant metadata and the card, by name."""
    text = card.to_json()
    # The stored card sorts its keys, and a page that is repaired from it must have the same bytes.
    card = Card.model_validate_json(text)
    page = render_card(card, picture=picture)
    croissant = readable_json(build_croissant(card))
    texts = {PAGE_NAME: page, CROISSANT_NAME: croissant, CARD_NAME: text}
    return {name: text.encode() for name, text in texts.items()}


def has_picture(folder: Path) -> bool:
    """True if a build folder has an unchanged picture, drawn by a command."""
    return PICTURE_NAME in unchanged_outputs(folder)


def write_card(folder: Path, card: Card) -> None:
    """Write or replace the :func:`metadata_files`; the card comes last, and finishes the build."""
    for name, data in metadata_files(card, picture=has_picture(folder)).items():
        write_file(folder / name, data, root=folder)


def finish_folder(folder: Path, card: Card) -> None:
    """Protect the shards, mark the folder as a build, and write page and card."""
    for file in card.files:
        make_read_only(folder / file)
    write_marker(folder, build_marker_content(card.key))
    write_card(folder, card)
