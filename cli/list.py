"""``kmip-data list``: datasets, builds, and disk usage."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.commands import Command
from kmip_data.cli.shared.options import home_option, json_option
from kmip_data.cli.shared.output import build_facts, show, table
from kmip_data.cli.shared.tables import builds_table
from kmip_data.wording import counted, human_bytes

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(cls=Command)
@home_option
@json_option
def command(home: Home) -> None:
    """List datasets and the contents of the home folder, with sizes.

    A build that was stopped is listed with the shards it has; the same `build` command resumes it.
    The last table lists the folders of the home, largest first, with runs grouped by dataset and
    model; `kmip-data remove FOLDER` frees space.
    """
    from kmip_data.builds.home import list_builds
    from kmip_data.format.card import CARD_NAME
    from kmip_data.pipelines.engine.unfinished import unfinished_builds

    builds = list_builds(home)
    readable = {build.path for build in builds}
    cards = sorted(home.built.glob(f"*/{CARD_NAME}"))
    unreadable = [card.parent for card in cards if card.parent not in readable]
    unfinished = unfinished_builds(home)

    sizes = list(_sizes(home))
    total = sum(size for _, _, size in sizes)
    free = shutil.disk_usage(home.nearest).free

    datasets, lines = _datasets()
    result = {
        "home": home.root,
        "datasets": datasets,
        "builds": list(map(build_facts, builds)),
        "unreadable": unreadable,
        "unfinished": list(map(asdict, unfinished)),
        "bytes": total,
        "free": free,
        "folders": [{"folder": name, "what": kind, "bytes": size} for name, kind, size in sizes],
    }

    text = [lines, "Licenses and sources: kmip-data info NAME\n"]
    if builds:
        text.append(f"Builds in {home.built}\n{builds_table(builds)}")
    else:
        text.append(
            f"No builds in {home.built} yet: kmip-data build long-range (needs no download)"
        )
    damage = "has a card that is damaged or of a newer version"
    text += [f"unreadable: {path} {damage}" for path in unreadable]
    for entry in unfinished:
        shards = counted(entry.finished, "shard")
        if entry.shards is not None:
            shards = f"{entry.finished} of {counted(entry.shards, 'shard')}"
        text.append(f"unfinished: {entry.path} has {shards}")
    text.append(f"\n{home.root}: {human_bytes(total)}, and {human_bytes(free)} free on its disk")
    if sizes:
        rows = [[name, kind, human_bytes(size)] for name, kind, size in sizes]
        text.append(table(["folder", "what", "disk"], rows))
    show(result, *text)


def _datasets() -> tuple[list[dict[str, object]], str]:
    """Return the shipped datasets and those of installed plugins, for JSON and as a table."""
    from kmip_data.manifest import dataset_names, load_manifest
    from kmip_data.plugins import offered

    entries = []
    rows = []
    for name in dataset_names():
        manifest = load_manifest(name)
        entry = manifest.model_dump(include={"name", "title", "task"})
        entry["graphs"] = manifest.expected.graphs
        entry["license"] = manifest.license.name
        entries.append(entry)
        rows.append([name, manifest.title, manifest.expected.graphs])
    for name, plugin in offered("datasets").items():
        if name not in dataset_names():
            title = f"of the plugin {plugin}"
            entries.append({"name": name, "title": title})
            rows.append([name, title, None])
    return entries, table(["dataset", "what", "graphs"], rows)


def _sizes(home: Home) -> Iterator[tuple[str, str, int]]:
    """Yield folder, content and bytes of everything on disk, largest first; runs by model.

    Other files of the home are `.`; compiled kernels lie in the user's cache folder.
    """
    import platformdirs

    from kmip_data.cli.shared.belongings import belongings, bytes_below

    # 1. Builds, raw files and runs, these by model: a sweep has hundreds.
    sizes = Counter[str]()
    kinds = {}
    runs = Counter[str]()
    for item in belongings(home):
        name = item.name
        kind: str = item.kind
        if kind == "run":
            name = name.rpartition("/")[0]
            runs[name] += 1
            kind = counted(runs[name], "run")
        sizes[name] += bytes_below(item.path)
        kinds[name] = kind
    for name, kind in {"sweeps": "logs of sweeps", "cache": "blocks of remote builds"}.items():
        sizes[name] = bytes_below(home.root / name)
        kinds[name] = kind

    # 2. A folder of the home may be a link to another disk: its files count, though no walk goes
    #    through it.
    everything = bytes_below(home.root)
    for folder in (home.built, home.raw, home.runs, home.root / "sweeps"):
        if folder.is_symlink():
            everything += bytes_below(folder)

    # 3. The rest of the home, and what lies outside of it.
    cache = platformdirs.user_cache_dir("kmip-data", appauthor=False)
    kinds |= {".": "other files", cache: "compiled kernels"}
    sizes["."] = everything - sizes.total()
    sizes[cache] = bytes_below(Path(cache))
    for name, size in sizes.most_common():
        if size:
            yield name, kinds[name], size
