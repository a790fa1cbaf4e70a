"""Tables as text of Markdown, LaTeX or HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

FEW = "†"  #: marks a mean of fewer runs than the paper's
_LATEX = str.maketrans(
    {mark: f"\\{mark}" for mark in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "−": "$-$", "–": "--", "Δ": r"$\Delta$", "→": r"$\to$", "…": r"\dots{}"}
    # Without width, so that the digits of a right-aligned column stay aligned.
    | {"†": r"\rlap{$^\dagger$}"}
)
_NUMBER = re.compile(r"[+−-]?\d")


class _Form(NamedTuple):
    """Markup of one format."""

    quoted: Callable[[str], str]  #: escape a text
    best: str
    second: str
    row: str
    between: str
    whole: str  #: with ``title``, ``notes``, ``head``, ``rows`` and ``columns``


_FORMS = {
    "markdown": _Form(
        lambda text: text.replace("|", "\\|"), "**{}**", "*{}*", "| {} |", " | ",
        "**{title}**\n\n{head}\n|{columns}\n{rows}\n\n{notes}",
    ),
    "latex": _Form(
        lambda text: text.translate(_LATEX).replace(r" \rlap", r"\rlap"),
        r"\textbf{{{}}}", r"\underline{{{}}}", r"    {} \\", " & ",
        "\\begin{{table}}\n  \\centering\n  \\caption{{{title}. {notes}}}\n"
        "  \\begin{{tabular}}{{{columns}}}\n"
        "    \\toprule\n{head}\n    \\midrule\n{rows}\n    \\bottomrule\n  \\end{{tabular}}\n\\end{{table}}",
    ),
    "html": _Form(
        lambda text: f'<span class="few">{escape(text)}</span>' if FEW in text else escape(text),
        "<b>{}</b>", "<u>{}</u>", "<tr><td>{}</td></tr>", "</td><td>",
        '<h2>{title}</h2><div class="wide"><table>\n{head}\n{rows}\n</table></div><p>{notes}</p>',
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Sheet:
    """A table of texts."""

    title: str
    header: list[str]
    cells: list[list[str]]
    places: Sequence[int | None] = ()  #: 1 for the best row, 2 for the second
    notes: str = ""
    narrow: Sequence[Sheet] = ()  #: the same within the width of a page, for LaTeX; empty: as it is

    @classmethod
    def of(
        cls,
        title: str,
        rows: Sequence[Mapping[str, Any]],
        places: Sequence[int | None] = (),
        notes: str = "",
        narrow: Sequence[Sheet] = (),
    ) -> Sheet:
        """Leave out the columns that are empty in all rows."""
        header = [name for name in rows[0] if any(row[name] not in {"", None} for row in rows)]
        cells = [["–" if row[name] in {"", None} else str(row[name]) for name in header] for row in rows]
        return cls(title, header, cells, places, notes, narrow)

    def written(self, name: str) -> str:
        """Return the table as ``markdown``, ``latex`` or ``html``; ``places`` are marked in ``test``."""
        if name == "latex" and self.narrow:
            return "\n\n".join(each.written(name) for each in self.narrow)
        form = _FORMS[name]
        rows = [[form.quoted(cell) for cell in row] for row in (self.header, *self.cells)]
        for row, place in zip(rows[1:], self.places, strict=False):
            if place:
                at = self.header.index("test")
                row[at] = (form.best if place == 1 else form.second).format(row[at])
        # A column of numbers is aligned to the right.
        numbers = [
            any(map(_NUMBER.match, cells)) and all(cell == "–" or _NUMBER.match(cell) for cell in cells)
            for cells in zip(*self.cells, strict=True)
        ]
        if name == "latex":
            marks = "".join("r" if number else "l" for number in numbers)
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            rows = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
        else:
            marks = "".join("---:|" if number else "---|" for number in numbers)
        head, *lines = [form.row.format(form.between.join(row)) for row in rows]
        title, notes = form.quoted(self.title), form.quoted(self.notes)
        whole = form.whole.format(title=title, notes=notes, head=head, rows="\n".join(lines), columns=marks)
        return whole.replace("****\n\n", "").strip()
