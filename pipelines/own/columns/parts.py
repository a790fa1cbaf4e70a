"""Parts of a split, masks of parts and groups, as columns of a table have them."""

from __future__ import annotations

import re
import unicodedata

import numpy as np

from kmip_data.arrays import I64, U8, Array
from kmip_data.columns.part_masks import part_code
from kmip_data.errors import Setting
from kmip_data.format.split_files import NO_PART, PART_CODES
from kmip_data.pipelines.own.columns.facts import ColumnFacts
from kmip_data.pipelines.own.columns.uses import Candidate
from kmip_data.text import list_names


def read_parts(column: Candidate) -> U8:
    """Return a column of parts as codes (R,); refuse other texts."""
    facts = column.facts
    codes, unknown, part = codes_of_parts(facts)
    if facts.are_words_given and part:
        codes = [PART_CODES[part] if code is None else code for code in codes]
    elif unknown:
        problem = f"{column.name!r} is {unknown[0]!r}, not train, val or test"
        if len(unknown) > 1:
            problem += f"; unknown are {list_names(unknown)}"
        remedy = "write train, val or test instead, or ignore it if it is not a split"
        row = facts.row_of(unknown[0])
        raise column.table.error_at(row, problem, [remedy, Setting(ignore=column.name)])
    return facts.by_row(codes, NO_PART).astype(np.uint8)


def codes_of_parts(facts: ColumnFacts) -> tuple[list[int | None], list[str], str]:
    """Return the code of each distinct text, the unknown texts, and the part that a single one may be.

    This is the part that has no other text, as ``Validierung`` is next to those of train and test.
    """
    codes = [part_code(text) for text in facts.texts]
    unknown = [text for text, code in zip(facts.texts, codes, strict=True) if code is None]
    others = [part for part, code in PART_CODES.items() if code not in codes]
    part = others[0] if len(unknown) == len(others) == 1 else ""
    return codes, unknown, part


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
