"""Options that several commands share, each written once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kmip_data.errors import UsageError
from kmip_data.format.splits import PARTS

if TYPE_CHECKING:
    from kmip_data.builds.home import Home

F = TypeVar("F", bound=Callable[..., Any])
MOST_NUMBERS = 10_000  #: in one list


def _home(ctx: click.Context, param: click.Parameter, value: str | None) -> Home:
    from kmip_data.builds.home import Home

    return Home.locate(value)


home_option = click.option(
    "--home",
    metavar="DIR",
    is_eager=True,  # names are looked up in it while the line is read
    callback=_home,
    help="Home folder of raw files, builds and runs.  [default: $KMIP_DATA_HOME, else the user data folder]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")
sample_option = click.option(
    "--sample", is_flag=True, help="The generated miniature in the upstream layout, not the real data."
)


def _style(ctx: click.Context, param: click.Parameter, value: str) -> None:
    from kmip_data.drawing.style import chosen

    ctx.with_resource(chosen(value))


style_option = click.option(
    "--style",
    type=click.Choice(["light", "dark", "paper"]),
    default="light",
    show_default=True,
    expose_value=False,
    callback=_style,
    help="How the picture looks; paper: no headline, at most 7 inches wide, 300 dots per inch.",
)
split_option = click.option(
    "--split", "part", type=click.Choice(PARTS), default="test", show_default=True, help="Part of the split."
)
#: Where a trained model is measured.
as_trained_option = click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), help="Device.  [default: as the run was trained]"
)


def several(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for options that go together, in the order in which help has them."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


#: What every command has that only looks at a build or a run.
look_options = several(sample_option, home_option, json_option)
#: What every command has that takes its time.
work_options = several(home_option, json_option, quiet_option)
archive_options = several(
    click.option(
        "--archive",
        "archives",
        multiple=True,
        metavar="PATH",
        type=click.Path(path_type=Path),
        help="A local archive or folder instead of the download; may be repeated.",
    ),
    click.option(
        "--accept-license",
        is_flag=True,
        default=None,
        help="Agree to the owner's terms where a download asks for it (or set KMIP_DATA_ACCEPT_LICENSE=1).",
    ),
)
offline_option = click.option(
    "--offline", is_flag=True, help="Use no network: what is already built or fetched must be enough."
)
#: Where raw files come from.
raw_options = several(archive_options, offline_option)
jobs_option = click.option(
    "--jobs",
    "-j",
    type=click.IntRange(min=1),
    metavar="N",
    help="Worker processes of a build.  [default: the cores this process may use]",
)
output_option = click.option(
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Build into DIR instead of the home folder.",
)


def file_option(flag: str, *names: str, help: str, required: bool = False) -> Callable[[F], F]:  # noqa: A002
    """Make an option that takes a file, there or to be written."""
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(flag, *names, metavar="FILE", required=required, type=kind, help=help)


def number_option(
    flag: str,
    help: str | None = None,  # noqa: A002 -- click's word
    default: int | None = None,
    *,
    type: click.ParamType[Any] | None = None,  # noqa: A002
    metavar: str = "N",
) -> Callable[[F], F]:
    """Make an option that takes a number; its default, if it has one, is shown."""
    kind, shown = type or click.IntRange(min=1), default is not None
    return click.option(flag, type=kind, default=default, show_default=shown, metavar=metavar, help=help)


def _dask(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.params |= {"engine": "processes" if value is None else "dask", "scheduler": value or None}


dask_option = click.option(
    "--dask",
    metavar="[ADDRESS]",
    is_flag=False,
    flag_value="",
    expose_value=False,
    callback=_dask,
    help="Dask cluster with a shared file system: address or file of its scheduler; alone: start one.",
)


def number_list(option: str, text: str) -> list[int]:
    """Read ``1,5,7`` and ``0..3``; raises :class:`UsageError` where ``text`` is neither.

    >>> number_list("--seeds", "0..2,7")
    [0, 1, 2, 7]
    """
    numbers: list[int] = []
    for item in text.replace(" ", "").split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:\.\.([0-9]{1,9}))?", item)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not first <= last < first + MOST_NUMBERS - len(numbers):
            raise UsageError(
                f"{option} is not a list of numbers.",
                expected=f"such as 0..3 or 1,5,10, at most {MOST_NUMBERS:,} numbers",
                found=text,
                next=f"{option} 1,2",
            )
        numbers.extend(range(first, last + 1))
    return numbers
