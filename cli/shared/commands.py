"""Base of all commands: examples at the end of the help, imports on use, hints for old spellings."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from click.shell_completion import CompletionItem

DATASET = "kmip_data.dataset"  #: key in ``ctx.meta``: the dataset on the line
ON_LINE = "kmip_data.dataset_on_line"  #: the words of the line that name the dataset
_DASK = {"--engine": "--dask [ADDRESS]", "--scheduler": "--dask ADDRESS"}
_BENCH = "make bench, in a checkout"
_BUILD_FIRST = {
    "--accept-license": "KMIP_DATA_ACCEPT_LICENSE=1, or kmip-data build DATASET --accept-license first",
    "--archive": "kmip-data build DATASET --archive PATH first",
    "--offline": "kmip-data build DATASET --offline first",
}
_PROJECTIONS = {
    **dict.fromkeys(("--n", "--d"), "--gaussian NxD"),
    **dict.fromkeys(("--min-nodes", "--max-nodes"), "--nodes A..B"),
    "--part": "record_run(RUN, split=PART) in Python (docs/analysis.md)",
    "--qk": "RUN, or record_run(RUN) in Python (docs/analysis.md)",
}
#: Command -> option or subcommand of a previous version -> its new spelling, the one line of the error.
OLD_SPELLINGS: dict[str, dict[str, str]] = {
    "": {  # commands
        "completion": "_KMIP_DATA_COMPLETE=bash_source kmip-data, as docs/cli.md has it",
        "du": "kmip-data list",
        "stats": "kmip-data info TARGET",
    },
    "*": {"--part": "--split PART"},  # of every command
    "build": _DASK,
    "fetch": {"--offline": "kmip-data build NAME --offline"},
    "demo": {"--epochs": "kmip-data train --dataset helsinki --as small-city --epochs N"},
    "encode": _DASK
    | {f"--{name}": f"kmip-data encode TARGET {name}N" for name in ("lappe", "rwse", "expander")}
    | {"--expander-seed": "kmip-data encode TARGET expanderN-seedS"}
    | {"--degree-profile": "kmip-data encode TARGET degree-profile-2.0"},
    "evaluate": {"--dump-qk": "record_run(RUN) in Python (docs/analysis.md)"},
    "info": {"--croissant": "croissant.json in the build folder", "--output": "kmip-data info TARGET > FILE"},
    "analyze": {
        "classes": "kmip-data evaluate RUN --by-class",
        "influence": "kmip-data explore RUN",
        "universality": "kmip-data analyze expressivity",
    },
    "analyze approximation": _PROJECTIONS,
    "analyze cumulative-weight": _PROJECTIONS,
    "analyze expressivity": {"--brec": "check_networks in Python (docs/analysis.md)"},
    "bench": {"all": _BENCH},
    "bench attention": {
        **dict.fromkeys(("--graphs", "--table"), _BENCH),
        "--protocol": "nothing: runs have inputs of their own",
        "--threads": "OMP_NUM_THREADS=N",
    },
    "bench reading": {"--markdown": _BENCH, "--quick": "--graphs 32"},
    "bench train": {"--alone": _BENCH},
    "pull": {"--split": "nothing: shards hold all parts"},
    "preview": {"--html": "kmip-data explore TARGET"},
    "doctor": {"--sources": "kmip-data fetch NAME, which tries each mirror"},
    "report": {"--no-step": "kmip-data train, which tries one step first; `report empty` is gone"},
    "sweep": _BUILD_FIRST
    | {"--format": "kmip-data report SWEEP --format FORM, or --json"}
    | dict.fromkeys(("--tune", "--trials"), '[[changes]] in the plan, with choose = "validation"'),
    "train": _BUILD_FIRST
    | {
        **dict.fromkeys(("--k", "--attention-k"), "--set model.attention.k=K"),
        "--checkpoint-every": "--set system.checkpoint_every=MINUTES",
        "--compile": "--set system.compile=true",
        "--coordinates": "--set data.coordinates=append",
        "--explain": "kmip-data info DATASET --model MODEL",
        "--jobs": "kmip-data build DATASET --jobs N first",
        "--k-schedule": "--set training.k_schedule=SHAPE:FROM:TO --set model.attention.k=TO",
        "--logger": "--set system.logger=tensorboard",
        "--profile": "torch.profiler, as docs/training.md has it",
        "--scale": "--set training.batch_size=N --set optimiser.lr=RATE",
        "--search": "--set model.attention.search=BACKEND",
        "--seeds-at-once": "kmip-data sweep --dataset DATASET --model MODEL --seeds 0..3 --jobs N",
    },
}


def new_spelling(command: str, option: str) -> str | None:
    """Return the new spelling of an option that ``command`` had, or of a command if that is empty."""
    of_all = OLD_SPELLINGS["*"] if command else {}
    return {**of_all, **OLD_SPELLINGS.get(command, {})}.get(option)


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
        from kmip_data.errors import UsageError

        name = ctx.command_path.partition(" ")[2]
        if instead := new_spelling(name, option):
            raise UsageError(f"{name} has no {option} any more.", next=instead)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples unwrapped, so that they can be copied; with a dataset on the line its own."""
        of_dataset = [line for line in self.examples if ctx.meta.get(DATASET) in line.split()]
        with formatter.section("Examples"):
            for line in of_dataset or self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)


class Group(Command, click.Group):
    """A click group that answers a misspelt or old command with the right one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or raise an error that names the nearest one."""
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            from kmip_data.errors import UsageError
            from kmip_data.manifest import unknown_name

            if instead := new_spelling(ctx.command_path.partition(" ")[2], args[0]):
                raise UsageError(f"There is no command {args[0]!r} any more.", next=instead)
            raise unknown_name("command", args[0], known, command=f"{ctx.command_path} --help")
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """The group of all commands, each the ``command`` of a module in ``kmip_data.cli``, imported on use.

    ``commands_in`` maps a name to its one-line help, in the order in which help lists them.
    """

    def __init__(self, *args: Any, commands_in: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands_in = commands_in

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of use, not of the alphabet."""
        return list(self.commands_in)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of ``cmd_name`` and return its command."""
        if cmd_name not in self.commands_in:
            return None
        command: click.Command = importlib.import_module(f"kmip_data.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands_in.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names from the list, options as every command does; a Tab imports no command."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(n, help=h) for n, h in self.commands_in.items() if n.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]
