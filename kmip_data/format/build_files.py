"""The last files of every build: splits, page, Croissant and finally the card."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kmip_data.files.changes import write_file, write_json
from kmip_data.format.card import CARD_NAME, Card, ShardEntry, SplitEntry, SplitPart
from kmip_data.format.card_page import CROISSANT_NAME, PAGE_NAME, build_croissant, render_card
from kmip_data.format.schema import FORMAT_VERSION, Schema


def write_split_file(
    folder: Path,
    name: str,
    encoded: tuple[bytes, Mapping[str, str]],
    sizes: Mapping[str, tuple[int, int, int]],
    *,
    rule: str,
    parameters: Mapping[str, Any],
    note: str = "",
) -> SplitEntry:
    """Write ``splits/<name>.h5`` and describe it for the card.

    ``encoded`` comes from :mod:`kmip_data.format.splits`; ``sizes`` are graphs, nodes and edges by part.
    """
    data, digests = encoded
    file = f"splits/{name}.h5"
    write_file(folder / file, data, root=folder)
    return SplitEntry(
        file=file,
        sha256=hashlib.sha256(data).hexdigest(),
        rule=rule,
        parameters=dict(parameters),
        parts={
            part: SplitPart(graphs=graphs, nodes=nodes, edges=edges, digest=digests[part])
            for part, (graphs, nodes, edges) in sizes.items()
        },
        note=note,
    )


def protect(path: Path) -> None:
    """Make a finished shard read-only: readers map it and rely on its bytes."""
    with contextlib.suppress(OSError):  # some network file systems have no permissions
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, os.fstat(descriptor).st_mode & ~0o222)
        finally:
            os.close(descriptor)


def write_card(folder: Path, card: Card) -> None:
    """Write README and Croissant, then the card, which finishes the build."""
    write_file(folder / PAGE_NAME, render_card(card).encode())
    write_json(folder / CROISSANT_NAME, build_croissant(card))
    write_file(folder / CARD_NAME, card.to_json().encode())


def finish(
    folder: Path,
    schema: Schema,
    shards: Iterable[ShardEntry],
    splits: Mapping[str, SplitEntry],
    statistics: Mapping[str, Any],
    classes: Mapping[str, Mapping[str, list[int]]],
    **about: Any,
) -> Card:
    """Protect the shards and write page and card.

    The first of ``splits`` is the default; ``statistics`` and ``classes`` (counts by split and part) are
    those of :func:`kmip_data.graphs.statistics.summarise`; ``about`` has the other fields of the card.
    """
    rest = {**statistics, "classes": {"total": statistics["classes"], "splits": classes}}
    card = Card(
        format_version=FORMAT_VERSION,
        data_schema=json.loads(schema.to_json()),
        default_split=next(iter(splits), ""),
        shards=list(shards),
        splits=dict(splits),
        counts={name: rest.pop(name) for name in ("graphs", "nodes", "edges")},
        statistics=rest,
        **about,
    )
    for shard in card.shards:
        protect(folder / shard.file)
    write_card(folder, card)
    return card
