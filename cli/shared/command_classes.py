"""Commands and groups with sections and examples in their help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.output import WANTS_JSON_META_KEY
from kmip_data.errors import Command

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Command name of other programs -> command.
_COMMAND_SYNONYMS = {"delete": "remove", "rm": "remove", "ls": "list"}


def command_examples() -> dict[str, list[str]]:
    """Read the examples of every command, without the imports of :mod:`kmip_data.manifest`."""
    import tomllib
    from importlib import resources

    file = resources.files("kmip_data.manifests.tables") / "examples.toml"
    return tomllib.loads(file.read_text("utf-8"))


def help_command(ctx: click.Context) -> Command:
    """Return the command that shows the help of a command."""
    return Command(*ctx.command_path.split(), "--help")


class ClickCommand(click.Command):
    """A click command whose help ends with examples from ``manifests/tables/examples.toml``.

    ``option_sections`` splits the help of a command with many options: section title -> options.
    """

    def __init__(
        self,
        *args: Any,
        option_sections: Mapping[str, Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.option_sections = option_sections or {}

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """Return the same names in every context: click keeps those of the first one."""
        return ["-h", "--help"]

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the whole first sentence; the list of commands wraps it."""
        return super().get_short_help_str(max(limit, 1_000))

    def sections(self, ctx: click.Context) -> dict[str, list[click.Parameter]]:
        """Return the options by section of the help; ungrouped options are last, under ``Options``."""
        sections: dict[str, list[click.Parameter]] = {title: [] for title in self.option_sections}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option):
                titles = (
                    title for title, flags in self.option_sections.items() if param.opts[0] in flags
                )
                title = next(titles, "Options")
                sections.setdefault(title, []).append(param)
        return sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, by section if the command has sections."""
        if not self.option_sections:
            super().format_options(ctx, formatter)
            return
        for title, options in self.sections(ctx).items():
            records = [option.get_help_record(ctx) for option in options]
            with formatter.section(title):
                formatter.write_dl(list(filter(None, records)))

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. ``--json`` is not passed as an argument: ``wants_json`` reads it."""
        ctx.meta[WANTS_JSON_META_KEY] = ctx.params.pop("as_json", False)
        return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples without line breaks, so that they can be copied."""
        program, _, name = ctx.command_path.partition(" ")
        with formatter.section("Examples"):
            for line in command_examples().get(name or program, ()):
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)


class Group(ClickCommand, click.Group):
    """A click group that shows its help by default, and suggests a command for a misspelt one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the line; without arguments, show the help and exit with 0."""
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or raise an error that names the nearest one."""
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            from kmip_data.errors import error_with_correction, unknown_name_error

            step = help_command(ctx)
            synonym = _COMMAND_SYNONYMS.get(args[0], "")
            if synonym in known:
                message = f"There is no command called {args[0]!r}. Did you mean {synonym!r}?"
                raise error_with_correction(message, args[0], synonym, step)
            raise unknown_name_error("command", args[0], known, command=step)
        return super().resolve_command(ctx, args)
