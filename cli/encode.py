"""``kmip-data encode``: add positional encodings to a build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.dataset_options import (
    DatasetCommand,
    DatasetParameters,
)
from kmip_data.cli.shared.options import (
    dask_option,
    jobs_option,
    long_running_options,
    plugin_option,
    sample_option,
)
from kmip_data.cli.shared.output import format_facts, print_result
from kmip_data.cli.shared.targets import BUILD, find_selected_build
from kmip_data.text import human_bytes

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


class EncodeCommand(DatasetCommand):
    """A dataset command whose help lists the encodings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then each encoding with its parameter."""
        from kmip_data.graphs.encoding import known_encodings

        super().format_options(ctx, formatter)
        with formatter.section("Encodings"):
            for encoding_class in known_encodings():
                choices = "|".join(encoding_class.parameter_choices)
                name = encoding_class.prefix + (encoding_class.parameter_letter or choices)
                formatter.write_dl(
                    [(f"{name}[-seedS]" if encoding_class.seeded else name, encoding_class.help)]
                )


@click.command(cls=EncodeCommand)
@click.argument("name", type=BUILD)
@click.argument("encodings", metavar="ENCODING…", nargs=-1, required=True)
@sample_option
@jobs_option
@dask_option
@plugin_option
@long_running_options
def command(
    name: str,
    encodings: tuple[str, ...],
    sample: bool,
    home: Home,
    parameters: DatasetParameters,
    **options: Any,
) -> None:
    """Add positional encodings to a build.

    ENCODING is a name from the list below, such as rwse20. Stores a column that datasets and
    training select by name: `columns=["rwse20"]`. Resumes an interrupted encoding and reuses a
    finished one.
    """
    from kmip_data.builds.added_columns import facts_of_added_column
    from kmip_data.graphs.encoding import known_encodings, parse_encoding
    from kmip_data.pipelines.engine.encode import encode_build

    for encoding in encodings:
        if not any(encoding_class.parse(encoding) for encoding_class in known_encodings()):
            from kmip_data.plugins import import_installed_plugin

            import_installed_plugin("encodings", encoding)
    parsed = list(map(parse_encoding, encodings))
    build = find_selected_build(name, home, parameters, sample=sample)
    columns = [
        facts_of_added_column(build, card) for card in encode_build(build, parsed, **options)
    ]

    text = []
    for column in columns:
        pairs = [
            ("path", column["path"]),
            ("attributes", ", ".join(column["attributes"])),
            ("definition", column["definition"]),
            ("files", f"{len(column['files'])} ({human_bytes(column['bytes'])})"),
        ]
        text += [f"{column['name']} is a column of {build.path}.", format_facts(pairs, indent=2)]
    names = ", ".join(f'"{column["name"]}"' for column in columns)
    text.append(f"\nNext: kmip_data.open({str(build.path)!r}, columns=[{names}])")
    result = {"path": build.path, "dataset": build.card.dataset, "columns": columns}
    print_result(result, *text)
