"""Features: equal to upstream's own steps with OSMnx, pandas, GeoPandas and PyTorch Geometric."""

from __future__ import annotations

from collections import Counter

import geopandas
import networkx as nx
import numpy as np
import osmnx
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import check_each
from support.maps.osm_maps import helsinki, write_areas, write_map, write_streets
from torch_geometric.utils import remove_self_loops, scatter, to_undirected

from kmip_data.format.card import Receipt
from kmip_data.pipelines.base import RawCopy
from kmip_data.pipelines.datasets.openstreetmap import city_reader
from kmip_data.pipelines.datasets.openstreetmap.city_arrays import (
    Vocabulary,
    city_arrays,
    land_use_of_nodes,
)
from kmip_data.pipelines.datasets.openstreetmap.extract import read_extract
from kmip_data.pipelines.datasets.openstreetmap.network import largest_component, simplify_graph
from kmip_data.pipelines.datasets.openstreetmap.parameters import OpenStreetMapParams
from kmip_data.pipelines.datasets.openstreetmap.streets import IMPLICIT_LIMITS, read_speed
from kmip_data.pipelines.domains.cities import FEATURE_NAMES, CityArrays
from kmip_data.runtime import memory


@pytest.fixture(scope="module")
def city(tmp_path_factory) -> CityArrays:
    extract = read_extract(helsinki(), "all", tmp_path_factory.mktemp("work"))
    graph = simplify_graph(largest_component(extract.ways))
    uses = land_use_of_nodes(graph, extract.land_use)
    return city_arrays(graph, uses, tmp_path_factory.mktemp("tensors"), card_statistics={})


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Nodes and edges as upstream has them before it counts categories."""
    folder = tmp_path_factory.mktemp("osmnx")
    write_streets(helsinki(), folder / "streets.osm")
    write_areas(helsinki(), folder / "areas.osm")
    graph = osmnx.graph_from_xml(folder / "streets.osm")
    for _, _, data in graph.edges(data=True):  # lists that simplification makes have any order
        data |= {
            key: sorted(values, key=str) for key, values in data.items() if isinstance(values, list)
        }
    graph = osmnx.add_edge_speeds(graph)
    nodes, edges = osmnx.graph_to_gdfs(graph)
    nodes["street_count"] = pd.Series(osmnx.stats.count_streets_per_node(graph))
    areas = osmnx.features_from_xml(folder / "areas.osm", tags={"landuse": True})
    areas = areas[areas.geometry.geom_type.isin(["Polygon", "MultiPolygon"])]
    # Upstream keeps the first of equally near areas in whatever order the join has them: here by
    # number.
    areas = areas.assign(rank=range(len(areas)))[["landuse", "rank", "geometry"]]
    joined = geopandas.sjoin_nearest(nodes, areas, how="inner").sort_values("rank", kind="stable")
    nodes["landuse"] = joined[~joined.index.duplicated(keep="first")]["landuse"]
    return nodes.sort_index(), edges


def one_hot(values: pd.Series, categories: tuple[str, ...], width: int) -> np.ndarray:
    text = values.astype(str).where(values.notna(), "nan")
    text = text.where(text.isin(categories), "others")
    columns = [(text == category).to_numpy(np.float32) for category in categories]
    columns += [np.zeros(len(text), np.float32)] * (width - len(columns))
    return np.stack(columns, axis=1)


@pytest.mark.slow
def test_the_37_columns_equal_upstream(city, theirs):
    nodes, edges = theirs
    words = Vocabulary.model_validate(city.card_statistics["vocabulary"])
    position = {number: i for i, number in enumerate(nodes.index)}
    assert nodes.index.tolist() == city.osm_ids.tolist()
    index = torch.tensor([[position[u], position[v]] for u, v, _ in edges.index]).T
    attr = np.concatenate(
        [
            edges[["length", "speed_kph"]].to_numpy(np.float32),
            one_hot(edges["oneway"], ("False", "True"), 2),
            one_hot(edges["lanes"], words.lanes, 9),
            one_hot(edges["reversed"], ("False", "True", "[False, True]"), 3),
            one_hot(edges["highway"], words.highway, 9),
        ],
        axis=1,
    )
    index, attr = to_undirected(index, torch.from_numpy(attr), reduce="mean")
    index, attr = remove_self_loops(index, attr)
    means = scatter(attr, index[1], dim=0, dim_size=len(nodes), reduce="mean").numpy()
    node_features = nodes[["x", "y", "street_count"]].to_numpy(np.float32)
    expected = np.concatenate(
        [node_features, one_hot(nodes["landuse"], words.landuse, 9), means], axis=1
    )
    assert np.array_equal(city.edge_index, index.numpy())
    np.testing.assert_allclose(city.edge_length, attr[:, 0].numpy(), rtol=1e-6)
    for column, name in enumerate(FEATURE_NAMES):
        np.testing.assert_allclose(
            city.features[:, column], expected[:, column], rtol=1e-5, atol=1e-6, err_msg=name
        )


def test_the_vocabulary_equals_upstream(city, theirs):
    nodes, edges = theirs
    words = city.card_statistics["vocabulary"]
    for name, values in (("landuse", nodes["landuse"]), ("highway", edges["highway"])):
        counts = values.astype(str).value_counts()
        kept = values.astype(str).where(values.astype(str).isin(counts.index[:8]), "others")
        theirs_by_frequency = kept.value_counts()
        assert Counter(words[name]) == Counter(theirs_by_frequency.index)
        ranks = [theirs_by_frequency[word] for word in words[name]]
        assert ranks == sorted(ranks, reverse=True)


def test_arrays_in_files_give_the_same_city(tmp_path, monkeypatch):
    """Arrays mapped from files, as for a country too large for memory, equal those in memory."""
    raw = RawCopy(
        helsinki().parent,
        {helsinki().name: ""},
        (Receipt(name="", origin="helsinki", sha256="", bytes=0),),
    )
    city, mapped = city_reader.read_city(raw, OpenStreetMapParams(), tmp_path), []
    monkeypatch.setattr(memory, "MIN_MAPPED_BYTES", 1)
    memmap = np.memmap
    monkeypatch.setattr(
        np, "memmap", lambda *args, **named: mapped.append(args) or memmap(*args, **named)
    )
    (tmp_path / "mapped").mkdir()
    other = city_reader.read_city(raw, OpenStreetMapParams(), tmp_path / "mapped")
    assert len(mapped) > 15
    for name in ("features", "edge_index", "edge_length", "edge_speed", "osm_ids"):
        np.testing.assert_array_equal(getattr(other, name), getattr(city, name))


def test_a_city_without_tags_has_zero_columns_and_says_so(tmp_path):
    nodes = [(number, 10 + number * 0.001, 50.0) for number in range(1, 4)]
    ways = [(number, [number, number + 1], {"highway": "path"}) for number in (1, 2)]
    path = write_map(tmp_path / "map.osm", nodes, ways)
    extract = read_extract(path, "all", tmp_path)
    graph = simplify_graph(extract.ways)
    city = city_arrays(
        graph, land_use_of_nodes(graph, extract.land_use), tmp_path, card_statistics={}
    )
    assert not city.features[:, 3:12].any()
    assert not city.features[:, 13].any()
    assert city.edge_speed is None
    starts = ["The source has no land-use areas", "No street has a maxspeed"]
    assert [warning.split(":")[0] for warning in city.warnings] == starts
    words = Vocabulary(landuse=(), lanes=("nan",), highway=("steps",))
    (tmp_path / "other").mkdir()
    other = city_arrays(
        simplify_graph(extract.ways), None, tmp_path / "other", vocabulary=words, card_statistics={}
    )
    assert not other.features[:, 28:].any()
    assert other.card_statistics["vocabulary"] == words.model_dump(mode="json")
    assert other.warnings[-1] == "2 values of highway are not in the vocabulary and were dropped."


SPEEDS = [
    *IMPLICIT_LIMITS,
    "walk",
    "none",
    "",
    "30 mph",
    "30mph",
    "5 knots",
    "1.2.3",
    "50|30",
    "9|30 mph",
]


@settings(deadline=None, max_examples=30)
@given(st.text("0123456789.,| kmph/", max_size=9))
def test_any_speed_is_read_as_by_osmnx(text):
    assert read_speed(text) == speed_of_osmnx(text)


def test_speeds_are_read_as_by_osmnx():
    def check(text):
        assert read_speed(text) == speed_of_osmnx(text)

    check_each(check, SPEEDS)


def speed_of_osmnx(text: str) -> float | None:
    """Return the speed that OSMnx reads; ``None`` where it puts in the speed for those without."""
    graph = nx.MultiDiGraph(crs="EPSG:4326")
    graph.add_node(1, x=0.0, y=0.0)
    graph.add_node(2, x=1.0, y=0.0)
    graph.add_edge(1, 2, highway="any", maxspeed=text, length=1.0)
    speed = osmnx.add_edge_speeds(graph, fallback=-1.0).edges[1, 2, 0]["speed_kph"]
    return None if speed == -1.0 else speed
