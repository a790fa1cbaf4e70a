"""``kmip-data completion``: the script that completes commands, options and dataset names."""

from __future__ import annotations

import click

from kmip_data.cli.shared.command import Command


@click.command(
    cls=Command,
    examples=[
        'eval "$(kmip-data completion bash)"',
        "kmip-data completion fish > ~/.config/fish/completions/kmip-data.fish",
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    from kmip_data.cli.main import COMPLETE, PROGRAM, root

    script = get_completion_class(shell)
    assert script is not None, "click knows all three"
    click.echo(script(root, {}, PROGRAM, COMPLETE).source())
