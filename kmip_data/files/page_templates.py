"""Templates of pages: ``assets`` of a package, filled in by Jinja."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template


def asset_text(package: str, name: str) -> str:
    """Return the text of a template, script or style sheet."""
    return (files(package) / "assets" / name).read_text("utf-8").rstrip()


@functools.cache
def page_template(package: str, name: str, *filters: Callable[..., str]) -> Template:
    """Return a template; in HTML all fields are escaped, in Markdown ``filters`` do it, by their names."""
    from jinja2 import Environment, StrictUndefined  # late: most commands write no page

    environment = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        autoescape=name.endswith(".html"),
    )
    environment.filters |= {function.__name__.strip("_"): function for function in filters}
    return environment.from_string(asset_text(package, name))
