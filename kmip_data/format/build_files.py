"""The last files of every build: splits, page, Croissant metadata and finally the card."""

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
from kmip_data.files.reading import open_regular_file, readable_json
from kmip_data.format.card import CARD_NAME, Card, SplitEntry, SplitPart
from kmip_data.format.card_page import render_card
from kmip_data.format.croissant import build_croissant
from kmip_data.format.split_files import NODE_PARTS, encode_node_split, encode_split

PAGE_NAME = "README.md"
CROISSANT_NAME = "croissant.json"


def write_split_file(
    folder: Path,
    name: str,
    chosen: Mapping[str, I64] | U8,
    keys: Sequence[str],
    sizes: I64,
    *,
    rule: str,
    parameters: Mapping[str, object],
    note: str = "",
) -> SplitEntry:
    """Write ``splits/<name>.h5`` and describe it for the card.

    ``chosen`` are the positions of each part among the records, or codes of the nodes of a single
    graph. ``keys`` are the keys of all records, ``sizes`` (G, 2) their numbers of nodes and edges.
    """
    if isinstance(chosen, np.ndarray):
        data, digests = encode_node_split(chosen, rule=rule, parameters=parameters)
        # Nodes of all parts lie in the same graph and see all of its edges.
        edges = int(sizes[:, 1].sum())
        counts = {
            part: (1, int((chosen == code).sum()), edges) for part, code in NODE_PARTS.items()
        }
    else:
        data, digests = encode_split(
            chosen,
            rule=rule,
            parameters=parameters,
            keys=keys,
        )
        counts = {
            part: (len(rows), *sizes[rows].sum(axis=0).tolist()) for part, rows in chosen.items()
        }
    file = f"splits/{name}.h5"
    write_file(folder / file, data, root=folder)
    parts = {
        part: SplitPart(graphs=graphs, nodes=nodes, edges=edges, digest=digests[part])
        for part, (graphs, nodes, edges) in counts.items()
    }
    return SplitEntry(
        file=file,
        sha256=hashlib.sha256(data).hexdigest(),
        rule=rule,
        parameters=dict(parameters),
        parts=parts,
        note=note,
    )


def make_read_only(path: Path) -> None:
    """Make a finished shard read-only: readers map it and rely on its bytes."""
    # Some network file systems have no permissions.
    with contextlib.suppress(OSError), open_regular_file(path, follow=False) as file:
        status = os.fstat(file.fileno())
        if status.st_nlink == 1:  # else the mode of a file elsewhere would change, too
            os.fchmod(file.fileno(), status.st_mode & ~0o222)


def metadata_files(card: Card, *, picture: bool = False) -> dict[str, bytes]:
    """Return README, which begins with a ``picture``, and Croissant, then the card, by name."""
    page = render_card(card, picture=picture)
    croissant = readable_json(build_croissant(card))
    texts = {PAGE_NAME: page, CROISSANT_NAME: croissant, CARD_NAME: card.to_json()}
    return {name: text.encode() for name, text in texts.items()}


def has_picture(folder: Path) -> bool:
    """True if a command drew the picture of the page into a build folder."""
    return PICTURE_NAME in unchanged_outputs(folder)


def write_card(folder: Path, card: Card) -> None:
    """Write :func:`metadata_files`; the card, which is the last, finishes the build.

    Existing ones are replaced.
    """
    # The card is the last of them: until then the folder is an unfinished build.
    for name, data in metadata_files(card, picture=has_picture(folder)).items():
        write_file(folder / name, data, root=folder)


def finish_folder(folder: Path, card: Card) -> None:
    """Protect the shards, mark the folder as a build, and write page and card."""
    for file in card.files:
        make_read_only(folder / file)
    write_marker(folder, build_marker_content(card.key))
    write_card(folder, card)
