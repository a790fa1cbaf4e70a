"""Markdown page of a build, with text from cards escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from kmip_data.files.folder_marker import PICTURE_NAME
from kmip_data.files.page_templates import page_template
from kmip_data.format.build_facts import BuildFacts
from kmip_data.format.card import Card
from kmip_data.text import format_parameters, one_line

_BAR_LENGTH = 24  #: characters of the longest bar of a histogram
_MAX_ROWS = 16  #: largest number of rows of a histogram
#: Markup characters of Markdown; an underscore between letters is plain text.
_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def render_card(card: Card, *, picture: bool = False) -> str:
    """Return the page of a card; equal cards give equal pages.

    With ``picture``, it starts with the picture drawn by ``build`` and ``preview``.
    """
    filters = (
        _histogram_bars,
        _inline_code,
        format_parameters,
        _escape_markdown,
        code_block,
    )
    page = page_template("kmip_data.format", "build.md", *filters)
    return page.render(**_template_values(card), picture=PICTURE_NAME if picture else None)


def _template_values(card: Card) -> dict[str, object]:
    """Return the values of the template."""
    schema = card.schema_
    # The example on the page reads the first shard and the first node column.
    first = card.shards[0]
    file = first.file
    file_options = ""
    if first.members:  # HDF5's family driver joins files by a pattern of their names
        file = re.sub(r"-0+\.h5$", "-%05d.h5", next(iter(first.files)))
        file_options = f', driver="family", memb_size={first.members[0].bytes}'
    return {
        "card": card,
        "facts": BuildFacts(card),
        "edges": schema.edges,
        "file": file,
        "file_options": file_options,
        "node": next((column.key for column in schema.columns if column.level == "node"), None),
    }


def _escape_markdown(value: object) -> str:
    """Format a value, and escape all Markdown and HTML markup."""
    if isinstance(value, int):
        return f"{value:,}"
    return _MARKUP.sub(r"\\\g<0>", escape(_one_line(value), quote=False))


def _inline_code(value: object) -> str:
    """Format text as inline code, with backticks replaced."""
    return "`" + _one_line(value).replace("`", "'").replace("|", "\\|") + "`"


def _one_line(value: object) -> str:
    return " ".join(one_line(str(value)).split())


def code_block(text: str, language: str) -> str:
    """Format text as a code block, with a fence that does not occur in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    lines = "\n".join(map(one_line, text.split("\n")))
    return f"{fence}{language}\n{lines}\n{fence}"


def _histogram_bars(histogram: Mapping[str, Sequence[int]]) -> str:
    lows = histogram["low"]
    highs = histogram["high"]
    # Merge adjacent bins until at most _MAX_ROWS are left.
    step = -(-len(lows) // _MAX_ROWS)
    counts = {}
    for start in range(0, len(lows), step):
        low = lows[start]
        high = highs[start : start + step][-1]
        label = f"{low:,}" if low == high else f"{low:,}–{high:,}"
        counts[label] = sum(histogram["count"][start : start + step])

    largest = max(counts.values())
    width = max(map(len, counts))
    rows = []
    for label, count in counts.items():
        bar = "█" * max(1, round(_BAR_LENGTH * count / largest))
        rows.append(f"{label:>{width}}  {bar:<{_BAR_LENGTH}}  {count:,}")
    return "\n".join(rows)
