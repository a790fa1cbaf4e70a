"""Summary of the files for the card: given splits, ignored inputs, missing values and warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kmip_data.format.schema import PART_DOC, Column
from kmip_data.pipelines.datasets.graphs.findings import Attributes, Findings

MASK_SPLIT = "masks"  #: name of the split that masks give
#: Maximum length of all component names of an attribute in a shard; longer lists are only on the card.
_MAX_NAME_CHARACTERS = 20_000


def summarise_files(
    edge_summary: Mapping[str, Any],
    warnings: Sequence[str],
    findings: Findings,
    columns: Sequence[Column],
) -> dict[str, Any]:
    """Return the summary of the files for the card."""
    given_splits = [column.attribute for column in columns if column.doc == PART_DOC]
    masks = findings.attributes.masks
    if masks is not None:
        folds = f", folds 0 to {masks.shape[1] - 1}" if masks.ndim > 1 else ""
        given_splits.insert(0, f"{MASK_SPLIT}{folds}")
    not_finite = sorted(
        column.attribute for column in columns if not column.finite and column.attribute != "y"
    )
    if not_finite:
        names = ", ".join(not_finite)
        warnings = [
            *warnings,
            f"not finite everywhere: {names}; training takes NaN for a missing number, and refuses infinity",
        ]
    summary: dict[str, Any] = {}
    if findings.tables.key_column:
        summary["key"] = findings.tables.key_column
    if findings.tables.direction is not None:
        columns_of_ends, remedy = findings.tables.direction
        # The order of ends makes no difference to edges that go both ways.
        if remedy and edge_summary["directed"].startswith("yes"):
            columns_of_ends += f", {remedy}"
        summary["direction"] = columns_of_ends
    if "," in findings.notices.decimal_signs:
        summary["decimal"] = "numbers have decimal commas"
    summary |= edge_summary
    summary |= {
        "given_splits": given_splits,
        "ignored": [f"{name}: {reason}" for name, reason in findings.notices.ignored.items()],
        "missing": [],
        "warnings": list(warnings),
    }
    targets = findings.attributes.component_names.get("y", ())
    for name, count in findings.notices.missing.items():
        key = "missing_labels" if name in {*targets, ", ".join(targets)} else "missing"
        summary.setdefault(key, []).append(f"{name}: {count:,}")
    long_names = {}
    for attribute, component_names in findings.attributes.component_names.items():
        if component_names and not stored_component_names(attribute, findings.attributes):
            long_names[attribute] = list(component_names)
    if long_names:
        summary["features"] = long_names
    return summary


def stored_component_names(attribute: str, attributes: Attributes) -> tuple[str, ...]:
    """Return the component names of an attribute; none if they are too long for a shard."""
    names = attributes.component_names.get(attribute, ())
    return names if sum(map(len, names)) < _MAX_NAME_CHARACTERS else ()
