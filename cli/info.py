"""``kmip-data info``: describe a dataset, a build or a preset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.list import build_facts, builds_table
from kmip_data.cli.shared.datasets import RECORDS, DatasetCommand, given, resolve
from kmip_data.cli.shared.options import TARGET, look_options
from kmip_data.cli.shared.output import facts, print_json, table
from kmip_data.errors import human_bytes
from kmip_data.wording import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kmip_data.builds.home import Build, Home

ROWS = {"graph": "1", "node": "N", "edge": "E"}  #: rows of a column on an item of N nodes and E edges


@click.command(
    cls=DatasetCommand,
    examples=["kmip-data info s3dis", "kmip-data info s3dis --k 32", "kmip-data info helsinki --croissant"],
)
@click.argument("target", type=TARGET)
@click.option("--croissant", is_flag=True, help="Print the Croissant JSON-LD of a build.")
@click.option(
    "--model", metavar="NAME", help="Show the preset of a model: its keys, and where text and code differ."
)
@look_options
def command(target: str, croissant: bool, model: str | None, sample: bool, home: Home, as_json: bool) -> None:
    """Show a dataset, a build or a preset: sources, license, counts, parameters.

    The name alone shows the dataset and lists its builds; a build folder, or the name with --sample or
    parameters, shows that build.
    """
    from kmip_data.manifest import dataset_names

    name_alone = target in dataset_names() and not sample and not given(RECORDS)
    if model is not None:
        _preset(target, model, home, as_json=as_json)
    elif croissant:
        from kmip_data.format.build_files import build_croissant

        print_json(build_croissant(resolve(target, home, sample=sample).card))
    elif name_alone:
        _dataset(target, home, as_json=as_json)
    else:
        _build(resolve(target, home, sample=sample), as_json=as_json)


def _dataset(name: str, home: Home, *, as_json: bool) -> None:
    from kmip_data.builds.home import list_builds
    from kmip_data.manifest import load_manifest
    from kmip_data.models.training.config.presets import presets_of

    manifest = load_manifest(name)
    # A recipe's builds have names of their own; the card says which manifest made them.
    made_by = "manifest" if manifest.recipe else "dataset"
    builds = [build for build in list_builds(home) if getattr(build.card, made_by) == name]
    command = f"kmip-data build {name}{' --name NAME' if manifest.recipe else ''}"
    presets = presets_of(name)
    if as_json:
        more = {"presets": presets, "builds": [build_facts(build) for build in builds]}
        print_json({**manifest.model_dump(), **more})
        return
    expected, license_ = manifest.expected, manifest.license
    averages = [("nodes", expected.avg_nodes), ("edges", expected.avg_edges)]
    built_in = manifest.dataset_class != "ShardedDataset"
    pairs = [
        ("task", manifest.task),
        ("graphs", expected.graphs),
        ("average", ", ".join(f"{value:,.1f} {what}" for what, value in averages if value is not None)),
        *(
            (f"split {rule}", ", ".join(f"{part} {count:,}" for part, count in parts.items()))
            for rule, parts in expected.splits.items()
        ),
        ("classes", _classes(manifest.class_names)),
        ("presets", ", ".join(presets)),
        ("class", f"from kmip_data import {manifest.dataset_class}" if built_in else "kmip_data.open(NAME)"),
        ("homepage", manifest.homepage),
        ("license", f"{license_.name}\n{license_.url}\n{license_.notice}"),
    ]
    click.echo(f"{manifest.name}: {manifest.title}\n{manifest.summary}\n\n{facts(pairs)}")
    if manifest.recipe:
        click.echo(f"\nBuilt from your own source\n  {command} … (kmip-data build {name} --help)")
    else:
        click.echo("\nSources, tried in this order")
        for mirror in (mirror for source in manifest.sources for mirror in source.mirrors):
            known = [human_bytes(mirror.bytes) if mirror.bytes else "", mirror.note]
            click.echo("\n    ".join([f"  {mirror.address}", *filter(None, known)]))
        click.echo(f"  or a local copy: kmip-data build {name} --archive PATH")
    click.echo("\nParameters")
    click.echo(table(["of build", "default", "what"], _parameters(name), indent=2))
    if manifest.notes:
        click.echo("\n  ".join(["\nNotes", *manifest.notes]))
    click.echo(f"\nCitation\n{manifest.citation.strip()}")
    click.echo(f"\nBuilds in {home.built}")
    click.echo(builds_table(builds) if builds else f"none yet: {command}")


def _preset(target: str, model: str, home: Home, *, as_json: bool) -> None:
    """Print the configuration of a preset, and what the paper's text and its authors' code say of it."""
    from kmip_data.models.training.config.overrides import documented_keys, key_value
    from kmip_data.models.training.config.presets import config_for, read_preset

    config = config_for(target, model, home=home)
    preset = read_preset(*config.preset.split("/")) if config.preset else None
    if as_json:
        about = preset and preset.model_dump(exclude={"code", "extends"})
        found = {"preset": config.preset or None, "about": about}
        print_json({**found, "config": config.model_dump(mode="json")})
        return
    kinds = {"", config.model.attention.kind, config.model.local.kind}
    keys = [key for key in documented_keys() if key.kind in kinds]
    rows = [[key.name, str(key_value(config, key.name)), key.doc] for key in keys]
    click.echo(table(["key", "value", "what"], rows) + "\n")
    if preset is None:
        click.echo(f"There is no preset for {target}: these are the defaults.")
        return
    result, paper = "", preset.paper
    if paper:
        result = f"{paper.metric} {paper.mean} ± {paper.std or 0} ({paper.runs} runs, {paper.source})"
    pairs = [("preset", preset.name), ("source", preset.source), ("variants", ", ".join(preset.variants))]
    click.echo(facts([*pairs, ("the paper's result", result)]))
    rows = [[each.key, each.code, each.paper] for each in preset.text]
    if rows:
        click.echo("\nThe paper's text differs from its code in")
        click.echo(table(["key", "code", "text"], rows, indent=2))
    for note in preset.note:
        click.echo(f"\n{note.topic}: {note.text}")


def _parameters(name: str) -> list[list[str]]:
    """Return the parameters of a dataset: option, default, meaning."""
    from kmip_data.manifest import load_manifest
    from kmip_data.pipelines.base import load_pipeline

    pipeline = load_pipeline(load_manifest(name))
    rows = []
    for key, field in {**pipeline.Params.model_fields, **pipeline.SplitParams.model_fields}.items():
        default = "–" if field.default in (None, ()) else str(field.default)
        rows.append([OPTIONS.get(key, f"--set {key}="), default, field.description or ""])
    return rows


def _classes(names: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(names[:13])
    return f"{len(names)}: {shown}{', …' if len(names) > 13 else ''}" if names else ""


def _build(build: Build, *, as_json: bool) -> None:
    from kmip_data.builds.columns import added_facts
    from kmip_data.drawing.tables import tables_of

    card = build.card
    if as_json:
        print_json({"path": build.path, **card.model_dump(), "added_columns": added_facts(build)})
        return
    size = human_bytes(sum(shard.bytes for shard in card.shards))
    receipts = [f"{r.name} ({r.origin}, {human_bytes(r.bytes)})" for r in card.receipts]
    pairs = [
        ("path", str(build.path)),
        ("key", card.key),
        ("parameters", card.variant),
        *((name, card.counts.get(name)) for name in ("graphs", "nodes", "edges")),
        ("shards", f"{len(card.shards)} ({size})"),
        ("classes", _classes(card.class_names)),
        ("license", card.license.get("notice")),
        ("made from", "\n".join(receipts)),
        ("made with", ", ".join(f"{name} {version}" for name, version in card.versions.items())),
    ]
    click.echo(f"{card.heading}\n\n{facts(pairs)}")
    click.echo(f"\nColumns\n{columns_table(card.schema_, indent=2)}")
    if added := added_facts(build):
        cells = (_added(entry, build) for entry in added)
        click.echo("\nAdded columns")
        click.echo(table(["name", "attributes", "bytes", "what"], cells, indent=2))
    rows = [
        [name + (" (default)" if name == card.default_split else ""), part, counts.graphs, counts.digest[:12]]
        for name, split in card.splits.items()
        for part, counts in split.in_order()
    ]
    click.echo(f"\nSplits\n{table(['split', 'part', 'graphs', 'digest of keys'], rows, indent=2)}")
    for header, figures, note in tables_of(build):
        click.echo(f"\n{table(header, figures)}")
        if note:
            click.echo(note)
    for note in card.notes:
        click.echo(f"\n{note}")


def _added(entry: Mapping[str, Any], build: Build) -> list[str]:
    """Return a column that ``encode`` added, and its description."""
    attributes, size = ", ".join(entry.get("attributes", "–")), entry.get("bytes")
    what = entry.get("definition") or f"damaged: {entry['damaged']} kmip-data verify {build.path} --repair"
    return [entry["name"], attributes, "–" if size is None else human_bytes(size), what]


def columns_table(schema: Any, *, indent: int = 0) -> str:
    """Return the columns: content, storage and presentation of each."""
    rows = [
        [
            column.attribute,
            column.key,
            f"{column.stored} → {column.presented}",
            "×".join(str(n) for n in (ROWS[column.level], *column.shape)),
            ", ".join(column.fields) or column.unit or column.doc,
        ]
        for column in schema.columns
    ]
    rows += [[v.attribute, f"{v.source}[:, {v.start}:{v.stop}]", "view", "", ""] for v in schema.views]
    if schema.edges != "none":
        stored, shape, what = {
            "neighbor": ("edge/neighbor", f"N×{schema.k}", "k-NN"),
            "index": ("edge/index", "2×E", ""),
        }[schema.edges]
        rows.append(["edge_index", stored, f"{schema.index_dtype} → int64", shape, what])
    return table(["attribute", "stored at", "dtype", "shape", "what"], rows, indent=indent)
