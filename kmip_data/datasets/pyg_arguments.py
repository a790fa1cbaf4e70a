"""Constructor calls of PyTorch Geometric's classes, translated to ours.

Two or more positional arguments have the order of PyTorch Geometric's class; a single one keeps our
meaning. A keyword of PyTorch Geometric's has its meaning there; an argument that is left out has
our default.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from kmip_data.errors import UsageError

#: The last arguments of PyTorch Geometric's datasets of many graphs.
STEPS = ("transform", "pre_transform", "pre_filter", "force_reload")

#: Our arguments for an argument of PyTorch Geometric's, given its name and value.
Meaning = Callable[[str, Any], dict[str, object]]
Init = TypeVar("Init", bound=Callable[..., None])


def accept_pyg_order(*order: str, **meanings: Meaning) -> Callable[[Init], Init]:
    """Let ``__init__`` be called as PyTorch Geometric's class is.

    Parameters
    ----------
    *order
        Positional arguments of PyTorch Geometric's class.
    **meanings
        Arguments of PyTorch Geometric's that are not ours: what they mean in our arguments.

    A call raises ``UsageError`` where an argument is given twice, also once in our words and once
    in PyTorch Geometric's, or has a value that a build does not have; ``TypeError`` where there are
    too many positional arguments.
    """

    def decorate(init: Init) -> Init:
        parameters = inspect.signature(init).parameters.values()
        _, *our_order = [
            entry.name for entry in parameters if entry.kind is entry.POSITIONAL_OR_KEYWORD
        ]

        @functools.wraps(init)
        def init_in_pyg_order(self: object, *positional: object, **call: object) -> None:
            title = type(self).__name__

            def put(name: str, value: object) -> None:
                if name in call:
                    raise UsageError(
                        f"{title} is given {name} twice, by position or in PyTorch Geometric's words.",
                        next=f"give {name} once: help(kmip_data.{title})",
                    )
                call[name] = value

            names = order if len(positional) > 1 or our_order[0] in call else our_order
            if len(positional) > len(names):
                raise TypeError(
                    f"{title} takes at most {len(names)} positional arguments: {', '.join(names)}"
                )
            for name, value in zip(names, positional, strict=False):
                put(name, value)
            for name, meaning in meanings.items():
                if name in call:
                    for ours, value in meaning(name, call.pop(name)).items():
                        put(ours, value)
            init(self, **call)

        return cast("Init", init_in_pyg_order)

    return decorate


def value_as_stored(*values: object) -> Meaning:
    """Return the meaning of an argument that must be one of ``values``, as the build stores it."""

    def meaning(name: str, value: object) -> dict[str, object]:
        if value not in values:
            raise UsageError(
                f"{name}={value!r} is not how the build is stored.",
                expected=f"{name}={values[0]!r}",
                next="transform=…, on reading",
            )
        return {}

    return meaning
