"""YAML header of the README of a push, as the Hugging Face hub reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kmip_data.format.card import Card
from kmip_data.format.card_page import render_card

#: Names of licences here and on the hub; any other is given by name and link.
_LICENSES: Final = {
    "CC BY 4.0": "cc-by-4.0",
    "CC BY-NC 4.0": "cc-by-nc-4.0",
    "MIT": "mit",
    "ODbL 1.0": "odbl",
}
_SIZES: Final = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")


def header(fields: Mapping[str, Any]) -> str:
    """Return a YAML block; each value is written as JSON, which is YAML."""
    lines = [f"{name}: {json.dumps(value)}" for name, value in fields.items()]
    return "\n".join(["---", *lines, "---", ""])


def license_fields(terms: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of the hub for a licence as a card has it."""
    name, link = str(terms.get("name", "")), str(terms.get("url", ""))
    if name in _LICENSES:
        return {"license": _LICENSES[name]}
    if not name:
        return {"license": "unknown"}
    return {"license": "other", "license_name": name, **({"license_link": link} if link else {})}


def size_category(count: int) -> str:
    """Return the size category of the hub for a number of records.

    >>> size_category(999), size_category(1000), size_category(10**13)
    ('n<1K', '1K<n<10K', 'n>1T')
    """
    steps = len(str(count)) - 4  #: powers of ten from a thousand on
    if steps < 0:
        return f"n<{_SIZES[0]}"
    if steps + 1 >= len(_SIZES):
        return f"n>{_SIZES[-1]}"
    return f"{_SIZES[steps]}<n<{_SIZES[steps + 1]}"


def dataset_page(card: Card) -> bytes:
    """Return the page of a build with its header; the size of a single graph is its number of nodes."""
    counts = card.counts
    fields = {
        **license_fields(card.license),
        "pretty_name": card.heading,
        "task_categories": ["graph-ml"],
        "size_categories": [size_category(counts["graphs"] if counts["graphs"] > 1 else counts["nodes"])],
        "tags": ["graph", "hdf5", "kmip-data", *(["sample"] if card.sample else [])],
    }
    return f"{header(fields)}\n{render_card(card)}".encode()
