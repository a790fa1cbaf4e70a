"""Parts of a split, masks of parts and groups, as columns of a table have them."""

from __future__ import annotations

import re
import unicodedata

import numpy as np

from kmip_data.arrays import I64, U8, Array
from kmip_data.columns.part_masks import part_code
from kmip_data.errors import Setting
from kmip_data.format.split_files import NO_PART
from kmip_data.pipelines.own.columns.uses import Candidate
from kmip_data.text import list_names


def read_parts(column: Candidate) -> U8:
    """Return a column of parts as codes (R,); refuse other texts."""
    facts = column.facts
    codes = [part_code(text) for text in facts.texts]
    if None in codes:
        unknown = [text for text in facts.texts if part_code(text) is None]
        problem = f"{column.name!r} is {unknown[0]!r}, not train, val or test"
        if len(unknown) > 1:
            problem += f"; unknown are {list_names(unknown)}"
        remedy = "write train, val or test instead, or ignore it if it is not a split"
        row = facts.row_of(unknown[0])
        raise column.table.error_at(row, problem, [remedy, Setting(ignore=column.name)])
    return facts.by_row(codes, NO_PART).astype(np.uint8)


def read_groups(column: Candidate) -> I64:
    """Return the number of each row's group (R,), -1 for an empty cell; refuse fractions."""
    facts = column.facts
    if facts.numbers is not None and not facts.are_whole:
        row = int((np.nan_to_num(facts.numbers) % 1 > 0).argmax())
        raise column.table.error_at(
            row,
            f"{column.name!r} is {facts.cells[row]}, not the text or whole number of a group",
            "name a column of names or ids as group",
        )
    return facts.codes


def read_mask(column: Candidate) -> Array:
    """Return a mask (R,) of integers; of other values as they are, to be refused."""
    facts = column.facts
    if facts.numbers is None:
        return facts.as_texts()
    are_integers = facts.are_whole and facts.filled == len(facts.cells)
    return facts.numbers.astype(np.int64) if are_integers else facts.numbers


def attribute_name(name: str) -> str:
    """Return the name of a column in ASCII letters, digits and underscores, as arrays have them.

    >>> attribute_name("Größe (1. Fold)"), attribute_name("2nd split"), attribute_name("fold_1")
    ('Groe_1_Fold', 'split_2nd_split', 'fold_1')
    """
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    attribute = re.sub(r"[^A-Za-z0-9_]+", "_", ascii_name).strip("_")
    attribute = attribute if attribute[:1].isalpha() else f"split_{attribute}".rstrip("_")
    return attribute[:90]
