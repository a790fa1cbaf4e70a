"""``kmip-data preview``: draw records of a build, or the map of a city."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.dataset_options import (
    DatasetCommand,
    DatasetParameters,
    source_pictures,
)
from kmip_data.cli.shared.options import (
    force_option,
    parse_number_list,
    path_option,
    read_only_options,
)
from kmip_data.cli.shared.output import Json, check_output_path, default_output_path, print_result
from kmip_data.cli.shared.targets import BUILD, find_selected_build
from kmip_data.errors import KmipDataError, Setting, UsageError
from kmip_data.files.folder_marker import PICTURE_NAME
from kmip_data.runtime.progress import print_status

if TYPE_CHECKING:
    from kmip_data.builds.home import Build, Home
    from kmip_data.drawing.plottable_record import Labels
    from kmip_data.reading.dataset import ShardedDataset
    from kmip_data.reading.numpy_records import Records

DEFAULT_RECORDS = 3  #: records drawn by default
CANDIDATES = 20  #: near records of this size; that with most classes of nodes is shown
NEAR = 0.2  #: of all records: how much farther than the nearest one they may be
MAX_NODES = 50  #: of a record that is drawn or explored by default, if there are such
TYPICAL = f"about the median size, or {MAX_NODES} nodes if that is less"  #: sizes of these records
MAX_RECORDS = 16  #: records in one picture
#: Memory per intersection of a map: 500 to read a city, 1,200 to draw it (measured on 10⁶), and a margin.
BYTES_PER_NODE = 2_300


@click.command(cls=DatasetCommand)
@click.argument("name", type=BUILD)
@click.option(
    "--records",
    metavar="LIST",
    help=f"Positions, such as 0,3,10..12.  [default: three of {TYPICAL}]",
)
@path_option(
    "--output", help="PNG, SVG or PDF, by suffix.  [default: preview.png in the build folder]"
)
@force_option
@read_only_options
def command(
    name: str,
    records: str | None,
    output: Path | None,
    force: bool,
    sample: bool,
    home: Home,
    parameters: DatasetParameters,
) -> None:
    """Draw records of a build, or the map of a city.

    Graphs stand next to each other, with nodes in the colours of their class or target, or else by
    whether their edges go out, in, or both; legends count classes, and labels of all graphs.
    Superpixels are drawn over their picture, and molecules by RDKit. A city is drawn as maps: by
    class, and by split if it is spatial. In any other large graph, positions are node numbers, and the
    neighbourhood of each is drawn.
    """
    if output is not None:
        from kmip_data.saving.image_files import image_suffix

        image_suffix(output)
        check_output_path(output, force=force)
    # Names are checked before numpy is imported.
    build = find_selected_build(name, home, parameters, sample=sample)
    picture = output or default_output_path(build.path / PICTURE_NAME, force=force)
    print_status(f"Drawing {build.path.name}")
    facts = draw_build(build, picture, home, records=records)
    add_picture_to_page(build)
    about = {"path": build.path, "saved": picture, "sample": build.card.sample}
    print_result({**about, "complete": build.card.complete, **facts}, f"Saved {picture}")


def draw_build(build: Build, path: Path, home: Home, *, records: str | None = None) -> Json:
    """Draw the map of a city, or records of another build, and return JSON facts.

    ``records`` are positions such as ``0,3,10..12``; by default three of :func:`typical_records`,
    spread evenly.
    Superpixels are drawn on top of their source pictures if these are in ``home``. Raises
    ``UsageError`` for records that the build does not have.
    """
    from kmip_data.drawing.layers import Categories
    from kmip_data.drawing.maps import ATTRIBUTION, city_layers, draw_map, read_city_map
    from kmip_data.drawing.neighborhoods import drawable_dataset, is_drawn_by_neighborhoods
    from kmip_data.drawing.pictures import plot_records
    from kmip_data.drawing.plottable_record import read_plottable_record
    from kmip_data.graphs.city_columns import is_city
    from kmip_data.manifest import up_axis_name
    from kmip_data.reading.numpy_records import Records
    from kmip_data.runtime.memory import require_memory
    from kmip_data.text import range_of_sizes

    card = build.card
    if is_city(card):
        if records is not None:
            raise UsageError(
                "A city is a single graph and is drawn completely.",
                steps=Setting(records=None),
            )
        nodes = card.counts["nodes"]
        require_memory(
            nodes * BYTES_PER_NODE,
            f"A map of {nodes:,} intersections",
            "build a part of the city, with its parameter bbox",
        )
        city = read_city_map(build)
        # Classes are ranges of the eccentricity, whose own map would look the same, and the parts
        # of a random split have no places.
        layers = [
            layer
            for layer in city_layers(city)
            if isinstance(layer, Categories)
            and (layer.name == "class" or card.splits[layer.note].rule != "random")
        ]
        draw_map(city, layers, path, card.about)
        return {"maps": [layer.name for layer in layers], "attribution": ATTRIBUTION}

    dataset: Records | ShardedDataset = Records(build)
    if is_drawn_by_neighborhoods(dataset):
        from kmip_data.reading.dataset import ShardedDataset  # imports PyTorch, which takes seconds

        dataset = drawable_dataset(ShardedDataset(build), None)
    positions = parse_record_positions(records, len(dataset))
    if records is None:
        positions = typical_records(positions, dataset)
    plottable_records = [read_plottable_record(dataset, position) for position in positions]
    pictures = source_pictures(build, home, [record.key for record in plottable_records])
    for number, record in enumerate(plottable_records):
        if record.key in pictures:
            plottable_records[number] = replace(record, picture=pictures[record.key])
    most_drawn = max(len(record.pos) for record in plottable_records)
    sizes = range_of_sizes(dataset.nodes, most_drawn, plottable_records[0].noun)
    plot_records(
        plottable_records if len(dataset) > 1 else [replace(plottable_records[0], key="")],
        path,
        title=card.caption_title,
        footer="" if card.sources else card.credit,
        summary=f"{card.about}{sizes}",
        class_names=dataset.card.class_names,
        up=up_axis_name(card.dataset),
        labels=label_distribution(dataset),
    )
    facts = []
    for position, record in zip(positions, plottable_records, strict=True):
        facts.append({"position": int(dataset.records[position]), "key": record.key})
    return {"records": facts}


def label_distribution(dataset: ShardedDataset | Records) -> Labels | None:
    """Return the classes of all graphs; None if graphs have no classes, or the card no counts."""
    import numpy as np

    from kmip_data.drawing.plottable_record import Labels
    from kmip_data.format.build_facts import BuildFacts

    column = dataset.schema.y_column
    if column is None or column.level != "graph" or not column.num_classes:
        return None
    facts = BuildFacts(dataset.card)
    if not facts.class_counts:
        return None
    graphs = dataset.card.counts["graphs"]
    return Labels(tuple(facts.class_names), np.array(facts.class_counts), graphs)


def typical_records(positions: list[int], dataset: ShardedDataset | Records) -> list[int]:
    """Return for each position a near one of about the median size, and of a class not yet shown.

    Of several labels, the largest is the class; numbers have as many classes as there are positions.
    Of large graphs, smaller ones than the median show more: their edges can be told apart. Where nodes
    have classes, the record with most of them shows most.
    """
    import numpy as np

    from kmip_data.drawing.neighborhoods import NeighborhoodDataset
    from kmip_data.reading.numpy_records import Records

    if isinstance(dataset, NeighborhoodDataset):
        chosen: list[int] = dataset.typical_positions(positions)
        return chosen
    if len(dataset) < 2:
        return positions
    nodes = np.maximum(dataset.nodes, 1)
    size = min(np.median(nodes), MAX_NODES)
    distances = np.abs(np.log2(nodes / size)).round() + 10 * (nodes > MAX_NODES)
    column = dataset.schema.y_column
    classes = np.arange(len(nodes))
    if column is not None and column.level == "graph":
        if isinstance(dataset, Records):
            values = dataset.graph_column_values(column)
        else:
            values = getattr(dataset, column.attribute).numpy()
        values = values.reshape(len(nodes), -1)
        classes = np.nan_to_num(values).argmax(axis=1)
        if values.shape[1] == 1:
            ranks = values[:, 0].argsort().argsort()
            classes = values[:, 0] if column.num_classes else ranks * len(positions) // len(ranks)
    chosen = []
    for position in positions:
        is_shown = np.isin(classes, classes[chosen])
        away = np.abs(np.arange(len(nodes)) - position) / len(nodes)
        cost = distances + away + 100.0 * is_shown
        cost[chosen] = np.inf
        nearest = np.argsort(cost, kind="stable")[:CANDIDATES]
        nearest = nearest[cost[nearest] < cost.min() + NEAR]
        chosen.append(max(nearest.tolist(), key=partial(count_classes, dataset)))
    return sorted(chosen)


def count_classes(dataset: ShardedDataset | Records, position: int) -> int:
    """Return the number of classes of a record's nodes; 0 if they have none."""
    column = dataset.schema.y_column
    if column is None or column.level != "node" or not column.num_classes:
        return 0
    return len(set(dataset[position][column.attribute].reshape(-1).tolist()))


def add_picture_to_page(build: Build) -> None:
    """Write the page of a build again if the build has a picture that the page lacks."""
    from kmip_data.files.atomic_writes import folder_lock, write_file
    from kmip_data.format.build_files import PAGE_NAME, has_picture
    from kmip_data.format.card_page import render_card

    page = build.path / PAGE_NAME
    # Keep the picture even if the page is read-only.
    with contextlib.suppress(KmipDataError, OSError):
        if has_picture(build.path) and PICTURE_NAME.encode() not in page.read_bytes():
            with folder_lock(build.path, quiet=True):
                text = render_card(build.reread_card(), picture=True)
                write_file(page, text.encode(), root=build.path)


def parse_record_positions(text: str | None, count: int) -> list[int]:
    """Parse ``0,3,10..12`` without duplicates; None gives :data:`DEFAULT_RECORDS`, evenly spread.

    Raises ``UsageError`` for a position not below ``count``, or more than :data:`MAX_RECORDS`.
    """
    if text is None:
        # Records in the middle of each third: neighbours are often similar.
        shown = min(DEFAULT_RECORDS, count)
        return [count * (2 * i + 1) // (2 * shown) for i in range(shown)]
    positions = list(dict.fromkeys(parse_number_list("--records", text)))
    last = max(positions)
    if last >= count or len(positions) > MAX_RECORDS:
        raise UsageError(
            f"--records {text} does not name records of the build.",
            expected=f"up to {MAX_RECORDS} positions from 0 to {count - 1}, such as 0,3,10..12",
            found=str(last) if last >= count else f"{len(positions)} positions",
            steps=Setting(records=0),
        )
    return positions
