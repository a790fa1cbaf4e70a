"""Base of all commands: examples at the end of the help, and imports on use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ON_LINE = "kmip_data.dataset_on_line"  #: key in ``ctx.meta``: the words of the line that name the dataset


class Command(click.Command):
    """A click command with examples, which its help lists below the options."""

    def __init__(self, *args: Any, examples: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = list(examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the line; an option of a previous version ends in an error that names the new spelling."""
        line = list(args)  # click empties the other
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            self.refuse(ctx, line, error.option_name)
            raise

    def refuse(self, ctx: click.Context, args: list[str], option: str) -> None:
        """Raise ``UsageError`` if an unknown option is an old spelling."""
        from kmip_data.cli.shared.old_spellings import new_spelling
        from kmip_data.errors import UsageError

        name = ctx.command_path.partition(" ")[2]
        if instead := new_spelling(name, option):
            raise UsageError(f"{name} has no {option} any more.", next=instead)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples unwrapped, so that they can be copied."""
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)


class LazyGroup(Command, click.Group):
    """A click group whose commands are named by module, with their one-line help at hand.

    ``commands_in`` maps a name to its help, in the order in which help lists them; the module of that name in
    ``package`` exports it as ``command``.
    """

    def __init__(self, *args: Any, package: str, commands_in: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.package, self.commands_in = package, commands_in

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of use, not of the alphabet."""
        return list(self.commands_in)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of ``cmd_name`` and return its command."""
        if cmd_name not in self.commands_in:
            return None
        module = importlib.import_module(f"{self.package}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or raise an error that names the nearest one."""
        if args and not args[0].startswith("-") and args[0] not in self.commands_in:
            from kmip_data.cli.shared.old_spellings import new_spelling
            from kmip_data.errors import UsageError
            from kmip_data.manifest import unknown_name

            if instead := new_spelling(ctx.command_path.partition(" ")[2], args[0]):
                raise UsageError(f"There is no command {args[0]!r} any more.", next=instead)
            raise unknown_name(
                "command", args[0], list(self.commands_in), command=f"{ctx.command_path} --help"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands_in.items()))

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Complete names from the list, options as every command does; a Tab imports no command."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=text)
            for name, text in self.commands_in.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]
