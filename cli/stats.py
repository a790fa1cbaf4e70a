"""``kmip-data stats``: sizes, degrees and classes of a build as tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.info import added_table
from kmip_data.cli.shared.dataset_command import DatasetCommand, complete_dataset, resolve
from kmip_data.cli.shared.options import home_option, json_option, sample_option
from kmip_data.cli.shared.output import parts_in_order, print_json, table
from kmip_data.errors import UsageError
from kmip_data.format.parts import in_order
from kmip_data.graphs.splits import largest_deviation
from kmip_data.wording import as_options

if TYPE_CHECKING:
    from kmip_data.builds.home import Build, Home
    from kmip_data.format.card import Card


@click.command(
    cls=DatasetCommand,
    examples=["kmip-data stats s3dis", "kmip-data stats shapenet-part --k 16 --output shapes.txt"],
)
@click.argument("target", shell_complete=complete_dataset)
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

    Prints the tables for all records and each part of each split, and saves them. Where the build
    folder may not be written to, it says so and goes on.
    """
    build = resolve(target, home, sample=sample)
    from kmip_data.builds.columns import added_facts

    text = report(build)
    if not as_json:
        click.echo(text)
    saved = _save(text, build, output)
    if as_json:
        card = build.card
        print_json(
            {
                "path": build.path,
                "saved": saved,
                "sample": card.sample,
                "complete": card.complete,
                "counts": card.counts,
                "splits": {name: split.model_dump()["parts"] for name, split in card.splits.items()},
                "class_names": card.class_names,
                "class_deviations": class_deviations(card),
                "statistics": card.statistics,
                "added_columns": [entry["name"] for entry in added_facts(build)],
            }
        )
    elif saved is not None:
        click.echo(f"\nSaved in {saved}")


def _save(text: str, build: Build, output: Path | None) -> Path | None:
    """Save the tables; ``None`` where the build folder does not take them."""
    from kmip_data.files.changes import write_file, write_output

    path, write = (
        (output, write_output) if output is not None else (build.path / "statistics.txt", write_file)
    )
    try:
        write(path, f"{text}\n".encode())
    except UsageError as error:
        if output is not None:
            raise
        click.echo(f"\nNot saved: {error.what} --output FILE names another place.", err=True)
        return None
    return path


def report(build: Build) -> str:
    """Return the tables as text."""
    card = build.card
    title = f"{card.dataset} {as_options(card.parameters)}, key {card.key}{card.remark}"
    tables = [title, sizes_table(card), spreads_table(card), classes_table(card), deviations_table(card)]
    tables += city_tables(build)
    if added := added_table(build):
        tables.append(f"Added columns\n{added}")
    return "\n\n".join(text for text in tables if text)


def sizes_table(card: Card) -> str:
    """How many graphs, nodes and edges there are, in all and in each part of each split."""
    rows: list[list[Any]] = [["", "all", *(card.counts[name] for name in ("graphs", "nodes", "edges"))]]
    whole = card.counts["nodes"]
    for name, split in card.splits.items():
        parts = parts_in_order(split)
        # Where nodes are split, each part has the whole graph around its nodes.
        of_nodes = len(parts) > 1 and all(counts.edges == card.counts["edges"] for _, counts in parts)
        rows += [
            [name, part, counts.graphs, counts.nodes, None if of_nodes else counts.edges]
            for part, counts in parts
        ]
        if of_nodes and (left := whole - sum(counts.nodes for _, counts in parts)):
            rows.append([name, "in none", 1, left, None])
    for row in rows:
        row.append(f"{row[3] / whole:.1%}" if whole else None)
        row.append(f"{row[4] / row[3]:.2f}" if row[3] and row[4] is not None else None)
    return table(["split", "part", "graphs", "nodes", "edges", "of all nodes", "edges/node"], rows)


def spreads_table(card: Card) -> str:
    """Least, mean and most nodes and edges a graph, and degrees."""
    names = {
        "nodes_per_graph": "nodes a graph",
        "edges_per_graph": "edges a graph",
        "in_degree": "in-degree",
        "out_degree": "out-degree",
    }
    rows = [
        [title, found["min"], f"{found['mean']:,.2f}", found["max"]]
        for name, title in names.items()
        if (found := card.statistics.get(name))
    ]
    return table(["", "least", "mean", "most"], rows) if rows else ""


def classes_table(card: Card) -> str:
    """One line a class: its count, its share in all records and in each part."""
    counted = card.statistics.get("classes") or {}
    columns = {"all": counted.get("total") or []}
    for name, parts in counted.get("splits", {}).items():
        columns.update({f"{part} ({name})": parts[part] for part in in_order(parts)})
    rows: list[list[Any]] = []
    for number, count in enumerate(columns["all"]):
        shares = [f"{part[number] / max(1, sum(part)):.2%}" for part in columns.values()]
        name = card.class_names[number] if number < len(card.class_names) else ""
        rows.append([number, name, count, *shares])
    return table(["class", "name", "count", *columns], rows) if rows else ""


def class_deviations(card: Card) -> dict[str, dict[str, dict[str, Any]]]:
    """Return for each part of each split the class whose share differs most from its share in all records."""
    counted = card.statistics.get("classes") or {}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, parts in counted.get("splits", {}).items():
        for part in in_order(parts):
            if largest := largest_deviation(parts[part], counted.get("total") or []):
                number, difference = largest
                label = card.class_names[number] if number < len(card.class_names) else str(number)
                found.setdefault(name, {})[part] = {"class": label, "difference": difference}
    return found


def deviations_table(card: Card) -> str:
    """How far the classes of each part are from those of all records."""
    rows: list[list[Any]] = [
        [name, part, f"{100 * entry['difference']:+.2f}", entry["class"]]
        for name, parts in class_deviations(card).items()
        for part, entry in parts.items()
    ]
    headings = ["split", "part", "largest deviation of a share, percentage points", "class"]
    return table(headings, rows) if rows else ""


def city_tables(build: Build) -> list[str]:
    """Eccentricity of each class, and the columns of a city; nothing for other builds."""
    from kmip_data.datasets.city_columns import is_city

    if not is_city(build.card):
        return []
    from kmip_data.drawing.maps.city_map import ATTRIBUTION, read_city_map
    from kmip_data.drawing.maps.summary import class_eccentricity, column_spreads

    city = read_city_map(build)
    classes = [
        [number, count, *(f"{value:,.1f}" for value in spread)]
        for number, count, *spread in class_eccentricity(city)
    ]
    columns = [
        [name, *(f"{value:,.4g}" for value in spread), f"{share:.1%}"]
        for name, *spread, share in column_spreads(city)
    ]
    unit = f"[{city.unit}]"
    return [
        table(["class", "count", f"least {unit}", f"mean {unit}", f"most eccentricity {unit}"], classes),
        table(["column", "least", "mean", "most", "deviation", "not zero"], columns),
        ATTRIBUTION,
    ]
