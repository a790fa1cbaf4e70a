"""Columns that most datasets have: features of nodes and edges, and the class."""

from __future__ import annotations

from typing import Final

from kmip_data.format.schema import Column

_ATTRIBUTES: Final = {"node/x": "x", "edge/attr": "edge_attr"}


def feature_column(key: str, fields: tuple[str, ...], doc: str, *, stored: str = "float32") -> Column:
    """Return the column of real features, a row of ``fields`` for each, presented as float32."""
    return Column(
        key=key,
        attribute=_ATTRIBUTES[key],
        stored=stored,
        presented="float32",
        shape=(len(fields),),
        fields=fields,
        doc=doc,
    )


def index_column(key: str, fields: tuple[str, ...], largest: int, doc: str) -> Column:
    """Return the column of features that are indices from 0 to ``largest``, one byte each."""
    return Column(
        key=key,
        attribute=_ATTRIBUTES[key],
        stored="uint8",
        presented="int64",
        shape=(len(fields),),
        fields=fields,
        low=0,
        high=largest,
        doc=doc,
    )


def class_column(key: str, classes: int, doc: str) -> Column:
    """Return the column of the class, 0 to ``classes - 1``, of each node or graph: presented as ``y``."""
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
