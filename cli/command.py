"""What every command shares: examples at the end of its help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence


class WithExamples:
    """Mixed into a click command: ``examples`` are listed below the options, one a line."""

    def __init__(self, *args: Any, examples: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = list(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples unwrapped, so that they can be copied."""
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)  # type: ignore[misc] -- the other base is the command


class Command(WithExamples, click.Command):
    """A command with examples."""
