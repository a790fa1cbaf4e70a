"""Descriptions of builds of clouds and pictures: their parameters, with classes as the files have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kmip_data.builds.home import Home
from kmip_data.columns.column_roles import toml_value
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.small_files import first_problem, read_toml
from kmip_data.format.card import Card
from kmip_data.pipelines.find import find

_MAX_BYTES = 2**23  #: largest description
#: Parameters that describe the labels; another label has others.
_LABEL_PARAMETERS = {"label", "label_optional", "task", "classes", "class_name"}


def described_parameters(card: Card) -> dict[str, Any]:
    """Return the parameters on the card of a build of clouds or pictures; nothing for other data."""
    files = card.statistics.get("files") or {}
    return dict(files.get("parameters") or {})


def parameters_like(
    like: str, recipe: str, typed: Mapping[str, object], home: Home
) -> dict[str, object]:
    """Return the ``typed`` parameters, and those of an earlier build or a description for others.

    ``like`` is a file of ``--describe``, or the name of a build of the same recipe. Labels may be
    missing in all files, because a trained model predicts them.
    """
    if not like:
        return dict(typed)
    path = Path(like).expanduser()
    if path.is_file():
        try:
            described: dict[str, Any] = read_toml(path, _MAX_BYTES)
        except (OSError, ValueError) as error:
            raise DamagedInput(
                f"{path.name} is not a description of {recipe}: {first_problem(error)}.",
                next="write one with --dry-run --describe FILE",
            ) from error
    else:
        build = find(like, home=home)
        if build.card.manifest != recipe:
            raise UsageError(
                f"{build.card.dataset} was not built by {recipe!r}.",
                expected=f"a build of {recipe!r}, or a file of --describe",
                next=f"kmip-data info {recipe}",
            )
        described = described_parameters(build.card)
    described["label_optional"] = True
    if "label" in typed and typed["label"] != described.get("label"):
        for name in _LABEL_PARAMETERS:
            described.pop(name, None)
    return {**described, **typed}


def description_as_toml(parameters: Mapping[str, object], command: str) -> str:
    """Return parameters as TOML, with the ``command`` that builds with them in a comment."""
    lines = ["# Parameters of the build, as of --set.", f"# Then: {command}"]
    lines += [f"{name} = {toml_value(value)}" for name, value in parameters.items()]
    return "\n".join([*lines, ""])
