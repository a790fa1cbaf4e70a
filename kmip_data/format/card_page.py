"""Markdown page of a build, with text from cards escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kmip_data.files.folder_marker import PICTURE_NAME
from kmip_data.files.page_templates import page_template
from kmip_data.format.card import Card
from kmip_data.format.split_files import parts_in_order
from kmip_data.text import replace_controls, set_parameters

#: key in the statistics of a card -> caption
_CAPTIONS = {
    "nodes_per_graph": "nodes per graph",
    "edges_per_graph": "edges per graph",
    "in_degree": "in-degree",
    "out_degree": "out-degree",
}
_BAR_LENGTH = 24  #: characters of the longest bar of a histogram
_MAX_ROWS = 16  #: largest number of rows of a histogram
_WEB_ADDRESS = re.compile(r"https?://[\w.~:/?#@!$&*+,;=%-]+")  #: addresses allowed in links
#: Markup characters of Markdown; an underscore between letters is plain text.
_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def render_card(card: Card, *, picture: bool = False) -> str:
    """Return the page of a card; equal cards give equal pages.

    With ``picture``, it starts with the picture drawn by ``build`` and ``preview``.
    """
    filters = (
        _histogram_bars,
        _inline_code,
        _format_number,
        _join_settings,
        _escape_markdown,
        code_block,
    )
    page = page_template("kmip_data.format", "build.md", *filters)
    return page.render(**_template_values(card), picture=PICTURE_NAME if picture else None)


def distributions(card: Card) -> dict[str, dict[str, Any]]:
    """Return the statistics of sizes and degrees by caption; of one graph, only of degrees."""
    spreads = {}
    for key, caption in _CAPTIONS.items():
        if card.statistics.get(key) and not (
            key.endswith("per_graph") and card.counts["graphs"] == 1
        ):
            spreads[caption] = card.statistics[key]
    return spreads


def _template_values(card: Card) -> dict[str, object]:
    """Return the values of the template."""
    schema = card.schema_
    # The default split comes first, then the others by name.
    names = sorted(card.splits, key=lambda name: (name != card.default_split, name))

    # Number the classes if they have no names, or another number of names.
    classes = card.statistics.get("classes", {})
    total = classes.get("total", [])
    class_names = card.class_names
    if len(class_names) != len(total):
        class_names = list(map(str, range(len(total))))
    parts = classes.get("splits", {}).get(card.default_split, {})

    # The example on the page reads the first shard and the first node column.
    first = card.shards[0]
    file = first.file
    file_options = ""
    if first.members:  # HDF5's family driver joins files by a pattern of their names
        file = re.sub(r"-0+\.h5$", "-%05d.h5", next(iter(first.files)))
        file_options = f', driver="family", memb_size={first.members[0].bytes}'
    return {
        "card": card,
        "schema": schema,
        "splits": {name: card.splits[name] for name in names},
        "total": total,
        "class_names": class_names,
        "parts": {part: parts[part] for part in parts_in_order(parts)},
        "spreads": distributions(card),
        "parameters": set_parameters(card.parameters),
        "file": file,
        "file_options": file_options,
        "node": next((column.key for column in schema.columns if column.level == "node"), None),
        "terms": _license_terms(card),
    }


def _license_terms(card: Card) -> list[str]:
    """Return the known ones of license, notice and citation, as Markdown."""
    name = _escape_markdown(card.license.get("name", ""))
    url = str(card.license.get("url", ""))
    if _WEB_ADDRESS.fullmatch(url):
        name = f"[{name}]({url})"
    terms = [name, _escape_markdown(card.license.get("notice", ""))]
    citation = card.citation.strip()
    if citation:
        terms.append(code_block(citation, "bibtex"))
    return [text for text in terms if text]


def _join_settings(values: Mapping[str, object], sign: str = " = ") -> str:
    """Format names and values, sorted, leaving out ``None``."""
    pairs = [f"{key}{sign}{value}" for key, value in sorted(values.items()) if value is not None]
    return ", ".join(pairs)


def _escape_markdown(value: object) -> str:
    """Escape all Markdown and HTML markup."""
    return _MARKUP.sub(r"\\\g<0>", escape(_one_line(value), quote=False))


def _inline_code(value: object) -> str:
    """Format text as inline code, with backticks replaced."""
    return "`" + _one_line(value).replace("`", "'").replace("|", "\\|") + "`"


def _one_line(value: object) -> str:
    return " ".join(replace_controls(str(value)).split())


def code_block(text: str, language: str) -> str:
    """Format text as a code block, with a fence that does not occur in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{replace_controls(text)}\n{fence}"


def _format_number(value: int) -> str:
    return f"{value:,}"


def _histogram_bars(histogram: Mapping[str, Sequence[int]]) -> str:
    # Merge adjacent bins until at most _MAX_ROWS are left.
    bins = list(zip(histogram["low"], histogram["high"], histogram["count"], strict=True))
    step = -(-len(bins) // _MAX_ROWS)
    labels = []
    counts = []
    for start in range(0, len(bins), step):
        merged = bins[start : start + step]
        low = merged[0][0]
        high = merged[-1][1]
        labels.append(f"{low:,}" if low == high else f"{low:,}–{high:,}")
        counts.append(sum(count for _, _, count in merged))

    largest = max(counts)
    width = max(map(len, labels))
    rows = []
    for label, count in zip(labels, counts, strict=True):
        bar = "█" * max(1, round(_BAR_LENGTH * count / largest))
        rows.append(f"{label:>{width}}  {bar:<{_BAR_LENGTH}}  {count:,}")
    return "\n".join(rows)
