"""``kmip-data info``: describe a dataset, a build or a preset."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Literal, get_args, get_origin

import click

from kmip_data.cli.shared.build_summary import facts_of_repeats
from kmip_data.cli.shared.dataset_options import (
    DatasetCommand,
    DatasetParameters,
    parameter_models,
)
from kmip_data.cli.shared.options import plugin_option, read_only_options
from kmip_data.cli.shared.output import (
    Json,
    build_as_json,
    format_facts,
    format_table,
    join_first_words,
    labelled_values_of_build,
    print_result,
    wrap_to_terminal,
)
from kmip_data.cli.shared.printed_tables import MAX_TABLE_WIDTH, builds_table
from kmip_data.cli.shared.targets import BUILD, find_selected_build
from kmip_data.text import PARAMETER_OPTIONS, human_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic.fields import FieldInfo

    from kmip_data.builds.home import Build, Home
    from kmip_data.format.card import Card
    from kmip_data.format.schema import Schema
    from kmip_data.manifest import Manifest

#: Level of a column -> number of its rows in an item with N nodes and E edges.
ROW_COUNTS = {"graph": "1", "node": "N", "edge": "E"}
MAX_CLASSES_SHOWN = 13


@click.command(cls=DatasetCommand)
@click.argument("name", type=BUILD)
@click.option(
    "--model",
    metavar="NAME",
    help="Show the model's preset: its configuration keys, and where the paper's text and code differ.",
)
@plugin_option
@read_only_options
def command(
    name: str,
    model: str | None,
    sample: bool,
    home: Home,
    parameters: DatasetParameters,
) -> None:
    """Show a dataset, a build or a preset: sources, license, counts, parameters.

    The name of a dataset shows the dataset and lists its builds. To show one build, give its folder,
    or the name of its dataset with --sample or parameters such as --k 16.
    """
    from kmip_data.builds.added_columns import facts_of_added_columns
    from kmip_data.manifest import dataset_names

    if model is not None:
        result, text = _preset_with_differences(name, model, home)
    elif name in dataset_names() and not sample and not parameters.records:
        result, text = _dataset_as_json_and_text(name, home)
    else:
        build = find_selected_build(name, home, parameters, sample=sample)
        columns = facts_of_added_columns(build)
        result = {"path": build.path, **build.card.model_dump(), "added_columns": columns}
        text = _build_as_text(build, columns)
    # Lines about a preset have up to 600 characters.
    print_result(result, wrap_to_terminal(text, piped=None if model is None else MAX_TABLE_WIDTH))


def _dataset_as_json_and_text(name: str, home: Home) -> tuple[Json, str]:
    """Return the manifest, parameters, presets and builds of a dataset as JSON and as text."""
    from kmip_data.builds.home import list_builds
    from kmip_data.manifest import describe_digests, load_manifest
    from kmip_data.models.training.config.presets import models_with_preset

    manifest = load_manifest(name)
    command = f"kmip-data build {name}"
    # Builds of a recipe are named by the user; their cards name the recipe as manifest.
    card_field = "dataset"
    if manifest.recipe:
        command += " --name NAME"
        card_field = "manifest"
    builds = [build for build in list_builds(home) if getattr(build.card, card_field) == name]
    presets = models_with_preset(name)
    result = {
        **manifest.model_dump(),
        "presets": presets,
        "builds": list(map(build_as_json, builds)),
    }

    # 1. Sizes, splits, presets, class and license.
    expected = manifest.expected
    averages = []
    for value, unit in ((expected.avg_nodes, "nodes"), (expected.avg_edges, "edges")):
        if value is not None:
            averages.append(f"{value:,.1f} {unit}")
    pairs: list[tuple[str, object]] = [
        ("task", manifest.task),
        ("graphs", expected.graphs),
        ("average", ", ".join(averages)),
    ]
    for rule, parts in expected.splits.items():
        sizes = ", ".join(f"{part} {count:,}" for part, count in parts.items())
        pairs.append((f"split {rule}", sizes))
    opened = "kmip_data.open(NAME)"
    if manifest.dataset_class != "ShardedDataset":
        opened = f"from kmip_data import {manifest.dataset_class}"
    license_ = manifest.license
    pairs += [
        ("digests", describe_digests(manifest)),
        ("classes", _classes_text(manifest.class_names)),
        ("presets", ", ".join(presets)),
        ("class", opened),
        # Recipes have none.
        ("homepage", "" if manifest.recipe else manifest.homepage),
        ("license", "\n".join(filter(None, (license_.name, license_.url, license_.notice)))),
    ]

    # 2. Sources of raw files.
    text = [f"{manifest.name}: {manifest.title}", manifest.summary, "", format_facts(pairs), ""]
    if manifest.recipe:
        text += ["Built from your own files", f"  {command} …"]
    elif manifest.generated:
        text.append("Generated from its parameters: nothing to fetch.")
    else:
        text.append(
            "Sources, tried in this order" if manifest.sources else "No address to download from"
        )
        for source in manifest.sources:
            for mirror in source.mirrors:
                size = human_bytes(mirror.bytes) if mirror.bytes else ""
                lines = [f"  {mirror.address}", size, mirror.note]
                text.append("\n    ".join(filter(None, lines)))
        text.append(f"  or a local copy: kmip-data build {name} --archive PATH")

    # 3. Parameters, notes, citation and existing builds.
    parameters = format_table(["of build", "default", "what"], _parameter_rows(manifest), indent=2)
    text.append(f"\nParameters\n{parameters}")
    if manifest.notes:
        text.append("\n  ".join(["\nNotes", *manifest.notes]))
    if citation := manifest.citation.strip():
        text.append(f"\nCitation\n{citation}")
    shown = builds_table(builds) if builds else f"none yet: {command}"
    text.append(f"\nBuilds in {home.built}\n{shown}")
    return result, "\n".join(text)


def _preset_with_differences(target: str, model: str, home: Home) -> tuple[Json, str]:
    """Return a preset's configuration, and the differences of the paper's text from its code."""
    from kmip_data.models.positional_encodings import POSITIONAL_ENCODINGS
    from kmip_data.models.training.config.overrides import documented_keys, value_of_key
    from kmip_data.models.training.config.paper_comparison import compare_with_paper
    from kmip_data.models.training.config.presets import config_for_data, read_preset
    from kmip_data.plugins import import_installed_plugins

    import_installed_plugins(model=model)
    config = config_for_data(target, model, home=home)
    preset = read_preset(*config.preset.split("/")) if config.preset else None
    result = {
        "preset": config.preset or None,
        "about": preset and preset.model_dump(exclude={"code", "extends"}),
        "config": config.model_dump(mode="json"),
    }

    # Show only keys with a value, of components that the model has.
    kinds = {"", config.model.attention.kind, config.model.local.kind}
    rows = []
    for key in documented_keys():
        section = key.name.removeprefix("model.").partition(".")[0]
        is_unused = (
            section in POSITIONAL_ENCODINGS and section not in config.model.positional.split("+")
        )
        value = value_of_key(config, key.name)
        if key.kind in kinds and not is_unused and value not in (None, "", (), {}):
            shown = str(value).lower() if isinstance(value, bool) else value
            rows.append([key.name, str(shown), key.doc])
    text = [format_table(["key", "value", "what"], rows), "All other keys: docs/keys.md", ""]
    if preset is None:
        text.append(f"There is no preset for {target}: these are the defaults.")
        return result, "\n".join(text)

    comparison = compare_with_paper(config)
    size = ""
    if preset.size is not None:
        size = "{} layers × {} channels: {:,} parameters".format(*preset.size)
    pairs = [
        ("preset", preset.name),
        ("source", preset.source),
        ("variants", f"{', '.join(preset.variants)}  [default: {preset.default}]"),
        ("published size", size),
        (
            "the paper's result",
            comparison and f"{comparison.paper_value} ({comparison.paper_result.source})",
        ),
    ]
    text.append(format_facts(pairs))
    differences = [[key, entry.code, entry.paper] for key, entry in preset.text.items()]
    if differences:
        cells = format_table(["key", "code", "text"], differences, indent=2)
        text.append(f"\nThe paper's text differs from its code in\n{cells}")
    text += [f"\n{topic}: {reason}" for topic, reason in preset.note.items()]
    return result, "\n".join(text)


def _parameter_rows(manifest: Manifest) -> list[list[str]]:
    """Return option, default and meaning of each parameter of a dataset."""
    fields: dict[str, FieldInfo] = {}
    for model in parameter_models(manifest).values():
        fields |= model.model_fields

    rows = []
    for key, field in fields.items():
        default = "–" if field.default in (None, ()) else str(field.default)
        choices: list[str] = []
        # The annotation itself, or the members of a union.
        for annotation in (field.annotation, *get_args(field.annotation)):
            if get_origin(annotation) is Literal:
                choices += map(str, get_args(annotation))
        meaning = field.description or ""
        if choices:
            meaning += f": {' | '.join(choices)}"
        option = PARAMETER_OPTIONS.get(key, f"--set {key}=")
        if manifest.recipe and key == "path":
            option = "--archive"
        rows.append([option, default, meaning])
    return rows


def _classes_text(names: Sequence[str]) -> str:
    """Return the number of classes and the first names; empty without classes."""
    return f"{len(names)}: {join_first_words(names, MAX_CLASSES_SHOWN)}" if names else ""


def _build_as_text(build: Build, added: Sequence[Json]) -> str:
    """Return the facts, columns, splits, size statistics, classes and notes of a build."""
    from kmip_data.format.build_files import PAGE_NAME
    from kmip_data.format.card_page import distributions

    card = build.card
    pairs = [
        *labelled_values_of_build(build),
        ("key", card.key),
        ("parameters", card.parameters_and_sources),
        ("classes", _classes_text(card.class_names)),
        *facts_of_repeats(card, card.default_split),
        ("page", f"{build.path / PAGE_NAME}: sources, histograms, citation"),
    ]
    text = [f"{card.heading}\n\n{format_facts(pairs)}"]
    text.append(f"\nColumns\n{_columns_text(card.schema_)}")
    if added:
        header = ["name", "attributes", "bytes", "what"]
        rows = []
        for column in added:
            if "damaged" in column:
                repair = f"kmip-data verify {shlex.quote(str(build.path))} --repair"
                damage = f"damaged: {column['damaged']} {repair}"
                rows.append([column["name"], None, None, damage])
            else:
                attributes = ", ".join(column["attributes"])
                size = human_bytes(column["bytes"])
                rows.append([column["name"], attributes, size, column["definition"]])
        text += ["\nAdded columns", format_table(header, rows, indent=2)]

    rows = []
    for name, split in card.splits.items():
        title = name
        if name == card.default_split:
            title += " (default)"
        for part, counts in split.ordered_parts():
            rows.append([title, part, counts.graphs, counts.nodes, counts.digest[:12]])
    header = ["split", "part", "graphs", "nodes", "digest of keys"]
    text.append(f"\nSplits\n{format_table(header, rows, indent=2)}")

    rows = []
    for caption, spread in distributions(card).items():
        rows.append([caption, spread["min"], f"{spread['mean']:,.2f}", spread["max"]])
    if rows:
        text.append(f"\n{format_table(['', 'least', 'mean', 'most'], rows)}")
    text.append(_classes_by_part(card))
    text += [f"\nnote: {note}" for note in card.notes]
    return "\n".join(filter(None, text))


def _classes_by_part(card: Card) -> str:
    """Return a table of class counts, with the fraction of each class overall and by part."""
    from kmip_data.format.split_files import parts_in_order

    counts = card.statistics.get("classes")
    if not counts or not counts.get("total"):
        return ""
    columns = {"all": counts["total"]}
    for name, parts in counts.get("splits", {}).items():
        columns |= {f"{part} ({name})": parts[part] for part in parts_in_order(parts)}

    rows = []
    for number, count in enumerate(counts["total"]):
        fractions = [f"{part[number] / max(1, sum(part)):.2%}" for part in columns.values()]
        rows.append([card.class_name(number), count, *fractions])
    return "\n" + format_table(["class", "count", *columns], rows)


def _columns_text(schema: Schema) -> str:
    """Return a table of columns: where they are stored, dtype, shape and content."""
    rows = []
    for column in schema.columns:
        dtype = column.stored
        if column.stored != column.presented:
            dtype = f"{column.stored} → {column.presented}"
        shape = "×".join(map(str, (ROW_COUNTS[column.level], *column.shape)))
        content = ", ".join(column.fields) or column.unit or column.doc
        if not column.finite:
            content = f"{content} (may be NaN)".strip()
        rows.append([column.attribute, column.key, dtype, shape, content])
    for view in schema.views:
        source = f"{view.source}[:, {view.start}:{view.stop}]"
        rows.append([view.attribute, source, "view", "", ""])
    if schema.edges == "neighbor":
        dtype = f"{schema.index_dtype} → int64"
        rows.append(["edge_index", "edge/neighbor", dtype, f"N×{schema.k}", "k-NN"])
    if schema.edges == "index":
        rows.append(["edge_index", "edge/index", f"{schema.index_dtype} → int64", "2×E", ""])
    return format_table(["attribute", "stored at", "dtype", "shape", "what"], rows, indent=2)
