"""``kmip-data encode``: add positional encodings to a build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.datasets import DatasetCommand, resolve
from kmip_data.cli.shared.options import TARGET, dask_option, jobs_option, sample_option, work_options
from kmip_data.cli.shared.output import facts, print_json
from kmip_data.errors import human_bytes

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


class EncodeCommand(DatasetCommand):
    """A dataset command whose help lists the encodings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then each encoding with its parameter."""
        from kmip_data.graphs.encoding import encodings

        super().format_options(ctx, formatter)
        with formatter.section("Encodings"):
            for kind in encodings():
                name = f"{kind.stem}{kind.metavar or '|'.join(kind.choices)}"
                formatter.write_dl([(f"{name}[-seedS]" if kind.seeded else name, kind.help)])


@click.command(
    cls=EncodeCommand,
    examples=[
        "kmip-data encode peptides-func rwse20 lappe10",
        "kmip-data encode malnet-tiny degree-profile-2.0",
        "kmip-data encode helsinki expander3-seed1",
        "kmip-data encode coco-sp lappe10 --dask tcp://10.0.0.1:8786",
    ],
)
@click.argument("target", type=TARGET)
@click.argument("encodings", metavar="ENCODING…", nargs=-1, required=True)
@sample_option
@jobs_option
@dask_option
@work_options
def command(
    target: str, encodings: tuple[str, ...], sample: bool, home: Home, as_json: bool, **options: Any
) -> None:
    """Add positional encodings to a build.

    ENCODING is a name such as rwse20, below. It becomes a column that datasets and training join by name:
    `columns=["rwse20"]`. An encoding that was stopped is resumed; a finished one is returned at once.
    """
    from kmip_data.builds.columns import column_facts
    from kmip_data.graphs.encoding import parse_encoding
    from kmip_data.pipelines.engine.encode import encode_build

    parsed = [parse_encoding(name) for name in encodings]
    build = resolve(target, home, sample=sample)
    cards = encode_build(build, parsed, **options)
    added = [column_facts(build, card) for card in cards]
    if as_json:
        print_json({"path": build.path, "dataset": build.card.dataset, "columns": added})
        return
    for entry in added:
        click.echo(f"{entry['name']} is a column of {build.path}.")
        rows = [
            ("path", str(entry["path"])),
            ("attributes", ", ".join(entry["attributes"])),
            ("what", entry["definition"]),
            ("files", f"{len(entry['files'])} ({human_bytes(entry['bytes'])})"),
        ]
        click.echo(facts(rows, indent=2))
    names = ", ".join(f'"{entry["name"]}"' for entry in added)
    click.echo(f"\nNext: kmip_data.open({str(build.path)!r}, columns=[{names}])")
