"""``kmip-data list``: list builds and disk usage, or all datasets."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.options import home_option, json_option
from kmip_data.cli.shared.output import Json, build_as_json, format_table, print_result
from kmip_data.cli.shared.printed_tables import builds_table
from kmip_data.errors import Command
from kmip_data.text import count_with_noun, human_bytes

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


_OWN_DATA_TITLE = "Your own files"
MAX_FOLDERS = 12  #: largest folders that are shown


@click.command(cls=ClickCommand)
@click.option("--all", "all_datasets", is_flag=True, help="List all datasets instead, by family.")
@home_option
@json_option
def command(all_datasets: bool, home: Home) -> None:
    """List your builds and runs with their sizes; with --all, list all datasets instead.

    If several builds share a name, the list shows the counts and parameters in which they differ.
    `info NAME` shows all of them. A build that was stopped is listed with its finished shards; the
    same `build` command resumes it. The last table lists the largest runs, raw files and caches.
    `kmip-data remove FOLDER` frees space.
    """
    from kmip_data.builds.home import list_builds
    from kmip_data.format.card import CARD_NAME
    from kmip_data.pipelines.engine.unfinished_builds import unfinished_builds

    # 1. Collect builds, runs and disk usage.
    builds = list_builds(home)
    readable = {build.path for build in builds}
    cards = sorted(home.built.glob(f"*/{CARD_NAME}"))
    unreadable = [card.parent for card in cards if card.parent not in readable]
    unfinished = unfinished_builds(home)
    sizes = _folder_sizes(home)
    total = sum(size for _, _, size in sizes)
    free = shutil.disk_usage(home.nearest_existing_folder).free
    result: Json = {
        "home": home.path,
        "builds": list(map(build_as_json, builds)),
        "unreadable": unreadable,
        "unfinished": list(map(asdict, unfinished)),
        "bytes": total,
        "free": free,
        "folders": [{"folder": name, "what": kind, "bytes": size} for name, kind, size in sizes],
    }

    # 2. Format them as text.
    text = []
    steps = [Command("kmip-data list --all")]
    if builds:
        text.append(f"Builds in {home.built}\n{builds_table(builds)}")
    else:
        text.append(f"No builds in {home.built} yet; long-range needs no download")
        steps.append(Command("kmip-data build long-range"))
    damage = "has a card that is damaged or of a newer version"
    text += [f"unreadable: {path} {damage}" for path in unreadable]
    for entry in unfinished:
        shards = count_with_noun(entry.finished, "shard")
        if entry.shards is not None:
            shards = f"{entry.finished} of {count_with_noun(entry.shards, 'shard')}"
        text.append(f"unfinished: {entry.path} has {shards}")
    if home.run_folders():
        steps.append(Command("kmip-data runs"))
    text.append(f"\n{home.path}: {human_bytes(total)}, and {human_bytes(free)} free on its disk")
    rows = [
        [name, kind, human_bytes(size)]
        for name, kind, size in sizes
        if not name.startswith("built/")
    ]
    if rows:
        text.append(format_table(["folder", "what", "disk"], rows[:MAX_FOLDERS]))
    if len(rows) > MAX_FOLDERS:
        text.append(f"{len(rows) - MAX_FOLDERS} smaller")

    # 3. With --all, list the datasets instead.
    if all_datasets:
        result["datasets"], lines = _datasets_as_json_and_text()
        text = [lines]
        steps = [Command("kmip-data info NAME"), Command("kmip-data list")]
    print_result(result, *text, "", steps=steps)


def _datasets_as_json_and_text() -> tuple[list[dict[str, object]], str]:
    """Return the datasets of kmip-data and of installed plugins, as JSON and as a table by family."""
    from kmip_data.manifest import dataset_names, load_manifest
    from kmip_data.plugins import installed_plugin_names
    from kmip_data.strict_model import read_shipped

    titles = read_shipped("tables", "families")
    entries = []
    families: dict[str, list[list[str | int | None]]] = {}
    for name in dataset_names():
        manifest = load_manifest(name)
        entry = manifest.model_dump(include={"name", "title", "task"})
        entry["graphs"] = manifest.expected.graphs
        entry["license"] = manifest.license.name
        entries.append(entry)
        pipeline = manifest.pipeline
        family = _OWN_DATA_TITLE if manifest.recipe else titles.get(pipeline, pipeline.capitalize())
        row: list[str | int | None] = [name, manifest.title, manifest.expected.graphs]
        families.setdefault(family, []).append(row)
    families[_OWN_DATA_TITLE].append(["pyg", "Datasets of PyTorch Geometric, or your own", None])
    for name, plugin in installed_plugin_names("datasets").items():
        if name not in dataset_names():
            title = f"of the plugin {plugin}"
            entries.append({"name": name, "title": title})
            families.setdefault("Plugins", []).append([name, title, None])

    # Format one table, so that all columns are aligned, and insert the titles.
    rows = list(itertools.chain(*families.values()))
    header, *lines = format_table(["dataset", "what", "graphs"], rows).splitlines()
    text = [header]
    for family, members in families.items():
        text += [f"\n{family}", *lines[: len(members)]]
        lines = lines[len(members) :]
    return entries, "\n".join(text)


def _folder_sizes(home: Home) -> list[tuple[str, str, int]]:
    """Return folder, kind and size of everything on disk, largest first.

    Other files of the home have the folder ``.``; compiled kernels are in the user's cache folder.
    """
    import platformdirs

    from kmip_data.cli.shared.removable_folders import folder_bytes, removable_folders

    folders = [(item.name, str(item.kind), item.path) for item in removable_folders(home)]
    folders.append(("sweeps", "logs of sweeps", home.path / "sweeps"))
    folders.append(("cache", "stamps of checked files, reference answers", home.cache))
    sizes = [(name, kind, folder_bytes(path)) for name, kind, path in folders]

    # A folder of the home may be a link to another disk. Count its files, too.
    tops = [home.built, home.raw, home.runs, home.path / "sweeps"]
    everything = sum(map(folder_bytes, [home.path, *filter(Path.is_symlink, tops)]))
    sizes.append((".", "other files", everything - sum(size for *_, size in sizes)))
    kernels = platformdirs.user_cache_dir("kmip-data", appauthor=False)
    sizes.append((kernels, "compiled kernels", folder_bytes(Path(kernels))))
    return sorted((entry for entry in sizes if entry[2]), key=lambda entry: -entry[2])
