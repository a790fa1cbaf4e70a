"""Links among raw files lead nowhere: no command writes, removes or changes anything through one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.attacks.links import KINDS, Command, Kind, Sandbox, run_all
from support.cli import kmip

from kmip_data.manifest import load_manifest
from kmip_data.pipelines.raw.copies import receipt_path

NAME = "city-roads-m"  #: its files are not pinned
(SOURCE,) = load_manifest(NAME).sources
PARTIAL = Path(f"{SOURCE.name}.partial")
STATE = Path(f"{SOURCE.name}.partial.json")
#: every name that a command writes among raw files, taken from where it is written
MADE = tuple(
    str(path)
    for path in (
        *(".unpacking", SOURCE.name, PARTIAL, STATE),
        *(receipt_path(Path(SOURCE.name)), ".lock"),
        f"../.{NAME}.lock",
    )
)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Command]:
    """Every command that brings raw files in, into a folder that has them, whole or damaged."""
    home = tmp_path_factory.mktemp("home")
    build = ("--jobs", "1", "-q", "--offline")
    assert kmip("build", NAME, "--sample", *build, "--home", home).code == 0
    (archive,) = (home / f"raw/{NAME}-sample").glob("members-*")
    assert kmip("fetch", NAME, "--archive", archive, "--home", home, "-q").code == 0
    (copy,) = (home / "raw" / NAME).glob("members-*")
    other = tmp_path_factory.mktemp("other")  # the same files, but for a line
    for path in archive.iterdir():
        if path.name != "receipt.json":
            (other / path.name).write_bytes(path.read_bytes())
    with (other / "targets.csv").open("a") as file:
        file.write("\n")

    def select_raw_folder(folder: Path) -> list[object]:
        """Link the raw files of the sandbox into a home."""
        raw = folder.parent.with_name("home") / "raw"
        raw.parent.mkdir(exist_ok=True)
        raw.unlink(missing_ok=True)
        raw.symlink_to(folder.parent)
        shutil.rmtree(raw.with_name("built"), ignore_errors=True)
        return ["--home", raw.parent]

    def fetch(folder: Path) -> list[object]:
        return ["fetch", NAME, "--archive", archive, *select_raw_folder(folder), "-q"]

    def damage(folder: Path) -> None:
        (folder / copy.name / "info.yaml").write_text("damaged")

    raw = home / "raw" / NAME
    return {
        "fetch again": Command(raw, fetch),
        "fetch instead of damaged files": Command(raw, fetch, damage),
        "fetch others": Command(
            raw,
            lambda folder: ["fetch", NAME, "--archive", other, *select_raw_folder(folder), "-q"],
        ),
        "build": Command(raw, lambda folder: ["build", NAME, *build, *select_raw_folder(folder)]),
        "build from damaged files": Command(
            raw,
            lambda folder: [
                "build",
                NAME,
                "--archive",
                archive,
                *build,
                *select_raw_folder(folder),
            ],
            damage,
        ),
    }


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("fetch again", f"../.{NAME}.lock"),
        ("fetch others", ".unpacking"),
        ("fetch others", f"../.{NAME}.lock"),
        ("build", STATE.name),
    ],
)
def test_commands_keep_the_target_of_a_link_among_raw_files(
    commands: dict[str, Command], tmp_path: Path, command: str, name: str
) -> None:
    assert Sandbox(tmp_path, name=NAME).run(commands[command], name, "bait")


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_every_link_among_raw_files_under_every_command(
    commands: dict[str, Command], tmp_path: Path, kind: Kind, torture_count: Callable[..., None]
) -> None:
    count, failed = run_all(Sandbox(tmp_path, name=NAME), commands, MADE, kind)
    assert not failed, "\n\n".join(failed)
    torture_count("links", count)
