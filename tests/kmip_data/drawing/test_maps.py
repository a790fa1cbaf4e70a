"""Maps of a city: the same values as the build, and pictures with the same bytes from the same build."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyproj
import pytest
from matplotlib import image
from matplotlib.colors import to_hex
from pydantic import ValidationError
from shapely import box, multipolygons, polygons, to_wkt
from support.builds.written import s3dis_records, s3dis_schema, write_build

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.drawing import pictures
from kmip_data.drawing.layers import Categories, Scale
from kmip_data.drawing.maps import (
    ATTRIBUTION,
    DASHES,
    MIN_DOT,
    city_layers,
    draw_map,
    read_city_map,
    round_length,
    streets_longer_than_drawn,
)
from kmip_data.drawing.page_graph import city_graph
from kmip_data.drawing.run_predictions import RIGHT_WRONG, layers_of_runs
from kmip_data.drawing.style import STYLES, sequential_colors
from kmip_data.errors import UsageError
from kmip_data.format.card import Card
from kmip_data.graphs.city_columns import project_to_metres
from kmip_data.pipelines.build import build_dataset


def test_the_map_contains_the_data_of_the_build(build, city):
    data = kmip_data.open(build.path)[0]
    assert city.classes.tolist() == data.y.tolist()
    assert city.eccentricity.tolist() == data.eccentricity.tolist()
    pairs = {tuple(sorted(pair)) for pair in data.edge_index.T.tolist()}
    assert len(pairs) == city.streets.shape[1]
    assert {tuple(pair) for pair in city.streets.T.tolist()} == pairs
    for number, values in enumerate(list(city.columns.values())[:37]):
        assert values.tolist() == data.x[:, number].tolist()
    assert city.columns["osm_id"].tolist() == data.osm_id.tolist()
    masks = [data.train_mask, data.val_mask, data.test_mask]
    assert (
        set(city.splits) == set(build.card.splits) == {"random-seed0", "spatial-150m-buffer1-seed0"}
    )
    codes = city.splits[build.card.default_split]
    assert all((codes == number).tolist() == mask.tolist() for number, mask in enumerate(masks))
    members = [city.eccentricity[city.classes == number] for number in range(10)]
    assert build.card.class_names == [
        f"{lengths.min():,.0f}–{lengths.max():,.0f} m" for lengths in members
    ]
    assert city.class_labels()[3] == f"3: {build.card.class_names[3]}"


@pytest.mark.parametrize("center", [(24.9, 60.2), (179.99, -17.0)])
def test_map_distances_equal_ground_distances(center):
    """Over 20 km, against geodesics of the ellipsoid."""
    rng = np.random.default_rng(0)
    lon_lat = np.asarray(center) + rng.uniform(-0.09, 0.09, (60, 2))
    lon_lat[:, 0] = (lon_lat[:, 0] + 180) % 360 - 180
    position = project_to_metres(lon_lat)
    assert np.allclose(position.min(axis=0), -position.max(axis=0)), "the middle is the origin"
    a, b = rng.integers(0, 60, (2, 100))
    _, _, ground = pyproj.Geod(ellps="WGS84").inv(*lon_lat[a].T, *lon_lat[b].T)
    drawn = np.hypot(*(position[a] - position[b]).T)
    assert np.allclose(drawn, ground, rtol=0.009, atol=1)
    first, east, north = project_to_metres(np.array([[10.0, 50.0], [10.1, 50.0], [10.0, 50.1]]))
    assert (east[0] > first[0], north[1] > first[1]) == (True, True), "north is up"


def test_one_hot_columns_are_labelled_and_other_builds_are_refused(city, tmp_path):
    assert "highway footway" in city.columns
    assert "lanes 2" in city.columns
    assert not [name for name in city.columns if re.search(r"\[.*[,']|True|False", name)]
    assert {"lanes 2 and 3", "reversed no and yes"} < city.columns.keys()
    with pytest.raises(UsageError):
        read_city_map(write_build(tmp_path / "b", s3dis_records(3), s3dis_schema(4)))


def test_a_city_has_layers_of_classes_eccentricity_and_splits(city):
    classes, eccentricity, random, spatial = city_layers(city)
    assert isinstance(classes, Categories)
    assert sum(classes.counts) == len(city.classes)
    assert classes.labels[3].startswith("3: ")
    assert isinstance(eccentricity, Scale)
    assert eccentricity.unit == "m"
    assert [random.name, spatial.name] == ["split random-seed0", "split spatial-150m-buffer1-seed0"]
    assert random.counts == [252, 252, 2022]
    assert random.labels == ("train", "val", "test"), "no word of a part that nobody is in"
    assert spatial.labels == ("train", "val", "test", "in no split")
    assert len(set(spatial.colors)) == 4
    assert spatial.counts[3] == (city.splits[spatial.note] == 3).sum() > 0
    assert len(set(classes.colors)) == 10


def test_a_map_shows_right_and_wrong_predictions(city):
    rng = np.random.default_rng(1)
    guess = np.where(
        rng.random(len(city.classes)) < 0.4, city.classes, rng.integers(0, 10, len(city.classes))
    )
    truth, _, random, spatial = city_layers(city)
    drawn, said, error = layers_of_runs(truth, [("mine", guess)], random)
    assert error.codes.tolist() == np.abs(guess - city.classes).tolist()
    labels = list(RIGHT_WRONG)
    seen = city.splits["random-seed0"]
    for node in range(0, len(guess), 17):
        word = "right" if guess[node] == city.classes[node] else "wrong"
        part = "test" if seen[node] == 2 else "train, val"
        assert drawn.labels[drawn.codes[node]] == f"{word} ({part})"
    assert list(drawn.labels) == labels
    test = seen == 2
    assert f"test {(guess == city.classes)[test].mean():.1%}" in drawn.note
    assert said.codes.tolist() == guess.tolist()
    buffered, *_ = layers_of_runs(truth, [("mine", guess)], spatial)
    dropped = city.splits["spatial-150m-buffer1-seed0"] == 3
    assert buffered.labels == (*labels, "in no split"), "what was dropped is not called a test node"
    assert ((buffered.codes == 4) == dropped).all()
    elsewhere, *_ = layers_of_runs(truth, [("mine", guess)], None)
    assert elsewhere.labels == ("right", "wrong")
    assert elsewhere.counts[0] == (guess == city.classes).sum()


def drawn_layers(city):
    """What `preview` draws."""
    return [layer for layer in city_layers(city) if isinstance(layer, Categories)]


def test_pictures_have_all_colours(city, tmp_path):
    layers = drawn_layers(city)
    shapes, one = [], tmp_path / "one.png"
    for count in (1, 2):
        draw_map(city, layers[:count], one)
        pixels = image.imread(one)[..., :3]
        shapes.append(pixels.shape)
        for color in layers[0].colors:
            wanted = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
            assert (np.abs(pixels - wanted).max(axis=2) < 0.02).sum() > 50, color
    (_, width, _), (_, width_of_two, _) = shapes
    assert width < width_of_two, "two stand side by side"


@pytest.fixture
def page_of(monkeypatch):
    """Function that draws maps of a city, one of the classes by default, and returns their page."""

    def page(city, count=1):
        figures = []
        monkeypatch.setattr(pictures, "save_figure", lambda figure, *_: figures.append(figure))
        draw_map(city, drawn_layers(city)[:count], Path("m.png"))
        figures[0].draw_without_rendering()
        return figures[0].axes[0]

    return page


def test_ordered_classes_have_one_key_next_to_a_high_map_or_above_a_wide_one(city, page_of):
    high, wide = page_of(city), page_of(replace(city, position=city.position[:, ::-1]))
    for page in (high, wide):
        key, panel = page.child_axes[0], page.child_axes[-1]
        assert [text.get_text() for text in key.texts] == [*city.class_labels()]
        colors = [to_hex(dot.get_color()) for dot in key.lines]
        assert colors == list(sequential_colors(10))
        boxes = [axes.get_window_extent() for axes in (key, panel)]
        assert (boxes[0].x1 < boxes[1].x0) == (page is high)
    (note,) = {layer.note for layer in city_layers(city) if layer.name == "class"}
    assert note.startswith("249 to 253 intersections each, by the distance")
    unequal = replace(city, classes=np.minimum(city.classes, 8), num_classes=9)
    assert city_layers(unequal)[0].note.startswith("253 to 502 intersections each")


def test_names_of_places_do_not_overlap_or_repeat_the_title(city, page_of):
    assert "Helsinki" not in dict(city.places), "in the title"
    texts = page_of(city).child_axes[-1].texts
    names = [text.get_text() for text in texts]
    assert set(names) <= dict(city.places).keys()
    boxes = [text.get_window_extent() for text in texts]
    assert not any(box.count_overlaps(boxes[i + 1 :]) for i, box in enumerate(boxes))
    first, place = city.places[0]
    twice = replace(city, places=[(first, place), ("under it", place)])
    assert [text.get_text() for text in page_of(twice).child_axes[-1].texts] == [first]


def test_places_outside_the_map_do_not_move_it(city, build):
    """A card may be from someone else."""
    facts = build.card.statistics["city"]
    places = [["far", 0.0, 0.0], *facts["places"], ["nowhere", 1e300, -1e300]]
    statistics = {**build.card.statistics, "city": {**facts, "places": places}}
    card = build.card.model_copy(update={"statistics": statistics})
    moved = read_city_map(replace(build, card=card))
    assert [name for name, _ in moved.places] == [name for name, _ in city.places]
    np.testing.assert_array_equal(moved.position, city.position)


def test_dots_and_lines_are_small_where_streets_are_short(city, page_of):
    panel = page_of(city).child_axes[-1]
    (dots,) = (points for points in panel.collections if len(points.get_sizes()) > 1)
    sizes = np.sqrt(dots.get_sizes())
    starts, ends = city.position[city.streets]
    lengths = np.linalg.norm(ends - starts, axis=1)
    points = 72 * lengths * panel.get_window_extent().width / panel.figure.dpi
    points /= np.ptp(panel.get_xlim())
    widest_dots = sizes[city.streets].max(axis=0)
    assert (widest_dots <= np.maximum(points, MIN_DOT) + 1e-6).all(), "dots of a street are apart"
    assert sizes.max() > 2 * np.median(sizes[city.streets[:, points < 2]])
    widths = {line.get_linewidth() for line in panel.lines}
    assert len(widths) == 4


def test_the_dashes_of_a_bent_street_go_on_in_its_middle(city, page_of):
    bent = streets_longer_than_drawn(city)
    middles = {
        tuple(middle) for middle in city.position[city.streets[:, bent]].mean(axis=0).round(6)
    }
    page = page_of(city)
    dashed = [line for line in page.child_axes[-1].lines if line.is_dashed()]
    firsts = np.vstack([line.get_xydata()[::3] for line in dashed])
    assert len(firsts) == 2 * bent.sum(), "both halves begin there, with half a gap"
    assert {tuple(first) for first in firsts.round(6)} == middles
    offset, (on, off) = DASHES
    assert offset == on + off / 2
    key = page.child_axes[1]
    names = [
        "each half: colour of its end",
        "over 1.25 × its drawn length",
        "water",
        "parks and other green",
    ]
    assert [text.get_text() for text in key.texts] == names
    assert [line.is_dashed() for line in key.lines] == [False, False, True, True]
    styles = STYLES["light"]
    colors = [to_hex(area.get_facecolor()) for area in key.patches]
    assert colors == [styles.water_color, styles.green_color]
    bare = page_of(
        replace(city, ground={}, bends={}, has_bends=False, lengths=np.zeros_like(city.lengths))
    )
    assert [text.get_text() for text in bare.child_axes[1].texts] == names[:1]
    assert any("bends of streets are not drawn" in text.get_text() for text in bare.texts)


def test_the_effect_of_the_border_is_said_once(city, page_of):
    """Where colours are explained, or below several maps."""
    (warning,) = city.warnings
    for count in (1, 3):
        texts = " ".join(text.get_text() for text in page_of(city, count).texts)
        assert texts.count(warning.rstrip(".")) == 1


def test_odd_cities_are_drawn(city, tmp_path):
    for change in (
        {"position": city.position * [1.0, 0.0]},
        {"streets": city.streets[:, :0], "lengths": city.lengths[:0], "bends": {}},
        {"eccentricity": np.full_like(city.eccentricity, 7)},
        {"eccentricity": np.resize(np.float32([5000, 5000.0005, 5000.001]), len(city.classes))},
    ):
        draw_map(replace(city, **change), drawn_layers(city)[:1], tmp_path / "m.png")
        assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")


def test_scale_bars_have_round_lengths():
    for longest in np.geomspace(0.5, 99_999, 200):
        length = round_length(float(longest))
        assert longest / 2.5 < length <= longest
        assert float(f"{length:.0e}"[0]) in {1, 2, 5}


def test_streets_much_longer_than_their_line_are_reported(city):
    longer = streets_longer_than_drawn(city)
    paths = [city.path(street) for street in range(city.streets.shape[1])]
    line = np.array([np.hypot(*np.diff(path, axis=0).T).sum() for path in paths])
    ratio = city.lengths / np.maximum(line, 1)
    assert 0 < longer.sum() < 20
    assert streets_longer_than_drawn(replace(city, bends={})).sum() > 40, "most of them are bent"
    assert ratio[longer].min() > 1.2
    assert ratio[~longer & (line > 20)].max() < 1.35


def test_a_generated_city_credits_nobody(tmp_path, city):
    assert city.credit == ATTRIBUTION
    parameters = {"limit": 200}
    build = build_dataset(
        "london", sample=True, home=Home(tmp_path), parameters=parameters, jobs=1, quiet=True
    )
    assert read_city_map(build).credit == ""


def test_halves_of_a_bent_street_meet_halfway_along_it(city, page_of):
    bent = replace(city, lengths=np.zeros_like(city.lengths))  # no dashes
    panel = page_of(bent).child_axes[-1]
    lines = np.concatenate([line.get_xydata() for line in panel.lines])
    halves = [part[:-1] for part in np.split(lines, np.flatnonzero(np.isnan(lines[:, 0])) + 1)]
    drawn = {tuple(half[-1]): [] for half in halves if len(half)}
    for half in halves:
        if len(half):
            drawn[tuple(half[-1])].append(half)
    assert len(city.bends) > 300
    for street in city.bends:
        path = city.path(street)
        steps = np.hypot(*np.diff(path, axis=0).T)
        lengths = []
        for end in (path[0], path[-1]):
            mine = [
                half
                for half in drawn[tuple(end)]
                if len(half) > 1 and all((path == point).all(1).any() for point in half[1:])
            ]
            lengths.append({round(np.hypot(*np.diff(half, axis=0).T).sum(), 6) for half in mine})
        assert round(steps.sum() / 2, 6) in lengths[0] & lengths[1]


@pytest.mark.parametrize(
    ("ground", "kinds"),
    [
        ("MULTIPOLYGON (((24 60, 25 61, 25 60, 24 61, 24 60)))", ["water"]),  # crosses itself
        ("MULTIPOLYGON (((24 60, 25 60, 24 60, 24 60)))", []),  # is a line
        ("MULTIPOLYGON (((24 60, 25 60, 25 61, 25.5 62, 25 61, 24 60)))", ["water"]),  # has a spike
        ("MULTIPOLYGON (((24 60, 1e999 60, 25 61, 24 60)))", []),
        ("MULTIPOLYGON (((1 1, 2 2", []),
        ("MULTIPOINT (24 60)", []),
        # Each would take minutes: one that crosses itself everywhere, and too many.
        (to_wkt(multipolygons([polygons(np.random.default_rng(0).random((300, 2)))])), []),
        (to_wkt(multipolygons([box(i, 0, i + 1, 1) for i in range(2_001)])), []),
    ],
)
def test_ground_and_bends_of_a_card_from_someone_else_are_drawn_or_left_out(
    city, build, tmp_path, ground, kinds
):
    facts = build.card.statistics["city"]
    bends = {**facts["bends"], "0 0": "MULTIPOINT (1 1)", "1 2": "MULTIPOINT (1e999 7)", "3 4": "("}
    statistics = {
        **build.card.statistics,
        "city": {**facts, "ground": {"water": ground}, "bends": bends},
    }
    changed = replace(build, card=build.card.model_copy(update={"statistics": statistics}))
    theirs = read_city_map(changed)
    assert list(theirs.ground) == kinds
    assert theirs.bends.keys() == city.bends.keys()
    np.testing.assert_array_equal(theirs.position, city.position)
    draw_map(theirs, drawn_layers(theirs)[:1], tmp_path / "m.png")
    json.dumps(city_graph(changed).header, allow_nan=False)


@pytest.mark.parametrize(
    "facts",
    [
        {
            "ground": {"water": "GEOMETRYCOLLECTION (" * 9 + "POINT (1 1)" + ")" * 9}
        },  # ends a process
        {"ground": {"water": "MULTIPOLYGON (((nan 1, 2 2, 1 2, nan 1)))"}},
        {"bends": {"1 2": "MULTIPOINT (inf 3)"}},
        {"bends": {"1 2 3": "MULTIPOINT (1 3)"}},
    ],
)
def test_a_card_has_only_polygons_and_points(build, facts):
    content = json.loads(build.card.to_json())
    Card.model_validate(content)
    content["statistics"]["city"] |= facts
    with pytest.raises(ValidationError):
        Card.model_validate(content)
