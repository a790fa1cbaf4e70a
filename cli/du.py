"""``kmip-data du``: how much room builds, raw files, runs and caches take."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import home_option, json_option
from kmip_data.cli.shared.output import print_json, table
from kmip_data.files.disk import human_bytes
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(cls=Command, examples=["kmip-data du", "kmip-data du --home /scratch/kmip-data --json"])
@home_option
@json_option
def command(home: Home, as_json: bool) -> None:
    """Show the disk use of builds, raw files, runs and caches.

    The folders of the home, the largest first, runs by dataset and model; beside them the compiled kernels
    in the user's cache folder. `kmip-data remove FOLDER` makes room.
    """
    import platformdirs

    from kmip_data.cli.shared.belongings import belongings, bytes_below

    sizes, what, runs = Counter[str](), dict[str, str](), Counter[str]()
    for each in belongings(home):
        name = each.name.rpartition("/")[0] if each.kind == "run" else each.name
        runs[name] += each.kind == "run"
        sizes[name] += bytes_below(each.path)
        what[name] = counted(runs[name], "run") if runs[name] else each.kind
    known = {"sweeps": "logs of sweeps"}
    sizes |= {name: size for name in known if (size := bytes_below(home.root / name))}
    linked = (top for top in (home.built, home.raw, home.runs, home.root / "sweeps") if top.is_symlink())
    rest = bytes_below(home.root) + sum(map(bytes_below, linked)) - sizes.total()
    cache = Path(platformdirs.user_cache_dir("kmip-data", appauthor=False))
    sizes |= Counter({"others": rest, str(cache): bytes_below(cache)})
    what |= {**known, "others": "files beside these", str(cache): "compiled kernels"}
    largest = [(name, what[name], size) for name, size in sizes.most_common() if size]
    place = next(folder for folder in (home.root, *home.root.parents) if folder.exists())
    total, free = sizes.total(), shutil.disk_usage(place).free
    if as_json:
        folders = [{"folder": name, "what": kind, "bytes": size} for name, kind, size in largest]
        print_json({"home": home.root, "bytes": total, "free": free, "folders": folders})
        return
    click.echo(f"{home.root}: {human_bytes(total)}, and {human_bytes(free)} free on its disk")
    if largest:
        rows = [[name, kind, human_bytes(size)] for name, kind, size in largest]
        click.echo(table(["folder", "what", "disk"], rows))
