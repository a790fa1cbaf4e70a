"""Reference answers as stored in a result, their titles and their means over runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import Field

from kmip_data.models.training.metric_text import format_metric, metric_title
from kmip_data.models.training.metrics import is_better
from kmip_data.strict_model import StrictModel

ReferenceName = Literal[
    "constant", "linear", "linear-neighbors", "trees", "trees-neighbors", "label-propagation"
]
#: Title of each reference, in the order of tables.
TITLES: dict[ReferenceName, str] = {
    "constant": "a constant answer",
    "linear": "a linear model",
    "linear-neighbors": "a linear model with neighbours",
    "trees": "boosted trees",
    "trees-neighbors": "boosted trees with neighbours",
    "label-propagation": "label propagation",
}


class Reference(StrictModel):
    """Metric of a simple method on val and test, fitted on the train part of a run."""

    val: float | None = Field(default=None, description="none: undefined, or the part is empty")
    test: float | None = None
    note: str = Field(default="", description="strength, drawn train items, or the constant class")


References = dict[ReferenceName, Reference]


def mean_references(all_references: Sequence[Mapping[ReferenceName, Reference]]) -> References:
    """Return the mean of each reference that all runs have, such as over their folds."""
    means: References = {}
    for name in TITLES:
        references = [found[name] for found in all_references if name in found]
        if references and len(references) == len(all_references):
            means[name] = Reference(
                val=_mean(reference.val for reference in references),
                test=_mean(reference.test for reference in references),
                note=references[0].note if len({*references}) == 1 else "",
            )
    return means


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def best_reference(
    references: Mapping[ReferenceName, Reference], metric: str
) -> ReferenceName | None:
    """Return the reference with the best ``metric`` on val among those that test knows.

    One without a value on val, such as a constant answer, counts only if there is no other.
    """
    best = None
    best_value = None
    for name, reference in references.items():
        if reference.test is None:
            continue
        if reference.val is None:
            best = best or name
        elif is_better(metric, reference.val, best_value):
            best = name
            best_value = reference.val
    return best


def references_table(references: Mapping[ReferenceName, Reference], metric: str) -> str:
    """Format a table of reference answers; empty if only a constant is known."""
    if not references.keys() - {"constant"}:
        return ""
    rows = [["reference answer", "val", "test"]]
    notes = [metric_title(metric)]
    for name, reference in references.items():
        values = (reference.val, reference.test)
        cells = ["–" if value is None else format_metric(metric, value, None) for value in values]
        rows.append([short_title(name), *cells])
        notes.append(reference.note)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for (title, *cells), note in zip(rows, notes, strict=True):
        numbers = "  ".join(map(str.rjust, cells, widths[1:]))
        lines.append(f"{title:{widths[0]}}  {numbers}  {note}".rstrip())
    return "\n".join(lines)


def short_title(name: ReferenceName) -> str:
    """Return the title of a reference without an article."""
    return TITLES[name].removeprefix("a ")
