"""The page of a build in Markdown, with foreign text escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from kmip_data.files.folder_marker import PICTURE_NAME
from kmip_data.files.page_templates import page_template
from kmip_data.format.card import Card
from kmip_data.format.split_files import parts_in_order
from kmip_data.text import replace_controls

#: Key in the statistics of a card and its caption.
SPREADS = {
    "nodes_per_graph": "nodes per graph",
    "edges_per_graph": "edges per graph",
    "in_degree": "in-degree",
    "out_degree": "out-degree",
}
_BAR = 24  #: characters of the longest bar of a histogram
_ROWS = 16  #: most rows of a histogram on the page
_WEB = re.compile(r"https?://[\w.~:/?#@!$&*+,;=%-]+")  #: permitted address of a link
#: Markup characters of Markdown; an underscore between letters is not one.
_MARKS = re.compile(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def render_card(card: Card, *, picture: bool = False) -> str:
    """Return the card as Markdown; equal cards give equal pages.

    ``picture``: begin with the picture next to it, which ``build`` and ``preview`` draw.
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


def _template_values(card: Card) -> dict[str, object]:
    """Return what the template needs besides the card."""
    schema = card.schema_
    # The default split first, then the others by name.
    names = sorted(card.splits, key=lambda name: (name != card.default_split, name))

    # Without names, or if their number differs from the classes', print numbers.
    classes = card.statistics.get("classes", {})
    total = classes.get("total", [])
    class_names = card.class_names
    if len(class_names) != len(total):
        class_names = list(map(str, range(len(total))))
    parts = classes.get("splits", {}).get(card.default_split, {})

    # The first graph and the first column of nodes: an example that runs as it stands.
    first = card.shards[0]
    file = first.file
    file_options = ""
    if first.members:  # HDF5 joins the members itself, by a pattern of their names
        file = re.sub(r"-0+\.h5$", "-%05d.h5", next(iter(first.files)))
        file_options = f', driver="family", memb_size={first.members[0].bytes}'
    return {
        "card": card,
        "schema": schema,
        "splits": {name: card.splits[name] for name in names},
        "total": total,
        "class_names": class_names,
        "parts": {part: parts[part] for part in parts_in_order(parts)},
        "spreads": {
            title: card.statistics[key]
            for key, title in SPREADS.items()
            if card.statistics.get(key)
        },
        "file": file,
        "file_options": file_options,
        "node": next((column.key for column in schema.columns if column.level == "node"), None),
        "terms": _license_terms(card),
    }


def _license_terms(card: Card) -> list[str]:
    """Return license, notice and citation, as far as they are known."""
    named = _escape_markdown(card.license.get("name", ""))
    url = str(card.license.get("url", ""))
    if _WEB.fullmatch(url):
        named = f"[{named}]({url})"
    terms = [named, _escape_markdown(card.license.get("notice", ""))]
    citation = card.citation.strip()
    if citation:
        terms.append(code_block(citation, "bibtex"))
    return [text for text in terms if text]


def _join_settings(values: Mapping[str, object], sign: str = " = ") -> str:
    """Return names and values, sorted; values that are None are left out."""
    pairs = [f"{key}{sign}{value}" for key, value in sorted(values.items()) if value is not None]
    return ", ".join(pairs)


def _escape_markdown(value: object) -> str:
    """Return foreign text with all markup of Markdown escaped."""
    return _MARKS.sub(r"\\\g<0>", escape(_one_line(value), quote=False))


def _inline_code(value: object) -> str:
    """Return text as inline code, with backticks replaced."""
    return "`" + _one_line(value).replace("`", "'").replace("|", "\\|") + "`"


def _one_line(value: object) -> str:
    return " ".join(replace_controls(str(value)).split())


def code_block(text: str, language: str) -> str:
    """Return text as a block of code in a language, with a fence that does not occur in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{replace_controls(text)}\n{fence}"


def _format_number(value: int) -> str:
    return f"{value:,}"


def _histogram_bars(histogram: Mapping[str, Sequence[int]]) -> str:
    # Neighbouring bins are merged until at most ``_ROWS`` are left.
    bins = list(zip(histogram["low"], histogram["high"], histogram["count"], strict=True))
    step = -(-len(bins) // _ROWS)
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
        bar = "█" * max(1, round(_BAR * count / largest))
        rows.append(f"{label:>{width}}  {bar:<{_BAR}}  {count:,}")
    return "\n".join(rows)
