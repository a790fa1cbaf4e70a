"""Splits of datasets that people make of their own files: parts of given shares, at random or stratified."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.random import PCG64, Generator
from pydantic import Field, model_validator

from kmip_data.format.parts import PARTS
from kmip_data.graphs.splits import share_of
from kmip_data.pipelines.base import Records, Split, SplitParams


class OwnSplitParams(SplitParams):
    """Parameters of the split."""

    seeded: ClassVar[tuple[str, ...]] = ("random", "stratified")

    split: str = Field(
        default="random",
        pattern="^(random|stratified)$",
        description="random: records dealt at random; stratified: with equal shares of the classes",
    )
    val_fraction: float = Field(default=0.1, ge=0, lt=1, description="share of the records that validate")
    test_fraction: float = Field(default=0.1, ge=0, lt=1, description="share of the records that test")

    @model_validator(mode="after")
    def _some_train(self) -> Self:
        if self.val_fraction + self.test_fraction >= 1:
            raise ValueError("val_fraction and test_fraction leave nothing to train with")
        return self


def random_split(records: Records, params: OwnSplitParams) -> Split:
    """Deal records by a permutation; parts are in source order, and at least one record trains."""
    total = len(records.keys)
    test = share_of(total, params.test_fraction) if params.test_fraction else 0
    val = (
        share_of(total - test, params.val_fraction / (1 - params.test_fraction)) if params.val_fraction else 0
    )
    order = Generator(PCG64(params.split_seed)).permutation(total)
    cuts = np.split(order, [test, test + val])
    parts = {name: np.sort(rows).tolist() for name, rows in zip(("test", "val", "train"), cuts, strict=True)}
    name = f"random-seed{params.split_seed}"
    if (params.val_fraction, params.test_fraction) != (0.1, 0.1):
        name += f"-val{params.val_fraction:g}-test{params.test_fraction:g}"
    return Split(
        name,
        "random",
        params.model_dump(exclude={"split"}),
        {part: parts[part] for part in PARTS},
    )
