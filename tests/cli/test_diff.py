"""``kmip-data diff`` and ``kmip_data.diff``: files, builds, splits, digests and bad input."""

import shlex

import pytest
import torch
from support.cli import expect_refusal, expect_success, kmip
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Build
from kmip_data.errors import OutOfResources
from kmip_data.runtime import memory


def graphs(count=12, targets=1):
    """Graphs of random sizes, with a text and several kinds of targets."""
    generator = torch.Generator().manual_seed(0)
    for number in range(count):
        nodes = 2 + number % 4
        yield Data(
            x=torch.rand(nodes, 2, generator=generator),
            edge_index=torch.randint(0, nodes, (2, 5), generator=generator),
            y=torch.arange(targets).reshape(1, -1) + number % 2,
            name="ab"[: 1 + number % 2],
        )


@pytest.fixture
def build(tmp_path):
    """Build with a split that is given."""
    parts = {"train": range(10), "test": [10, 11]}
    return kmip_data.save(graphs(), tmp_path / "saved", split=parts)


def test_a_file_against_a_build_of_the_same_graphs(build, tmp_path):
    """A file equals itself and is like its build; a change is printed with its place."""
    changed = list(graphs())
    torch.save(changed, tmp_path / "same.pt")
    changed[4].x[1, 1] += 2
    changed[5].name = "other"
    torch.save(changed, tmp_path / "changed.pt")
    outcome = expect_success("diff", tmp_path / "same.pt", tmp_path / "same.pt")
    assert outcome.out == "Equal: 12 graphs, 42 nodes, 60 edges.\n"

    outcome = kmip("diff", build.path, tmp_path / "changed.pt")
    value = float(next(iter(list(graphs())[4:])).x[1, 1])
    assert outcome.code == 1
    assert outcome.out == (
        "x: rows 1, graphs 1, largest difference 2\n"
        f"    graph of A 4, node 1, component 1, values {value:.6g} / {value + 2:.6g}\n"
        "name: rows 1, graphs 1\n"
        "    graph of A 5, values ab / other\n"
    )
    printed = kmip("diff", build.path, tmp_path / "changed.pt", "--json").json
    assert not printed["equal"]
    assert [found["kind"] for found in printed["differences"]] == ["values", "values"]
    assert printed["differences"][1]["examples"] == [{"graph of A": 5, "values": ["ab", "other"]}]


def test_splits_follow_their_graphs(build, tmp_path):
    """The parts of shuffled graphs are compared graph by graph, and random parts only in builds."""
    shuffled = list(graphs())[::-1]
    parts = {"train": range(2, 12), "test": [0, 1]}
    same = kmip_data.save(shuffled, tmp_path / "same", split=parts)
    assert [found.kind for found in kmip_data.diff(build, same).differences] == ["order"]
    parts = {"train": range(3, 12), "test": [0, 1, 2]}
    other = kmip_data.save(shuffled, tmp_path / "other", split=parts)
    order, split = kmip_data.diff(build, other).differences
    assert (order.kind, split.column, split.numbers["rows"]) == ("order", "split given", 1)
    assert split.examples == [{"graph of A": 9, "values": ["train", "test"]}]
    assert kmip_data.diff(shuffled, list(graphs())).differences[0].kind == "order"


def test_parts_of_nodes():
    """Masks of a single graph are a split of its nodes."""
    mask = torch.tensor([True, True, False, False])
    edges = torch.tensor([[0, 1], [1, 2]])
    a = Data(x=torch.rand(4, 1), edge_index=edges, train_mask=mask, test_mask=~mask)
    b = a.clone()
    b.test_mask[3] = False
    (difference,) = kmip_data.diff([a], [b]).differences
    assert difference.kind == "values"
    assert difference.column.startswith("split ")
    assert difference.examples == [{"graph of A": 0, "node": 3, "values": ["test", ""]}]


def test_equal_digests_need_no_shard(build, tmp_path, monkeypatch):
    """Two builds of the same graphs are compared by their cards."""
    parts = {"train": range(10), "test": [10, 11]}
    copy = kmip_data.save(graphs(), tmp_path / "copy", split=parts, name="saved")
    opened = []
    open_shard = Build.open_shard

    def counted(self, *arguments):
        opened.append(self)
        return open_shard(self, *arguments)

    monkeypatch.setattr(Build, "open_shard", counted)
    assert kmip_data.diff(build, copy).equal
    assert not opened
    assert not kmip_data.diff(build, list(graphs(11))).equal
    assert len(opened) == 2


def test_targets_without_a_clear_meaning():
    """Integers that may be classes or numbers are compared as they are."""
    several = list(graphs(targets=3))
    assert kmip_data.diff(several, several).equal
    other = list(graphs(targets=3))
    other[0].y = other[0].y + 7
    (difference,) = kmip_data.diff(several, other).differences
    assert (difference.column, difference.numbers["largest difference"]) == ("y", 7)


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


def test_a_graph_that_needs_too_much_memory_is_refused(build, monkeypatch):
    """A single graph is read at once, if memory is free for it."""
    one = list(graphs(1))
    monkeypatch.setattr(memory, "free_host_memory", lambda: 100)
    with pytest.raises(OutOfResources, match="a graph of 2 nodes and 5 edges"):
        kmip_data.diff(one, list(graphs(2)))
