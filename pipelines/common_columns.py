"""Columns shared by many schemas: features, classes and targets."""

from __future__ import annotations

from kmip_data.format.schema import Column, FieldKind, Schema

_ATTRIBUTES = {"node/x": "x", "edge/attr": "edge_attr"}


def feature_column(
    key: str,
    fields: tuple[str, ...],
    doc: str,
    *,
    stored: str = "float32",
    presented: str = "float32",
    high: int | None = None,
) -> Column:
    """Return a column of features, one component per field.

    ``high`` is the largest value of features that are indices from 0. Networks read ``node/x`` and
    ``edge/attr``; other columns become attributes under their own name.
    """
    return Column(
        key=key,
        attribute=_ATTRIBUTES.get(key, key.rpartition("/")[2]),
        shape=(len(fields),),
        fields=fields,
        doc=doc,
        stored=stored,
        presented=presented,
        low=None if high is None else 0,
        high=high,
    )


def kinds_of_measurements(schema: Schema) -> dict[str, list[FieldKind]]:
    """Return the kinds of fields that are all numbers, or positions if a view presents them so."""
    kinds: dict[str, list[FieldKind]] = {}
    for column in schema.columns:
        if column.fields:
            kinds[column.key] = ["number"] * len(column.fields)
    for view in schema.views:
        if view.attribute == "pos":
            kinds[view.source][view.start : view.stop] = ["position"] * (view.stop - view.start)
    return kinds


def class_column(key: str, classes: int, doc: str) -> Column:
    """Return the column ``y`` of class labels, 0 to ``classes - 1``, of nodes or graphs."""
    return Column(
        key=key,
        attribute="y",
        stored="uint8" if classes <= 256 else "uint16",
        presented="int64",
        low=0,
        high=classes - 1,
        num_classes=classes,
        doc=doc,
    )


def regression_column(key: str, doc: str, unit: str = "") -> Column:
    """Return the column ``y`` of regression targets of nodes or graphs; NaN if unknown."""
    return Column(
        key=key,
        attribute="y",
        stored="float32",
        presented="float32",
        finite=False,
        unit=unit,
        doc=doc,
    )
