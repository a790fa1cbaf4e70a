"""Options shared by several commands.

Values reach a command as its arguments, with three exceptions. ``--plugin`` imports its file at once
and stays in ``ctx.meta[PLUGINS_META_KEY]``. ``--json`` is in ``ctx.meta[WANTS_JSON_META_KEY]``
(:func:`~kmip_data.cli.shared.output.wants_json`). ``ctx.find_root().obj`` is the typed line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from kmip_data.cli.shared.command_classes import help_command
from kmip_data.cli.shared.targets import BUILD
from kmip_data.errors import Setting, UsageError
from kmip_data.files.path_errors import absent_file_error, absolute_path

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


F = TypeVar("F", bound=Callable[..., object])
PLUGINS_META_KEY = "kmip_data.plugins"  #: key in ``ctx.meta`` of the plugins on the command line
MAX_LIST_LENGTH = 10_000  #: numbers in one list


def _locate_home(ctx: click.Context, param: click.Parameter, value: str | None) -> Home:
    from kmip_data.builds.home import Home

    home = Home.locate(value)
    if home.path.exists() and not home.path.is_dir():
        raise UsageError(
            f"The home {home.path} is not a folder.",
            steps="name a folder as home, or in the variable KMIP_DATA_HOME",
        )
    return home


def combined_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for several options, which the help lists in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


home_option = click.option(
    "--home", metavar="DIR", callback=_locate_home, is_eager=True,  # read first: names are looked up in it
    help="Home folder of raw files, builds and runs.  [default: $KMIP_DATA_HOME, else the user data folder]",
)  # fmt: skip
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout."
)
_quiet = partial(
    click.option, "--quiet", "-q", is_flag=True, help="Do not print progress on stderr."
)
quiet_option = _quiet()
sample_option = click.option(
    "--sample",
    is_flag=True,
    help="Use small generated data instead of the real data.",
)


def _load_plugins(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> None:
    ctx.meta[PLUGINS_META_KEY] = value
    for source in value:
        from kmip_data.plugins import load

        load(source)


plugin_option = click.option(
    "--plugin", multiple=True, metavar="FILE", is_eager=True, expose_value=False, callback=_load_plugins,
    help="Plugin to import: a Python file or an installed package; may be repeated.",
)  # fmt: skip
#: Options of commands that only read a build or a run.
read_only_options = combined_options(sample_option, home_option, json_option)
#: Options of long-running commands.
long_running_options = combined_options(home_option, json_option, quiet_option)


def device_option(default_text: str = "auto, a GPU if there is one") -> Callable[[F], F]:
    """Make ``--device``, which is ``None`` by default; ``default_text`` describes its effect."""
    choice = click.Choice(["auto", "cpu", "cuda"])
    return click.option("--device", type=choice, help=f"Device.  [default: {default_text}]")


def part_option(help_text: str, *other_choices: str) -> Callable[[F], F]:
    """Make ``--split``: a part of the split, or one of ``other_choices``."""
    from kmip_data.format.split_files import PARTS

    return click.option(
        "--split",
        "part",
        type=click.Choice((*PARTS, *other_choices)),
        help=help_text,
    )


#: Options of commands that evaluate a trained model.
trained_model_options = combined_options(
    click.option(
        "--dataset", "dataset", metavar="NAME", type=BUILD,
        help="Other data with the same features and classes.  [default: the data of the run]",
    ),
    device_option("as in training"),
    plugin_option,
    _quiet(expose_value=False),
)  # fmt: skip
archive_options = combined_options(
    click.option(
        "--archive", "archives", multiple=True, metavar="PATH", type=click.Path(path_type=Path),
        help="File, folder or archive: your data, or a copy to use instead of a download; may be repeated.",
    ),
    click.option(
        "--accept-license", is_flag=True, default=None,
        help="Accept the owner's terms if the download requires it (or set KMIP_DATA_ACCEPT_LICENSE=1).",
    ),
)  # fmt: skip
offline_option = click.option(
    "--offline",
    is_flag=True,
    help="Never use the network; requires a finished build or fetched raw files.",
)
#: Options for the origin of raw files.
raw_file_options = combined_options(archive_options, offline_option)


def _refuse_address(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse an address such as ``s3://bucket``, which would create the folder ``s3:``."""
    if value is not None:
        absolute_path(value)
    return value


def _refuse_missing_file(
    ctx: click.Context, param: click.Parameter, value: Path | None
) -> Path | None:
    """Refuse a configuration that does not exist; suggest the nearest file, or that of the newest run.

    A run on another dataset than the typed one is not suggested.
    """
    from kmip_data.cli.shared.printed_commands import ParsedCommand

    path = _refuse_address(ctx, param, value)
    if path is None or path.exists():
        return path
    # The typed dataset may follow the option, and so be parsed later.
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    dataset = ParsedCommand.from_words(root.obj.args, root.command).dataset
    configurations = [
        folder / "config.toml"
        for folder in ctx.params["home"].run_folders()
        if dataset in {None, folder.parts[-3]}
    ]
    newest = max(configurations, key=lambda file: file.stat().st_mtime, default=None)
    if newest is None:
        raise absent_file_error(path, help_command(ctx))
    key = param.opts[0].removeprefix("--")
    raise absent_file_error(path, ["the newest run's", Setting({key: newest})])


force_option = click.option("--force", is_flag=True, help="Overwrite existing files.")


def path_option(
    flag: str,
    *names: str,
    metavar: str = "FILE",
    exists: bool = False,
    **options: Any,
) -> Callable[[F], F]:
    """Make an option for a file, or for a folder if ``metavar`` is DIR.

    With ``exists=True``, the file must exist.
    """
    path_type = click.Path(path_type=Path, dir_okay=metavar == "DIR")
    callback = _refuse_missing_file if exists else _refuse_address
    return click.option(flag, *names, metavar=metavar, type=path_type, callback=callback, **options)


class Integer(click.IntRange):
    """An integer within bounds, with a name that reads well in an error."""

    name = "integer"  # click's default gives "'1.5' is not a valid integer range"


def number_option(
    flag: str,
    help: str | None = None,  # noqa: A002 -- click's word
    default: int | None = None,
    *,
    type: click.IntRange | click.FloatRange | None = None,  # noqa: A002
) -> Callable[[F], F]:
    """Make an option for a number, by default an integer above 0; the help shows its default."""
    number_type = type or Integer(min=1)
    return click.option(
        flag,
        type=number_type,
        default=default,
        show_default=True,
        metavar="N",
        help=help,
    )


def set_option(help: str, name: str = "overrides") -> Callable[[F], F]:  # noqa: A002 -- click's word
    """Make ``--set KEY=VALUE``, checked before names: KEY VALUE would make VALUE a name."""
    return click.option(
        "--set",
        name,
        multiple=True,
        metavar="KEY=VALUE",
        is_eager=True,
        callback=_check_key_values,
        help=help,
    )


def _check_key_values(
    ctx: click.Context, param: click.Parameter, items: Sequence[str]
) -> Sequence[str]:
    for item in items:
        if "=" not in item:
            raise _missing_value_error(item)
    return items


def _missing_value_error(key: str) -> UsageError:
    """Return the error for ``--set KEY`` without a value, which may follow a blank."""
    from kmip_data.cli.shared.completed_steps import is_data_name
    from kmip_data.models.training.config.overrides import documented_keys

    error = UsageError(
        f"--set {key} has no value.",
        expected="KEY=VALUE",
        steps=help_command(click.get_current_context()),
    )
    for word, value in pairwise(words := typed_words()):
        is_value = word in {key, f"--set={key}"} and not value.startswith("-")
        if is_value and not is_data_name(value, words):
            error.correction = (value, Setting({key: value}))
    for known in documented_keys():
        if known.name == key:
            error.steps = ["its default", Setting({key: str(known.default).lower()})]
    return error


jobs_option = click.option(
    "--jobs", "-j", type=Integer(min=1), metavar="N",
    help="Worker processes.  [default: the cores this process may use]",
)  # fmt: skip


def _store_dask_address(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.params["engine"] = "processes" if value is None else "dask"
    ctx.params["scheduler"] = value or None


dask_option = click.option(
    "--dask", metavar="[ADDRESS]", is_flag=False, flag_value="", expose_value=False, callback=_store_dask_address,
    help="Dask cluster with a shared file system: scheduler address or file. Without ADDRESS, one is started.",
)  # fmt: skip


def typed_words() -> tuple[str, ...]:
    """Return the words of the running command line, without the program."""
    return tuple(click.get_current_context().find_root().obj.args)


def typed_options() -> set[str]:
    """Return the options of the running command that were typed."""
    context = click.get_current_context()
    options = set()
    for param in context.command.params:
        source = context.get_parameter_source(str(param.name))
        if isinstance(param, click.Option) and source is ParameterSource.COMMANDLINE:
            options.add(param.opts[0])
    return options


def parse_number_list(option: str, text: str) -> list[int]:
    """Parse numbers and ranges such as ``1,5,7`` and ``0..3``; keep duplicates.

    Raises :class:`UsageError` if ``text`` is no such list.

    >>> parse_number_list("--seeds", "0..2,7")
    [0, 1, 2, 7]
    """
    numbers: list[int] = []
    for item in text.replace(" ", "").split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:\.\.([0-9]{1,9}))?", item)
        item_numbers = range(0)
        if match is not None:
            item_numbers = range(int(match[1]), int(match[2] or match[1]) + 1)
        if not 0 < len(item_numbers) <= MAX_LIST_LENGTH - len(numbers):
            error = UsageError(
                f"{option} is not a list of numbers: {text:.80}",
                steps=f"give numbers and ranges, such as 5,10 or 0..3; at most {MAX_LIST_LENGTH:,}",
            )
            # A descending range, or another separator.
            if ends := re.fullmatch(r"([0-9]{1,4})(?:\.\.|-|:)([0-9]{1,4})", item):
                first, last = sorted(map(int, ends.groups()))
                error.correction = (item, f"{first}..{last}")
            raise error
        numbers.extend(item_numbers)
    return numbers


def parse_distinct_numbers(option: str, text: str) -> list[int]:
    """Parse a list like :func:`parse_number_list`; raise :class:`UsageError` for a duplicate."""
    numbers = parse_number_list(option, text)
    for number, count in Counter(numbers).items():
        if count > 1:
            raise UsageError(
                f"{option} names {number} {count} times: {text:.80}",
                steps="give each number once",
            )
    return numbers
