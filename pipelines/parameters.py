"""Base classes of build and split parameters, and their validation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self, TypeVar, get_origin

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticUndefined

from kmip_data.errors import Command, Setting, Step, UsageError
from kmip_data.files.small_files import reword_pydantic_problem
from kmip_data.strict_model import StrictModel
from kmip_data.text import PARAMETER_OPTIONS, count_with_noun, is_likely_typo, nearest_name


class BuildParams(StrictModel):
    """Parameters that change records. Their descriptions are the help of the command line.

    The build key includes all of them, except the defaults of ``added_later``: a new parameter listed
    there keeps the keys of existing builds.
    """

    added_later: ClassVar[frozenset[str]] = (
        frozenset()
    )  #: parameters that earlier builds did not have

    limit: int | None = Field(
        default=None,
        ge=1,
        description="build only N records, spread evenly over all",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _wrap_single_string(cls, value: object, field: ValidationInfo) -> object:
        """Accept a single string for a tuple of strings: ``label="cancer"`` is ``("cancer",)``."""
        is_tuple = get_origin(cls.model_fields[field.field_name or ""].annotation) is tuple
        return (value,) if is_tuple and isinstance(value, str) else value

    def identity(self) -> dict[str, object]:
        """Return the parameters in the build key and on the card."""
        changed = self.model_dump(exclude_defaults=True)
        return self.model_dump(mode="json", exclude={*self.added_later} - changed.keys())

    def requested(self) -> dict[str, object]:
        """Return the values to find on a card, where ``None`` stands for an absent parameter."""
        return {**dict.fromkeys(self.added_later), **self.identity()}

    def positions_to_build(self, total: int) -> Sequence[int]:
        """Return the positions of the records to build, in source order."""
        # Spread a limit over all records. Sources are ordered by area or part, so the first
        # records alone would leave some parts of the split empty.
        if self.limit is None or self.limit >= total:
            return range(total)
        return [i * total // self.limit for i in range(self.limit)]


class BaseSplitParams(StrictModel):
    """Parameters that choose a split; a split never changes the shards.

    A subclass lists its rules in ``split_rule``. Every dataset also has the rule ``stratified``
    (:func:`~kmip_data.pipelines.units_and_splits.apply_split`).
    """

    random_rules: ClassVar[tuple[str, ...]] = ("stratified",)  #: rules that use ``split_seed``
    rule_of_parameter: ClassVar[Mapping[str, str]] = {}  #: parameter -> the only rule that reads it
    #: Rule whose part sizes the stratified rule keeps; ``None``: the default rule.
    rule_of_part_sizes: ClassVar[str | None] = None

    split_rule: str = Field(default="upstream", description="rule")
    split_seed: int = Field(
        default=0,
        ge=0,
        le=2**32 - 1,
        description="seed of a random split rule",
    )

    @model_validator(mode="after")
    def _check_seed_has_effect(self) -> Self:
        if self.split_seed and self.split_rule not in self.random_rules:
            raise ValueError(f"the rule {self.split_rule!r} is not random: a seed has no effect")
        return self

    def identity(self) -> dict[str, object]:
        """Return the parameters that identify a split: the ones its rule reads."""
        unused = {name for name, rule in self.rule_of_parameter.items() if rule != self.split_rule}
        if self.split_rule not in self.random_rules:
            unused.add("split_seed")
        return self.model_dump(mode="json", exclude=unused)


class PublishedSplitParams(BaseSplitParams):
    """Split parameters of a dataset published in parts."""

    split_rule: Literal["upstream", "stratified"] = Field(
        default="upstream",
        description="upstream: the published train, val and test parts; stratified: redrawn with equal "
        "class fractions in every part",
    )


M = TypeVar("M", bound=BaseModel)


def check_fold(dataset: str, fold: int, folds: int, *, drawn: bool = False) -> None:
    """Refuse a fold that does not exist; a split ``drawn`` at random has seeds instead of folds."""
    if fold < folds:
        return
    if drawn:
        raise UsageError(
            f"{dataset} has no folds: its split is drawn with a seed.",
            steps=random_split(split_seed=fold),
        )
    error = UsageError(
        f"{dataset} has {count_with_noun(folds, 'fold')}: there is no fold {fold}.",
        steps=Setting(folds="0" if folds == 1 else f"0..{folds - 1}"),
    )
    error.correction = (f"fold={fold}", "fold=0")
    raise error


def random_split(**values: object) -> Setting:
    """Return the setting of a random split, which has no folds."""
    folds = dict.fromkeys(("fold", "folds", "data.split.fold"))
    return Setting({"split_rule": "random", **values, **folds})


def check_params(model: type[M], values: Mapping[str, object], dataset: str) -> M:
    """Validate ``values``; raise ``UsageError`` with all problems and the nearest names."""
    try:
        return model.model_validate(dict(values) if isinstance(values, Mapping) else values)
    except ValidationError as error:
        problems = []
        unknown = False
        correction = None
        step: Step = Command("kmip-data info", dataset)
        for problem in error.errors():
            field = ".".join(map(str, problem["loc"]))
            why = reword_pydantic_problem(problem["msg"])
            # All names are listed for an unknown name, not for a wrong value.
            if problem["type"] == "extra_forbidden":
                unknown = True
                close = nearest_name(field, model.model_fields)
                hint = f" (did you mean {close!r}?)" if close else ""
                if field in BaseSplitParams.model_fields and not issubclass(model, BaseSplitParams):
                    hint = (
                        " here: the split has separate parameters (split_parameters=, split_rule=)"
                    )
                if field == "k" and not issubclass(model, BaseSplitParams):
                    hint = " here: it has no k-NN graph (keys per query: model.attention.k)"
                    step = Setting({"model.attention.k": values["k"], "k": None})
                    correction = (
                        f"data.parameters.k={values['k']}",
                        f"model.attention.k={values['k']}",
                    )
                if close and is_likely_typo(field, close):
                    correction = (field, close)
                problems.append(f"{field!r} is unknown{hint}")
            elif not field:  # values that do not fit together
                problems.append(why)
            else:
                problems.append(f"{field} = {problem['input']!r}: {why}")
                correction = _nearest_value(problem, model) or correction
        refusal = UsageError(
            f"Parameters of {dataset!r} are not valid.",
            expected=", ".join(model.model_fields) if unknown else None,
            found="; ".join(problems),
            steps=step,
        )
        refusal.correction = correction
        raise refusal from error


def _nearest_value(problem: ErrorDetails, model: type[BaseModel]) -> tuple[str, str] | None:
    """Return the wrong value of a parameter, as typed, and the nearest valid one, if any."""
    name = str(problem["loc"][0])
    if len(problem["loc"]) > 1 or name not in model.model_fields:
        return None
    typed = problem["input"]
    default = model.model_fields[name].default
    bounds = problem.get("ctx", {})
    nearest: object = None
    match problem["type"]:
        case "literal_error":
            nearest = nearest_name(str(typed), re.findall("'([^']+)'", bounds["expected"]))
        case "bool_parsing":
            nearest = not default  # nobody types the default
        case "greater_than_equal":
            nearest = bounds["ge"]
        case "less_than_equal":
            nearest = bounds["le"]
        case "less_than" | "greater_than" | "float_parsing" | "int_parsing":
            nearest = default
    if nearest is None or nearest is PydanticUndefined:
        return None
    text = str(nearest).lower() if isinstance(nearest, bool) else str(nearest)
    if name in PARAMETER_OPTIONS:
        return str(typed), text
    return f"{name}={typed}", f"{name}={text}"
