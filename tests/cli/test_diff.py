"""``kmip-data diff`` and ``kmip_data.diff``: values, order, schema, splits, files and bad input."""

import shlex
import shutil

import pytest
import torch
from support.cli import expect_refusal, expect_success, kmip
from torch_geometric.data import Data

import kmip_data

PARTS = {"train": range(10), "test": [10, 11]}


def graphs(count=12, targets=1):
    """Graphs of random sizes, with a text and several kinds of targets."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for number in range(count):
        nodes = 2 + number % 4
        edges = torch.randint(0, nodes, (2, 5), generator=generator)
        edges[:, 0] = torch.tensor([0, 1])  # no graph equals itself with edges in another order
        made.append(
            Data(
                x=torch.rand(nodes, 2, generator=generator),
                edge_index=edges,
                y=torch.arange(targets).reshape(1, -1) + number % 2,
                name="ab"[: 1 + number % 2],
            )
        )
    return made


def changed(change):
    """The same graphs, of which the fifth is changed."""
    made = graphs()
    change(made[4])
    return made


def differences(a, b):
    """Printed differences, and the number of records that differ."""
    comparison = kmip_data.diff(a, b)
    assert comparison.equal == (not comparison.differences)
    return [*map(str, comparison.differences)], comparison.differing_records


@pytest.fixture
def build(tmp_path):
    """Build with a split that is given."""
    return kmip_data.save(graphs(), tmp_path / "saved", split=PARTS)


def test_a_file_against_a_build_of_the_same_graphs(build, tmp_path):
    """A file equals itself and its build; the first change is printed with its place."""
    other = graphs()
    torch.save(other, tmp_path / "same.pt")
    other[4].x[1, 1] = 7
    other[5].name = "other"
    torch.save(other, tmp_path / "changed.pt")
    for a in (tmp_path / "same.pt", build.path):
        outcome = expect_success("diff", a, tmp_path / "same.pt")
        assert outcome.out == "Equal: 12 graphs, 42 nodes, 60 edges.\n"
    assert kmip_data.diff(build, graphs()).equal

    outcome = kmip("diff", build.path, tmp_path / "changed.pt")
    value = graphs()[4].x[1, 1].item()
    assert outcome.code == 1
    assert outcome.out == f"record 4, x[1, 1]: {value} / 7.0\nRecords that differ: 2.\n"
    printed = kmip("diff", build.path, tmp_path / "changed.pt", "--json").json
    assert (printed["equal"], printed["differing_records"]) == (False, 2)
    assert printed["differences"] == [
        {"subject": "x", "values": [value, 7.0], "position": [1, 1], "record": 4}
    ]


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (float("nan"), 1.0, "nan / 1.0"),
        (1.0, 1.001, "1.0 / 1.0010000467300415"),
        (float("nan"), float("nan"), ""),
    ],
)
def test_values(before, after, shown):
    a = changed(lambda graph: graph.x.__setitem__((0, 1), before))
    b = changed(lambda graph: graph.x.__setitem__((0, 1), after))
    expected = [f"record 4, x[0, 1]: {shown}"] if shown else []
    assert differences(a, b) == (expected, len(expected))


def test_order_counts():
    """Records, nodes and edges in another order differ."""
    found, count = differences(graphs(), graphs()[::-1])
    assert (found[0][:9], count) == ("record 0,", 12)
    found, count = differences(
        graphs(), changed(lambda graph: graph.update({"x": graph.x.flip(0)}))
    )
    assert (found[0][:18], count) == ("record 4, x[0, 0]:", 1)
    found, count = differences(
        graphs(), changed(lambda graph: graph.update({"edge_index": graph.edge_index.flip(1)}))
    )
    assert (found[0][:20], count) == ("record 4, edge_index", 1)


def test_records_of_other_sizes():
    """A record that is missing, and one with fewer nodes and edges."""
    assert differences(graphs(), graphs(10)) == (
        ["edges: 60 / 50", "graphs: 12 / 10", "nodes: 42 / 33"],
        2,
    )
    smaller = changed(lambda graph: graph.update({"edge_index": graph.edge_index[:, :4]}))
    assert differences(graphs(), smaller) == (
        ["edges: 60 / 59", "record 4, shape of edge_index: (2, 5) / (2, 4)"],
        1,
    )


def test_a_neighbour_table_equals_the_same_edges():
    """The layout of edges on disk does not matter."""
    ring = torch.tensor([[1, 2, 0], [0, 1, 2]])
    a = [Data(x=torch.rand(3, 1), edge_index=ring) for _ in range(3)]
    b = [graph.clone() for graph in a]
    b[2].edge_index = ring[:, :2]
    assert differences(a, b) == (
        ["edges: 9 / 8", "record 2, shape of edge_index: (2, 3) / (2, 2)"],
        1,
    )


def test_schema(tmp_path):
    """Dtypes, missing arrays, shapes, and the names of classes and features."""
    other = graphs()
    for graph in other:
        graph.x = graph.x.double()
        graph.y = graph.y.reshape(1)
        del graph.name
    dtypes = ["x: 'float32' / 'float64'", "name: 'uint8' / 'missing'"]
    shape = "record 0, shape of y: (1, 1) / (1,)"
    assert differences(graphs(), other) == ([*dtypes, shape], 12)
    points = [Data(x=torch.zeros(2, 1))]
    edges = [Data(x=torch.zeros(2, 1), edge_index=torch.zeros(2, 0, dtype=torch.long))]
    assert differences(points, edges) == (["edge_index: 'missing' / 'int64'"], 0)

    pets = kmip_data.save(other, tmp_path / "pets", class_names=["cat", "dog"])
    farm = kmip_data.save(other, tmp_path / "farm", class_names=["cow", "hen"])
    outcome = kmip("diff", pets.path, farm.path)
    assert outcome.code == 1
    assert outcome.out == "class names[0]: 'cat' / 'cow'\nRecords that differ: 0.\n"
    assert kmip_data.diff(pets, other).equal, "a list has no names"

    for name, columns in {"one": "mass,charge", "two": "mass,spin"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "nodes.csv").write_text(f"id,{columns}\n0,1.5,2\n1,2.5,3\n")
        (tmp_path / name / "edges.csv").write_text("source,target\n0,1\n1,0\n")
    found, _ = differences(tmp_path / "one", tmp_path / "two")
    assert found == ["fields of x[1]: 'charge' / 'spin'"]


def test_splits(build, tmp_path):
    """Parts of two builds are compared by name, with their order; random ones only in builds."""
    parts = {"train": range(10), "test": [11, 10]}
    other = kmip_data.save(graphs(), tmp_path / "other", split=parts)
    assert differences(build, other) == (["split given, test[0]: 10 / 11"], 0)
    drawn = kmip_data.save(graphs(), tmp_path / "drawn")
    assert differences(build, drawn)[0] == ["splits[0]: 'given' / 'random-seed0'"]
    assert kmip_data.diff(drawn, graphs()).equal


def test_parts_of_nodes(tmp_path):
    """Masks of a single graph are a split of its nodes, whose name in a build may be another."""
    mask = torch.tensor([True, True, False, False])
    edges = torch.tensor([[0, 1], [1, 2]])
    a = Data(x=torch.rand(4, 1), edge_index=edges, train_mask=mask, test_mask=~mask)
    b = a.clone()
    b.test_mask[3] = False
    ((found,), _) = differences([a], [b])
    assert found.endswith(", shape of test: (2,) / (1,)")
    split = {"train": [0, 1], "test": [2, 3]}
    named = kmip_data.save([Data(x=a.x, edge_index=edges)], tmp_path / "named", split=split)
    assert kmip_data.diff(named, [a]).equal
    assert not kmip_data.diff(named, [b]).equal


def test_equal_is_said_of_bytes_that_were_read(build, tmp_path):
    """A copy with a flipped byte and a folder with nothing but a card are unreadable."""
    for name in ("copy", "flipped"):
        shutil.copytree(build.path, tmp_path / name)
    expect_success("diff", build.path, tmp_path / "copy")
    (shard,) = (tmp_path / "flipped/shards").iterdir()
    data = bytearray(shard.read_bytes())
    data[-40] ^= 1
    shard.write_bytes(data)
    refusal = expect_refusal("diff", build.path, tmp_path / "flipped", code=4)
    assert "B cannot be compared: " in refusal
    assert "is not the file that the card names" in refusal

    (tmp_path / "card").mkdir()
    shutil.copy(build.path / "card.json", tmp_path / "card")
    for a, b in ((build.path, tmp_path / "card"), (tmp_path / "card", tmp_path / "card")):
        assert "cannot be opened" in expect_refusal("diff", a, b, code=4)


def test_targets_without_a_clear_meaning():
    """Integers that may be classes or numbers are compared as they are."""
    several = graphs(targets=3)
    assert kmip_data.diff(several, several).equal
    other = graphs(targets=3)
    other[0].y = other[0].y + 7
    assert differences(several, other) == (["record 0, y[0, 0]: 0 / 7"], 1)


def test_bad_input_names_its_side(build, tmp_path, home):
    """A file that cannot be read, a missing one, and one that needs an option of the build."""
    (tmp_path / "cut.pt").write_bytes(b"PK\x03\x04")
    refusal = expect_refusal("diff", build.path, tmp_path / "cut.pt", code=4)
    assert refusal.startswith("Error: B cannot be compared: ")
    assert "cut.pt is not a complete" in refusal
    refusal = expect_refusal("diff", tmp_path / "none.pt", build.path)
    assert "A cannot be compared: There is no file" in refusal

    table = tmp_path / "ends.csv"
    table.write_text("p,q,r\n0,1,2\n1,2,0\n2,0,1\n")
    refusal = expect_refusal("diff", table, build.path, code=4)
    line = refusal.partition("next: kmip-data ")[2].splitlines()[0]
    expect_success(*shlex.split(line))
    assert kmip("diff", "ends", build.path).code == 1
