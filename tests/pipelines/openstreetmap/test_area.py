"""Parts of the map: equal to ``osmnx.graph_from_polygon`` on the same data.

Outlines that are none are refused.
"""

from __future__ import annotations

import json

import osmnx
import pytest
import shapely
from support.cases import check_each
from support.maps.osm_maps import (
    edges_of,
    edges_of_osmnx,
    helsinki,
    streets_of_helsinki,
    write_streets,
)
from support.maps.osm_servers import osm_servers
from support.raises import raises

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format.card import Receipt
from kmip_data.pipelines.base import RawCopy
from kmip_data.pipelines.datasets.openstreetmap.city_reader import (
    _read_extract,
    extend_by_margin,
    parse_bbox,
    read_city,
    read_polygon,
)
from kmip_data.pipelines.datasets.openstreetmap.extract import read_extract
from kmip_data.pipelines.datasets.openstreetmap.network import count_streets
from kmip_data.pipelines.datasets.openstreetmap.parameters import POLYGON_FILE, OpenStreetMapParams

BOX = (24.940, 60.168, 24.947, 60.173)


@pytest.fixture
def raw() -> RawCopy:
    path = helsinki()
    receipt = Receipt(name=path.name, origin=path.name, sha256="0" * 64, bytes=1)
    return RawCopy(path.parent, {path.name: "0" * 64}, (receipt,))


@pytest.mark.slow
def test_a_box_equals_the_osmnx_graph_of_its_polygon(raw, tmp_path):
    write_streets(streets_of_helsinki(), tmp_path / "streets.osm")
    with osm_servers(tmp_path / "streets.osm", shapely.box(*BOX)):
        theirs = osmnx.graph_from_polygon(shapely.box(*BOX), network_type="all")
    params = OpenStreetMapParams(bbox=",".join(map(str, BOX)))
    ours, land_use, _ = _read_extract(raw, helsinki().name, params, shapely.box(*BOX), tmp_path)
    assert ours.node_id.tolist() == sorted(theirs)
    assert edges_of(ours) == edges_of_osmnx(theirs)
    counted = dict(theirs.nodes(data="street_count"))
    assert ours.street_count.tolist() == [counted[node] for node in ours.node_id.tolist()]
    # Streets over the border count, though they are cut off.
    assert (ours.street_count >= count_streets(ours)).all()
    assert (ours.street_count > count_streets(ours)).any()
    everything = read_extract(helsinki(), "all", tmp_path).land_use
    meets = shapely.intersects(everything.area, shapely.box(*BOX))
    assert land_use.value == [
        value for value, kept in zip(everything.value, meets, strict=True) if kept
    ]


@pytest.mark.parametrize("center", [(24.94, 60.17), (-70.6, -33.4), (-176.5, 0.001)])
def test_the_margin_equals_osmnx(center):
    area = shapely.Point(center).buffer(0.01) & shapely.box(-180, -90, 180, 90)
    theirs = osmnx.utils_geo.buffer_geometry(area, 500)
    assert (extend_by_margin(area) ^ theirs).area < 1e-9
    # Over the antimeridian it stays one piece.
    corner = shapely.box(179.9, 10.0, 180.0, 10.1)
    margin = extend_by_margin(corner)
    assert margin.is_valid
    assert margin.contains(corner)
    assert 179.89 < margin.bounds[0] < margin.bounds[2] < 180.01


def test_a_polygon_and_a_box_meet_and_one_that_misses_says_where_the_map_is(raw, tmp_path):
    (tmp_path / POLYGON_FILE).write_text(shapely.to_geojson(shapely.box(24.943, 60.1, 25, 60.2)))
    (tmp_path / helsinki().name).symlink_to(helsinki())
    both = RawCopy(tmp_path, {**raw.members, POLYGON_FILE: "0" * 64}, raw.receipts)
    params = OpenStreetMapParams(bbox=",".join(map(str, BOX)))
    city = read_city(both, params, tmp_path)
    assert 24.943 <= city.features[:, 0].min() < city.features[:, 0].max() <= 24.947
    with raises(UsageError, naming="24.9352"):
        read_city(raw, OpenStreetMapParams(bbox="2,48,3,49"), tmp_path)


BOXES = ["", "1,2,3", "1,2,3,4,5", "a,b,c,d", "3,0,2,1", "0,0,0,1", "-181,0,1,1", "0,nan,1,1"]
SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]
OUTLINES = [
    "",
    "[]",
    '{"type": "Point", "coordinates": [1, 2]}',
    '{"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}',
    '{"type": "Polygon", "coordinates": [[[0, 0], [200, 0], [200, 10], [0, 0]]]}',
    '{"type": "Polygon", "coordinates": "here"}',
    '{"type": "Feature"}',
    '{"type": "FeatureCollection", "features": []}',
    "[" * 100_000,
]


def test_invalid_boxes_and_outlines_are_refused(tmp_path):
    def check_box(text):
        with pytest.raises(ValueError):
            parse_bbox(text)

    def check(text):
        path.write_text(text)
        with raises(DamagedInput, naming="area.geojson"):
            read_polygon(path)

    path = tmp_path / "area.geojson"
    check_each(check_box, BOXES)
    check_each(check, OUTLINES)
    # Polygons anywhere in the file are joined.
    parts = [{"type": "Polygon", "coordinates": [SQUARE]}, {"type": "Point", "coordinates": [9, 9]}]
    other = json.loads(shapely.to_geojson(shapely.box(1, 0, 2, 1)))
    geometries = [{"type": "GeometryCollection", "geometries": parts}, other]
    features = [
        {"type": "Feature", "properties": {}, "geometry": geometry} for geometry in geometries
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    assert read_polygon(path).equals(shapely.box(0, 0, 2, 1))
