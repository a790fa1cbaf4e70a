"""``kmip-data stats``: sizes, degrees and classes of a build as tables."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.dataset_command import DatasetCommand, resolve
from kmip_data.cli.options import home_option, json_option, sample_option
from kmip_data.cli.output import parameters_text, print_json, table

if TYPE_CHECKING:
    from kmip_data.graphs.parts import PartStatistics
    from kmip_data.home import Build, Home


@click.command(
    cls=DatasetCommand,
    named_by="target",
    examples=["kmip-data stats s3dis", "kmip-data stats shapenet-part --k 16 --output shapes.txt"],
)
@click.argument("target")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Save the tables here.  [default: statistics.txt in the build folder]",
)
@sample_option
@home_option
@json_option
def command(target: str, output: Path | None, sample: bool, home: Home, as_json: bool) -> None:
    """Sizes, degrees and classes of a build.

    Prints the tables for all records and each part of each split, and saves them.
    """
    from kmip_data.graphs.parts import part_statistics
    from kmip_data.shards.files import write_file

    build = resolve(target, home, sample=sample)
    parts = part_statistics(build)
    path = output if output is not None else build.path / "statistics.txt"
    text = report(build, parts)
    write_file(path, f"{text}\n".encode())
    if as_json:
        print_json(
            {
                "path": build.path,
                "saved": path,
                "sample": build.card.sample,
                "class_names": build.card.class_names,
                "statistics": build.card.statistics,
                "parts": [asdict(part) for part in parts],
            }
        )
    else:
        click.echo(f"{text}\n\nSaved in {path}")


def report(build: Build, parts: list[PartStatistics]) -> str:
    """Return the tables as text."""
    card = build.card
    kind = ", a generated sample" if card.sample else ""
    sections = [
        f"{card.dataset} {parameters_text(card.parameters)}, key {card.key}{kind}",
        sizes_table(parts),
    ]
    degrees = [
        [name.replace("_", "-"), found["min"], float(found["mean"]), found["max"]]
        for name in ("in_degree", "out_degree")
        if (found := card.statistics.get(name))
    ]
    if degrees:
        sections.append(table(["degree", "least", "mean", "most"], degrees))
    if parts and parts[0].classes:
        sections.append(classes_table(parts, card.class_names))
    return "\n\n".join(sections)


def sizes_table(parts: list[PartStatistics]) -> str:
    """One line a part: how many graphs, nodes and edges."""
    rows: list[list[Any]] = [
        [
            part.split or "–",
            part.part,
            part.graphs,
            part.nodes,
            part.edges,
            part.smallest,
            part.nodes / part.graphs if part.graphs else None,
            part.largest,
            f"{part.edges / part.nodes:.2f}" if part.nodes else None,
        ]
        for part in parts
    ]
    header = ["split", "part", "graphs", "nodes", "edges", "smallest", "mean", "largest", "edges/node"]
    return table(header, rows)


def classes_table(parts: list[PartStatistics], names: list[str]) -> str:
    """One line a class: its count and share in all records, its share in each part."""
    total = sum(parts[0].classes)
    rows: list[list[Any]] = []
    for number, count in enumerate(parts[0].classes):
        shares = [_share(part.classes[number], sum(part.classes)) for part in parts[1:]]
        name = names[number] if number < len(names) else ""
        rows.append([number, name, count, _share(count, total), *shares])
    columns = [f"{part.part} ({part.split})" for part in parts[1:]]
    return table(["class", "name", "count", "share", *columns], rows)


def _share(count: int, total: int) -> str | None:
    return f"{count / total:.2%}" if total else None
