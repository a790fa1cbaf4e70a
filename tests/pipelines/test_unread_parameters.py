"""A parameter that is given changes what is built, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from support import graph_files
from support.graph_files import npz_bytes, pyg_graphs, tu_files, write_files
from support.own_graphs import PIPELINE, build_in_memory
from support.shared import ROOT

from kmip_data.errors import KmipDataError, Setting, UsageError
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import AnyPipeline, load_pipeline
from kmip_data.pipelines.datasets.graphs.file_formats import FORMATS
from kmip_data.pipelines.datasets.graphs.graph_format import GraphFormat
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams

#: Values of each parameter that are not its default; for each format that reads it, one decides.
VALUES: dict[str, list[Any]] = {
    "categories": [1],
    "class_name": [("first", "second"), ("a", "b", "c")],
    "decimal": [",", "."],
    "encoding": ["cp1252"],
    "feature": [("none",), ("mass",)],
    "graph": ["other"],
    "group": ["other"],
    "header": ["yes", "no"],
    "ignore": [("mass",), ("x",), ("attribute 0",)],
    "label": [("other",)],
    "limit": [1],
    "missing": [("-1",)],
    "node": ["other", "none"],
    "on_error": ["skip"],
    "rounded": [("large",)],
    "smiles": ["other"],
    "source": ["other"],
    "target": ["other"],
    "task": ["regression", "classification"],
    "undirected": [True],
}

NODES = "id,mass,kind,other,label\n0,1.5,a,7,0\n1,-1,b,8,1\n2,0.5,a,9,0\n"
EDGES = "source,target,weight,other\n0,1,0.5,1\n1,2,1.5,2\n"


def write_one(**files: str | bytes) -> Callable[[Path], object]:
    """Return a function that writes these files."""
    return lambda folder: write_files(folder, **files)


def network_files(**attributes: list[object]) -> Callable[[Path], object]:
    """Return a function that writes two graphs of three nodes, with further attributes of nodes."""
    graph = nx.DiGraph([(0, 1), (1, 2)])
    attributes |= {"mass": [0.5, -1.0, 2.5], "kind": ["a", "b", "a"], "label": [0, 1, 1]}
    for name, values in attributes.items():
        nx.set_node_attributes(graph, dict(enumerate(values)), name)
    text = "\n".join(nx.generate_graphml(graph))
    return write_one(first_graphml=text, second_graphml=text)


def planetoid_files(folder: Path) -> None:
    """Write the files of a small Cora."""
    folder.mkdir()
    load_pipeline(load_manifest("cora")).write_sample(folder, limit=None)


def tensor_files(folder: Path) -> None:
    """Write graphs with classes."""
    import torch

    folder.mkdir()
    torch.save(pyg_graphs(), folder / "graphs.pt")


ARRAYS = {"edge_index": np.array([[0, 1], [1, 2]]), "labels": np.array([0, 1, 0])}
GML = 'graph [ directed 1 node [ id 0 name "gr\xfcn" ] node [ id 1 name "b" ] edge [ source 0 target 1 ] ]'
SMILES = "smiles,other,id,mass,label\nCCO,C,1,1,0\nCC,CC,2,-1,1\nC,CCC,3,2,1\n"
#: Reader of a format -> functions that write files of it into a new folder.
FILES: dict[str, list[Callable[[Path], object]]] = {
    "planetoid_files": [planetoid_files],
    "torch_files": [tensor_files],
    "array_files": [write_one(a_npz=npz_bytes(**ARRAYS), b_npz=npz_bytes(**ARRAYS))],
    "networkx_files": [
        network_files(),
        network_files(large=[20_000_001, 2, 3]),
        network_files(price=["1,100", "1,200", "1,300"]),
        write_one(g_gml=GML.encode("cp1252")),
    ],
    "tudataset_files": [
        lambda folder: tu_files(folder, targets="graph_labels"),
        lambda folder: tu_files(folder, targets="graph_attributes"),
    ],
    "smiles_tables": [
        write_one(m_csv=SMILES),
        write_one(m_csv=SMILES.replace(",0\n", ",-1\n")),
        write_one(m_csv=SMILES.replace(",0\n", ',"1,500"\n')),
        write_one(m_csv=SMILES.replace("CCO", "C(")),
        write_one(m_csv=SMILES.replace("mass", "gr\xfcn").encode("cp1252")),
    ],
    "format": [
        write_one(nodes_csv=NODES, edges_csv=EDGES),
        write_one(nodes_csv=NODES, edges_csv=EDGES + "0,2,1,1\n" * 20 + "1,7,2,3\n"),
        write_one(edges_csv="0,1\n1,2\n", readme_txt="Links."),
        write_one(nodes_csv=NODES.replace("1.5", '"1,500"'), edges_csv=EDGES),
        write_one(
            nodes_csv=NODES.replace("other", "large").replace("7", "20000001"), edges_csv=EDGES
        ),
        write_one(nodes_csv=NODES.replace(",a,", ",\xe9,").encode("cp1252"), edges_csv=EDGES),
        write_one(
            nodes_csv=graph_files.NODES, edges_csv=graph_files.EDGES, graphs_csv=graph_files.GRAPHS
        ),
    ],
}


def reader_name(file_format: GraphFormat) -> str:
    """Return the module of a format."""
    return file_format.read.__module__.rpartition(".")[2]


def outcome(folder: Path, pipeline: AnyPipeline = PIPELINE, **parameters: Any) -> str:
    """Return everything that is built, or the message of the refusal."""
    try:
        params, records = build_in_memory(folder, pipeline=pipeline, **parameters)
    except KmipDataError as error:
        return f"{error.message} {error.found} {error.steps}"
    return repr(
        (
            pipeline.schema(params),
            pipeline.class_names(params),
            records,
            vars(params).get("inferred"),
        )
    )


CASES = [(file_format, key) for file_format in FORMATS for key in GraphParams.model_fields]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, dict[Path, str]]:
    """Folders with files of each format, and what is built of them without parameters."""
    root = tmp_path_factory.mktemp("formats")
    built = {}
    for reader, writers in FILES.items():
        paths = [root / f"{reader}{number}" for number in range(len(writers))]
        for path, write in zip(paths, writers, strict=True):
            write(path)
        built[reader] = {path: outcome(path) for path in paths}
    return built


@pytest.mark.parametrize(
    ("file_format", "key"), CASES, ids=[f"{reader_name(item)}-{key}" for item, key in CASES]
)
def test_every_parameter_of_graphs_decides_or_is_refused(folders, file_format, key):
    by_default = folders[reader_name(file_format)]
    values = VALUES[key]
    if key in file_format.parameters:
        trials = [(folder, value) for folder in by_default for value in values]
        assert any(outcome(path, **{key: value}) != by_default[path] for path, value in trials)
        return
    folder = next(iter(by_default))  # what is refused depends on the format alone
    for value in values:
        with pytest.raises(UsageError) as refusal:
            build_in_memory(folder, **{key: value})
        assert refusal.value.steps[-1] == Setting({key: None})
    default = GraphParams.model_fields[key].default
    assert outcome(folder, **{key: default}) == by_default[folder]


def points_text(rows: np.ndarray, header: str = "") -> bytes:
    """Return a text file of points in Windows-1252."""
    lines = [header] if header else []
    lines += [" ".join(map(str, row)) for row in rows.tolist()]
    return "\n".join(lines).encode("cp1252")


POINTS = np.random.default_rng(0).random((400, 3)).astype("<f4")
NUMBERED = np.column_stack([POINTS, np.arange(400) % 2])
#: Parameter of points -> a file in which it decides, the parameters that this needs, and its value.
POINT_FILES: dict[str, tuple[str, bytes, dict[str, Any], Any]] = {
    "bin": ("c.bin", POINTS.tobytes(), {}, "x,y,z"),
    "header": ("c.xyz", points_text(POINTS), {}, "yes"),
    "encoding": ("c.xyz", points_text(NUMBERED, "x y z gr\xfcn"), {}, "cp1252"),
    "block_points": ("c.xyz", points_text(POINTS), {"block": 1.0}, 50),
    "block_seed": ("c.xyz", points_text(POINTS), {"block": 1.0, "block_points": 50}, 1),
    "task": ("c.xyz", points_text(NUMBERED, "x y z label"), {}, "regression"),
    "class_name": ("c.xyz", points_text(NUMBERED, "x y z label"), {}, ("a", "b")),
    "classes": ("c.xyz", points_text(NUMBERED, "x y z label"), {}, "3"),
}


@pytest.mark.parametrize("key", POINT_FILES)
def test_parameters_of_points_decide_or_are_refused(tmp_path, key):
    pipeline = load_pipeline(load_manifest("points"))
    name, content, others, value = POINT_FILES[key]
    for folder in ("read", "unread"):
        (tmp_path / folder).mkdir()
    (tmp_path / "read" / name).write_bytes(content)
    np.save(tmp_path / "unread" / "c.npy", POINTS)

    def build(folder: str, **parameters: Any) -> str:
        return outcome(tmp_path / folder, pipeline, **parameters)

    assert build("read", **others) != build("read", **others, **{key: value})
    assert "has no effect: " in build("unread", **{key: value})
    assert "Schema(" in build("unread")


def write_pictures(folder: Path) -> None:
    """Write one grey picture of 8 bits with a mask of two classes."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (24, 24, 3)).astype(np.uint8)
    for name, values in {
        "images": pixels,
        "masks": (pixels[:, :, 0] > 99).astype(np.uint8),
    }.items():
        (folder / name).mkdir(parents=True)
        Image.fromarray(values).save(folder / name / "a.png")


#: Recipe -> how to write files without the values that the keys are about, and the keys with a value.
RULES: dict[str, tuple[Callable[[Path], object], dict[str, Any]]] = {
    "graphs": (
        write_one(
            nodes_csv="id,mass,label\n0,7,0\n1,8,1\n2,9,0\n", edges_csv="source,target\n0,1\n1,2\n"
        ),
        {"decimal": ",", "header": "yes", "categories": 1, "missing": ("-1",), "on_error": "skip"},
    ),
    "points": (
        write_one(c_xyz=points_text(POINTS)),
        {"header": "no", "short_graphs": "skip", "on_error": "skip"},
    ),
    "superpixels": (
        write_pictures,
        {"white": 255.0, "exif": "ignore", "void": 254, "on_error": "skip"},
    ),
}


@pytest.mark.parametrize("recipe", RULES)
def test_a_rule_for_values_that_no_file_has_changes_nothing(tmp_path, recipe):
    write, rules = RULES[recipe]
    write(tmp_path / "files")
    pipeline = load_pipeline(load_manifest(recipe))
    folder = tmp_path / "files"
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    classes = {"classes": "2"} if recipe == "superpixels" else {}

    def records(**parameters: Any) -> str:
        _, built = build_in_memory(folder, *names, pipeline=pipeline, **classes, **parameters)
        assert built
        return repr(built)

    usual = records()
    page = (ROOT / "docs" / "own-data-rules.md").read_text()
    sentence = next(line for line in page.splitlines() if line.startswith("A rule for values"))
    for key, value in rules.items():
        assert records(**{key: value}) == usual, key
        assert f"`{key}`" in sentence
