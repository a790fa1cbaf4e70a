"""Check parameters from outside (a command line, a call, a card) against a pipeline's model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from kmip_data.errors import UsageError
from kmip_data.pipelines.base import Params
from kmip_data.wording import nearest

M = TypeVar("M", bound=BaseModel)


def check_params(model: type[M], values: Mapping[str, Any], dataset: str) -> M:
    """Return ``values`` as the model; every fault at once, with the nearest name for an unknown one.

    Raises ``UsageError`` where a name is unknown or a value is out of range.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        faults = []
        for fault in error.errors():
            field, why = ".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, ")
            if fault["type"] == "extra_forbidden":
                close = nearest(field, model.model_fields)
                faults.append(f"{field!r} is unknown" + (f" (did you mean {close!r}?)" if close else ""))
            elif not field:  # of values together
                faults.append(why)
            else:
                faults.append(f"{field} = {fault['input']!r}: {why}")
        raise UsageError(
            f"Parameters of {dataset!r} are not valid.",
            expected=", ".join(model.model_fields),
            found="; ".join(faults),
            next=f"kmip-data build {dataset} --help",
        ) from error


def check_sample(params: Params, dataset: str, *, sample: bool) -> None:
    """Refuse parameters of a sample where no sample is built: they would name a build and change nothing."""
    given = [name for name in params.of_samples if getattr(params, name) is not None]
    if given and not sample:
        raise UsageError(
            f"{dataset} is built whole: --{given[0]} is the size of a sample.",
            expected=f"--{given[0]} with --sample only",
            found=f"--{given[0]} {getattr(params, given[0])}",
            next=f"kmip-data build {dataset} --help",
        )
