"""``kmip-data list``: datasets, builds, and disk usage."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.commands import Command, home_option, json_option
from kmip_data.cli.shared.output import annotated, build_facts, show, table
from kmip_data.errors import human_bytes
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.builds.home import Build, Home


@click.command(cls=Command)
@home_option
@json_option
def command(home: Home, as_json: bool) -> None:
    """List datasets and the contents of the home folder, with sizes.

    A build that was stopped is listed with the shards it has; the same `build` command resumes it. The last
    table has the folders of the home, the largest first, runs by dataset and model; `kmip-data remove FOLDER`
    makes room.
    """
    from kmip_data.builds.home import list_builds
    from kmip_data.format.card import CARD_NAME
    from kmip_data.manifest import dataset_names, load_manifest
    from kmip_data.pipelines.engine.journal import unfinished_builds
    from kmip_data.plugins import offered

    manifests = [load_manifest(name) for name in dataset_names()]
    others = {name: of for name, of in offered("datasets").items() if name not in dataset_names()}
    builds = list_builds(home)
    unfinished = unfinished_builds(home)
    cards = [card.parent for card in sorted(home.built.glob(f"*/{CARD_NAME}"))]
    unreadable = [path for path in cards if path not in {build.path for build in builds}]
    folders = _sizes(home)
    total = sum(size for _, _, size in folders)
    disk = next(folder for folder in (home.root, *home.root.parents) if folder.exists())
    free = shutil.disk_usage(disk).free
    found = {
        "home": home.root,
        "datasets": [
            m.model_dump(include={"name", "title", "task"})
            | {"graphs": m.expected.graphs, "license": m.license.name}
            for m in manifests
        ]
        + [{"name": name, "title": f"of the plugin {of}"} for name, of in others.items()],
        "builds": [build_facts(build) for build in builds],
        "unreadable": unreadable,
        "unfinished": [asdict(entry) for entry in unfinished],
        "bytes": total,
        "free": free,
        "folders": [{"folder": name, "what": kind, "bytes": size} for name, kind, size in folders],
    }
    rows = [[m.name, m.title, m.expected.graphs] for m in manifests]
    rows += [[name, f"of the plugin {of}", None] for name, of in others.items()]
    text = [table(["dataset", "what", "graphs"], rows)]
    text.append("Licenses and sources: kmip-data info NAME\n")
    none = f"No builds in {home.built} yet: kmip-data build long-range (needs no download)"
    text.append(f"Builds in {home.built}\n{builds_table(builds)}" if builds else none)
    text += [
        f"unreadable: {path} has a card that is damaged or of a newer version"
        for path in unreadable
    ]
    for entry in unfinished:
        of = f" of {entry.shards}" if entry.shards is not None else ""
        text.append(f"unfinished: {entry.path} has {entry.finished}{of} shards")
    text.append(f"\n{home.root}: {human_bytes(total)}, and {human_bytes(free)} free on its disk")
    if folders:
        rows = [[name, kind, human_bytes(size)] for name, kind, size in folders]
        text.append(table(["folder", "what", "disk"], rows))
    show(found, "\n".join(text), as_json=as_json)


def builds_table(builds: list[Build]) -> str:
    """One line per build, and one of its parameters."""
    rows = []
    for build in builds:
        counts = (build.card.counts.get(name, 0) for name in ("graphs", "nodes", "edges"))
        rows.append([build.path.name, *counts, human_bytes(build_facts(build)["bytes"])])
    notes = [[*wrap(build.card.variant, 76), build.card.extent] for build in builds]
    return annotated(table(["folder", "graphs", "nodes", "edges", "disk"], rows), notes)


def _sizes(home: Home) -> list[tuple[str, str, int]]:
    """Return folder, content and bytes of everything on disk, largest first; runs by dataset and model.

    The last entries are other files of the home, and compiled kernels in the user's cache folder.
    """
    import platformdirs

    from kmip_data.cli.shared.belongings import belongings, bytes_below

    found = Counter[str]()
    what = dict[str, str]()
    runs = Counter[str]()
    for each in belongings(home):
        run = each.kind == "run"
        name = each.name.rpartition("/")[0] if run else each.name
        runs[name] += run
        found[name] += bytes_below(each.path)
        what[name] = counted(runs[name], "run") if run else each.kind
    known = {"sweeps": "logs of sweeps", "cache": "blocks of remote builds"}
    found |= {name: size for name in known if (size := bytes_below(home.root / name))}
    linked = (
        top for top in (home.built, home.raw, home.runs, home.root / "sweeps") if top.is_symlink()
    )
    rest = bytes_below(home.root) + sum(map(bytes_below, linked)) - found.total()
    cache = platformdirs.user_cache_dir("kmip-data", appauthor=False)
    found |= Counter({".": rest, cache: bytes_below(Path(cache))})
    what |= {**known, ".": "other files", cache: "compiled kernels"}
    return [(name, what[name], size) for name, size in found.most_common() if size]
