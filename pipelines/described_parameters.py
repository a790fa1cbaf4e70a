"""Descriptions of builds of clouds and pictures: their parameters, with classes as the files have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

from pydantic import Field, InstanceOf, PrivateAttr

from kmip_data.builds.home import Home, path_or_none
from kmip_data.columns.column_roles import (
    ColumnRoles,
    column_roles_on_card,
    html_table,
    toml_value,
)
from kmip_data.errors import Command, DamagedInput, UsageError
from kmip_data.files.small_files import first_problem, read_toml
from kmip_data.format.card import Card
from kmip_data.pipelines.find_builds import find_build
from kmip_data.pipelines.own_pipeline import OwnParams, OwnPipeline
from kmip_data.strict_model import StrictModel

_MAX_BYTES = 2**23  #: largest description
#: Parameters that describe the labels; another label has others.
_LABEL_PARAMETERS = {"label", "label_optional", "task", "classes", "class_name"}


class DescribedParameters(StrictModel):
    """Parameters with which a recipe read clouds or pictures."""

    titles: ClassVar = ("parameter", "value")  #: of the columns of ``table_rows``
    recipe: str
    parameters: dict[str, Any]  #: JSON values by name; classes are in the order of their codes

    @classmethod
    def from_card(cls, card: Card) -> Self:
        """Return the parameters on the card of a build; none for other data."""
        files = card.statistics.get("files") or {}
        return cls(recipe=card.manifest, parameters=files.get("parameters") or {})

    def with_parameters(self, **changes: object) -> Self:
        """Return the description with other values of some parameters."""
        return self.model_copy(update={"parameters": {**self.parameters, **changes}})

    def table_rows(self) -> list[list[object]]:
        """Return a row for each parameter: name and value."""
        return [[name, value] for name, value in self.parameters.items()]

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        return html_table([self.titles, *self.table_rows()])

    def to_toml(self, command: str = "") -> str:
        """Return the parameters as TOML, with the ``command`` that builds with them in a comment."""
        lines = ["# Parameters of the build, as of --set.", f"# Then: {command}"]
        lines += [f"{name} = {toml_value(value)}" for name, value in self.parameters.items()]
        return "\n".join([*lines, ""])


def description_of_build(card: Card) -> ColumnRoles | DescribedParameters:
    """Return how a build read the user's files: uses of columns of graphs, or else parameters."""
    return column_roles_on_card(card.statistics) or DescribedParameters.from_card(card)


class DescribedSource(StrictModel):
    """Files that can be read like those of an earlier build."""

    like: str | InstanceOf[DescribedParameters] = Field(
        default="",
        description="earlier build or run with the parameters and classes to use, or a file of --describe",
    )
    _ignored_files: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def ignored_files(self) -> dict[str, str]:
        """Reason for each file that is not copied."""
        return self._ignored_files


P = TypeVar("P", bound=OwnParams)


class DescribedPipeline(OwnPipeline[P]):
    """Pipeline whose builds are described by their parameters."""

    def parameters_like(
        self, source: DescribedSource, typed: Mapping[str, object], home: Home
    ) -> Mapping[str, object]:
        """Return the ``typed`` parameters, with those that ``source`` is like for others.

        Labels may be missing in all files, because a trained model predicts them.
        """
        if not source.like:
            return typed
        described = _parameters_for_like(source.like, self.manifest.pipeline, home)
        described["label_optional"] = True
        if "label" in typed and typed["label"] != described.get("label"):
            for name in _LABEL_PARAMETERS:
                described.pop(name, None)
        return {**described, **typed}


def _parameters_for_like(
    like: str | DescribedParameters, recipe: str, home: Home
) -> dict[str, Any]:
    """Return the parameters of a description, a file of ``--describe`` or a build of the recipe."""
    if isinstance(like, str):
        path = path_or_none(like, home)
        if path and path.is_file():
            try:
                return read_toml(path, _MAX_BYTES)
            except (OSError, ValueError) as error:
                raise DamagedInput(
                    f"{path.name} is not a description of {recipe}: {first_problem(error)}.",
                    steps="write one with a dry run",
                ) from error
        card = find_build(like, home=home).card
        name = card.dataset
        like = DescribedParameters.from_card(card)
    else:
        name = "The description"
    if like.recipe != recipe:
        raise UsageError(
            f"{name} was not built by {recipe!r}.",
            expected=f"a build of {recipe!r}, or a description of one",
            steps=Command("kmip-data info", recipe),
        )
    return {**like.parameters}
