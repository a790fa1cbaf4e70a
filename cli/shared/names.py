"""Types of names on the command line, checked before a command imports anything heavy.

Each is a click type: a name that means nothing ends the command while its line is read, in a fraction of a
second, and the shell completes the names that exist. ``--home`` is read first, as names are looked up there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmip_data.errors import UsageError

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


class Name(click.ParamType[str]):
    """A name of one of ``kinds`` (``dataset``, ``build``, ``sweep``, ``run``), or one of ``words``."""

    def __init__(self, *kinds: str, words: tuple[str, ...] = ()) -> None:
        self.kinds, self.words = kinds, words
        self.name = " or ".join(kinds)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return ``value`` unchanged; raises ``UsageError``, with the nearest name, if it means nothing."""
        text, home = str(value), _home(ctx)
        if text in self.words or any(self._means(kind, text, home) for kind in self.kinds):
            return text
        from kmip_data.manifest import unknown_name

        known = [*self.words, *(name for kind in self.kinds for name in _KNOWN[kind](home))]
        kind = " or ".join(_CALLED[kind] for kind in self.kinds)
        raise unknown_name(kind, text, sorted({*known}), command=_LISTED[self.kinds[-1]])

    def _means(self, kind: str, text: str, home: Home) -> bool:
        try:
            return _MEANS[kind](text, home)
        except UsageError:  # a path to no build: only an error of its own if nothing else could be meant
            if len(self.kinds) == 1:
                raise
            return False

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Complete the names that exist; paths are left to the shell."""
        from click.shell_completion import CompletionItem

        home = _home(ctx)
        names = [*self.words, *(name for kind in self.kinds for name in _KNOWN[kind](home))]
        return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _home(ctx: click.Context | None) -> Home:
    from kmip_data.builds.home import Home

    return Home.locate(ctx.params.get("home") if ctx is not None else None)


def _datasets(home: Home) -> list[str]:
    from kmip_data.manifest import dataset_names

    return dataset_names()


def _built(home: Home) -> list[str]:
    """Datasets that are shipped, and those of the builds in the home by their cards, read unchecked."""
    from kmip_data.files.reading import read_json

    names = _datasets(home)
    for card in sorted(home.built.glob("*/card.json")):
        try:
            names.append(str(read_json(card)["dataset"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # `list` names it
    return names


def _sweeps(home: Home) -> list[str]:
    from kmip_data.manifest import shipped_names

    return shipped_names("sweeps")


def _runs(home: Home) -> list[str]:
    found = sorted(home.runs.glob("*/*/*/config.toml"))
    return [path.parent.relative_to(home.runs).as_posix() for path in found]


def _means_build(text: str, home: Home) -> bool:
    from kmip_data.builds.home import build_in

    return text in _datasets(home) or build_in(text) is not None or text in _built(home)


def _means_run(text: str, home: Home) -> bool:
    """True for a run folder and for the end of a run's path; ``find_run`` refuses an end of several."""
    from pathlib import Path

    if (Path(text).expanduser() / "config.toml").is_file():
        return True
    return any(f"/{name}".endswith(f"/{text.strip('/')}") for name in _runs(home))


_KNOWN = {"dataset": _datasets, "build": _built, "sweep": _sweeps, "run": _runs}
_MEANS = {
    "dataset": lambda text, home: text in _datasets(home),
    "build": _means_build,
    "sweep": lambda text, home: text.endswith(".toml") or text in _sweeps(home),
    "run": _means_run,
}
_CALLED = {"dataset": "dataset", "build": "dataset or build folder", "sweep": "sweep", "run": "run"}
_LISTED = {
    "dataset": "kmip-data list",
    "build": "kmip-data list",
    "sweep": "kmip-data sweep --help",
    "run": "kmip-data runs",
}

DATASET, TARGET, SWEEP, RUN = Name("dataset"), Name("build"), Name("sweep"), Name("run")
RUN_OR_TARGET, SWEEP_OR_RUN = Name("run", "build"), Name("sweep", "run")
