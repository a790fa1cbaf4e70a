"""Translate constructor calls of PyTorch Geometric's classes to ours.

Two or more positional arguments have the order of PyTorch Geometric's class; a single one has our
meaning. Keywords of PyTorch Geometric's class keep their meaning. Omitted arguments have our
defaults.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from kmip_data.errors import UsageError

#: Last positional arguments of PyTorch Geometric's datasets of many graphs.
PYG_PROCESSING_ARGUMENTS = ("transform", "pre_transform", "pre_filter", "force_reload")

#: Function that translates the name and value of a PyTorch Geometric argument to our arguments.
Translator = Callable[[str, Any], dict[str, object]]
Init = TypeVar("Init", bound=Callable[..., None])


def accept_pyg_order(*pyg_order: str, **translators: Translator) -> Callable[[Init], Init]:
    """Decorate ``__init__`` to also accept calls written for PyTorch Geometric's class.

    Parameters
    ----------
    *pyg_order
        Positional arguments of PyTorch Geometric's class.
    **translators
        For each argument that only PyTorch Geometric's class has, its translation to ours.

    The names of the arguments that are not defaults are stored as ``typed_arguments``. A call raises
    ``UsageError`` if an argument is given twice, under one name or both, or has a
    value that builds do not support; ``TypeError`` if there are too many positional arguments.
    """

    def decorate(init: Init) -> Init:
        parameters = inspect.signature(init).parameters.values()
        _, *our_order = [
            parameter.name
            for parameter in parameters
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]

        @functools.wraps(init)
        def translated_init(self: Any, *positional: object, **keywords: object) -> None:
            class_name = type(self).__name__

            def add_keyword(name: str, value: object) -> None:
                if name in keywords:
                    raise UsageError(
                        f"{class_name} got {name} twice, by position or as PyTorch Geometric's keyword.",
                        steps=f"give {name} once: help(kmip_data.{class_name})",
                    )
                keywords[name] = value

            is_pyg_call = len(positional) > 1 or our_order[0] in keywords
            names = pyg_order if is_pyg_call else our_order
            if len(positional) > len(names):
                raise TypeError(
                    f"{class_name} takes at most {len(names)} positional arguments: {', '.join(names)}"
                )
            for name, value in zip(names, positional, strict=False):
                add_keyword(name, value)
            for pyg_name, translate in translators.items():
                if pyg_name in keywords:
                    for name, value in translate(pyg_name, keywords.pop(pyg_name)).items():
                        add_keyword(name, value)
            if not hasattr(self, "typed_arguments"):  # a subclass passes on what it was given
                self.typed_arguments = frozenset(keywords)
            init(self, **keywords)

        return cast("Init", translated_init)

    return decorate


#: Decorator for a class without a counterpart in PyTorch Geometric: the order of most classes there.
accept_root_and_split = accept_pyg_order("root", "split", *PYG_PROCESSING_ARGUMENTS)


def require_value(*stored_values: object) -> Translator:
    """Return a translator that drops an argument after checking that it is one of ``stored_values``."""

    def check(name: str, value: object) -> dict[str, object]:
        if value not in stored_values:
            raise UsageError(
                f"{name}={value!r} is not how the build is stored.",
                expected=f"{name}={stored_values[0]!r}",
                steps="transform=…, on reading",
            )
        return {}

    return check
