"""Which attributes an item has, and which bytes of the shards each is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from kmip_data.format.schema import Column, ItemForm, Schema, View
from kmip_data.manifest import unknown_name

Level = Literal["graph", "node", "edge"]

#: Order of PyTorch Geometric's own ``Data``; other attributes follow in the order of the schema.
_ORDER: Final = ("x", "edge_index", "edge_attr", "y", "pos")


@dataclass(frozen=True)
class Field:
    """One attribute of an item; see also :class:`~kmip_data.format.schema.Column`."""

    attribute: str
    key: str  #: HDF5 path of the rows it is taken from
    level: Level  #: what a row belongs to
    stored: np.dtype[Any]
    presented: np.dtype[Any]
    shape: tuple[int, ...]  #: of a presented row
    row_bytes: int  #: of a whole stored row
    offset: int  #: first byte taken from each row
    width: int  #: bytes taken; a view takes a part
    form: ItemForm = "axis"
    num_classes: int | None = None
    low: float | None = None
    most: float | None = None


def item_fields(
    schema: Schema, columns: Sequence[str] | None = None, views: Sequence[View] = ()
) -> tuple[tuple[Field, ...], bool]:
    """Return the fields of an item, in the item's order, and whether it has ``edge_index``.

    ``columns`` names the attributes wanted; ``None``: all; ``UsageError`` where there is none of that name.
    Of ``views``, which come besides the schema's, one with the name of a stored attribute takes its place.
    """
    fields = {column.attribute: _of_column(column) for column in schema.columns}
    for view in (*schema.views, *views):
        fields[view.attribute] = _of_view(_of_column(schema.column(view.source)), view)
    names = [*fields, *(["edge_index"] if schema.edges != "none" else [])]
    wanted = names if columns is None else list(columns)
    for name in wanted:
        if name not in names:
            raise unknown_name("column", name, sorted(names), command="kmip-data info NAME")
    chosen = sorted((name for name in names if name in wanted), key=_rank)
    return tuple(fields[name] for name in chosen if name != "edge_index"), "edge_index" in chosen


def item_order(names: Sequence[str]) -> list[str]:
    """Sort attribute names as PyTorch Geometric's ``Data`` does; others keep their order."""
    return sorted(names, key=_rank)


def counts_nodes(fields: Sequence[Field]) -> bool:
    """Whether PyTorch Geometric can tell the number of nodes from these attributes."""
    return any(
        field.level == "node" and (field.attribute in {"x", "pos"} or "node" in field.attribute)
        for field in fields
    )


def _rank(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _of_column(column: Column) -> Field:
    stored = np.dtype(column.stored)
    width = stored.itemsize * math.prod(column.shape)
    level: Level = column.level  # type: ignore[assignment] # the writer accepts no other
    presented = np.dtype(column.presented)
    return Field(
        attribute=column.attribute,
        key=column.key,
        level=level,
        stored=stored,
        presented=presented,
        shape=column.shape,
        row_bytes=width,
        offset=0,
        width=width,
        form=column.form,
        num_classes=column.num_classes,
        low=column.low,
        most=column.most,
    )


def _of_view(source: Field, view: View) -> Field:
    component = source.stored.itemsize * math.prod(source.shape[1:])
    return replace(
        source,
        attribute=view.attribute,
        shape=(view.stop - view.start, *source.shape[1:]),
        offset=view.start * component,
        width=(view.stop - view.start) * component,
        num_classes=None,
    )
