"""Printed commands, completed with options of the typed command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

#: Options that every printed command keeps, by their names in click.
_OPTIONS_OF_ALL = ("home", "plugin")
#: ``--config``, and the options that name another configuration.
_CONFIG_OPTION = "file"
_CONFIGURATION_OPTIONS = {_CONFIG_OPTION, "model", "preset", "variant", "resume", "reproduce"}
#: Typed and printed command -> further options that are kept on the same dataset.
_KEPT_SETTINGS = {
    ("build", "build"): {"settings"},
    ("train", "sweep"): {"model", "seeds", "epochs", "overrides", "offline"},
}
#: Commands that list what can be chosen, and so do not repeat the choice.
_LISTING_COMMANDS = {"info"}


@dataclass(frozen=True)
class ParsedCommand:
    """A command, such as ``kmip-data train``, and its words as click reads them."""

    name: str = ""
    command: click.Command | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    dataset: object = None  #: dataset that is named, or built by ``--name``
    extra: Sequence[str] = ()  #: words that the command does not take

    @classmethod
    def from_words(cls, words: Sequence[str], root: click.Group) -> ParsedCommand:
        """Parse the words after the program, without callbacks and without errors."""
        name = "".join(words[:1])
        command = root.get_command(click.Context(root), name)
        if command is None or not {"--help", "-h"}.isdisjoint(words):
            return cls()

        # Let click separate options from arguments.
        context = click.Context(command, resilient_parsing=True, ignore_unknown_options=True)
        values, extra, _ = command.make_parser(context).parse_args([*words[1:]])
        arguments = [param.name for param in command.params if isinstance(param, click.Argument)]
        names = [values.get(str(key)) for key in ("recipe_name", "dataset", *arguments)]
        # The parser gives an argument that is not typed an object of its own, which is true.
        typed_names = (name for name in names if name and isinstance(name, str | tuple))
        dataset = next(typed_names, None)
        return cls(name, command, values, dataset, extra)


def options_to_keep(
    typed: ParsedCommand, printed: ParsedCommand, *, choose_build: bool
) -> list[str]:
    """Return the typed options that a printed command takes and lacks, with their values.

    These are the typed ``--home`` and ``--plugin``, and ``--config``, unless the command names another
    configuration. ``choose_build`` adds the options that choose a build of the typed dataset, such as
    ``--k``, and the settings of a command that does the same work, such as ``--set`` of a build.
    """
    from kmip_data.cli.shared.dataset_options import DATASET_OPTIONS

    if printed.command is None:
        return []
    kept_names = set(_OPTIONS_OF_ALL)
    if _CONFIGURATION_OPTIONS.isdisjoint(printed.values):
        kept_names.add(_CONFIG_OPTION)
    if choose_build and typed.dataset is not None and printed.dataset == typed.dataset:
        if printed.name not in _LISTING_COMMANDS:
            kept_names |= {"sample", *DATASET_OPTIONS["records"], *DATASET_OPTIONS["split"]}
        kept_names |= _KEPT_SETTINGS.get((typed.name, printed.name), set())

    options = []
    for param in printed.command.params:
        if (
            not isinstance(param, click.Option)
            or param.name not in kept_names & typed.values.keys()
        ):
            continue
        typed_value = typed.values[param.name]
        printed_value = printed.values.get(param.name)
        if not param.multiple:
            if printed_value is None:
                options += [param.opts[0], *([] if param.is_flag else [typed_value])]
            continue
        # A repeated option keeps all values, or each key of --set.
        printed_keys = set(map(_key_of, printed_value or ()))
        for value in typed_value:
            if _key_of(value) not in printed_keys:
                options += [param.opts[0], value]
    return options


def _key_of(value: str) -> str:
    """Return the key of ``KEY=VALUE``, and nothing for another value."""
    key, equals, _ = value.partition("=")
    return key if equals else ""
