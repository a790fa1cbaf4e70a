"""Types of what cards hold: names that are names, and values that their readers can rely on."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, JsonValue, model_validator

from kmip_data.manifest import Standardisation

_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9 ._+=,()@-]{0,199}"
NAME_WORDS: Final = "letters, digits and ' ._+=,()@-', beginning with a letter, digit or '_'"

Name = Annotated[str, Field(pattern=f"^{_NAME}$")]  #: one component of a path
ShardFile = Annotated[str, Field(pattern=f"^shards/{_NAME}$")]
SplitFile = Annotated[str, Field(pattern=f"^splits/{_NAME}$")]
RelativePath = Annotated[str, Field(pattern=rf"^(?:{_NAME}/){{0,2}}{_NAME}$")]  #: of up to three components
Count = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float | int, Field(ge=-1e300, le=1e300)]
_Counts = Annotated[list[Count], FailFast()]


def is_name(text: str) -> bool:
    """Whether a text is a :data:`Name`."""
    return re.fullmatch(_NAME, text) is not None


def _plain(parameters: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse parameters that no option could have given."""
    for name, value in parameters.items():
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, dict | list) for item in items):
            raise ValueError(
                f"{name[:80]} is neither a number, a text, true, false, null nor a list of these"
            )
    for name, kind in (("k", int), ("limit", int), ("compression", str)):
        value = parameters.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ValueError(f"{name} has the wrong type")
    return parameters


Parameters = Annotated[dict[str, Any], AfterValidator(_plain)]


class _Open(BaseModel):
    """What is known of a part of the statistics; other keys are of whoever wrote them."""

    model_config = ConfigDict(extra="allow")


class _Histogram(_Open):
    low: _Counts
    high: _Counts
    count: _Counts

    @model_validator(mode="after")
    def _agree(self) -> _Histogram:
        if not len(self.low) == len(self.high) == len(self.count) > 0:
            raise ValueError("low, high and count are not of one length")
        return self


class _Spread(_Open):
    min: Number
    mean: Number
    max: Number
    histogram: _Histogram


class _Classes(_Open):
    total: _Counts = []
    splits: dict[Name, dict[Name, _Counts]] = {}

    @model_validator(mode="after")
    def _agree(self) -> _Classes:
        rows = (row for parts in self.splits.values() for row in parts.values())
        if self.total and any(len(row) != len(self.total) for row in rows):
            raise ValueError("a part has other classes than all records")
        return self


_Range = Annotated[list[Number], Field(min_length=2, max_length=2)]


class _Features(_Open):
    mean: list[Number]
    std: list[Number]
    coordinate_range: Annotated[list[_Range], Field(min_length=2, max_length=2)]


_Nothing = Annotated[dict[str, Any], Field(max_length=0)]


class _City(_Open):
    features: _Features | _Nothing = {}
    vocabulary: dict[str, list[Any]] | None = None
    warnings: list[str] = []


class _Statistics(_Open):
    nodes_per_graph: _Spread | _Nothing = {}
    edges_per_graph: _Spread | _Nothing = {}
    in_degree: _Spread | _Nothing = {}
    out_degree: _Spread | _Nothing = {}
    classes: _Classes = _Classes()
    city: _City = _City()
    standardisation: dict[str, Standardisation] = {}


def check_statistics(statistics: dict[str, Any]) -> dict[str, Any]:
    """Return the statistics of a card as they are, once they are of the form that is read."""
    _Statistics.model_validate(statistics)
    return statistics
