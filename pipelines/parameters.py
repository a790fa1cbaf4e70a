"""Check parameters from outside (a command line, a call, a card) against a pipeline's model."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from kmip_data.errors import UsageError

M = TypeVar("M", bound=BaseModel)


def check_params(model: type[M], values: Mapping[str, Any], dataset: str) -> M:
    """Return ``values`` as the model; every fault at once, with the nearest name for an unknown one.

    Raises
    ------
    UsageError
        A name is unknown or a value is out of range.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        faults = []
        for fault in error.errors():
            field = ".".join(str(part) for part in fault["loc"])
            if fault["type"] == "extra_forbidden":
                close = difflib.get_close_matches(field, model.model_fields, n=1, cutoff=0.4)
                faults.append(f"{field!r} is unknown" + (f" (did you mean {close[0]!r}?)" if close else ""))
            elif not field:  # of values together
                faults.append(fault["msg"].removeprefix("Value error, "))
            else:
                faults.append(f"{field} = {fault['input']!r}: {fault['msg']}")
        raise UsageError(
            f"Parameters of {dataset!r} are not valid.",
            expected=", ".join(model.model_fields),
            found="; ".join(faults),
            left="nothing was changed",
            next=f"kmip-data build {dataset} --help",
        ) from error
