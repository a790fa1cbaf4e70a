"""Pipelines described by a manifest: checks before the cast, names in errors, and the build key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.cases import steps_of
from support.raises import raises
from torch_geometric.utils import to_undirected

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.manifest import Layout, load_manifest
from kmip_data.pipelines.base import RawCopy, load_pipeline
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.engine.plan import build_key
from kmip_data.pipelines.graph_arrays.layout_reader import (
    RawReader,
    concatenate_column,
    concatenate_graphs,
    concatenate_in_batches,
    schema_of,
)

MANIFEST = load_manifest("zinc")
SCHEMA = schema_of(MANIFEST)


def a_graph(**changes: Any) -> dict[str, Any]:
    graph = {
        "x": np.array([[3], [4]]),
        "y": 0.5,
        "edge_index": np.array([[0, 1], [1, 0]]),
        "edge_attr": np.array([1, 1]),
    }
    return graph | changes


FAULTS: list[tuple[dict[str, Any], object]] = [
    ({"x": np.array([[3], [0.5]])}, 0.5),
    ({"x": np.array([[3], [28]])}, 28),
    ({"x": np.array([["3"], ["4"]])}, "<U1"),
    ({"x": np.zeros((65, 1), int)}, 65),
    ({"y": np.inf}, "y"),
    ({"y": 1e-50}, 1e-50),
    ({"y": [0.5]}, "(1,)"),
    ({"edge_index": np.array([[0, 2], [2, 0]])}, 2),
    ({"edge_index": np.array([[0, -1], [-1, 0]])}, -1),
    ({"edge_index": np.array([[0, 0], [1, 1]])}, 555),
    ({"edge_attr": np.array([1, 2])}, 555),
    ({"edge_attr": np.array([1])}, "edge_attr"),
]


@pytest.mark.parametrize(("changes", "value"), FAULTS)
def test_values_are_checked_before_the_cast_and_the_record_is_named(
    changes: dict[str, Any], value: object, tmp_path: Path
) -> None:
    raw = RawReader(tmp_path, "file")
    graphs = [a_graph() for _ in range(700)]
    graphs[555] = a_graph(**changes)
    batches = concatenate_in_batches(raw.track_items("graph", graphs), SCHEMA, MANIFEST.layout, raw)
    with raises(DamagedInput, naming=["file", 555, value]):
        list(batches)


def test_a_batch_concatenates_its_graphs() -> None:
    graphs = [a_graph(), a_graph(x=np.array([[1], [2], [5]], np.int8)), a_graph(y=np.float32(2))]
    arrays, rows = concatenate_graphs(graphs, SCHEMA, MANIFEST.layout, "file")
    assert arrays["x"].dtype == np.uint8
    assert arrays["x"][:, 0].tolist() == [3, 4, 1, 2, 5, 3, 4]
    assert arrays["y"].tolist() == [0.5, 0.5, 2]
    assert rows.tolist() == [[2, 2, 1, 2], [3, 2, 1, 2], [2, 2, 1, 2]]


def test_a_batch_adds_reverse_edges_to_each_graph() -> None:
    rng = np.random.default_rng(0)
    graphs = []
    for nodes in (2, 5, 3, 4):
        edges = rng.integers(0, nodes, (2, 2 * nodes - 4))
        graphs.append({"x": np.zeros((nodes, 1), int), "y": 0.5, "edge_index": edges})
    layout = MANIFEST.layout.model_copy(update={"both_ways": "", "undirected": True})
    schema = replace(SCHEMA, columns=tuple(c for c in SCHEMA.columns if c.level != "edge"))
    arrays, rows = concatenate_graphs(graphs, schema, layout, "file")
    alone = [concatenate_graphs([graph], schema, layout, "file") for graph in graphs]
    for name, array in arrays.items():
        assert np.array_equal(array, np.concatenate([one[name] for one, _ in alone])), name
    assert rows.tolist() == [count.tolist()[0] for _, count in alone]
    for graph, (one, _) in zip(graphs, alone, strict=True):
        wanted = to_undirected(torch.from_numpy(graph["edge_index"]), num_nodes=len(graph["x"]))
        assert one["edge_index"].T.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    "code", [lambda: {}["x"], lambda: range(0)[1], lambda: np.zeros(3).reshape(2)]
)
def test_reader_errors_name_the_record_without_python_terms(code: Any, tmp_path: Path) -> None:
    raw = RawReader(tmp_path, "file")

    def read() -> None:
        with raw.convert_item_errors():
            for number in raw.track_items("item", range(5)):
                if number == 2:
                    code()

    with raises(DamagedInput, naming=["file", 2]) as caught:
        read()
    assert "Error" not in str(caught.value)


def test_dataset_keys_include_columns_unless_a_digest_pins_them() -> None:
    raw = RawCopy(Path(), {}, ())
    for name, columns_in_key in (("minesweeper", True), ("zinc", False)):
        pipeline = load_pipeline(load_manifest(name))
        params = pipeline.Params()
        before = build_key(pipeline, params, raw)
        column = pipeline.manifest.layout.columns["node/x"].model_copy(update={"doc": "other"})
        columns = pipeline.manifest.layout.columns | {"node/x": column}
        layout = pipeline.manifest.layout.model_copy(update={"columns": columns})
        pipeline.manifest = pipeline.manifest.model_copy(update={"layout": layout})
        assert (build_key(pipeline, params, raw) != before) == columns_in_key
    assert Layout().columns_in_key


def test_changed_columns_under_one_key_need_a_new_version(tmp_path: Path, monkeypatch) -> None:
    build = build_dataset("zinc", parameters={"limit": 3}, sample=True, home=tmp_path, quiet=True)
    pipeline = type(load_pipeline(load_manifest("zinc")))
    schema = replace(build.card.schema_, max_nodes=99)
    monkeypatch.setattr(pipeline, "schema", lambda self, params: schema)
    with raises(UsageError, naming=build.path.name) as caught:
        build_dataset("zinc", parameters={"limit": 3}, sample=True, home=tmp_path, quiet=True)
    assert f"now {pipeline.version}" in steps_of(caught.value)


def test_a_wrong_shape_names_the_key_of_the_manifest() -> None:
    column = next(column for column in SCHEMA.columns if column.key == "node/x")
    column = replace(column, shape=(7,))
    with pytest.raises(DamagedInput) as error:
        concatenate_column([np.zeros((3, 6))], column, [3], "file")
    expected = error.value.expected
    assert expected == "layout.columns.node/x.shape = [7] of the manifest"
