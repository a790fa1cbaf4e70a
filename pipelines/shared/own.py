"""Base of datasets made from your own files: named classes, skipped files, splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.random import PCG64, Generator
from pydantic import Field, model_validator

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput
from kmip_data.format.splits import PARTS
from kmip_data.format.writer import Skipped
from kmip_data.graphs.splits import share_of
from kmip_data.manifest import Strict
from kmip_data.pipelines.base import Params, Pipeline, Records, Split, SplitParams
from kmip_data.pipelines.raw.copies import RawCopy
from kmip_data.pipelines.raw.own_files import copy_in


class OwnParams(Params):
    """Parameters of datasets of a user's own files."""

    class_name: tuple[str, ...] = Field(default=(), description="name of each class, in order; repeat")
    on_error: Literal["stop", "skip"] = Field(
        default="stop", description="a file that cannot be used: stop, or skip it and list it on the card"
    )


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


P = TypeVar("P", bound=OwnParams)


class OwnPipeline(Pipeline[P, OwnSplitParams]):
    """A dataset of a user's own files, under a name of their choice."""

    SplitParams: ClassVar[type[OwnSplitParams]] = OwnSplitParams
    Source: ClassVar[type[Strict]]  #: sources; its fields are options of ``build``

    def bring(
        self, source: Any, params: P, home: Home, *, offline: bool, quiet: bool
    ) -> tuple[RawCopy, bool]:
        """Copy the files into the home folder; return the copy and whether it is new."""
        return copy_in(self.manifest.name, source.files(), source.origin, home, quiet=quiet)

    def class_names(self, params: P) -> tuple[str, ...]:
        """Those that were given."""
        return params.class_name

    def split(self, records: Records, params: OwnSplitParams, raw: Path | None) -> Split:
        """Deal records by a permutation; parts are in source order, and at least one record trains."""
        total = len(records.keys)
        test = share_of(total, params.test_fraction) if params.test_fraction else 0
        share = params.val_fraction / (1 - params.test_fraction)
        val = share_of(total - test, share) if share else 0
        order = Generator(PCG64(params.split_seed)).permutation(total)
        cuts = np.split(order, [test, test + val])
        dealt = dict(zip(("test", "val", "train"), (np.sort(rows).tolist() for rows in cuts), strict=True))
        name = f"random-seed{params.split_seed}"
        if (params.val_fraction, params.test_fraction) != (0.1, 0.1):
            name += f"-val{params.val_fraction:g}-test{params.test_fraction:g}"
        parameters = params.model_dump(exclude={"split"})
        return Split(name, "random", parameters, {part: dealt[part] for part in PARTS})

    def name_parts(self, params: P) -> list[str]:
        """Parts of the folder's name for values other than the defaults."""
        return ["skip"] if params.on_error == "skip" else []

    def advice(self) -> None:
        """None: there is no other copy."""

    def stop_or_skip(self, key: str, error: DamagedInput, params: P) -> Skipped:
        """Return that a file is left out, or raise its error, as ``params`` ask for."""
        if params.on_error == "skip":
            found = error.parts["found"]
            return Skipped(key, f"{error.what}{f' ({found})' if found else ''}")
        manifest = self.manifest
        error.parts["next"] = error.parts["next"] or (
            "repair or remove the file, or skip it: "
            f"kmip-data build {manifest.file} --name {manifest.name} --set on_error=skip …"
        )
        raise error
