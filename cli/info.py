"""``kmip-data info``: describe a dataset, a build or a preset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args, get_origin

import click

import kmip_data
from kmip_data.cli.shared.dataset_options import (
    DatasetCommand,
    DatasetParameters,
    parameter_models,
)
from kmip_data.cli.shared.options import plugin_option, read_only_options
from kmip_data.cli.shared.output import (
    Json,
    build_as_json,
    completed,
    format_facts,
    format_table,
    print_result,
    wrap_to_terminal,
)
from kmip_data.cli.shared.printed_tables import builds_table
from kmip_data.cli.shared.targets import BUILD, find_selected_build
from kmip_data.errors import Command
from kmip_data.text import PARAMETER_OPTIONS, human_bytes, list_names, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic.fields import FieldInfo

    from kmip_data.builds.home import Build, Home
    from kmip_data.manifest import Manifest

MAX_CLASS_NAMES = 150  #: characters
PRESET_WIDTH = 80  #: characters of a line about a preset, without a terminal


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
    print_result(result, wrap_to_terminal(text, piped=None if model is None else PRESET_WIDTH))


def _dataset_as_json_and_text(name: str, home: Home) -> tuple[Json, str]:
    """Return the manifest, parameters, presets and builds of a dataset as JSON and as text."""
    from kmip_data.builds.home import list_builds
    from kmip_data.manifest import describe_digests, load_manifest
    from kmip_data.models.training.config.presets import models_with_preset

    manifest = load_manifest(name)
    words = [name]
    # Builds of a recipe are named by the user; their cards name the recipe as manifest.
    card_field = "dataset"
    if manifest.recipe:
        words += ["--name", "NAME"]
        card_field = "manifest"
    command = completed(Command("kmip-data build", *words))
    builds = [build for build in list_builds(home) if getattr(build.card, card_field) == name]
    presets = models_with_preset(name)
    result = {
        **manifest.model_dump(),
        "presets": presets,
        "builds": list(map(build_as_json, builds)),
    }

    # 1. Sizes, splits, presets, class and license.
    expected = manifest.expected
    pairs: list[tuple[str, object]] = [
        ("task", manifest.task),
        ("graphs", expected.graphs),
        ("nodes/graph", expected.avg_nodes),
        ("edges/graph", expected.avg_edges),
    ]
    for rule, parts in expected.splits.items():
        sizes = ", ".join(f"{part} {count:,}" for part, count in parts.items())
        pairs.append((f"split {rule}", sizes))
    opened = "kmip_data.open(NAME)"
    if manifest.dataset_class in dir(kmip_data):
        opened = f"from kmip_data import {manifest.dataset_class}"
    license_ = manifest.license
    pairs += [
        ("digests", describe_digests(manifest)),
        ("classes", list_names(manifest.class_names, MAX_CLASS_NAMES)),
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
        text.append(f"  or a local copy: {command} --archive PATH")

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
    docs = []
    for key in documented_keys():
        section = key.name.removeprefix("model.").partition(".")[0]
        is_unused = (
            section in POSITIONAL_ENCODINGS and section not in config.model.positional.split("+")
        )
        value = value_of_key(config, key.name)
        if key.kind in kinds and not is_unused and value not in (None, "", (), {}):
            shown = str(value).lower() if isinstance(value, bool) else value
            rows.append([key.name, str(shown)])
            docs.append(f"    {key.doc}")
    heading, *lines = format_table(["key", "value"], rows).splitlines()
    text = [heading]
    for line, doc in zip(lines, docs, strict=True):
        text += [line, doc]
    text += ["All other keys: docs/keys.md", ""]
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
    if preset.text:
        text.append("\nThe paper's text differs from its code in")
    for name, difference in preset.text.items():
        text += [f"  {name}", f"    code: {difference.code}", f"    text: {difference.paper}"]
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


def _build_as_text(build: Build, added: Sequence[Json]) -> str:
    """Return the facts, columns, splits, size statistics, classes and notes of a build."""
    from kmip_data.cli.shared.build_summary import facts_of_build
    from kmip_data.format.build_facts import BuildFacts
    from kmip_data.format.build_files import PAGE_NAME

    card = build.card
    facts = BuildFacts(card)
    page = f"{build.path / PAGE_NAME}: sources, histograms, citation"
    pairs = [*facts_of_build(build, card.default_split), ("page", page)]
    header = ["attribute", "stored at", "dtype", "shape", "what"]
    text = [
        f"{card.heading}\n\n{format_facts(pairs)}",
        f"Columns\n{format_table(header, facts.columns(), indent=2)}",
    ]

    added_facts = []
    for column in added:
        if "damaged" in column:
            fact = f"damaged: {column['damaged']} {build.remedy}"
        else:
            size = human_bytes(column["bytes"])
            fact = f"{', '.join(column['attributes'])} ({size}): {one_line(column['definition'])}"
        added_facts.append((column["name"], fact))
    if added_facts:
        text.append(f"Added columns\n{format_facts(added_facts, indent=2)}")

    rows: list[list[object]] = []
    for split in card.splits:
        title = f"{split} (default)" if split == card.default_split else split
        rows += ([title, *part] for part in facts.parts(split))
    header = ["split", "part", "graphs", "nodes", "edges", "digest of keys"]
    text.append(f"Splits\n{format_table(header, rows, indent=2)}")

    if facts.class_counts:
        class_header, *class_rows = facts.classes(card.default_split)
        text.append(format_table(class_header, class_rows))
    return "\n\n".join([*text, *(f"note: {one_line(note)}" for note in card.notes)])
