"""``kmip-data encode``: add positional encodings to a build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.dataset_command import DatasetCommand, resolve
from kmip_data.cli.shared.names import TARGET
from kmip_data.cli.shared.options import engine_options, jobs_option, sample_option, work_options
from kmip_data.cli.shared.output import facts, print_json
from kmip_data.errors import UsageError
from kmip_data.files.disk import human_bytes
from kmip_data.graphs.encoding import MOST_SEED
from kmip_data.graphs.encodings import ENCODINGS, parse_encoding

if TYPE_CHECKING:
    from collections.abc import Callable

    from kmip_data.builds.home import Home
    from kmip_data.graphs.encoding import Encoding


def _flag(kind: type[Encoding]) -> str:
    return kind.stem.rstrip("-")


def encoding_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add a flag for each encoding there is."""
    for kind in ENCODINGS:
        options: dict[str, Any] = {"type": click.IntRange(min=1), "metavar": kind.metavar}
        if kind.choices:
            options = {"type": click.Choice(kind.choices), "is_flag": False, "flag_value": kind.choices[0]}
        function = click.option(f"--{_flag(kind)}", help=kind.help, **options)(function)
        if kind.seeded:
            seed = click.IntRange(min=0, max=MOST_SEED)
            options = {"type": seed, "default": 0, "show_default": True, "metavar": "S"}
            text = f"Seed of the {kind.stem}."
            function = click.option(f"--{_flag(kind)}-seed", help=text, **options)(function)
    return function


@click.command(
    cls=DatasetCommand,
    examples=[
        "kmip-data encode peptides-func --rwse 20 --lappe 10",
        "kmip-data encode malnet-tiny --degree-profile 2.0",
        "kmip-data encode helsinki --expander 3",
        "kmip-data encode coco-sp --lappe 10 --engine dask --scheduler tcp://10.0.0.1:8786",
    ],
)
@click.argument("target", type=TARGET)
@encoding_options
@sample_option
@jobs_option
@engine_options
@work_options
def command(target: str, sample: bool, home: Home, as_json: bool, **options: Any) -> None:
    """Add positional encodings to a build.

    Writes them beside the shards, as columns that dataset classes, loaders and training join:
    `columns=["rwse20"]`. An encoding that was stopped goes on where it stopped; a finished one is found
    at once.
    """
    from kmip_data.builds.columns import column_facts
    from kmip_data.pipelines.finishing.encode import encode_build

    given = [(kind, options.pop(_flag(kind).replace("-", "_"))) for kind in reversed(ENCODINGS)]
    seeds = {kind: f"-seed{options.pop(f'{_flag(kind)}_seed')}" for kind in ENCODINGS if kind.seeded}
    asked = [f"{kind.stem}{value}{seeds.get(kind, '')}" for kind, value in given if value is not None]
    encodings = [parse_encoding(name) for name in asked]
    if not encodings:
        raise UsageError(
            "There is nothing to add.",
            expected=" or ".join(f"--{_flag(kind)} {kind.metavar}".rstrip() for kind in ENCODINGS),
            found="none of them",
            next="kmip-data encode --help",
        )
    build = resolve(target, home, sample=sample)
    cards = encode_build(build, encodings, **options)
    added = [column_facts(build, card) for card in cards]
    if as_json:
        print_json({"path": build.path, "dataset": build.card.dataset, "columns": added})
        return
    for entry in added:
        click.echo(f"{entry['name']} goes with {build.path}.")
        rows = [
            ("path", str(entry["path"])),
            ("attributes", ", ".join(entry["attributes"])),
            ("what", entry["definition"]),
            ("files", f"{len(entry['files'])} ({human_bytes(entry['bytes'])})"),
        ]
        click.echo(facts(rows, indent=2))
    names = ", ".join(f'"{entry["name"]}"' for entry in added)
    click.echo(f"\nNext: kmip_data.open({str(build.path)!r}, columns=[{names}])")
