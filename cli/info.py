"""``kmip-data info``: what a dataset or a build is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.list import build_facts, builds_table
from kmip_data.cli.shared.dataset_command import (
    DatasetCommand,
    complete_dataset,
    record_parameters,
    resolve,
)
from kmip_data.cli.shared.options import home_option, json_option, sample_option
from kmip_data.cli.shared.output import facts, parts_in_order, print_json, table
from kmip_data.files.disk import human_bytes
from kmip_data.wording import as_options

if TYPE_CHECKING:
    from kmip_data.builds.home import Build, Home
    from kmip_data.manifest import Manifest

ROWS = {"graph": "1", "node": "N", "edge": "E"}  #: rows of a column on an item of N nodes and E edges


@click.command(cls=DatasetCommand, examples=["kmip-data info s3dis", "kmip-data info s3dis --k 32"])
@click.argument("target", shell_complete=complete_dataset)
@sample_option
@home_option
@json_option
def command(target: str, sample: bool, home: Home, as_json: bool) -> None:
    """What a dataset or a build is: sources, licence, counts, presets.

    The name alone tells about the dataset and lists its builds; a build folder, or the name with
    --sample or parameters, tells about that build.
    """
    from kmip_data.manifest import dataset_names

    if target in dataset_names() and not sample and not record_parameters():
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
        print_json(
            {**manifest.model_dump(), "presets": presets, "builds": [build_facts(build) for build in builds]}
        )
        return
    click.echo(f"{manifest.name}: {manifest.title}\n{manifest.summary}\n")
    click.echo(
        facts(
            [
                ("task", manifest.task),
                ("graphs", manifest.expected.graphs),
                ("average", _averages(manifest)),
                *(
                    (f"split {rule}", ", ".join(f"{part} {count:,}" for part, count in parts.items()))
                    for rule, parts in manifest.expected.splits.items()
                ),
                ("classes", _classes(manifest.class_names)),
                ("presets", ", ".join(presets)),
                ("class", _class(manifest)),
                ("homepage", manifest.homepage),
                ("licence", f"{manifest.license.name}\n{manifest.license.url}\n{manifest.license.notice}"),
            ]
        )
    )
    if manifest.recipe:
        click.echo(f"\nBuilt from a source of yours\n  {command} … (kmip-data build {name} --help)")
    else:
        _sources(manifest)
    if manifest.notes:
        click.echo("\nNotes")
        for note in manifest.notes:
            click.echo(f"  {note}")
    click.echo(f"\nCitation\n{manifest.citation.strip()}")
    click.echo(f"\nBuilds in {home.built}")
    click.echo(builds_table(builds) if builds else f"none yet: {command}")


def _sources(manifest: Manifest) -> None:
    click.echo("\nSources, tried in this order")
    for source in manifest.sources:
        for mirror in source.mirrors:
            known = [human_bytes(mirror.bytes) if mirror.bytes else "", mirror.note]
            click.echo(f"  {mirror.address}" + "".join(f"\n    {text}" for text in known if text))
    click.echo(f"  or a local copy: kmip-data build {manifest.name} --archive PATH")


def _class(manifest: Manifest) -> str:
    plain = manifest.dataset_class == "ShardedDataset"
    return "kmip_data.open(NAME)" if plain else f"from kmip_data import {manifest.dataset_class}"


def _averages(manifest: Manifest) -> str:
    expected = manifest.expected
    parts = [
        f"{value:,.1f} {what}"
        for value, what in ((expected.avg_nodes, "nodes"), (expected.avg_edges, "edges"))
        if value is not None
    ]
    return ", ".join(parts)


def _classes(names: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(names[:13])
    return f"{len(names)}: {shown}{', …' if len(names) > 13 else ''}" if names else ""


def _build(build: Build, *, as_json: bool) -> None:
    from kmip_data.builds.columns import added_facts

    card = build.card
    if as_json:
        print_json({"path": str(build.path), **card.model_dump(), "added_columns": added_facts(build)})
        return
    click.echo(f"{card.heading}\n")
    click.echo(
        facts(
            [
                ("path", str(build.path)),
                ("key", card.key),
                ("parameters", as_options(card.parameters)),
                ("graphs", card.counts.get("graphs")),
                ("nodes", card.counts.get("nodes")),
                ("edges", card.counts.get("edges")),
                ("shards", f"{len(card.shards)} ({human_bytes(sum(shard.bytes for shard in card.shards))})"),
                ("classes", _classes(card.class_names)),
                ("licence", card.license.get("notice")),
                (
                    "made from",
                    "\n".join(f"{r.name} ({r.origin}, {human_bytes(r.bytes)})" for r in card.receipts),
                ),
                ("made with", ", ".join(f"{name} {version}" for name, version in card.versions.items())),
            ]
        )
    )
    click.echo("\nColumns")
    click.echo(columns_table(card.schema_, indent=2))
    if added := added_table(build, indent=2):
        click.echo(f"\nAdded columns\n{added}")
    click.echo("\nSplits")
    rows: list[list[Any]] = [
        [name + (" (default)" if name == card.default_split else ""), part, counts.graphs, counts.digest[:12]]
        for name, split in card.splits.items()
        for part, counts in parts_in_order(split)
    ]
    click.echo(table(["split", "part", "graphs", "digest of keys"], rows, indent=2))
    for note in card.notes:
        click.echo(f"\n{note}")


def added_table(build: Build, *, indent: int = 0) -> str:
    """The columns that ``encode`` added, and what each is; empty where there are none."""
    from kmip_data.builds.columns import added_facts

    rows = [
        [entry["name"], "–", "–", f"damaged: {entry['damaged']} kmip-data verify {build.path} --repair"]
        if "damaged" in entry
        else [
            entry["name"],
            ", ".join(entry["attributes"]),
            human_bytes(entry["bytes"]),
            entry["definition"],
        ]
        for entry in added_facts(build)
    ]
    return table(["name", "attributes", "bytes", "what"], rows, indent=indent) if rows else ""


def columns_table(schema: Any, *, indent: int = 0) -> str:
    """What each column holds, how it is stored and how it is presented."""
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
    rows += [
        [view.attribute, f"{view.source}[:, {view.start}:{view.stop}]", "view", "", ""]
        for view in schema.views
    ]
    if schema.edges == "neighbor":
        rows.append(["edge_index", "edge/neighbor", f"{schema.index_dtype} → int64", f"N×{schema.k}", "k-NN"])
    elif schema.edges == "index":
        rows.append(["edge_index", "edge/index", f"{schema.index_dtype} → int64", "2×E", ""])
    return table(["attribute", "stored at", "dtype", "shape", "what"], rows, indent=indent)
