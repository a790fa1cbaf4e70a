"""Refusals about files, builds, shares and cities, whose advice is typed as it was printed."""

from __future__ import annotations

import re
import shlex
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from support.attacks.http_server import File, Server, serving
from support.builds.raw_graphs import write_sample
from support.cli import expect_success, kmip
from support.maps.osm_servers import osm_servers
from support.plugins import fresh
from support.type_advice import type_commands, work_in_copy, write_assay
from support.typed_advice import typed_advice

import kmip_data
from kmip_data.builds.home import Home, list_builds
from kmip_data.errors import KmipDataError
from kmip_data.files.folder_marker import MARKER_NAME
from kmip_data.format.build_files import write_card
from kmip_data.format.card import read_card
from kmip_data.pipelines.datasets.city_networks.sample import write_sample as write_city
from kmip_data.pipelines.datasets.openstreetmap.sample import write_sample as write_map


def refuse(line: str) -> str:
    """Type a line that is refused; return its advice."""
    outcome = kmip(*shlex.split(line))
    assert outcome.code != 0, outcome.out
    return outcome.err.rpartition("Error: ")[2]


def refuse_call(call: Callable[[], object]) -> Any:
    """Make a call that is refused in Python; return its steps, or the message of an ``ImportError``."""
    try:
        call()
    except (KmipDataError, ImportError) as error:
        typed_advice.note_exception(error)
        return getattr(error, "steps", None) or str(error)
    raise AssertionError("not refused")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the builds ``assay`` of a table and ``town`` of a city's tensors."""
    folder = tmp_path_factory.mktemp("prepared")
    write_assay(folder)
    (folder / "tensors").mkdir()
    write_city(folder / "tensors", None, 120, 3)
    home = ("--home", folder / "home", "-q")
    expect_success("build", "graphs", "--name", "assay", "--archive", folder / "assay.csv", *home)
    expect_success("build", "city", "--name", "town", "--archive", folder / "tensors", *home)
    return folder


@pytest.fixture
def user(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files, whose home has the builds."""
    work_in_copy(prepared, tmp_path, monkeypatch)
    return tmp_path


def build_folder(user: Path, name: str) -> Path:
    (folder,) = (user / "home" / "built").glob(f"{name}-*")
    return folder


# --- calls in Python ------------------------------------------------------------------------------


def test_advice_to_python_is_typed(user):
    assert type_commands(refuse_call(lambda: kmip_data.KarateClub), NAME="karate")
    assert type_commands(refuse_call(lambda: kmip_data.S3DIS(force_reload=True)), BUILD="assay")


@pytest.mark.parametrize("name", ["assay", "cora"])
def test_a_dataset_that_is_no_city_is_opened_as_advised(user, name):
    steps = refuse_call(lambda: kmip_data.CityNetwork(name))
    opened = f"kmip_data.open({name!r})"
    if name == "assay":
        opened = f"kmip_data.open({str(build_folder(user, name))!r})"
        assert eval(steps[0])
    assert steps == [opened]


# --- files and builds -----------------------------------------------------------------------------


def _write_description(user: Path) -> None:
    (user / "broken.toml").write_text("[[columns]]\nuse = 'zzzz'\n")


def _write_scan(user: Path) -> None:
    np.random.default_rng(0).random((300, 4), np.float32).tofile(user / "scan.bin")


def _remove_marker(user: Path) -> None:
    (build_folder(user, "assay") / MARKER_NAME).unlink()


def _save_without_targets(user: Path) -> None:
    from torch_geometric.datasets import FakeDataset

    graphs = list(FakeDataset(4, avg_num_nodes=5))
    for graph in graphs:
        del graph.y
    kmip_data.save(graphs, "bare", split={"train": [0, 1], "val": [2], "test": [3]})


@pytest.mark.parametrize(
    ("change", "line", "values", "advised"),
    [
        (
            _write_description,
            "build graphs --name new --archive assay.csv --like broken.toml",
            {"PATH": "assay.csv", "FILE": "new.toml"},
            "build graphs --archive assay.csv --dry-run --describe new.toml",
        ),
        (
            _write_scan,
            "build graphs --name new --archive scan.bin",
            {"PATH": "scan.bin", "NAME": "scan", "COLUMNS": "x,y,z,intensity"},
            "build points --name scan --archive scan.bin",
        ),
        (
            _remove_marker,
            "remove assay --yes",
            {},
            "verify",
        ),
        (_save_without_targets, "train ./bare --model gcn", {}, "info"),
        (None, "build zinc --sample --limit 10000000", {}, "build zinc --sample --limit 100"),
        (
            None,
            "build city --name new --place Rome --archive tensors",
            {"NAME": "new", "FILE": "tensors"},
            "build city --name new --archive tensors",
        ),
        (
            None,
            "build city --name new --archive tensors --set bbox=1,2,3,4",
            {},
            "build city --name new --archive tensors",
        ),
        (
            None,
            "build city --name new --place Rome --offline",
            {"FILE": "tensors"},
            "build city --name new --archive tensors",
        ),
        (
            None,
            "build paris --archive tensors",
            {"PATH": "tensors"},
            "build city --name my-paris --archive tensors",
        ),
    ],
)
def test_advice_about_files_is_typed(user, change, line, values, advised):
    if change is not None:
        change(user)
    typed = type_commands(refuse(line), **values)
    assert any(command.startswith(advised) for command in typed), typed


def test_a_forged_archive_is_accepted_as_advised(user):
    write_sample("texas", user / "raw", limit=20)
    (command,) = type_commands(refuse("build texas --archive raw"))
    assert command == "build texas --unpinned --archive raw"


def test_one_of_two_folders_replaces_the_archive_that_holds_them(user):
    write_sample("texas", user / "raw", limit=20)
    (labels,) = (user / "raw").glob("*label.txt")
    for folder in ("a/b", "a/c"):
        (user / folder).mkdir(parents=True)
        shutil.copy(labels, user / folder)
    labels.unlink()
    line = "build texas --unpinned --archive raw --archive a"
    assert type_commands(refuse(line)) == [f"{line}/b"]


def test_a_split_of_the_raw_files_is_added_as_advised(user):
    expect_success("build", "city-roads-m", "--sample", "-q")
    folder = build_folder(user, "city-roads-m")

    def draw() -> object:
        return kmip_data.GraphLandDataset(
            "city-roads-m", root=folder, split_rule="stratified", sample=True
        )

    expected = f"build city-roads-m --output {folder} --sample --split-rule stratified"
    assert type_commands(refuse_call(draw)) == [expected]
    assert draw()


def test_an_unknown_column_is_listed_as_advised(user):
    from kmip_data.reading.assemble import item_fields

    (build,) = list_builds(Home(user / "home"), "assay")
    advice = refuse_call(lambda: item_fields(build.card.schema_, ["zzzz"]))
    assert type_commands(advice, NAME="assay") == ["info assay"]


def test_shares_are_built_as_advised(user):
    expect_success("build", "shapenet-part", "--sample", "--limit", "3", "-q")
    (command,) = type_commands(refuse("push shapenet-part --sample --limit 3 elsewhere"))
    assert "shapenet-part" in command


# --- cities ---------------------------------------------------------------------------------------


def test_a_city_without_a_source_or_statistics_is_built_as_advised(user):
    write_map(user / "map.osm.pbf", limit=225)
    with osm_servers(user / "map.osm.pbf", shapely.box(10.0, 50.0, 10.014, 50.014)) as servers:
        steps = refuse_call(lambda: kmip_data.CityNetwork("oslo"))
        type_commands(steps[:-1], PLACE="Oslo")
        type_commands(steps[-1:], FILE="map")
        servers.instead["search"] = (200, [])
        assert "name another place" in refuse("build city --name bergen --place Bergen")


def test_a_city_without_statistics_is_repaired_as_advised(user):
    folder = build_folder(user, "town")
    # As a build of others may state it.
    write_card(folder, read_card(folder).model_copy(update={"statistics": {}}))
    assert "build it again" in str(refuse_call(lambda: kmip_data.CityNetwork("town")[0]))


def test_a_city_without_the_columns_of_a_map_is_shown_as_advised(user):
    graph = kmip_data.CityNetwork("town", raw_features=True)[0]
    graph.coordinate_encoding = graph.x[:, :4]
    kmip_data.save([graph, graph], "towns")
    assert type_commands(refuse("preview ./towns"))


# --- a dataset of a plugin, with a license and a server -------------------------------------------

PLUGIN = """
import numpy as np
from kmip_data.format.schema import Schema
from kmip_data.format.graph_record import GraphRecord
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.base import Pipeline
from kmip_data.pipelines.common_columns import class_column, feature_column
from kmip_data.pipelines.units_and_splits import units_of_rows
class Paths(Pipeline):
    version = 1
    manifest_fields = {
        "license": {"name": "Terms", "url": "https://example.com", "notice": "Ask.", "agreement": True},
        "sources": [{"name": "paths.zip", "mirrors": [{"url": "ADDRESS"}]}],
        "content": {
            "anchor": "lengths.txt",
            "members": [{"pattern": "lengths.txt", "max_bytes": 1000}],
            "max_total_bytes": 1000,
        },
    }
    def schema(self, params):
        columns = feature_column("node/x", ("mark",), "of one end"), class_column("graph/y", 2, "even")
        return Schema(columns=columns)
    def units(self, prepared, params):
        return units_of_rows(range(6), 6)
    def records(self, prepared, unit, params):
        lengths = (prepared.path / "lengths.txt").read_text().split()
        if len(lengths) < 6:
            raise DamagedInput("The lengths are cut.")
        if lengths[0] == "x":
            yield None
        for row, nodes in enumerate(map(int, lengths)):
            edges = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
            columns = {"node/x": np.zeros((nodes, 1), np.float32), "graph/y": np.uint8(row % 2)}
            part = ("train", "val", "test")[row % 3]
            yield GraphRecord(key=f"{part}/{row}", num_nodes=nodes, edge_index=edges, columns=columns)
PLUGIN = {"datasets": {"paths": Paths}}
"""


@pytest.fixture
def server(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A working directory with the plugin, whose server has its archive."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "good": "3 4 5 3 4 5",
        "other": "4 4 4 4 4 4",
        "cut": "3",
        "bad": "x " * 6,
    }.items():
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr("lengths.txt", text)
    with serving() as server:
        address = server.route("/paths.zip", File((tmp_path / "good.zip").read_bytes()))
        (tmp_path / "mine.py").write_text(PLUGIN.replace("ADDRESS", address))
        yield server


def test_advice_about_a_plugins_dataset_is_typed(server, home):
    def provoke(line: str, advised: str, **values: str) -> None:
        with fresh():
            advice = refuse(line)
        with fresh():
            typed = type_commands(advice, **values)
        assert any(re.match(advised, command) for command in typed), typed

    mine = "--plugin mine.py"
    provoke(f"fetch paths {mine}", "fetch --plugin mine.py paths --accept-license")
    provoke(
        f"build paths {mine} --archive cut.zip",
        "build --plugin mine.py paths --archive good.zip",
        PATH="good.zip",
    )
    provoke(f"build paths {mine} --archive bad.zip", "info --plugin mine.py paths")

    with fresh():
        expect_success(*shlex.split(f"build paths {mine} --offline -q"))
    (folder,) = (home / "built").iterdir()
    provoke("preview paths --limit 5", "build paths --plugin mine.py --limit 5", FILE="mine.py")
    steps = server.routes.pop("/paths.zip")
    shutil.rmtree(home / "raw")
    shard = folder / "shards" / "00000.h5"

    shard.unlink()
    line = f"verify {folder} --repair {mine}"
    with fresh():
        advice = refuse(line)
    server.route("/paths.zip", *steps)
    with fresh():
        typed = type_commands(advice, PATH="good.zip")
    assert typed[0] == "fetch --plugin mine.py paths"

    shutil.rmtree(home / "raw")
    with fresh():
        expect_success(*shlex.split(f"build paths {mine} --archive other.zip --output other -q"))
    shard.unlink()
    provoke(line, "verify", PATH="good.zip")
    assert shard.exists()
