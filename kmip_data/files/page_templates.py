"""Jinja templates of pages, read from the ``assets`` of a package."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template


def asset_text(package: str, name: str) -> str:
    """Return the text of a script or style sheet, without indentation."""
    return re.sub(r"\n +", "\n", _read_asset(package, name))


def _read_asset(package: str, name: str) -> str:
    return (files(package) / "assets" / name).read_text("utf-8").rstrip()


@functools.cache
def page_template(package: str, name: str, *filters: Callable[..., str]) -> Template:
    """Return a template; HTML escapes all fields, Markdown escapes with the given ``filters``."""
    from jinja2 import (  # slow to import, and most commands write no page
        Environment,
        StrictUndefined,
    )

    environment = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        autoescape=name.endswith(".html"),
    )
    environment.filters |= {function.__name__.strip("_"): function for function in filters}
    return environment.from_string(_read_asset(package, name))
