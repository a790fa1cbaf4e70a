"""Published digests: the files of a build against ``manifests/digests``.

A file there has one table for each build key, which stands for a dataset, its parameters, its raw data and
the version of its pipeline: ``about``, and the SHA-256 of each shard and split by its path in the build.
"""

from __future__ import annotations

import functools

from kmip_data.errors import UsageError
from kmip_data.format.card import Card
from kmip_data.manifest import read_shipped, shipped_names


@functools.cache
def published_builds() -> dict[str, dict[str, str]]:
    """Return the table of each published build by its key."""
    files = (read_shipped("digests", name) for name in shipped_names("digests"))
    return {key: table for tables in files for key, table in tables.items()}


def unlike_published(card: Card) -> list[str]:
    """Return the files of a build whose digest is not the published one; its further splits are not compared.

    Raises ``UsageError`` where no digests are published for the build's key.
    """
    table = published_builds().get(card.key)
    if table is None:
        known = [f"{key} ({each['about']})" for key, each in published_builds().items()]
        raise UsageError(
            f"No digests are published for the build {card.key} of {card.dataset}.",
            expected="".join(f"\n    {each}" for each in known if card.dataset in each)
            or "none of this dataset",
            next=f"kmip-data verify {card.dataset}",
        )
    found = card.digests
    other = {file for file in found.keys() & table.keys() if found[file] != table[file]}
    one_sided = {file for file in found.keys() ^ table.keys() if file.startswith("shards/")}
    return sorted(other | one_sided)
