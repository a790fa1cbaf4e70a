"""``kmip-data info``: describe a dataset, a build or a preset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click

from kmip_data.cli.list import builds_table
from kmip_data.cli.shared.commands import TARGET, look_options, plugin_option, seek_names
from kmip_data.cli.shared.datasets import RECORDS, DatasetCommand, given, resolve
from kmip_data.cli.shared.output import build_facts, facts, show, table
from kmip_data.errors import human_bytes
from kmip_data.wording import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kmip_data.builds.home import Build, Home
    from kmip_data.format.card import Card

ROWS = {
    "graph": "1",
    "node": "N",
    "edge": "E",
}  #: rows of a column on an item of N nodes and E edges


@click.command(cls=DatasetCommand)
@click.argument("target", type=TARGET)
@click.option(
    "--model",
    metavar="NAME",
    help="Show the preset: its keys, and where the paper's text and code differ.",
)
@plugin_option
@look_options
def command(target: str, model: str | None, sample: bool, home: Home, as_json: bool) -> None:
    """Show a dataset, a build or a preset: sources, license, counts, parameters.

    The name alone shows the dataset and lists its builds; a build folder, or the name with --sample or
    parameters, shows that build.
    """
    from kmip_data.builds.columns import added_facts
    from kmip_data.manifest import dataset_names

    if model is not None:
        found, text = _preset(target, model, home)
    elif target in dataset_names() and not sample and not given(RECORDS):
        found, text = _dataset(target, home)
    else:
        build = resolve(target, home, sample=sample)
        found = {"path": build.path, **build.card.model_dump(), "added_columns": added_facts(build)}
        text = _tables(build, found["added_columns"])
    show(found, text, as_json=as_json)


def _dataset(name: str, home: Home) -> tuple[dict[str, Any], str]:
    from kmip_data.builds.home import list_builds
    from kmip_data.manifest import load_manifest
    from kmip_data.models.training.config.presets import presets_of

    manifest = load_manifest(name)
    # A recipe's builds have names of their own; the card says which manifest made them.
    made_by = "manifest" if manifest.recipe else "dataset"
    builds = [build for build in list_builds(home) if getattr(build.card, made_by) == name]
    command = f"kmip-data build {name}{' --name NAME' if manifest.recipe else ''}"
    presets = presets_of(name)
    found = {
        **manifest.model_dump(),
        "presets": presets,
        "builds": [build_facts(build) for build in builds],
    }
    expected = manifest.expected
    license_ = manifest.license
    averages = [(expected.avg_nodes, "nodes"), (expected.avg_edges, "edges")]
    built_in = manifest.dataset_class != "ShardedDataset"
    pairs = [
        ("task", manifest.task),
        ("graphs", expected.graphs),
        (
            "average",
            ", ".join(f"{value:,.1f} {what}" for value, what in averages if value is not None),
        ),
        *(
            (f"split {rule}", ", ".join(f"{part} {count:,}" for part, count in parts.items()))
            for rule, parts in expected.splits.items()
        ),
        ("classes", _classes(manifest.class_names)),
        ("presets", ", ".join(presets)),
        (
            "class",
            f"from kmip_data import {manifest.dataset_class}"
            if built_in
            else "kmip_data.open(NAME)",
        ),
        ("homepage", manifest.homepage),
        ("license", f"{license_.name}\n{license_.url}\n{license_.notice}"),
    ]
    text = [f"{manifest.name}: {manifest.title}", manifest.summary, "", facts(pairs), ""]
    if manifest.recipe:
        text += ["Built from your own source", f"  {command} …"]
    elif manifest.generated:
        text.append("Generated from its parameters: there is nothing to fetch.")
    else:
        text.append("Sources, tried in this order")
        for mirror in (mirror for source in manifest.sources for mirror in source.mirrors):
            size = human_bytes(mirror.bytes) if mirror.bytes else ""
            text.append("\n    ".join(filter(None, [f"  {mirror.address}", size, mirror.note])))
        text.append(f"  or a local copy: kmip-data build {name} --archive PATH")
    text.append(
        f"\nParameters\n{table(['of build', 'default', 'what'], _parameters(name), indent=2)}"
    )
    text += ["\n  ".join(["\nNotes", *manifest.notes])] if manifest.notes else []
    shown = builds_table(builds) if builds else f"none yet: {command}"
    text.append(f"\nCitation\n{manifest.citation.strip()}\n\nBuilds in {home.built}\n{shown}")
    return found, "\n".join(text)


def _preset(target: str, model: str, home: Home) -> tuple[dict[str, Any], str]:
    """Return the configuration of a preset, and where the paper's text and its authors' code differ."""
    from kmip_data.models.training.config.overrides import documented_keys, key_value
    from kmip_data.models.training.config.presets import config_for, read_preset
    from kmip_data.models.training.run.aim import aim_of

    seek_names(model=model)
    config = config_for(target, model, home=home)
    preset = read_preset(*config.preset.split("/")) if config.preset else None
    about = preset and preset.model_dump(exclude={"code", "extends"})
    found = {
        "preset": config.preset or None,
        "about": about,
        "config": config.model_dump(mode="json"),
    }
    kinds = {"", config.model.attention.kind, config.model.local.kind}
    keys = [key for key in documented_keys() if key.kind in kinds]
    rows = [[key.name, str(key_value(config, key.name)), key.doc] for key in keys]
    text = [table(["key", "value", "what"], rows), ""]
    if preset is None:
        return found, "\n".join(
            [*text, f"There is no preset for {target}: these are the defaults."]
        )
    aim = aim_of(config)
    result = aim and f"{aim.value} ({aim.figure.source})"
    pairs = [
        ("preset", preset.name),
        ("source", preset.source),
        ("variants", f"{', '.join(preset.variants)}  [default: {preset.default}]"),
    ]
    text.append(facts([*pairs, ("the paper's result", result)]))
    if rows := [[each.key, each.code, each.paper] for each in preset.text]:
        cells = table(["key", "code", "text"], rows, indent=2)
        text.append(f"\nThe paper's text differs from its code in\n{cells}")
    text += [f"\n{note.topic}: {note.text}" for note in preset.note]
    return found, "\n".join(text)


def _parameters(name: str) -> list[list[str]]:
    """Return the parameters of a dataset: option, default, meaning."""
    from kmip_data.manifest import load_manifest
    from kmip_data.pipelines.base import load_pipeline

    manifest = load_manifest(name)
    pipeline: Any = load_pipeline(manifest)
    models = [
        *([pipeline.Source] if manifest.recipe else []),
        pipeline.Params,
        pipeline.SplitParams,
    ]
    rows = []
    for key, field in {
        key: of for model in models for key, of in model.model_fields.items()
    }.items():
        default = "–" if field.default in (None, ()) else str(field.default)
        kinds = (field.annotation, *get_args(field.annotation))  # of a union, its members
        choices = [
            str(one) for kind in kinds if get_origin(kind) is Literal for one in get_args(kind)
        ]
        what = (field.description or "") + (f": {' | '.join(choices)}" if choices else "")
        rows.append([OPTIONS.get(key, f"--set {key}="), default, what])
    return [*rows, ["--set compression=", "–", "less disk, slower reading: gzip | zstd"]]


def _classes(names: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(names[:13])
    return f"{len(names)}: {shown}{', …' if len(names) > 13 else ''}" if names else ""


def _tables(build: Build, added: Sequence[Mapping[str, Any]]) -> str:
    from kmip_data.format.build_files import SPREADS

    card = build.card
    size = human_bytes(sum(shard.bytes for shard in card.shards))
    pairs = [
        ("path", build.path),
        ("key", card.key),
        ("parameters", card.variant),
        *((name, card.counts.get(name)) for name in ("graphs", "nodes", "edges")),
        ("shards", f"{len(card.shards)} ({size})"),
        ("classes", _classes(card.class_names)),
        ("license", card.license.get("notice")),
        (
            "made from",
            "\n".join(f"{r.name} ({r.origin}, {human_bytes(r.bytes)})" for r in card.receipts),
        ),
        ("made with", ", ".join(f"{name} {version}" for name, version in card.versions.items())),
    ]
    text = [
        f"{card.heading}\n\n{facts(pairs)}",
        f"\nColumns\n{columns_table(card.schema_, indent=2)}",
    ]
    if added:
        repair = f"kmip-data verify {build.path} --repair"
        cells = [
            [of["name"], None, None, f"damaged: {of['damaged']} {repair}"]
            if "damaged" in of
            else [
                of["name"],
                ", ".join(of["attributes"]),
                human_bytes(of["bytes"]),
                of["definition"],
            ]
            for of in added
        ]
        text += ["\nAdded columns", table(["name", "attributes", "bytes", "what"], cells, indent=2)]
    rows = [
        [
            name + " (default)" * (name == card.default_split),
            part,
            of.graphs,
            of.nodes,
            of.digest[:12],
        ]
        for name, split in card.splits.items()
        for part, of in split.in_order()
    ]
    text.append(
        f"\nSplits\n{table(['split', 'part', 'graphs', 'nodes', 'digest of keys'], rows, indent=2)}"
    )
    spreads = [(title, card.statistics.get(name)) for name, title in SPREADS.items()]
    if found := [
        [title, of["min"], f"{of['mean']:,.2f}", of["max"]] for title, of in spreads if of
    ]:
        text.append(f"\n{table(['', 'least', 'mean', 'most'], found)}")
    text += [_classes_by_part(card), *(f"\nnote: {note}" for note in card.notes)]
    return "\n".join(filter(None, text))


def _classes_by_part(card: Card) -> str:
    """Return the count of each class, and its share in all records and in each part."""
    from kmip_data.format.splits import in_order

    counts = card.statistics.get("classes")
    if not counts or not counts.get("total"):
        return ""
    columns = {"all": counts["total"]}
    for name, parts in counts.get("splits", {}).items():
        columns |= {f"{part} ({name})": parts[part] for part in in_order(parts)}
    rows: list[list[object]] = []
    for number, count in enumerate(counts["total"]):
        name = card.class_names[number] if number < len(card.class_names) else number
        rows.append(
            [name, count, *(f"{part[number] / max(1, sum(part)):.2%}" for part in columns.values())]
        )
    return "\n" + table(["class", "count", *columns], rows)


def columns_table(schema: Any, *, indent: int = 0) -> str:
    """Return the columns: content, storage and presentation of each."""
    rows = [
        [
            column.attribute,
            column.key,
            column.stored
            if column.stored == column.presented
            else f"{column.stored} → {column.presented}",
            "×".join(str(n) for n in (ROWS[column.level], *column.shape)),
            ", ".join(column.fields) or column.unit or column.doc,
        ]
        for column in schema.columns
    ]
    rows += [
        [v.attribute, f"{v.source}[:, {v.start}:{v.stop}]", "view", "", ""] for v in schema.views
    ]
    if schema.edges != "none":
        stored, shape, what = {
            "neighbor": ("edge/neighbor", f"N×{schema.k}", "k-NN"),
            "index": ("edge/index", "2×E", ""),
        }[schema.edges]
        rows.append(["edge_index", stored, f"{schema.index_dtype} → int64", shape, what])
    return table(["attribute", "stored at", "dtype", "shape", "what"], rows, indent=indent)
