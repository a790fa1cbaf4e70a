"""Commands with examples in their help, and the options that several share.

A name that means nothing ends the command in a fraction of a second, before anything heavy is
imported. ``--home`` is read first, as names are looked up there.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from kmip_data.cli.shared.output import WANTS_JSON
from kmip_data.errors import UsageError
from kmip_data.files.faults import located

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kmip_data.builds.home import Home as Home  # noqa: PLC0414 -- commands annotate with it


def examples() -> dict[str, list[str]]:
    """Read the examples of every command, without the imports of :mod:`kmip_data.manifest`."""
    import tomllib
    from importlib import resources

    file = resources.files("kmip_data.manifests.tables") / "examples.toml"
    return tomllib.loads(file.read_text("utf-8"))


class Command(click.Command):
    """A click command whose help ends with examples: those of ``manifests/tables/examples.toml``.

    ``groups``, for a command with many options: title of a section of the help -> options, as
    typed.
    """

    def __init__(
        self,
        *args: Any,
        groups: Mapping[str, Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups or {}

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the first sentence, whole: a list of commands wraps its lines."""
        return super().get_short_help_str(max(limit, 1_000))

    def sections(self, ctx: click.Context) -> dict[str, list[click.Parameter]]:
        """Return the options by section of the help.

        Those in no group are the last one, ``Options``.
        """
        sections: dict[str, list[click.Parameter]] = {title: [] for title in self.groups}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option):
                titles = (title for title, flags in self.groups.items() if param.opts[0] in flags)
                title = next(titles, "Options")
                sections.setdefault(title, []).append(param)
        return sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, by section where the command has groups."""
        if not self.groups:
            super().format_options(ctx, formatter)
            return
        for title, options in self.sections(ctx).items():
            records = [option.get_help_record(ctx) for option in options]
            with formatter.section(title):
                formatter.write_dl(list(filter(None, records)))

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; ``--json`` is for what prints the result alone."""
        ctx.meta[WANTS_JSON] = ctx.params.pop("as_json", False)
        return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples unwrapped, so that they can be copied."""
        program, _, name = ctx.command_path.partition(" ")
        with formatter.section("Examples"):
            for line in examples().get(name or program, ()):
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)


class Group(Command, click.Group):
    """A click group that shows its help alone, and answers a misspelt command with the right one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the line; an empty one asks for help, which is no error."""
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or raise an error that names the nearest one."""
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            from kmip_data.errors import unknown_name

            raise unknown_name("command", args[0], known, command=f"{ctx.command_path} --help")
        return super().resolve_command(ctx, args)


F = TypeVar("F", bound=Callable[..., object])
MAX_NUMBERS = 10_000  #: in one list


def _home(ctx: click.Context, param: click.Parameter, value: str | None) -> Home:
    from kmip_data.builds.home import Home

    home = Home.locate(value)
    if home.root.exists() and not home.root.is_dir():
        raise UsageError(
            f"The home {home.root} is not a folder.", next="--home DIR, or KMIP_DATA_HOME"
        )
    return home


#: Kind of a name -> the command that lists them.
_LISTS = {"dataset": "list", "build": "list", "sweep": "sweep --help", "run": "runs"}
_TITLES = {"build": "dataset or build folder", "run or build": "run, dataset or build folder"}


class Name(click.ParamType):  # type: ignore[type-arg]  # no generic class before click 8.4
    """A name of one of ``kinds``: ``dataset``, ``build``, ``sweep``, ``run``."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds
        self.name = " or ".join(kinds)

    def _known(self, home: Home) -> list[str]:
        """Return the names that exist: shipped, built (by their cards, read unchecked), or trained."""
        from kmip_data.files.reading import read_json
        from kmip_data.manifest import dataset_names
        from kmip_data.shipped import shipped_names

        names = set()
        if "dataset" in self.kinds or "build" in self.kinds:
            names.update(dataset_names())
        if "build" in self.kinds:
            for card in home.built.glob("*/card.json"):
                # `list` names a card that cannot be read.
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    names.add(str(read_json(card)["dataset"]))
        if "sweep" in self.kinds:
            names.update(shipped_names("sweeps"))
        if "run" in self.kinds:
            for path in home.runs.glob("*/*/*/config.toml"):
                names.add(path.parent.relative_to(home.runs).as_posix())
            if "sweep" in self.kinds:
                names.add("sweep")  # the runs of sweeps without a plan
        return sorted(names)

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        """Return ``value`` unchanged.

        Raises ``UsageError``, with the nearest name, if it means nothing.
        """
        from kmip_data.builds.home import Home, build_in, list_builds, own_command
        from kmip_data.errors import unknown_name

        text = str(value)
        home = Home.locate(None if ctx is None else ctx.params.get("home"))
        if {"dataset", "build"} & {*self.kinds}:
            from kmip_data.plugins import seek_names

            seek_names(text)

        # 1. A name that exists, the file of a plan, or the folder of a build.
        known = self._known(home)
        meant = text in known or ("sweep" in self.kinds and text.endswith(".toml"))
        if not meant and "build" in self.kinds:
            try:
                meant = build_in(text, home) is not None
            except UsageError:
                # A path to no build: an error of its own only if nothing else could be meant.
                if len(self.kinds) == 1:
                    raise

        # 2. The folder of a run, or the end of its path; `find_run` refuses that of several.
        if not meant and "run" in self.kinds:
            in_folder = (Path(text).expanduser() / "config.toml").is_file()
            beginning = re.compile(f"(?:.*/)?{re.escape(text.strip('/'))}[^/]*")
            runs = [name for name in known if name.count("/") == 2]
            meant = in_folder or any(map(beginning.fullmatch, runs))
        if meant:
            return text

        # 3. Nothing: a dataset of the user's own needs another command, and others the nearest name.
        if self.kinds == ("dataset",):
            builds = list_builds(home)
            if text in {build.card.dataset for build in builds}:
                raise UsageError(
                    f"{text!r} is a dataset of your own.", next=own_command(builds, text)
                )
        raise unknown_name(
            _TITLES.get(self.name, self.name),
            text,
            known,
            command=f"kmip-data {_LISTS[self.kinds[-1]]}",
        )


DATASET = Name("dataset")
TARGET = Name("build")
SWEEP = Name("sweep")
RUN = Name("run")
RUN_OR_TARGET = Name("run", "build")
SWEEP_OR_RUN = Name("sweep", "run")


def several(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for options that go together, in the order in which help has them."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


home_option = click.option(
    "--home", metavar="DIR", callback=_home, is_eager=True,  # names are looked up in it
    help="Home folder of raw files, builds and runs.  [default: $KMIP_DATA_HOME, else the user data folder]",
)  # fmt: skip
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout."
)
quiet_option = click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")
sample_option = click.option(
    "--sample",
    is_flag=True,
    help="Use a generated miniature in the upstream layout instead of the real data.",
)


def _load_plugins(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> None:
    for source in value:
        from kmip_data.plugins import load

        load(source)


plugin_option = click.option(
    "--plugin", multiple=True, metavar="FILE", is_eager=True, expose_value=False, callback=_load_plugins,
    help="Plugin to import: a Python file or an installed package; may be repeated.",
)  # fmt: skip


#: Options of every command that only looks at a build or a run.
look_options = several(sample_option, home_option, json_option)
#: Options of every long-running command.
work_options = several(home_option, json_option, quiet_option)


def device_option(default: str = "auto, a GPU if there is one") -> Callable[[F], F]:
    """Make ``--device``; the function gets ``None`` where it is not given."""
    kind = click.Choice(["auto", "cpu", "cuda"])
    return click.option("--device", type=kind, help=f"Device.  [default: {default}]")


def part_option(text: str, default: str | None = None) -> Callable[[F], F]:
    """Make ``--split``, a part of the split."""
    from kmip_data.format.splits import PARTS

    return click.option(
        "--split",
        "part",
        type=click.Choice(PARTS),
        default=default,
        show_default=True,
        help=text,
    )


#: Where, and on which other data, a trained model is measured.
trained_options = several(
    click.option(
        "--dataset", "target", metavar="TARGET", type=TARGET,
        help="Other data with the same features and classes.  [default: the data of the run]",
    ),
    device_option("as the run was trained"),
    plugin_option,
)  # fmt: skip
archive_options = several(
    click.option(
        "--archive", "archives", multiple=True, metavar="PATH", type=click.Path(path_type=Path),
        help="Local archive or folder to use instead of a download; may be repeated.",
    ),
    click.option(
        "--accept-license", is_flag=True, default=None,
        help="Agree to the owner's terms where a download asks for it (or set KMIP_DATA_ACCEPT_LICENSE=1).",
    ),
)  # fmt: skip
#: Where raw files come from.
raw_options = several(
    archive_options,
    click.option(
        "--offline",
        is_flag=True,
        help="Never use the network: needs a finished build or fetched raw files.",
    ),
)


def _local(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse an address, which would become a folder ``s3:``."""
    if value is not None:
        located(value)
    return value


force_option = click.option("--force", is_flag=True, help="Overwrite existing files.")


def path_option(
    flag: str,
    *names: str,
    metavar: str = "FILE",
    exists: bool = False,
    **options: Any,
) -> Callable[[F], F]:
    """Make an option for a file, existing or to be written; for a folder with the metavar DIR."""
    kind = click.Path(path_type=Path, dir_okay=metavar == "DIR", exists=exists)
    return click.option(flag, *names, metavar=metavar, type=kind, callback=_local, **options)


class Integer(click.IntRange):
    """An integer within bounds, under a name that reads well in an error."""

    name = "integer"  # click's own name would make "'1.5' is not a valid integer range"


def number_option(
    flag: str,
    help: str | None = None,  # noqa: A002 -- click's word
    default: int | None = None,
    *,
    type: click.IntRange | click.FloatRange | None = None,  # noqa: A002
) -> Callable[[F], F]:
    """Make an option for a number; its default, if any, is shown."""
    kind = type or Integer(min=1)
    return click.option(
        flag,
        type=kind,
        default=default,
        show_default=True,
        metavar="N",
        help=help,
    )


def keys_option(text: str) -> Callable[[F], F]:
    """Make ``--set`` for configuration keys."""
    return click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help=text)


jobs_option = click.option(
    "--jobs", "-j", type=Integer(min=1), metavar="N",
    help="Worker processes of a build.  [default: the cores this process may use]",
)  # fmt: skip


def _dask(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.params["engine"] = "processes" if value is None else "dask"
    ctx.params["scheduler"] = value or None


dask_option = click.option(
    "--dask", metavar="[ADDRESS]", is_flag=False, flag_value="", expose_value=False, callback=_dask,
    help="Dask cluster with a shared file system: scheduler address or file; without a value: start one.",
)  # fmt: skip


def on_line() -> set[str]:
    """Return the options of the running command that are on the line."""
    context = click.get_current_context()
    options = set()
    for param in context.command.params:
        source = context.get_parameter_source(str(param.name))
        if isinstance(param, click.Option) and source is ParameterSource.COMMANDLINE:
            options.add(param.opts[0])
    return options


def number_list(option: str, text: str) -> list[int]:
    """Read ``1,5,7``, ``0..3`` and ``0-3``; raises :class:`UsageError` where ``text`` is neither.

    >>> number_list("--seeds", "0..2,7")
    [0, 1, 2, 7]
    """
    numbers: list[int] = []
    for item in text.replace(" ", "").split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:(?:\.\.|-)([0-9]{1,9}))?", item)
        new = range(0)
        if match is not None:
            new = range(int(match[1]), int(match[2] or match[1]) + 1)
        if not 0 < len(new) <= MAX_NUMBERS - len(numbers):
            raise UsageError(
                f"{option} is not a list of numbers: {text:.80}",
                next=f"numbers and ranges, such as {option} 10,10 or 0..3; at most {MAX_NUMBERS:,}",
            )
        numbers.extend(new)
    return numbers


def distinct_numbers(option: str, text: str | None) -> list[int] | None:
    """Return the numbers of an option, each once; None where it is not given."""
    return None if text is None else list(dict.fromkeys(number_list(option, text)))
