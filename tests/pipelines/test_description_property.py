"""Random tables of columns of every use: a build is what its description says.

A build read back with its own description has the same shards and classes; each value that a
description prints can be typed back; and tables in memory are the same build as their files. Where
a build asks, its printed answer is given.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import h5py
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from support.own_graphs import parse_remedy
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Build
from kmip_data.columns.column_roles import ColumnRoles, Use, column_roles_on_card
from kmip_data.errors import KmipDataError
from kmip_data.pipelines.build import build_own

MOST_ANSWERS = 6  #: questions that a build asks one after another
Frames = dict[str, pd.DataFrame]
COUNTS: Counter[str] = Counter()  #: compared cases, and refused tables by reason

# --- random tables -------------------------------------------------------------------------------

_WORDS = ("Ulm", "Bonn", "a b", "x;y", 'the "South"', "Åland", "true story", "none of it")
# A workbook has no negative zero, to which zero is added.
_REALS = (
    st.floats(-1e6, 1e6, width=32)
    .filter(lambda value: value == 0 or abs(value) > 1e-6)
    .map(lambda value: value + 0.0)
)
_PROSE = (
    "A sentence that names no class, written for number {} of the rows, longer than categories."
)
#: Values of a column by what it is.
VALUES: dict[str, Any] = {
    "whole": st.integers(-(2**20), 2**20),
    "few": st.sampled_from([57.0, 58.0, 0.5]),
    "count": st.sampled_from([1, 2, 3]),
    "digit": st.sampled_from([0, 1]),
    "real": _REALS,
    "flag": st.booleans(),
    "word": st.sampled_from(_WORDS),
    "code": st.sampled_from(["007", "01067", "10"]),
    "date": st.dates().map(str),
    "prose": st.integers(0, 10**6).map(_PROSE.format),
    "thousands": st.sampled_from(["1,234.5", "2,567.25", "-3,100.5"]),
    "truth": st.sampled_from(["True", "false", "TRUE"]),
    "same": st.just("one"),
    "absent": st.just(None),
}
LABELS = ("few", "count", "digit", "real", "flag", "word", "code", "truth", "whole")


@st.composite
def columns(
    draw: Any, count: int, kinds: Sequence[str], prefix: str, most: int = 3
) -> pd.DataFrame:
    """Draw columns of several kinds; some lack values."""
    chosen = draw(st.lists(st.sampled_from(kinds), unique=True, max_size=most))
    frame = pd.DataFrame(index=range(count))
    for kind in chosen:
        values = draw(st.lists(VALUES[kind], min_size=count, max_size=count))
        if draw(st.integers(0, 3)) == 0:
            values[draw(st.integers(0, count - 1))] = None
        frame[f"{prefix}{kind}"] = values
    return frame


@st.composite
def tables(draw: Any, kinds: Sequence[str] = tuple(VALUES)) -> Frames:
    """Draw the tables of one graph, or of several with labels of their own."""
    count = draw(st.integers(6, 14))
    nodes = draw(columns(count, kinds, ""))
    nodes.insert(0, "node", [f"n{number}" for number in range(count)])
    graphs = draw(st.sampled_from([0, 0, 3]))
    graph_of = np.arange(count) * max(graphs, 1) // count
    pairs = draw(st.lists(st.integers(0, count - 1), min_size=4, max_size=16))
    target = [np.flatnonzero(graph_of == graph_of[node])[-1] for node in pairs]
    edges = draw(columns(len(pairs), kinds, "e_", most=2))
    edges.insert(0, "target", nodes["node"].to_numpy()[target])
    edges.insert(0, "source", nodes["node"].to_numpy()[pairs])
    frames = {"nodes": nodes, "edges": edges}
    if draw(st.booleans()):
        nodes["part"] = draw(
            st.lists(st.sampled_from(["train", "val", "test"]), min_size=count, max_size=count)
        )
    labelled = draw(st.sampled_from([*LABELS, "", "one-hot", "several"]))
    level = nodes
    if graphs:
        nodes["graph"] = [f"g{number}" for number in graph_of]
        edges["graph"] = [f"g{graph_of[node]}" for node in pairs]
        level = draw(columns(graphs, kinds, "g_", most=2))
        level.insert(0, "graph", [f"g{number}" for number in range(graphs)])
        frames["graphs"] = level
    rows = len(level)
    if labelled == "one-hot":
        for number in range(3):
            level[f"t_{number}"] = (np.arange(rows) % 3 == number).astype(int)
    elif labelled == "several":
        for number in range(2):
            level[f"t_{number}"] = draw(st.lists(VALUES["digit"], min_size=rows, max_size=rows))
    elif labelled:
        values = VALUES[labelled]
        level["label"] = draw(st.lists(values, min_size=rows, max_size=rows))
    return frames


# --- formats -------------------------------------------------------------------------------------


def delimited(separator: str) -> Callable[[Frames, Path], None]:
    def write(frames: Frames, folder: Path) -> None:
        for name, frame in frames.items():
            frame.to_csv(folder / f"{name}.csv", index=False, sep=separator)

    return write


def json_lines(frames: Frames, folder: Path) -> None:
    for name, frame in frames.items():
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, "utf-8")


def json_records(frames: Frames, folder: Path) -> None:
    for name, frame in frames.items():
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        (folder / f"{name}.json").write_text(json.dumps(rows), "utf-8")


def workbooks(frames: Frames, folder: Path) -> None:
    for name, frame in frames.items():
        frame.to_excel(folder / f"{name}.xlsx", index=False)


def parquet(frames: Frames, folder: Path) -> None:
    for name, frame in frames.items():
        frame.to_parquet(folder / f"{name}.parquet", index=False)


def feather(frames: Frames, folder: Path) -> None:
    for name, frame in frames.items():
        frame.to_feather(folder / f"{name}.feather")


def rows_from_1(frames: Frames, folder: Path) -> None:
    """CSV of nodes without ids, whose edges have the row numbers from 1 in each graph."""
    nodes, edges = frames["nodes"], frames["edges"].copy()
    graph_of = nodes.get("graph", pd.Series("", nodes.index))
    numbers = dict(zip(nodes["node"], 1 + nodes.groupby(graph_of).cumcount(), strict=True))
    for end in ("source", "target"):
        edges[end] = edges[end].map(numbers)
    unnamed = nodes.drop(columns="node")
    unnamed["position"] = np.arange(len(nodes)) / 4
    delimited(",")({**frames, "nodes": unnamed, "edges": edges}, folder)


def networks(frames: Frames) -> list[Any]:
    """Graphs of networkx with the attributes of the tables."""
    graphs = []
    nodes, edges = frames["nodes"], frames["edges"]
    names = frames["graphs"]["graph"] if "graphs" in frames else [None]
    for row, name in enumerate(names):
        graph = nx.MultiDiGraph()
        if name is not None:
            graph.graph.update(_present(frames["graphs"].iloc[row].drop("graph")))
        for _, values in _rows_of(nodes, name):
            graph.add_node(values.pop("node"), **_present(values))
        for _, values in _rows_of(edges, name):
            graph.add_edge(values.pop("source"), values.pop("target"), **_present(values))
        graphs.append(graph)
    return graphs


def _rows_of(frame: pd.DataFrame, graph: str | None) -> Any:
    return (
        frame if graph is None else frame[frame["graph"] == graph].drop(columns="graph")
    ).iterrows()


def _present(row: Any) -> dict[str, Any]:
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in dict(row).items()
        if not pd.isna(value)
    }


def node_link(frames: Frames, folder: Path) -> None:
    for number, graph in enumerate(networks(frames)):
        value = nx.node_link_data(graph, edges="links")
        (folder / f"{number}.json").write_text(json.dumps(value), "utf-8")


def graphml(frames: Frames, folder: Path) -> None:
    for number, graph in enumerate(networks(frames)):
        nx.write_graphml(graph, folder / f"{number}.graphml")


def gexf(frames: Frames, folder: Path) -> None:
    for number, graph in enumerate(networks(frames)):
        nx.write_gexf(graph, folder / f"{number}.gexf")


def gml(frames: Frames, folder: Path) -> None:
    for number, graph in enumerate(networks(frames)):
        for _, row in graph.nodes(data=True):
            if "label" in row:  # the format's own word for the name
                row["class"] = row.pop("label")
        nx.write_gml(graph, folder / f"{number}.gml", stringizer=str)


def smiles(frames: Frames, folder: Path) -> None:
    frame = frames.get("graphs", frames["nodes"]).drop(columns=["node", "graph"], errors="ignore")
    frame.insert(0, "smiles", ["C" * (row + 1) + "O" for row in range(len(frame))])
    frame.to_csv(folder / "assay.csv", index=False)


def tudataset(frames: Frames, folder: Path) -> None:
    nodes, edges = frames["nodes"], frames["edges"]
    number = {name: row + 1 for row, name in enumerate(nodes["node"])}
    ends = [f"{number[a]}, {number[b]}\n" for a, b in zip(edges.source, edges.target, strict=True)]
    graph_of = nodes.get("graph", pd.Series("g0", nodes.index)).str[1:].astype(int) + 1
    (folder / "T_A.txt").write_text("".join(ends))
    (folder / "T_graph_indicator.txt").write_text("".join(f"{value}\n" for value in graph_of))
    (folder / "T_node_labels.txt").write_text(
        "".join(f"{3 + value % 4}\n" for value in range(len(nodes)))
    )
    graphs = graph_of.max()
    labels = "".join(f"{(-1) ** value * len(edges)}\n" for value in range(graphs))
    (folder / "T_graph_labels.txt").write_text(labels)


def arrays(frames: Frames) -> dict[str, Any]:
    """Arrays of one graph."""
    nodes, edges = frames["nodes"], frames["edges"]
    number = {name: row for row, name in enumerate(nodes["node"])}
    numbers = nodes.select_dtypes("number").fillna(0).drop(columns="label", errors="ignore")
    values = {
        "x": np.column_stack([numbers.to_numpy(np.float32), np.arange(len(nodes)) / 4]).astype(
            "f4"
        ),
        "edge_index": np.array([edges["source"].map(number), edges["target"].map(number)]),
        "weight": edges.index.to_numpy() / 8,
    }
    if "label" in nodes and nodes["label"].dtype.kind in "iufb" and nodes["label"].notna().all():
        values["y"] = nodes["label"].to_numpy()
    return values


def npz(frames: Frames, folder: Path) -> None:
    np.savez(folder / "a.npz", **arrays(frames))


def tensors(frames: Frames, folder: Path) -> None:
    values = {name: torch.as_tensor(array) for name, array in arrays(frames).items()}
    torch.save(Data(**values), folder / "a.pt")


NETWORK = tuple(kind for kind in VALUES if kind != "absent")
FORMATS: dict[str, tuple[Callable[[Frames, Path], None], Sequence[str]]] = {
    "CSV": (delimited(","), tuple(VALUES)),
    "CSV with semicolons": (delimited(";"), tuple(VALUES)),
    "TSV": (delimited("\t"), tuple(VALUES)),
    "CSV without ids": (rows_from_1, tuple(VALUES)),
    "node-link JSON": (node_link, NETWORK),
    "GraphML": (graphml, NETWORK),
    "GEXF": (gexf, NETWORK),
    "GML": (gml, NETWORK),
    "SMILES": (smiles, tuple(VALUES)),
    "TUDataset": (tudataset, ()),
    "npz": (npz, ("whole", "real", "few")),
    "pt": (tensors, ("whole", "real", "few")),
}

TYPED_FILES = {"JSON lines": json_lines, "JSON records": json_records, "workbooks": workbooks}
if importlib.util.find_spec("pyarrow"):
    TYPED_FILES |= {"Parquet": parquet, "Feather": feather}


# --- builds --------------------------------------------------------------------------------------


class Answered(NamedTuple):
    """A build and the parameters that it asked for."""

    build: Build
    parameters: dict[str, Any]


def answered(
    build: Callable[[dict[str, Any]], Build], form: str, parameters: Mapping[str, Any]
) -> Answered | None:
    """Build with the answers that are printed; ``None`` where the tables are refused."""
    given_parameters = dict(parameters)
    for _ in range(MOST_ANSWERS):
        try:
            return Answered(build(given_parameters), given_parameters)
        except KmipDataError as error:
            try:
                answers = parse_remedy(error)
            except AssertionError:
                COUNTS[f"{form}, refused: {error.message[:90]}"] += 1
                return None
            for key, value in answers.items():
                if isinstance(value, tuple):
                    value_list = [*given_parameters.get(key, ()), *value]
                    given_parameters[key] = tuple(dict.fromkeys(value_list))
                else:
                    given_parameters[key] = value
    COUNTS[f"{form}, refused: asks again and again"] += 1
    return None


def content_digest(shard: Path) -> str:
    """Return the digest of a shard without its build key and name, which differ by source."""
    digest = hashlib.sha256()
    with h5py.File(shard) as file:
        digest.update(file.attrs["schema"])
        arrays: dict[str, Any] = {}
        file.visititems(lambda name, item: arrays.update({name: item}))
        for name, item in sorted(arrays.items()):
            if isinstance(item, h5py.Dataset):
                digest.update(f"{name} {item.dtype} {item.shape}".encode())
                digest.update(np.ascontiguousarray(item[()]).data)
    return digest.hexdigest()


def contents(build: Build) -> tuple[object, ...]:
    """Shards, schema, classes and given splits of a build."""
    card = build.card
    return (
        [content_digest(build.path / shard.file) for shard in card.shards],
        card.class_names,
        {
            name: {part: counts.digest for part, counts in entry.parts.items()}
            for name, entry in card.splits.items()
            if entry.rule == "given"
        },
    )


def options_of(frames: Frames) -> dict[str, Any]:
    targets = tuple(
        name for frame in frames.values() for name in frame if str(name).startswith("t_")
    )
    return {"label": targets} if targets else {}


#: Formats whose files have no columns of the tables to choose.
_WITHOUT_OPTIONS = {"TUDataset", "npz", "pt"}


class Bench:
    """Folder with the tables of one case, and its home."""

    def __init__(self, folder: Path, form: str) -> None:
        self.form = form
        self.folder = folder
        self.archive = folder / "files"
        self.archive.mkdir(parents=True)

    def build(self, name: str, parameters: Mapping[str, Any], like: str = "") -> Build:
        source: dict[str, object] = {"path": self.archive, "like": like}
        return build_own(
            "graphs",
            name,
            source,
            parameters=parameters,
            home=self.folder / "home",
            quiet=True,
            jobs=1,
        )

    def write_description(self, uses: ColumnRoles) -> str:
        path = self.folder / "columns.toml"
        path.write_text(uses.to_toml(), "utf-8")
        return str(path)


def check_description(form: str, frames: Frames) -> None:
    """A build read back with its description, as a file and by name, is the same."""
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), form)
        FORMATS[form][0](frames, bench.archive)
        first = answered(
            lambda parameters: bench.build("first", parameters),
            form,
            {} if form in _WITHOUT_OPTIONS else options_of(frames),
        )
        if first is None:
            return
        uses = column_roles_on_card(first.build.card.statistics)
        assert uses is not None
        for like in ("first", bench.write_description(uses)):
            again = bench.build("again", {}, like)
            assert contents(again) == contents(first.build), (uses, first.parameters)
            assert column_roles_on_card(again.card.statistics) == uses
            assert again.card.statistics["kinds"] == first.build.card.statistics["kinds"]
        COUNTS[f"{form}, descriptions"] += 1
        check_typed_values(bench, uses)


def check_typed_values(bench: Bench, uses: ColumnRoles) -> None:
    """The printed values of a column, typed as its categories or classes, are its values."""
    for position, role in enumerate(uses.columns):
        typed = role.model_dump()["values"]
        if not len(typed) == role.distinct > 1 or any(text.endswith("…") for text in typed):
            continue
        if role.use == "label" and uses.classes and uses.classes[0] in typed:
            expected = [*reversed(typed)]
            edited = uses.model_copy(update={"classes": tuple(expected)})
            build = bench.build("typed", {}, bench.write_description(edited))
            are_numbered = expected == [str(number) for number in range(len(typed))]
            assert build.card.class_names == ([] if are_numbered else expected)
            COUNTS["values typed as classes"] += 1
        if role.features and role.level != "graph":
            update = {"use": "category", "categories": typed, "nullable": bool(role.missing)}
            columns = [*uses.columns]
            columns[position] = role.model_copy(update=update)
            edited = uses.model_copy(update={"columns": tuple(columns)})
            build = bench.build("typed", {}, bench.write_description(edited))
            key = "node/x" if role.level == "node" else "edge/edge_attr"
            fields = build.card.schema_.column(key).fields
            assert {f"{role.column}={text}" for text in typed} <= {*fields}
            COUNTS["values typed as categories"] += 1


def check_frames(frames: Frames) -> None:
    """Tables in memory are the build of their files: CSV, JSON lines and, with pyarrow, Parquet."""
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), "tables")
        delimited(",")(frames, bench.archive)
        first = answered(
            lambda parameters: bench.build("first", parameters), "frames", options_of(frames)
        )
        if first is None:
            return
        saved = kmip_data.save(frames, bench.folder / "saved", **first.parameters)
        assert contents(saved)[:2] == contents(first.build)[:2], first.parameters
        # Two formats for each case, in turn.
        formats = [*TYPED_FILES.items()] * 2
        first_form = 2 * COUNTS["frames and their CSV"] % len(TYPED_FILES)
        for form, write in formats[first_form : first_form + 2]:
            typed = Bench(bench.folder / form, form)
            write(frames, typed.archive)
            build = typed.build("typed", first.parameters)
            assert contents(build) == contents(first.build), (form, first.parameters)
            COUNTS[f"frames and their {form}"] += 1
        COUNTS["frames and their CSV"] += 1


def take(
    check: Callable[[Frames], None], kinds: Sequence[str], count: int, first_seed: int
) -> None:
    """Check ``count`` random tables."""

    @seed(first_seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(tables(kinds or ("whole",)))
    def hold(frames: Frames) -> None:
        check(frames)

    hold()


@pytest.mark.parametrize("form", FORMATS)
def test_a_description_gives_the_build_that_it_describes(form: str) -> None:
    take(lambda frames: check_description(form, frames), FORMATS[form][1], 1, 0)
    check_compared(f"{form}, descriptions", 1)


@pytest.mark.slow
def test_tables_in_memory_are_the_build_of_their_files() -> None:
    take(check_frames, tuple(VALUES), 5, 0)
    check_compared("frames and their CSV", 3)
    for form in TYPED_FILES:
        check_compared(f"frames and their {form}", 1)


def check_compared(case: str, least: int) -> None:
    """Most tables are compared; where they are not, the build refuses them."""
    refused = {text: count for text, count in COUNTS.items() if "refused" in text}
    assert COUNTS[case] >= least, refused


@pytest.mark.torture
@pytest.mark.parametrize("form", FORMATS)
def test_100_descriptions_of_each_format_give_their_builds(form: str) -> None:
    take(lambda frames: check_description(form, frames), FORMATS[form][1], 100, 1)
    check_compared(f"{form}, descriptions", 50)


@pytest.mark.torture
def test_200_tables_in_memory_are_the_builds_of_their_files() -> None:
    take(check_frames, tuple(VALUES), 200, 1)
    check_compared("frames and their CSV", 100)


def test_every_use_is_described(tmp_path: Path) -> None:
    """A new use of columns needs values in the random tables above, and an example here."""
    rows = 12
    nodes = pd.DataFrame({"node": [f"n{row}" for row in range(rows)]})
    nodes["age"] = np.arange(rows) / 2
    nodes["flag"] = nodes["age"] > 3
    nodes["town"] = [_WORDS[row % 3] for row in range(rows)]
    nodes["since"] = [f"2020-01-{row + 1:02d}" for row in range(rows)]
    nodes["split"] = ["train", "val", "test"] * 4
    nodes["label"] = [row % 2 for row in range(rows)]
    nodes["graph"] = ["a"] * 6 + ["b"] * 6
    edges = pd.DataFrame(
        {"source": nodes["node"], "target": nodes["node"], "graph": nodes["graph"]}
    )
    edges["Type"] = ["Directed", "Undirected"] * 6
    frames = {"nodes": nodes, "edges": edges}
    uses: dict[str, str] = {}
    for form in ("CSV", "SMILES", "npz"):
        (tmp_path / form).mkdir()
        bench = Bench(tmp_path / form, form)
        FORMATS[form][0](frames, bench.archive)
        described = column_roles_on_card(bench.build("first", {}).card.statistics)
        uses |= {role.column: role.use for role in described.columns}
        uses |= {f"{form} {role.column}": role.use for role in described.columns}
    assert {*uses.values()} == {*get_args(Use)} - {"group"}
    assert uses["since"] == "ignored"

    # Groups are named by an option, and are none of a table that gives parts.
    bench = Bench(tmp_path / "groups", "CSV")
    frames = {
        "nodes": nodes.drop(columns=["split", "graph"]),
        "edges": edges.drop(columns=["graph", "Type"]),
    }
    FORMATS["CSV"][0](frames, bench.archive)
    first = bench.build("first", {"group": "town"})
    described = column_roles_on_card(first.card.statistics)
    assert {role.use for role in described.columns if role.column == "town"} == {"group"}
    again = bench.build("again", {}, bench.write_description(described))
    assert contents(again) == contents(first)
    assert column_roles_on_card(again.card.statistics) == described

    # Features of graphs are asked for, and restrict those of nodes no more than the default does.
    graphs = pd.DataFrame({"graph": ["a", "b"], "mass": [1.5, None], "town": _WORDS[:2]})
    frames = {
        "nodes": nodes.drop(columns="split"),
        "edges": edges.drop(columns="Type"),
        "graphs": graphs,
    }
    bench = Bench(tmp_path / "graph", "CSV")
    FORMATS["CSV"][0](frames, bench.archive)
    first = bench.build("first", {"feature": "mass"})
    described = column_roles_on_card(first.card.statistics)
    again = bench.build("again", {}, bench.write_description(described))
    assert contents(again) == contents(first)
    assert column_roles_on_card(again.card.statistics) == described
    schema = first.card.schema_
    assert schema.column("graph/graph_attr").fields == ("mass", "mass missing")
    assert first.card.field_kinds("graph/graph_attr") == ("number", "missing")
    assert "age" in schema.column("node/x").fields
    items = kmip_data.open(first.path)
    assert [item.graph_attr.tolist() for item in items] == [[[1.5, 0]], [[0, 1]]]


def test_the_card_has_the_kind_of_each_feature(tmp_path: Path) -> None:
    nodes = pd.DataFrame({"node": range(6), "age": [1.5, None, 3, 4, 5, 6]})
    nodes["flag"] = [True, False] * 3
    nodes["town"] = ["Ulm", "Bonn"] * 3
    edges = pd.DataFrame({"source": range(6), "target": [1, 2, 3, 4, 5, 0], "w": np.arange(6) / 4})
    card = kmip_data.save({"nodes": nodes, "edges": edges}, tmp_path / "saved").card
    kinds = {
        field: kind
        for key in ("node/x", "edge/edge_attr")
        for field, kind in zip(card.schema_.column(key).fields, card.field_kinds(key), strict=True)
    }
    assert kinds == {
        "age": "number",
        "age missing": "missing",
        "flag": "boolean",
        "town=Bonn": "one-hot",
        "town=Ulm": "one-hot",
        "w": "number",
    }
