"""Sections of docs/cli.md: each command with its help, arguments and options."""

from __future__ import annotations

from collections.abc import Iterator

import click

SHARED = {"help", "home", "as_json", "quiet", "sample"}  #: described once, at the head of the page
BEGIN = "<!-- Below: written by KMIP_DATA_WRITE_DOCS=1 pytest tests/cli/test_help.py -->\n"


def page_of(root: click.Group) -> str:
    """Return the sections of all commands, in the order of the help."""
    return "\n".join(_sections(root, "", 2))


def _sections(group: click.Group, path: str, level: int) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        full = f"{path} {name}".strip()
        arguments = [
            param.make_metavar(context) for param in command.params if isinstance(param, click.Argument)
        ]
        line = " ".join(["kmip-data", full, *arguments])
        yield f"{'#' * level} {full}\n"
        needed = [f"{param.opts[0]} {param.make_metavar(context)}" for param in command.params
                  if isinstance(param, click.Option) and param.required]  # fmt: skip
        line = " ".join([line, *needed])
        shown = "" if isinstance(command, click.Group) else f"    {line}\n\n"
        yield f"{shown}{' '.join((command.help or '').replace('|', '').split())}\n"
        rows = [_row(param, context) for param in command.params if isinstance(param, click.Option)]
        if rows := [row for row in rows if row is not None]:
            yield "\n".join(["| option | what |", "|---|---|", *rows, ""])
        if isinstance(command, click.Group):
            yield from _sections(command, full, level + 1)


def _row(option: click.Option, context: click.Context) -> str | None:
    record = option.get_help_record(context)
    if option.name in SHARED or record is None:
        return None
    names, text = (part.replace("|", "\\|") for part in record)  # a bar would end the cell
    short, comma, long = names.rpartition(", ")
    return f"| `{long}`{comma}{f'`{short}`' if short else ''} | {text} |"
