"""Saved datasets of PyTorch Geometric come back unchanged."""

import errno
import os
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from support.builds.same import assert_same_data
from support.cases import check_each, read_contents
from support.raises import raises
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.datasets import FakeDataset, KarateClub
from torch_geometric.loader import DataLoader

import kmip_data
from kmip_data.builds.verify import verify_build
from kmip_data.columns.part_masks import PART_ARRAYS
from kmip_data.errors import DamagedInput, OutOfResources, Setting, UsageError
from kmip_data.files import atomic_writes
from kmip_data.format.card import read_card
from kmip_data.reading.loader import GraphLoader


def tu_graphs():
    """Graphs of many sizes with one-hot features, edge attributes and a label, as TUDataset has them."""
    generator = torch.Generator().manual_seed(0)
    for i in range(40):
        n, e = int(torch.randint(1, 30, (), generator=generator)), 3 * i
        yield Data(
            edge_index=torch.randint(0, n, (2, e), generator=generator),
            edge_attr=torch.eye(4)[torch.randint(0, 4, (e,), generator=generator)],
            y=torch.randint(0, 2, (1,), generator=generator),
            x=torch.eye(7)[torch.randint(0, 7, (n,), generator=generator)],
        )


def qm9_graphs():
    """Molecules with positions, atomic numbers, 19 targets, texts and numbers, as QM9 has them."""
    generator = torch.Generator().manual_seed(0)
    for i in range(25):
        n = 1 + i % 9
        yield Data(
            x=torch.randn(n, 11, generator=generator),
            z=torch.randint(1, 10, (n,), generator=generator),
            pos=torch.randn(n, 3, generator=generator, dtype=torch.float64),
            edge_index=torch.randint(0, n, (2, 2 * i), generator=generator),
            edge_attr=torch.randint(0, 2, (2 * i, 4), generator=generator).bool(),
            y=torch.randn(1, 19, generator=generator),
            smiles="C" * i + "é",
            idx=i,
            weight=float(i) / 3,
            chiral=i % 3 == 0,
        )


class TUDatasetLike(InMemoryDataset):
    """The graphs above as a dataset, with a transform if one is given."""

    def __init__(self, transform=None):
        super().__init__(None, transform)
        self.data, self.slices = self.collate(list(tu_graphs()))


def planetoid_like():
    """One graph with float features, labels and disjoint masks, as Planetoid has them."""
    generator = torch.Generator().manual_seed(0)
    n = 200
    order = torch.randperm(n, generator=generator)
    masks = {
        name: torch.zeros(n, dtype=torch.bool) for name in ("train_mask", "val_mask", "test_mask")
    }
    for mask, chosen in zip(masks.values(), (order[:30], order[30:60], order[60:150]), strict=True):
        mask[chosen] = True
    return Data(
        x=torch.randn(n, 16, generator=generator),
        edge_index=torch.randint(0, n, (2, 900), generator=generator),
        y=torch.randint(0, 7, (n,), generator=generator),
        **masks,
    )


def webkb_like():
    """Several graphs with masks, which divide the nodes of none: they stay columns."""
    data = planetoid_like()
    for name in ("train_mask", "val_mask", "test_mask"):
        data[name] = torch.rand(200, 10, generator=torch.Generator().manual_seed(1)) < 0.5
    return data


def odd_dtypes():
    """Every dtype that numpy shares with torch, extreme values, empty graphs and graphs without edges."""
    items = []
    for i in range(6):
        n, e = 5 * (i % 3), (4 * i if i % 3 else 0)
        data = Data(num_nodes=n, edge_index=torch.zeros(2, e, dtype=torch.long))
        for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16):
            info = torch.iinfo(dtype)
            data[f"node_{dtype}".replace("torch.", "")] = torch.tensor([info.min, info.max] * n)[
                :n
            ].to(dtype)
        for dtype in (torch.float16, torch.float32, torch.float64):
            info = torch.finfo(dtype)
            values = [info.max, info.tiny, float("nan"), float("inf"), -0.0] * n
            data[f"node_{dtype}".replace("torch.", "")] = torch.tensor(values, dtype=dtype)[:n]
        data.flags = torch.tensor([i % 2 == 0, True, False])
        data.scalar = torch.tensor(i, dtype=torch.int16)
        data.huge = 2**62 + i
        data.target = torch.full((1, 2, 3), i, dtype=torch.float16)
        data.empty = torch.empty(n, 0)
        items.append(data)
    return items


DATASETS = {
    "TUDataset-like": TUDatasetLike,
    "QM9-like": qm9_graphs,
    "Planetoid-like": lambda: [planetoid_like()],
    "WebKB-like": lambda: [webkb_like(), webkb_like()],
    "odd dtypes": odd_dtypes,
    "no edges": lambda: [Data(x=torch.full((n, 2), n)) for n in (3, 0, 5)],
    "a large graph": lambda: [regular_graph(70_001, 2)],
}


def regular_graph(n, k):
    sources = torch.randint(0, n, (n * k,), generator=torch.Generator().manual_seed(n))
    return Data(
        edge_index=torch.stack([sources, torch.arange(n).repeat_interleave(k)]),
        x=torch.arange(n, dtype=torch.float32)[:, None],
    )


@pytest.mark.parametrize("name", DATASETS)
def test_saved_items_are_opened_unchanged(tmp_path, name):
    torch.manual_seed(0)
    items = list(DATASETS[name]())
    build = kmip_data.save(items, tmp_path / "saved")
    assert verify_build(build.path).problems == []
    dataset = kmip_data.open(build.path)
    assert len(dataset) == len(items)
    for item, wanted in zip(dataset, items, strict=True):
        for mask in PART_ARRAYS.keys() - {*wanted.keys()}:  # a random split of a single graph
            if mask in item:
                del item[mask]
        assert_same_data(item, wanted, ordered=False)
    if len(items) > 1:
        in_order = list(dataset)
        for batch, wanted in zip(GraphLoader(dataset, 2), DataLoader(in_order, 2), strict=True):
            assert_same_data(batch, wanted)


def test_k_nn_graphs_get_a_neighbour_table(tmp_path):
    graphs = [regular_graph(n, 3) for n in (5, 9)]
    dataset = kmip_data.open(kmip_data.save(graphs, tmp_path / "regular").path)
    assert (dataset.schema.edges, dataset.schema.k) == ("neighbor", 3)
    (batch,) = GraphLoader(dataset, 2, compact=True)
    assert batch.neighbor.shape == (14, 3)
    graphs[1].edge_index = graphs[1].edge_index.flip(
        1
    )  # the same edges, not grouped as a table has them
    dataset = kmip_data.open(kmip_data.save(graphs, tmp_path / "other").path)
    assert dataset.schema.edges == "index"
    assert_same_data(dataset[1], graphs[1], ordered=False)


def test_a_generator_and_a_random_transform_are_read_once(tmp_path):
    wanted = list(qm9_graphs())
    saved = kmip_data.save(qm9_graphs(), tmp_path / "generator")
    again = kmip_data.save(wanted, tmp_path / "list", name="generator")
    assert saved.card.to_json() == again.card.to_json()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["generator", "list"]
    seen = []

    def shift(data):
        data.x = data.x + torch.rand(())
        seen.append(data.x.clone())
        return data

    shifted = kmip_data.open(kmip_data.save(TUDatasetLike(shift), tmp_path / "b").path)
    assert all(torch.equal(item.x, x) for item, x in zip(shifted, seen, strict=True))


def test_a_sharded_dataset_keeps_its_keys(tmp_path):
    first = kmip_data.open(kmip_data.save(TUDatasetLike(), tmp_path / "first").path)
    second = kmip_data.open(kmip_data.save(first[10:20], tmp_path / "second").path)
    assert second.keys == first.keys[10:20]
    for item, wanted in zip(second, first[10:20], strict=True):
        assert_same_data(item, wanted)


def test_a_given_split_of_graphs_is_saved(tmp_path):
    for form in (list, torch.tensor, np.array):
        split = {"train": form([5, 3, 8]), "val": form([1]), "test": form([0, 39])}
        build = kmip_data.save(TUDatasetLike(), tmp_path / form.__name__, split=split)
        assert verify_build(build.path).ok
        for part, chosen in split.items():
            dataset = kmip_data.open(build.path, part)
            assert dataset.records.tolist() == [int(i) for i in chosen]
        assert build.card.splits["given"].parts["train"].graphs == 3
    mask = torch.zeros(40, dtype=torch.bool)
    mask[[2, 4]] = True
    build = kmip_data.save(
        TUDatasetLike(), tmp_path / "masks", split={"train": ~mask, "test": mask}
    )
    assert kmip_data.open(build.path, "test").records.tolist() == [2, 4]


def test_masks_of_a_saved_graph_are_its_splits(tmp_path):
    data = planetoid_like()
    build = kmip_data.save(data, tmp_path / "masks")
    assert [c.attribute for c in build.card.schema_.columns] == ["x", "y"]
    assert build.card.splits["masks"].parts["train"].nodes == 30
    assert_same_data(kmip_data.open(build.path, "train")[0], data, ordered=False)
    masks = {part: data[f"{part}_mask"] for part in ("train", "val", "test")}
    bare = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    build = kmip_data.save([bare], tmp_path / "given", split=masks)
    assert_same_data(kmip_data.open(build.path)[0], data, ordered=False)


def test_masks_of_several_columns_are_several_splits(tmp_path):
    data = planetoid_like()
    masks = {part: data[f"{part}_mask"] for part in ("train", "val", "test")}
    bare = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    train = torch.stack([masks["train"], torch.zeros(200, dtype=torch.bool)], 1)
    build = kmip_data.save(bare, tmp_path / "b", split={**masks, "train": train})
    for fold in range(2):
        item = kmip_data.open(build.path, split_name=f"given-fold{fold}")[0]
        assert torch.equal(item.train_mask, train[:, fold])
        assert torch.equal(item.test_mask, masks["test"])
    with raises(UsageError, naming=[2, 3]):
        kmip_data.save(
            bare, tmp_path / "c", split={"train": train, "test": torch.zeros(200, 3).bool()}
        )


def test_mismatched_splits_are_refused(tmp_path):
    def check(split):
        with pytest.raises(UsageError):
            kmip_data.save(TUDatasetLike(), tmp_path / "b", split=split)

    outside = (
        {"train": [40]},
        {"train": [-1]},
        {"tuning": [1]},
        {"val": [1], "valid": [2]},
        {"train": [0.5]},
    )
    check_each(check, [*outside, {"train": [1], "test": [1]}])
    with pytest.raises(UsageError):
        kmip_data.save(
            [regular_graph(10, 2)], tmp_path / "b", split={"train": [1], "test": [1, 11]}
        )
    assert list(tmp_path.iterdir()) == []


def test_parts_have_the_names_that_open_and_ogb_accept(tmp_path):
    graphs = list(tu_graphs())
    parts = {"training": range(30), "valid": range(30, 35), "testing": range(35, 40)}
    build = kmip_data.save(graphs, tmp_path / "a", parts)
    dataset = kmip_data.open(build.path)
    copy = kmip_data.save(graphs, tmp_path / "b", dataset.get_idx_split())
    for part, rows in zip(("train", "val", "test"), parts.values(), strict=True):
        for saved in (build, copy):
            assert kmip_data.open(saved.path, part).records.tolist() == list(rows)


def several(**values):
    """Three graphs of 2, 3 and 4 nodes and edges, with one value for all or a function of the number."""
    items = []
    for i, n in enumerate((2, 3, 4)):
        item = Data(x=torch.zeros(n, 2), edge_index=torch.zeros(2, n, dtype=torch.long))
        for name, value in values.items():
            made = value(i) if callable(value) else value
            if made is not None:
                item[name] = made
        items.append(item)
    return items


def test_labels_of_plus_and_minus_one_need_a_choice(tmp_path):
    """-1 is no label next to several classes; next to one it may be the other."""
    labels = torch.tensor([1, -1, 1])
    words = "write 0 for -1 if it is a class; in a regression, it is a number"
    with raises(UsageError, steps=[words, Setting(task="regression")]):
        kmip_data.save(several(y=lambda i: labels[i : i + 1]), tmp_path / "a")
    kmip_data.save(several(y=lambda i: labels[i : i + 1]), tmp_path / "c", task="regression")
    assert [float(item.y) for item in kmip_data.open(tmp_path / "c")] == [1, -1, 1]
    labels[1] = 0  # which the error says of a class
    kmip_data.save(several(y=lambda i: labels[i : i + 1]), tmp_path / "d")
    assert kmip_data.open(tmp_path / "d").num_classes == 2
    kmip_data.save(several(y=lambda i: torch.tensor([i - 1])), tmp_path / "b")
    assert kmip_data.open(tmp_path / "b").num_classes == 2


class Pair(Data):
    """Data with a rule of its own for batching."""

    def __inc__(self, key, value, *args, **kwargs):
        return 0


UNFIT = [
    (several(extra=lambda i: torch.zeros(1) if i == 2 else None), "00000002"),
    (several(x=lambda i: torch.zeros(2 + i, 2 + i)), ("00000001", "x")),
    (
        several(x=lambda i: torch.zeros(2 + i, 2, dtype=[torch.int, torch.float][i > 0])),
        ("00000001", "x"),
    ),
    (several(u=lambda i: torch.zeros(7 + i)), ("00000001", "u")),
    (several(words=["a", "b"]), "words"),
    (several(z=torch.zeros(3, dtype=torch.complex64)), "z"),
    (several(z=torch.zeros(3, dtype=torch.bfloat16)), "z"),
    (several(z=torch.eye(3).to_sparse()), "z"),
    (several(n=2**70), "n"),
    (several(text="ends with \0"), "text"),
    (several(text="half a pair \udcff"), "text"),
    (several(z=torch.zeros(3, device="meta")), "z"),
    (several(edge_index=torch.zeros(2, 1, dtype=torch.int32)), "edge_index"),
    (several(edge_index=torch.full((2, 3), 9)), "00000000"),
    (
        [Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0], [5]]))],
        5,
    ),
    (several(edge_attr=lambda i: torch.zeros(2 + i, 1 + i)), ("00000001", "edge_attr")),
    ([Data(x=torch.zeros(1), n=1), Data(x=torch.zeros(1), n=1.0)], ("00000001", "n")),
    ([Data(x=torch.zeros(2), batch=torch.tensor([0, 1]))], "batch"),
    ([Pair(x=torch.zeros(2))], "Pair"),
    (HeteroData(), "HeteroData"),
    (Batch.from_data_list([Data(x=torch.zeros(1))]), "DataBatch"),
    ([torch.zeros(3)], "Tensor"),
    ([], None),
]


def test_data_that_cannot_be_saved_are_refused(tmp_path):
    def check(case):
        with raises((UsageError, DamagedInput), naming=case[1]):
            kmip_data.save(case[0], tmp_path / "b")
        assert list(tmp_path.iterdir()) == []

    check_each(check, UNFIT)


def test_a_number_beyond_any_class_is_no_class(tmp_path):
    graphs = several(y=torch.tensor([10**12]))
    with raises(UsageError, steps=Setting(task="regression")):
        kmip_data.save(graphs, tmp_path / "b")
    build = kmip_data.save(graphs, tmp_path / "b", task="regression")
    assert kmip_data.open(build.path, split=None)[0].y.tolist() == [10**12]


def test_parameters_of_graphs_are_arguments(tmp_path):
    graphs = several(z=lambda i: torch.tensor([float(i)]), w=torch.zeros(1))
    for item in graphs:
        item.edge_index[1] = 1
    keys = {"label": "z", "task": "classification", "ignore": "w", "undirected": True}
    build = kmip_data.save(graphs, tmp_path / "a", **keys)
    dataset = kmip_data.open(build.path)
    assert [item.y.tolist() for item in dataset] == [[0], [1], [2]]
    assert dataset[0].y.dtype == torch.int64
    assert "w" not in dataset[0]
    assert dataset[0].edge_index.shape == (2, 4)
    for wrong in ({"label": "u"}, {"ignore": ["u"]}, {"task": "ranking"}):
        with pytest.raises(UsageError):
            kmip_data.save(graphs, tmp_path / "b", **wrong)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("level", ["graph", "node"])
def test_texts_of_y_are_classes_as_in_a_file(tmp_path, level):
    graphs = [FakeDataset(num_graphs=1, avg_num_nodes=9)[0] for _ in range(12)]
    for number, item in enumerate(graphs):
        names = ["no", "yes", "déjà"][number % 3 :] + ["no"] * item.num_nodes
        item.y = names[0] if level == "graph" else names[: item.num_nodes]
    torch.save(graphs, tmp_path / "graphs.pt")
    read = kmip_data.build_own(
        "graphs", "read", tmp_path / "graphs.pt", home=tmp_path / "home", quiet=True
    )
    saved = kmip_data.save(graphs, tmp_path / "saved")
    for item in graphs:
        item.kind = item.y
        del item.y
        item.other = object()
    by_name = kmip_data.save(graphs, tmp_path / "by-name", label="kind", ignore="other")
    for build in (saved, by_name):
        assert build.card.class_names == read.card.class_names == ["déjà", "no", "yes"]
        assert kmip_data.diff(build, read).equal


def test_the_target_is_a_new_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    assert kmip_data.save(KarateClub(), tmp_path / "empty").card.dataset == "empty"
    with raises(UsageError, naming="s3dis"):
        kmip_data.save(KarateClub(), tmp_path / "x", name="s3dis")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        kmip_data.save(KarateClub(), tmp_path / "file" / "below")


def test_a_build_is_overwritten_once_the_new_one_is_complete(tmp_path):
    folder = tmp_path / "mine"
    graphs = several(y=lambda i: torch.tensor([i % 2]))
    kmip_data.save(graphs, folder)
    with raises(UsageError, naming="HeteroData"):
        kmip_data.save([HeteroData()], folder, overwrite=True)
    assert len(kmip_data.open(folder)) == 3

    # The graphs may be those of the build that is replaced, read while it is replaced.
    old = kmip_data.open(folder)
    kmip_data.save((data for data in old[:2]), folder, overwrite=True)
    assert [data.num_nodes for data in kmip_data.open(folder)] == [2, 3]
    assert verify_build(folder).ok
    kmip_data.save(graphs[2:], folder, overwrite=True, name="other")
    assert [data.num_nodes for data in kmip_data.open(folder)] == [4]
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("name", ["notes.txt", "shards/notes.txt", "mine/notes.txt"])
def test_a_folder_with_files_of_the_user_is_not_overwritten(tmp_path, name):
    folder = tmp_path / "mine"
    kmip_data.save(several(), folder)
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    contents = read_contents(tmp_path)
    with pytest.raises(UsageError):
        kmip_data.save(several(), folder, overwrite=True)
    assert read_contents(tmp_path) == contents


def test_a_folder_that_is_no_build_is_not_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError):
        kmip_data.save(several(), tmp_path, overwrite=True)
    assert list(tmp_path.iterdir()) == [tmp_path / "notes.txt"]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failed_rename_keeps_the_overwritten_build(tmp_path, monkeypatch, failing):
    folder = tmp_path / "mine"
    kmip_data.save(several(), folder)
    contents = read_contents(tmp_path)
    renames = []
    rename = atomic_writes.rename_into_place

    def fail(source, destination):
        if source.parent == destination.parent == tmp_path:
            renames.append(destination)
            if len(renames) == failing:
                raise OSError(errno.EIO, "failed")
        rename(source, destination)

    monkeypatch.setattr(atomic_writes, "rename_into_place", fail)
    with pytest.raises(OutOfResources):
        kmip_data.save(several()[:1], folder, overwrite=True)
    assert len(renames) >= failing
    assert read_contents(tmp_path) == contents


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_build_set_aside_by_a_killed_process_comes_back(tmp_path, overwrite):
    folder = tmp_path / "mine"
    kmip_data.save(several(), folder)
    folder.rename(tmp_path / ".mine.replaced")  # as after the first of two renames
    if overwrite:
        kmip_data.save(several()[:1], folder, overwrite=True)
    else:
        with pytest.raises(UsageError):
            kmip_data.save(several()[:1], folder)
    assert len(kmip_data.open(folder)) == (1 if overwrite else 3)
    assert list(tmp_path.iterdir()) == [folder]


def test_bytes_do_not_depend_on_the_number_of_shards(tmp_path, monkeypatch):
    monkeypatch.setattr("kmip_data.pipelines.datasets.graphs.inference.MAX_SHARD_BYTES", 5_000)
    one, two = (
        kmip_data.save(TUDatasetLike(), tmp_path / name, name="tu") for name in ("one", "two")
    )
    assert len(one.card.shards) > 4
    assert verify_build(one.path).ok
    for item, wanted in zip(kmip_data.open(one.path), TUDatasetLike(), strict=True):
        assert_same_data(item, wanted, ordered=False)
    assert read_contents(one.path) == read_contents(two.path)
    assert (
        kmip_data.save(TUDatasetLike()[1:], tmp_path / "other", name="tu").card.key != one.card.key
    )


def test_the_card_of_a_saved_dataset_has_its_title_classes_and_license(tmp_path):
    build = kmip_data.save(
        TUDatasetLike(),
        tmp_path / "b",
        title="Two kinds",
        class_names=["no", "yes"],
        license="CC0",
        citation="@misc{x}",
    )
    card = read_card(build.path)
    assert card.to_json() == build.card.to_json()
    assert sum(card.statistics["classes"]["total"]) == card.counts["graphs"] == 40
    assert kmip_data.open(build.path).class_names == ["no", "yes"]
    page = (build.path / "README.md").read_text()
    assert "Two kinds" in page
    assert "CC0" in page


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OutOfResources):
        kmip_data.save(KarateClub(), tmp_path / "b")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


#: Columns of a table that become no feature.
NOT_STORED = {
    "times": pd.date_range("2024-01-01", periods=30, freq="D"),
    "zoned": pd.date_range("2024-01-01", periods=30, freq="h", tz="UTC"),
    "durations": [f"2024-01-{day + 1:02d}" for day in range(30)],
    "months": pd.period_range("2020-01", periods=30, freq="M"),
    "spans": pd.to_timedelta(np.arange(30), "h"),
    "bins": pd.interval_range(0, 30, periods=30),
    "names": [f"person {row}" for row in range(30)],
    "empty": [None] * 30,
}


@pytest.mark.parametrize("column", NOT_STORED)
@pytest.mark.parametrize("level", ["nodes", "edges", "nodes without ids"])
def test_columns_of_pandas_that_are_not_stored_are_a_warning_and_on_the_card(
    tmp_path, column, level
):
    row = np.arange(30)
    tables = {
        "nodes": pd.DataFrame({"id": row, "mass": row / 4}),
        "edges": pd.DataFrame({"source": row, "target": (row * 7 + 3) % 30, "length": row / 8}),
    }
    if level == "nodes without ids":
        level = "nodes"
        tables["nodes"] = tables["nodes"].drop(columns="id")
    tables[level][column] = NOT_STORED[column]
    with pytest.warns(UserWarning, match=column):
        build = kmip_data.save(tables, tmp_path / "warned")
    assert any(note.startswith(f"not stored: {column}: ") for note in read_card(build.path).notes)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "not stored")
        build = kmip_data.save(tables, tmp_path / "ignored", ignore=column)
    assert not any(column in note for note in read_card(build.path).notes)


@pytest.mark.parametrize("level", ["nodes", "edges"])
@pytest.mark.parametrize("cell", [{"unit": "kg"}, ["a", "b"], {1, 2}, [1.5, 2.5]], ids=str)
def test_objects_in_cells_of_pandas_are_features_or_not_stored(tmp_path, level, cell):
    """Lists of numbers become several columns, as in networkx; anything else is a warning."""
    row = np.arange(30)
    tables = {
        "nodes": pd.DataFrame({"id": row, "mass": row / 4}),
        "edges": pd.DataFrame({"source": row, "target": (row * 7 + 3) % 30, "length": row / 8}),
    }
    tables[level]["cells"] = [cell] * 30
    if cell == [1.5, 2.5]:
        graph = kmip_data.open(kmip_data.save(tables, tmp_path / "build").path)[0]
        features = graph.x if level == "nodes" else graph.edge_attr
        assert features[:, 1:].tolist() == [cell] * 30
        return
    with pytest.warns(UserWarning, match="cells"):
        build = kmip_data.save(tables, tmp_path / "build")
    notes = read_card(build.path).notes
    assert "not stored: cells: lists or objects" in notes
    assert "direction: from 'source' to 'target'" in notes
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "not stored")
        build = kmip_data.save(tables, tmp_path / "ignored", ignore="cells")
    assert not any("cells" in note for note in read_card(build.path).notes)


def test_tables_whose_edges_go_one_way_are_warned_about(tmp_path):
    tables = {"edges": pd.DataFrame({"source": [0, 1, 2], "target": [1, 2, 0]})}
    with pytest.warns(UserWarning, match="undirected"):
        kmip_data.save(tables, tmp_path / "one-way")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build = kmip_data.save(tables, tmp_path / "both-ways", undirected=True)
    assert build.card.counts["edges"] == 6


@pytest.mark.parametrize("count", [1, 30])
def test_the_default_split_is_that_of_build_graphs(tmp_path, count):
    graphs = [
        Data(
            x=torch.rand(12, 2), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([i % 3])
        )
        for i in range(count)
    ]
    if count == 1:
        graphs[0].y = torch.arange(12) % 3
    torch.save(graphs if count > 1 else graphs[0], tmp_path / "graphs.pt")
    source = {"path": tmp_path / "graphs.pt"}
    built = kmip_data.build_own("graphs", "own", source, root=tmp_path / "home", quiet=True)
    saved = kmip_data.save(graphs, tmp_path / "saved")
    assert saved.card.default_split == built.card.default_split
    parts = [
        {name: split.parts for name, split in build.card.splits.items()} for build in (saved, built)
    ]
    assert parts[0] == parts[1]
