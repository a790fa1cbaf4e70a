"""Pictures of records: what is read is what is drawn, and every kind of graph can be."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.collections import LineCollection, PathCollection, QuadMesh
from matplotlib.colors import to_hex, to_rgba
from matplotlib.image import imread
from matplotlib.patches import FancyArrowPatch
from support.builds.records import column_of
from support.builds.written import s3dis_records, s3dis_schema, write_build

import kmip_data
from kmip_data.drawing import graph_panels, pictures
from kmip_data.drawing.graph_panels import MAX_NAMES, NAME_GAP
from kmip_data.drawing.layers import Categories
from kmip_data.drawing.layouts import spring_layout
from kmip_data.drawing.molecules import (
    BOND_LENGTH,
    PIXELS_PER_INCH,
    draw_molecule,
)
from kmip_data.drawing.ordered_layouts import arrange
from kmip_data.drawing.pictures import plot_records
from kmip_data.drawing.plottable_record import (
    Labels,
    PlottableRecord,
    _ends_of_edges,
    element_layer,
    numbers_of_flags,
    read_plottable_record,
)
from kmip_data.drawing.plotted_layers import shorten_middle
from kmip_data.drawing.style import current_style, readable_color, using_style
from kmip_data.errors import UsageError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.graphs.molecule_fields import (
    ATOM_FIELDS,
    atoms_from_features,
    bond_types_from_features,
)
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.domains.molecules import molecule_from_smiles
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.numpy_records import Records


def random_record(nodes=50, dimensions=3, classes=3, edges=200, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, nodes) if classes else None
    edge_index = rng.integers(0, max(nodes, 1), (2, edges)) if nodes else np.zeros((2, 0), np.int64)
    return PlottableRecord("room/1", rng.random((nodes, dimensions)), y, edge_index)


def pixels(path: Path):
    return imread(path, format="png")


def test_a_drawing_has_the_values_of_its_record(tmp_path):
    records = s3dis_records(9)
    dataset = ShardedDataset(write_build(tmp_path / "b", records, s3dis_schema(4), per_shard=4))
    for position in (0, 3, 4, 8):
        picture, record = read_plottable_record(dataset, position), records[position]
        assert picture.key == record.key
        np.testing.assert_array_equal(picture.pos, record.columns["node/x"][:, :3])
        np.testing.assert_array_equal(picture.y, record.columns["node/y"])
        expected = {(int(s), t) for t, row in enumerate(record.neighbor) for s in row}
        assert set(map(tuple, picture.edge_index.T.tolist())) == expected
        incoming, outgoing = picture.degrees()
        assert set(incoming) == {4}
        assert outgoing.sum() == picture.edge_index.shape[1]


@pytest.mark.parametrize(
    ("name", "limit"), [("s3dis", 2), ("zinc", 9), ("cora", None), ("ogbg-molpcba", 9)]
)
def test_records_read_without_pytorch_equal_the_items(tmp_path, name, limit):
    """Equal to the items of the dataset: a table of neighbours, edges, views, one graph, NaN."""
    build = build_dataset(name, sample=True, home=tmp_path, parameters={"limit": limit}, quiet=True)
    records = Records(build)
    dataset = ShardedDataset(build)
    assert (len(records), records.keys) == (len(dataset), dataset.keys)
    for position in {0, len(records) - 1}:
        item = dataset[position].to_dict()
        names = {name for name in item if not name.endswith("_mask")} - {"num_nodes"}
        assert records[position].keys() == names
        for attribute, values in records[position].items():
            expected = item[attribute].numpy()
            assert values.dtype == expected.dtype
            np.testing.assert_array_equal(values, expected)
    column = records.schema.y_column
    if column.level == "graph":
        np.testing.assert_array_equal(records.graph_column_values(column), dataset.y.numpy())


def test_rows_and_columns_of_a_picture_are_positions(tmp_path):
    """Positions come from the features called row and column, as in PascalVOC-SP; rows point down."""
    fields = ("mean red", "row of the centroid [px]", "column of the centroid [px]")
    x = column_of("node/x", "float16", "float32", shape=(3,), fields=fields)
    schema = Schema(columns=(x,), edges="index", max_nodes=10)
    values = np.array([[0.5, 10, 1], [0.25, 20, 2]], np.float16)
    edges = np.array([[0, 1], [1, 0]], np.uint16)
    record = GraphRecord(key="a", num_nodes=2, columns={"node/x": values}, edge_index=edges)
    picture = read_plottable_record(
        ShardedDataset(write_build(tmp_path / "build", [record], schema)), 0
    )
    np.testing.assert_array_equal(picture.pos, [[1, -10], [2, -20]])
    assert picture.position_source == ""


def test_columns_of_tables_are_positions_and_colours(tmp_path):
    """Columns x, y and z next to each other are positions, or lat and lon; columns of colours are colours."""
    colours = ("red", "green", "blue")
    for number, (fields, columns, origin) in enumerate(
        (
            (("X [m]", "y", "z", *colours), slice(0, 3), "positions by columns x, y, z"),
            (("size", "x", "y", *colours), slice(1, 3), "positions by columns x, y"),
            (("lon", "lat", "y", *colours), slice(0, 2), "positions by columns lat, lon"),
            (("x", "size", "y", *colours), None, "layout computed from the edges"),
        )
    ):
        x = column_of("node/x", "float32", "float32", shape=(6,), fields=fields)
        values = np.array([[1, 2, 3, 1, 0, 0], [4, 5, 7, 0, 0, 1]], np.float32)
        record = GraphRecord(key="a", num_nodes=2, columns={"node/x": values})
        schema = Schema(columns=(x,), edges="none", max_nodes=10)
        build = write_build(tmp_path / str(number), [record], schema, dataset="own")
        picture = read_plottable_record(Records(build), 0)
        assert picture.position_source == origin
        if columns:
            stretch = np.cos(np.radians(3.5)) if fields[0] == "lon" else 1
            expected = values[:, columns] * np.array([stretch, 1, 1][: values[0, columns].size])
            np.testing.assert_allclose(picture.pos, expected, rtol=1e-6)
        colors = picture.own_colors
        assert [colors.labels[code] for code in colors.codes] == ["#ff0000", "#0000ff"]


def test_coloured_points_are_drawn_once_by_class_or_in_their_colours(monkeypatch, tmp_path):
    cloud = random_record(1_000, edges=3_000)
    red = Categories("colour", np.zeros(1_000, np.uint8), ("red",), lambda: ["#ff0000"])
    page = page_of(monkeypatch, tmp_path, [replace(cloud, own_colors=red)])
    classes, by_class = page.child_axes
    assert len(classes.patches) == 3
    assert len(by_class.collections) == 1, "edges would hide the points"
    assert page.texts[1].get_text() == "Edges are not drawn; far points are paler and smaller."
    (own,) = page_of(monkeypatch, tmp_path, [replace(cloud, own_colors=red, y=None)]).child_axes
    _, greens, *_ = own.collections[0].get_facecolors().T
    assert greens[-1] == 0, "the nearest is drawn last, over others, in full red"
    assert (np.diff(greens) <= 0).all(), "far ones fade into the ground"
    sizes = own.collections[0].get_sizes()
    assert (np.diff(sizes) >= 0).all(), "from far and small to near and large"
    rims = own.collections[0].get_edgecolors()
    assert not rims[:, 3].any(), "rims would hide what is far"
    white = replace(red, color_function=lambda: ["#ffffff"])
    (own,) = page_of(monkeypatch, tmp_path, [replace(cloud, own_colors=white, y=None)]).child_axes
    rims = {to_hex(color) for color in own.collections[0].get_edgecolors()}
    assert rims == {"#707070"}, "white points are seen on white"


def test_edges_between_points_in_their_own_colours_are_seen(monkeypatch, tmp_path):
    """Only over a picture do edges take the colour of the rims, which may be that of the ground."""
    red = Categories("colour", np.zeros(40, np.uint8), ("red",), lambda: ["#ff0000"])
    cloud = random_record(40, edges=30)
    both_ways = np.hstack([cloud.edge_index, cloud.edge_index[::-1]])
    cloud = replace(cloud, own_colors=red, y=None, edge_index=both_ways)
    (panel,) = page_of(monkeypatch, tmp_path, [cloud]).child_axes
    (lines,) = panel.findobj(LineCollection)
    assert {to_hex(color) for color in lines.get_colors()} == {current_style().missing}
    assert lines.get_colors()[:, 3].min() > 0.2


def test_records_without_positions_get_a_layout_and_large_ones_are_refused(tmp_path):
    schema = Schema(columns=(), edges="none", max_nodes=100_000)
    records = [GraphRecord(key=key, num_nodes=nodes) for key, nodes in (("a", 3), ("b", 30_000))]
    dataset = ShardedDataset(write_build(tmp_path / "b", records, schema, dataset="own"))
    picture = read_plottable_record(dataset, 0)
    assert len(np.unique(picture.pos, axis=0)) == 3
    assert picture.position_source == "layout computed from the edges"
    with pytest.raises(UsageError):
        read_plottable_record(dataset, 1)


def test_every_kind_of_graph_gives_a_picture(tmp_path, subtests):
    path, alone = tmp_path / "p.png", {"nodes": 1, "edges": 0}
    kinds = [{}, {"dimensions": 2}, {"classes": 0}, alone, {**alone, "nodes": 0}, {"classes": 50}]
    for kind in kinds:
        with subtests.test(str(kind)):
            texts = {"title": "a $sample", "footer": r"$\foot$", "class_names": [r"$\frac{"]}
            plot_records([random_record(**kind)], path, **texts)
            image = pixels(path)
            assert 550 < image.shape[1] <= 3200
            assert image.std() > 0.01, "something is drawn; a dollar sign begins no formula"


def test_few_records_stand_in_a_row_and_more_in_a_grid(monkeypatch, tmp_path):
    """Graphs of equal shape have equal cells, whatever their number, and most of the picture."""
    rows = []
    for count in (1, 3, 6, 16):
        ring = np.array([np.arange(20), np.roll(np.arange(20), 1)])
        places = [random_record(20, 2, seed=seed).pos for seed in range(count)]
        records = [PlottableRecord("ring", pos, None, ring) for pos in places]
        page = page_of(monkeypatch, tmp_path, records)
        boxes = [panel.get_window_extent() for panel in page.child_axes if panel.collections]
        assert len(boxes) == count
        np.testing.assert_allclose([box.size for box in boxes], [boxes[0].size] * count)
        rows.append(len({round(box.y0) for box in boxes}))
        area = sum(np.prod(box.size) for box in boxes) / np.prod(page.get_window_extent().size)
        assert area > (0.45 if count > 6 else 0.55)
    assert rows == [1, 1, 2, 4]


def test_layout_is_reproducible_and_keeps_neighbours_near():
    ring = np.array([np.arange(12), (np.arange(12) + 1) % 12])
    more = [[12, 13, 14], [13, 12, 14]]  # a pair, a self loop, two alone
    edges = np.concatenate([ring, ring[::-1], more], axis=1)
    pos = spring_layout(edges, 16)
    assert np.isfinite(pos).all()
    assert len(np.unique(pos.round(6), axis=0)) == 16
    np.testing.assert_array_equal(pos, spring_layout(edges, 16))
    none = np.zeros((2, 0), np.int64)
    assert spring_layout(none, 0).shape == (0, 2)
    assert len(np.unique(spring_layout(none, 5), axis=0)) == 5
    # Neighbours on the ring are nearer than opposite nodes.
    apart = np.linalg.norm(pos[:12, None] - pos[None, :12], axis=2)
    near, opposite = (apart[np.arange(12), (np.arange(12) + step) % 12] for step in (1, 6))
    assert near.max() < opposite.min()


def test_leaves_lie_apart_around_their_hub():
    """Hubs in a chain have leaves, which are apart and nearest to their own."""
    counts = [6, 12, 9, 20, 4]
    leaf_hubs = np.repeat(np.arange(5), counts)
    leaves = np.arange(5, 5 + len(leaf_hubs))
    edges = np.hstack([[np.arange(4), np.arange(1, 5)], [leaf_hubs, leaves]])
    pos = spring_layout(edges, 5 + len(leaves))
    away = np.linalg.norm(pos[leaves, None] - pos[:5], axis=2)
    assert (away.argmin(axis=1) == leaf_hubs).all()
    apart = np.linalg.norm(pos[leaves, None] - pos[leaves], axis=2) + 9 * np.eye(len(leaves))
    assert apart.min() > 0.3, "nodes are about one apart"


def test_molecules_are_drawn_from_their_features():
    molecule = molecule_from_smiles("O=C([O-])c1ccccc1[NH3+]")
    atoms = atoms_from_features(ATOM_FIELDS, molecule.x)
    edges = molecule.edge_index.astype(np.int64)
    kinds = bond_types_from_features(ATOM_FIELDS, molecule.edge_attr)
    picture, pos = draw_molecule(atoms, edges, kinds)
    assert pos.shape == (len(molecule.x), 2)
    assert ((pos >= 0) & (pos < picture.shape[1::-1])).all()
    bonds = np.linalg.norm(pos[edges[0]] - pos[edges[1]], axis=1)
    np.testing.assert_allclose(bonds, BOND_LENGTH, rtol=0.05)
    nitrogen = int(np.flatnonzero(molecule.x[:, 0] == 6)[0])
    column, row = pos[nitrogen].astype(int)
    near = (
        picture[max(row - 30, 0) : row + 30, max(column - 30, 0) : column + 30]
        .reshape(-1, 3)
        .astype(int)
    )
    assert ((near[:, 2] > 200) & (near[:, 0] < 100)).any()  # its letter is blue
    with using_style("dark"):
        picture, _ = draw_molecule(atoms, edges, kinds)
    assert tuple(picture[0, 0]) == (0x16, 0x18, 0x1D), "the ground of the picture around it"


def molecule_record(smiles):
    molecule = molecule_from_smiles(smiles)
    edges = molecule.edge_index.astype(np.int64)
    bonds = bond_types_from_features(ATOM_FIELDS, molecule.edge_attr)
    atoms = atoms_from_features(ATOM_FIELDS, molecule.x)
    _, pos = draw_molecule(atoms, edges, bonds)
    own = element_layer(ATOM_FIELDS, molecule.x)
    return PlottableRecord(
        smiles, pos * (1, -1), None, edges, atoms=atoms, bonds=bonds, own_colors=own
    )


def test_molecules_are_formulas_with_bonds_of_one_length(monkeypatch, tmp_path):
    """Bonds are equally long in all cells, and letters can be read; a chain lies across its cell."""
    chain = molecule_record("N" + "CC(=O)N" * 15 + "C")
    width, height = np.ptp(chain.pos, axis=0)
    assert width > 3 * height
    page = page_of(monkeypatch, tmp_path, [chain, molecule_record("CCO")])
    assert len(page.child_axes) == 2, "bonds and atoms are not drawn twice, and no panel is empty"
    texts = [text.get_text() for text in page.texts]
    assert f"{len(chain.pos)} atoms, {chain.edge_index.shape[1] // 2} bonds" in texts
    assert "3 atoms, 2 bonds" in texts
    long, short = ((axes.images[0].get_array(), axes) for axes in page.child_axes)
    for picture, axes in (long, short):
        inches = axes.get_window_extent().width / page.figure.dpi
        assert np.ptp(axes.get_xlim()) == pytest.approx(inches * PIXELS_PER_INCH), "no rescaling"
        assert picture.shape[1] < 1.2 * np.ptp(axes.get_xlim())
    red = (short[0][..., 0] > 180) & (short[0][..., 1] < 60) & (short[0][..., 2] < 60)
    letter = np.ptp(np.flatnonzero(red.any(axis=1))) / PIXELS_PER_INCH
    assert letter * 72 > 5, "points of an O"


def page_of(monkeypatch, tmp_path, records, **texts):
    """The axes that span the figure which would be saved; panels are inset."""
    figures = []
    monkeypatch.setattr(pictures, "save_figure", lambda figure, _: figures.append(figure))
    plot_records(records, tmp_path / "p.png", title="t", footer="f", **texts)
    (page,) = figures[0].axes
    return page


def test_edges_are_as_wide_as_their_first_number(monkeypatch, tmp_path):
    nodes = pd.DataFrame({"node": list("abcdef"), "label": ["x", "y"] * 3})
    edges = pd.DataFrame({"source": list("abcde"), "target": list("bcdef")})
    edges["kind"] = ["road", "path", "road", "path", "road"]
    edges["pallets"] = [1.0, 5.0, 3.0, 2.0, 4.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no edge has its reverse
        folder = kmip_data.save({"nodes": nodes, "edges": edges}, tmp_path / "own")
    record = read_plottable_record(ShardedDataset(folder), 0)
    page = page_of(monkeypatch, tmp_path, [record])
    arrows = [arrow for panel in page.child_axes for arrow in panel.findobj(FancyArrowPatch)]
    assert np.argsort([arrow.get_linewidth() for arrow in arrows]).tolist() == [0, 3, 2, 4, 1]
    notes = " ".join(texts_of(page))
    assert "edges: pallets" in notes
    samples = [texts_of(panel) for panel in page.child_axes if "5" in texts_of(panel)]
    assert samples == [["1", "5"]]
    other = replace(record, edge_widths=("tolls", np.arange(5)))
    page = page_of(monkeypatch, tmp_path, [record, other])
    assert "edges: tolls" in texts_of(page)


def test_edges_that_bend_around_layers_stay_in_their_panel(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    steps = [pair for pair in combinations(range(12), 2) if rng.random() < 0.2]
    tables = {"nodes": pd.DataFrame({"node": range(12), "label": [0, 1] * 6})}
    tables["edges"] = pd.DataFrame(steps, columns=["source", "target"])
    with pytest.warns(UserWarning, match="undirected"):
        folder = kmip_data.save(tables, tmp_path / "dag")
    record = read_plottable_record(ShardedDataset(folder), 0)
    page = page_of(monkeypatch, tmp_path, [record])
    [panel] = [axes for axes in page.child_axes if axes.findobj(FancyArrowPatch)]
    low, high = np.transpose([panel.get_xlim(), panel.get_ylim()])
    for arrow in panel.findobj(FancyArrowPatch):
        box = arrow.get_path().get_extents()
        assert (low <= box.min).all()
        assert (box.max <= high).all()


@pytest.mark.parametrize(
    ("files", "about", "expected"),
    [
        ({"direction": "from 'sold by' to 'buyer', by position"}, "", "sold by to buyer"),
        ({"direction": "from \"farm's\" to 'to'"}, "", "farm's to to"),
        ({"direction": ["none"]}, "", "source to target"),
        (None, "Function call graphs of apps", "caller to called"),
        (None, "Citations", "source to target"),
    ],
)
def test_arrows_go_between_what_the_columns_of_a_table_are(
    monkeypatch, tmp_path, files, about, expected
):
    ends = _ends_of_edges(SimpleNamespace(statistics={"files": files}, about=about))
    assert ends == expected
    chain = PlottableRecord("a", np.eye(3)[:, :2], None, np.array([[0], [1]]), ends_of_edges=ends)
    page = page_of(monkeypatch, tmp_path, [chain])
    assert f"rrows go from {expected}." in " ".join(texts_of(page))


def test_a_pair_of_directed_edges_has_the_larger_number():
    edges = np.array([[0, 1, 2, 1], [1, 0, 1, 1]])
    values = np.array([1.0, 2.0, 5.0, 7.0])
    record = PlottableRecord("a", np.eye(3)[:, :2], None, edges)
    assert record.edge_index[:, record.first_edges()].T.tolist() == [[0, 1], [2, 1]]
    assert record.values_of_pairs(values, "number").tolist() == [2, 5]
    assert record.values_of_pairs(values, "category").tolist() == [1, 5]
    both = replace(record, edge_index=edges[:, :2])
    assert both.values_of_pairs(values[:2], "number").tolist() == [1], "undirected, stored twice"


def test_texts_stand_next_to_a_high_graph_and_above_others(monkeypatch, tmp_path):
    heading, graphs, legends = {}, {}, {}
    for height in (0.8, 2.5):
        record = random_record(40, 2)
        record = replace(record, pos=record.pos * (1, height) / np.ptp(record.pos, axis=0))
        page = page_of(monkeypatch, tmp_path, [record])
        graphs[height] = page.child_axes[-1].get_window_extent()
        heading[height] = next(
            text for text in page.texts if text.get_text() == "t"
        ).get_window_extent()
        legends[height] = page.child_axes[0].get_window_extent()
    assert graphs[0.8].y1 < min(heading[0.8].y0, legends[0.8].y0)
    assert graphs[2.5].x0 > legends[2.5].x1
    assert graphs[2.5].y1 > legends[2.5].y0, "next to it"


def test_a_cloud_in_metres_stands_in_its_box(monkeypatch, tmp_path):
    cloud = replace(random_record(500), metres=True)
    page = page_of(monkeypatch, tmp_path, [cloud])
    panel = page.child_axes[-1]
    assert len(panel.lines) == 12
    ends = np.concatenate([line.get_xydata() for line in panel.lines])
    assert len(np.unique(ends.round(6), axis=0)) == 8
    (points,) = (each for each in panel.collections if isinstance(each, PathCollection))
    assert (points.get_offsets().min(axis=0) >= ends.min(axis=0) - 1e-9).all()
    assert (points.get_offsets().max(axis=0) <= ends.max(axis=0) + 1e-9).all()
    low, high = np.array([panel.get_xlim(), panel.get_ylim()]).T
    assert ((ends >= low) & (ends <= high)).all(), "nothing is clipped"

    flat = replace(cloud, pos=cloud.pos * (1, 1, 0))
    for boxless in (flat, replace(cloud, pos=cloud.pos[:, :2]), replace(cloud, metres=False)):
        panel = page_of(monkeypatch, tmp_path, [boxless]).child_axes[-1]
        assert not panel.lines, "points of a plane do not say how a box is turned"
    nobody = replace(random_record(0), metres=True)
    page_of(monkeypatch, tmp_path, [nobody])


def lattice_record(side, *, periodic):
    """Return a square lattice, with edges both ways."""
    graph = nx.grid_2d_graph(side, side, periodic=periodic)
    ends = np.array([[row * side + column for row, column in edge] for edge in graph.edges])
    edges = np.concatenate([ends, ends[:, ::-1]]).T
    pos, origin = arrange(edges, side**2)
    return PlottableRecord("a", pos, np.arange(side**2) % 2, edges, position_source=origin)


def test_a_periodic_lattice_has_stubs_at_all_four_borders(monkeypatch, tmp_path):
    record = lattice_record(5, periodic=True)
    page = page_of(monkeypatch, tmp_path, [record])
    (lines,) = page.child_axes[-1].findobj(LineCollection)
    ends = np.concatenate(lines.get_segments())
    assert (ends.min(axis=0) < record.pos.min(axis=0)).all()
    assert (ends.max(axis=0) > record.pos.max(axis=0)).all()


def test_nodes_of_a_lattice_without_edges_are_cells_and_most_of_them_pale(monkeypatch, tmp_path):
    """The middle is drawn again with marks; the class of most nodes is pale in cells and legend."""
    record = lattice_record(40, periodic=False)
    y = (np.arange(1_600) % 5 == 0).astype(np.int64)
    record = replace(record, y=y, symbols=("number of mines", np.arange(1_600).astype(str)))
    monkeypatch.setattr(graph_panels, "MAX_EDGES", {2: 100, 3: 100})
    page = page_of(monkeypatch, tmp_path, [record], class_names=["empty", "mine"])
    legend, field, part = page.child_axes
    pale, orange = (bar.get_facecolor() for bar in legend.patches)
    assert orange == to_rgba(current_style().palette[1])
    assert np.ptp(pale[:3]) < 0.01
    assert min(pale) > 0.8
    (cells,) = field.findobj(QuadMesh)
    drawn = cells.get_array().reshape(-1, 4)
    np.testing.assert_allclose(drawn, np.where(y[:, None], orange, pale))
    (rectangle,) = field.patches
    marked = [text.get_position() for text in part.texts]
    assert len(marked) == 400
    assert all(rectangle.get_bbox().contains(*place) for place in marked)
    assert part.texts[0].get_text() == str(10 * 40 + 10), "row 10, column 10"
    assert "the marked part: number of mines" in texts_of(page)


def test_the_number_in_the_name_of_a_flag_marks_a_node():
    fields = ("number hidden", "0 mines beside", "5 or more mines beside")
    flags = np.eye(3)[[1, 0, 2]]
    meaning, marks = numbers_of_flags(fields, flags)
    assert marks.tolist() == ["0", "?", "5+"]
    assert meaning == "number of mines beside; ?: number hidden"
    assert numbers_of_flags(fields, flags + np.eye(3)) is None, "two flags"
    assert numbers_of_flags(("size", "weight", "age"), flags) is None


def texts_of(axes):
    return [text.get_text() for text in axes.texts]


def test_nodes_without_a_target_are_grey_and_counted(monkeypatch, tmp_path):
    one, other = random_record(4, 2, classes=0, edges=3), random_record(4, 2, classes=0, edges=3)
    values = np.float32([1, np.nan, 3, np.inf])
    page = page_of(
        monkeypatch,
        tmp_path,
        [replace(one, values=values, unit="m"), replace(other, values=np.float32([1, 2, 3, 9]))],
    )
    points, histogram, *_ = page.child_axes
    (dots,) = (each for each in points.collections if isinstance(each, PathCollection))
    grey = to_rgba(current_style().missing)
    order = np.argsort(np.sum(one.degrees(), axis=0), kind="stable")
    is_grey = [tuple(color) == grey for color in dots.get_facecolors()]
    assert is_grey == (~np.isfinite(values[order])).tolist()
    assert "2 nodes without a target are grey" in page.texts[1].get_text()
    numbers = [label.get_text() for label in histogram.get_xticklabels()]
    assert float(numbers[0]) > 8, "the last, of all records"
    assert "nodes by target [m]" in texts_of(page)


def test_nodes_without_a_class_are_grey(monkeypatch, tmp_path):
    one = replace(random_record(4, 2, edges=3), y=np.array([0, -1, 1, -1]))
    classes = page_of(monkeypatch, tmp_path, [one], class_names=["a", "b"]).child_axes[0]
    assert texts_of(classes) == ["no class", "a", "b", "2", "1", "1"], "from the most"
    lengths = [bar.get_width() for bar in classes.patches]
    assert lengths == pytest.approx([lengths[0], lengths[0] / 2, lengths[0] / 2])
    assert classes.patches[0].get_facecolor() == to_rgba(current_style().missing)


def test_graphs_of_a_sheet_have_one_legend_or_one_scale(monkeypatch, tmp_path):
    """Classes have one key; histograms are equally high."""
    many = replace(random_record(12, 2), y=np.repeat([0, 1, 2], [3, 8, 1]))
    few = replace(random_record(6, 2), y=np.repeat([0, 1], [4, 2]))
    page = page_of(monkeypatch, tmp_path, [many, few], class_names=["a", "b", "a long name"])
    (key,) = (panel for panel in page.child_axes if not panel.collections)
    assert texts_of(key) == ["a", "b", "a long name"]
    assert [to_hex(dot.get_color()) for dot in key.lines] == [*current_style().palette[:3]]
    targets = [
        replace(random_record(9, 2, classes=0), values=np.arange(9.0) % step) for step in (2, 9)
    ]
    page = page_of(monkeypatch, tmp_path, targets)
    high, low = (panel for panel in page.child_axes if len(panel.patches) == 14)
    assert high.get_ylim() == low.get_ylim()
    signed = [replace(record, values=np.arange(9.0) - 4) for record in targets]
    *_, panel = page_of(monkeypatch, tmp_path, signed).child_axes
    ends = [label.get_text() for label in panel.get_xticklabels()]
    assert (len(ends), ends[1]) == (3, "0"), "where colours turn"


def test_few_directed_edges_are_arrows_and_directions_have_a_legend_if_they_differ(
    monkeypatch, tmp_path
):
    both = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    for edges, arrows, facts in (  # an edge and its reverse are one line
        (both, 0, "3 nodes, 2 edges"),
        (both[:, :3], 3, "3 nodes, 3 edges"),
    ):
        one = PlottableRecord("a", np.eye(3)[:, :2], None, edges)
        page = page_of(monkeypatch, tmp_path, [one])
        graph = page.child_axes[-1]
        lines = [each for each in graph.patches if isinstance(each, FancyArrowPatch)]
        heads = [line for line in lines if line.get_arrowstyle().fillend]
        assert len(heads) == arrows
        assert facts in texts_of(page)
        assert ("rrows go from source to target" in page.texts[1].get_text()) == bool(arrows)
    ring = PlottableRecord("a", np.eye(3)[:, :2], None, np.array([[0, 1, 2], [1, 2, 0]]))
    assert len(page_of(monkeypatch, tmp_path, [ring]).child_axes) == 1


def test_edges_within_a_class_have_its_colour(monkeypatch, tmp_path):
    record = PlottableRecord("a", np.eye(3)[:, :2], np.array([0, 0, 1]), np.array([[0, 1], [1, 2]]))
    both = replace(record, edge_index=np.hstack([record.edge_index, record.edge_index[::-1]]))
    page = page_of(monkeypatch, tmp_path, [both])
    (lines,) = page.child_axes[-1].findobj(LineCollection)
    blue, grey = map(to_hex, lines.get_colors())
    assert blue == current_style().palette[0]
    assert grey == current_style().missing
    assert page.texts[1].get_text() == "Grey edges join two classes."
    alike = page_of(monkeypatch, tmp_path, [replace(both, y=np.zeros(3, np.int64))])
    assert "Grey" not in alike.texts[1].get_text()


def test_a_label_is_marked_in_the_distribution_of_all_labels(monkeypatch, tmp_path):
    two = Labels(("a", "b", "c"), np.array([5, 0, 2]), 7)
    one = replace(random_record(5, 2, classes=0), label="c", label_value=np.array(2))

    def marked(record, labels):
        page = page_of(monkeypatch, tmp_path, [record, record], labels=labels)
        panel = page.child_axes[0]
        colors = {bar.get_facecolor() for bar in panel.patches}
        assert len(colors) == 1, "no bar looks like a share"
        return texts_of(panel)[:3], page

    texts, page = marked(one, two)
    assert texts == ["a", "▸ c", "b"], "from the most"
    assert texts_of(page).count("c") == 2, "headlines"
    assert "label: all 7 graphs (▸ drawn here)" in texts_of(page)
    assert any(text.startswith("room/1 · 5 nodes") for text in texts_of(page))
    some = replace(one, label="a", label_value=np.array([1, np.nan, 0]))  # of several labels
    assert marked(some, two)[0] == ["▸ a", "c", "b"]
    equal = page_of(monkeypatch, tmp_path, [one] * 2, labels=replace(two, counts=np.full(3, 4)))
    assert not any("drawn here" in text for text in texts_of(equal)), "equal bars say nothing"


def test_nodes_without_classes_show_the_direction_of_their_edges(monkeypatch, tmp_path):
    chain = PlottableRecord("a", np.eye(5)[:, :2], None, np.array([[0, 1, 1], [1, 2, 3]]))
    key, graph = page_of(monkeypatch, tmp_path, [chain, chain]).child_axes[:2]
    assert texts_of(key) == ["no edges", "source only", "target only", "source and target"]
    palette = current_style().palette
    expected = {0: palette[1], 1: palette[0], 2: current_style().secondary_color}
    order = np.argsort(np.sum(chain.degrees(), axis=0), kind="stable")
    shown = dict(zip(order.tolist(), graph.collections[-1].get_facecolors(), strict=True))
    assert {node: to_hex(shown[node]) for node in expected} == expected


def test_names_of_classes_stand_where_most_of_their_nodes_are(monkeypatch, tmp_path):
    record = random_record(60, 2, classes=3, edges=90)
    record = replace(record, position_source="layout computed from the edges")
    page = page_of(monkeypatch, tmp_path, [record], class_names=["a", "b", "c"])
    texts = page.child_axes[-1].texts
    assert [text.get_text() for text in texts] == ["a", "b", "c"]
    for text, color in zip(texts, current_style().palette, strict=False):
        assert text.get_color() == readable_color(color, 4.5), "of the class, and readable"
    for code, text in enumerate(texts):
        members = record.pos[record.y == code]
        away = np.linalg.norm(members[:, None] - members, axis=2)
        near = np.sum(away <= 0.1 * np.ptp(record.pos), axis=1)
        assert text.get_position() in {tuple(place) for place in members[near == near.max()]}
    with_names = replace(record, ids=[f"node {number}" for number in range(60)])
    page = page_of(monkeypatch, tmp_path, [with_names], class_names=["a", "b", "c"])
    assert "a" not in texts_of(page.child_axes[-1]), "nodes have names"


def test_molecules_of_zinc_have_letters_charges_and_bonds():
    atoms = atoms_from_features(("atom type",), np.array([[0], [10], [13], [6]]))
    told = [(atom.number, atom.hydrogens, atom.charge) for atom in atoms]
    assert told == [(6, None, 0), (7, 3, 1), (7, None, -1), (17, None, 0)]
    assert bond_types_from_features(("atom type",), np.array([1, 3])).tolist() == [0, 2]
    assert bond_types_from_features(("atomic number",), np.empty((0, 3))).tolist() == []  # water
    assert atoms_from_features(("atom type",), np.array([[99]])) is None, "of another vocabulary"
    assert atoms_from_features(("degree",), np.zeros((2, 1))) is None


def test_a_missing_font_prints_at_most_one_line(capsys, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_records(
            [random_record(5, 2)], tmp_path / "p.png", title="\u6771\u4eac \U00013000", footer="f"
        )
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) <= 1
    assert not lines or "install a font" in lines[0]


def test_superpixels_without_a_picture_are_cells_in_their_colours(monkeypatch, tmp_path):
    corners = np.array([[0.0, 0.0], [0.0, -1.0], [1.0, 0.0], [1.0, -1.0]])
    hues = ["#ff0000", "#00ff00", "#000080", "#ffffff"]
    colors = Categories("colour", np.arange(4, dtype=np.uint8), tuple(hues), lambda: hues)
    edges = np.array([[0, 1, 2, 3], [1, 0, 3, 2]])
    record = PlottableRecord("a", corners, None, edges, own_colors=colors)
    page = page_of(monkeypatch, tmp_path, [record])
    (panel,) = page.child_axes
    picture = panel.images[0].get_array()
    shown = [picture[0, 0], picture[-1, 0], picture[0, -1], picture[-1, -1]]
    assert [to_hex(color) for color in shown] == hues, "rows go down"
    lines, dots = panel.collections
    assert {to_hex(color) for color in dots.get_facecolors()} == set(hues)
    assert {to_hex(color) for color in dots.get_edgecolors()} == {"#ffffff", "#707070"}, (
        "rims are visible on white"
    )
    assert (lines.get_colors()[:, 3] < 0.5).all(), "the picture is seen through edges"
    assert "Each cell is the region nearest to a node" in page.texts[1].get_text()


@settings(max_examples=3, deadline=None)
@given(st.integers(1, 60), st.integers(1, 40), st.integers(0, 9))
def test_names_of_nodes_have_room(nodes, letters, seed):
    """A name is nearer to its node than to others, and covers no name; a lone node has its name."""
    ids = [f"{number}".rjust(letters, "n") for number in range(nodes)]
    record = replace(random_record(nodes, 2, seed=seed), ids=ids)
    with pytest.MonkeyPatch.context() as monkeypatch:
        page = page_of(monkeypatch, Path(), [record])
    axes = next(panel for panel in page.child_axes if panel.collections)
    texts = axes.texts
    boxes = [text.get_window_extent() for text in texts]
    gap = (NAME_GAP - 1) * axes.figure.dpi / 72
    assert not any(box.padded(gap).count_overlaps(boxes[i + 1 :]) for i, box in enumerate(boxes))
    pixels = axes.transData.transform(record.pos)
    for text, box in zip(texts, boxes, strict=True):
        nearest = np.hypot(*(pixels - pixels.clip(box.min, box.max)).T).argmin()
        assert text.get_text() == shorten_middle(ids[nearest])
    assert len(texts) <= MAX_NAMES
    assert nodes > 1 or [text.get_text() for text in texts] == [shorten_middle(ids[0])]


def test_arrows_of_both_ways_bend_apart(monkeypatch, tmp_path):
    edges = np.array([[0, 1, 1], [1, 0, 2]])
    page = page_of(monkeypatch, tmp_path, [PlottableRecord("a", np.eye(3)[:, :2], None, edges)])
    there, back, other = page.child_axes[-1].findobj(FancyArrowPatch)
    bends = [arrow.get_connectionstyle().rad for arrow in (there, back, other)]
    assert bends[0] == bends[1] != 0, "to the left of each, so on different sides"
    assert bends[2] == 0


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2), st.floats(-0.4, 0.4))
def test_arrows_bend_around_other_nodes(between, shift):
    """An edge to the end of a row passes no dot between them."""
    row = np.column_stack([np.zeros(between + 2), -np.arange(between + 2.0)])
    places = np.vstack([row, [[3 + shift, 0]]])
    edges = np.array([[0], [between + 1]])
    with pytest.MonkeyPatch.context() as monkeypatch:
        page = page_of(monkeypatch, Path(), [PlottableRecord("a", places, None, edges)])
    axes = page.child_axes[-1] if page.child_axes[-1].patches else page.child_axes[0]
    (arrow,) = (patch for patch in axes.patches if isinstance(patch, FancyArrowPatch))
    curve = arrow.get_path().interpolated(50)
    places_of_dots = axes.transData.transform(places[1:-2])
    line = axes.transData.transform(curve.vertices)
    is_bent = arrow.get_connectionstyle().rad != 0
    assert is_bent == (between > 0), "straight where nothing is in the way"
    for dot in places_of_dots:
        radius = np.sqrt(axes.collections[0].get_sizes()[0]) / 2 * page.figure.dpi / 72
        assert np.hypot(*(line - dot).T).min() > radius


def test_the_two_values_of_an_only_feature_are_triangles(monkeypatch, tmp_path):
    symbols = "▲ spin +1, ▼ spin −1", np.array(["▲"] * 20 + ["▼"] * 30)
    record = replace(random_record(50, 2), symbols=symbols)
    page = page_of(monkeypatch, tmp_path, [record])
    dots = [each for each in page.child_axes[-1].collections if isinstance(each, PathCollection)]
    assert [len(each.get_offsets()) for each in dots] == [20, 30]
    assert symbols[0] in " ".join(texts_of(page))


def test_clouds_in_metres_have_one_scale_and_stand_on_one_floor(monkeypatch, tmp_path):
    cube = np.array([*product((0.0, 1.0), repeat=3)])
    no_edges = np.zeros((2, 0), np.int64)
    records = [
        PlottableRecord(f"{height} m", cube * (1, 1, height), None, no_edges, metres=True)
        for height in (2, 3)
    ]
    page = page_of(monkeypatch, tmp_path, records)
    panels = [panel for panel in page.child_axes if len(panel.lines) == 12]
    assert len(panels) == 2
    boxes = [
        panel.transData.transform(np.vstack([line.get_xydata() for line in panel.lines]))
        for panel in panels
    ]
    lows, widths = zip(*((box[:, 1].min(), np.ptp(box[:, 0])) for box in boxes), strict=True)
    assert lows[0] == pytest.approx(lows[1])
    assert widths[0] == pytest.approx(widths[1])
    assert np.ptp(boxes[1][:, 1]) > 1.2 * np.ptp(boxes[0][:, 1])
