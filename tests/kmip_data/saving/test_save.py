"""Saved datasets of PyTorch Geometric come back unchanged."""

import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import check_each
from support.same import assert_same
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.datasets import FakeDataset, FakeHeteroDataset, KarateClub
from torch_geometric.loader import DataLoader

import kmip_data
from kmip_data.builds.verify import verify_build
from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.format import writer
from kmip_data.format.card import read_card
from kmip_data.reading.loader import GraphLoader


class TUDatasetLike(InMemoryDataset):
    """Graphs of many sizes with one-hot features, edge attributes and a label, as TUDataset has them."""

    def __init__(self, seed=0, *, features=True, transform=None):
        super().__init__(None, transform)
        generator = torch.Generator().manual_seed(seed)
        items = []
        for i in range(40):
            n, e = int(torch.randint(1, 30, (), generator=generator)), 3 * i
            data = Data(
                edge_index=torch.randint(0, n, (2, e), generator=generator),
                edge_attr=torch.eye(4)[torch.randint(0, 4, (e,), generator=generator)],
                y=torch.randint(0, 2, (1,), generator=generator),
            )
            if features:
                data.x = torch.eye(7)[torch.randint(0, 7, (n,), generator=generator)]
            else:
                data.num_nodes = n
            items.append(data)
        self.data, self.slices = self.collate(items)


class QM9Like(InMemoryDataset):
    """Molecules with positions, atomic numbers, 19 targets, texts and numbers, as QM9 has them."""

    def __init__(self):
        super().__init__(None)
        generator = torch.Generator().manual_seed(0)
        items = []
        for i in range(25):
            n = 1 + i % 9
            items.append(
                Data(
                    x=torch.randn(n, 11, generator=generator),
                    z=torch.randint(1, 10, (n,), generator=generator),
                    pos=torch.randn(n, 3, generator=generator, dtype=torch.float64),
                    edge_index=torch.randint(0, n, (2, 2 * i), generator=generator),
                    edge_attr=torch.randint(0, 2, (2 * i, 4), generator=generator).bool(),
                    y=torch.randn(1, 19, generator=generator),
                    smiles="C" * i + "é",
                    name=f"gdb_{i}",
                    idx=i,
                    weight=float(i) / 3,
                    chiral=i % 3 == 0,
                )
            )
        self.data, self.slices = self.collate(items)


def planetoid_like():
    """One graph with float features, labels and disjoint masks, as Planetoid has them."""
    generator = torch.Generator().manual_seed(0)
    n = 200
    order = torch.randperm(n, generator=generator)
    masks = {name: torch.zeros(n, dtype=torch.bool) for name in ("train_mask", "val_mask", "test_mask")}
    for mask, chosen in zip(masks.values(), (order[:30], order[30:60], order[60:150]), strict=True):
        mask[chosen] = True
    return Data(
        x=torch.randn(n, 16, generator=generator),
        edge_index=torch.randint(0, n, (2, 900), generator=generator),
        y=torch.randint(0, 7, (n,), generator=generator),
        **masks,
    )


def webkb_like():
    """One graph with masks of ten splits, which no split of this format can say: they stay columns."""
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
            data[f"node_{dtype}".replace("torch.", "")] = torch.tensor([info.min, info.max] * n)[:n].to(dtype)
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
    "TUDataset-like, no features": lambda: TUDatasetLike(features=False),
    "QM9-like": QM9Like,
    "Planetoid-like": lambda: [planetoid_like()],
    "WebKB-like": lambda: [webkb_like()],
    "odd dtypes": odd_dtypes,
    "KarateClub": KarateClub,
    "FakeDataset, node task": lambda: FakeDataset(5, task="node", edge_dim=2, global_features=3),
    "FakeDataset, graph task": lambda: FakeDataset(5, task="graph", is_undirected=False, num_channels=0),
    "k-NN-like": lambda: [regular_graph(n, 3) for n in (5, 9, 4)],
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
def test_comes_back_unchanged(tmp_path, name):
    torch.manual_seed(0)
    items = list(DATASETS[name]())
    build = kmip_data.save(items, tmp_path / "saved")
    assert verify_build(build.path).problems == []
    dataset = kmip_data.open(build.path)
    assert len(dataset) == len(items)
    for item, wanted in zip(dataset, items, strict=True):
        assert_same(item, wanted, ordered=False)
    if len(items) > 1:
        in_order = list(dataset)
        for batch, wanted in zip(GraphLoader(dataset, 2), DataLoader(in_order, 2), strict=True):
            assert_same(batch, wanted)


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_compressed_comes_back_unchanged(tmp_path, compression):
    for number, items in enumerate((QM9Like(), odd_dtypes(), [regular_graph(300, 3)] * 2)):
        build = kmip_data.save(items, tmp_path / str(number), compression=compression)
        assert verify_build(build.path).ok
        for item, wanted in zip(kmip_data.open(build.path), items, strict=True):
            assert_same(item, wanted, ordered=False)


def test_properties_come_back(tmp_path):
    wanted = TUDatasetLike()
    dataset = kmip_data.open(kmip_data.save(wanted, tmp_path / "tu").path)
    for name in ("num_features", "num_node_features", "num_edge_features", "num_classes"):
        assert getattr(dataset, name) == getattr(wanted, name)


def test_k_nn_graphs_get_a_neighbour_table(tmp_path):
    graphs = [regular_graph(n, 3) for n in (5, 9)]
    dataset = kmip_data.open(kmip_data.save(graphs, tmp_path / "regular").path)
    assert (dataset.schema.edges, dataset.schema.k) == ("neighbor", 3)
    (batch,) = GraphLoader(dataset, 2, compact=True)
    assert batch.neighbor.shape == (14, 3)
    graphs[1].edge_index = graphs[1].edge_index.flip(1)  # the same edges, not grouped as a table has them
    dataset = kmip_data.open(kmip_data.save(graphs, tmp_path / "other").path)
    assert dataset.schema.edges == "index"
    assert_same(dataset[1], graphs[1], ordered=False)


def test_what_can_be_read_only_once(tmp_path):
    wanted = list(QM9Like())
    saved = kmip_data.save((data for data in wanted), tmp_path / "generator")
    again = kmip_data.save(wanted, tmp_path / "generator2", name="generator")
    assert saved.card.to_json() == again.card.to_json()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["generator", "generator2"]
    for item, other in zip(kmip_data.open(saved.path), wanted, strict=True):
        assert_same(item, other, ordered=False)


def test_a_random_transform_is_applied_once(tmp_path):
    seen = []

    def shift(data):
        data.x = data.x + torch.rand(())
        seen.append(data.x.clone())
        return data

    dataset = TUDatasetLike(transform=shift)
    saved = kmip_data.open(kmip_data.save(dataset, tmp_path / "b").path)
    assert len(seen) == len(saved)
    assert all(torch.equal(item.x, x) for item, x in zip(saved, seen, strict=True))


def test_a_sharded_dataset_keeps_its_keys(tmp_path):
    first = kmip_data.open(kmip_data.save(TUDatasetLike(), tmp_path / "first").path)
    second = kmip_data.open(kmip_data.save(first[10:20], tmp_path / "second").path)
    assert second.keys == first.keys[10:20]
    for item, wanted in zip(second, first[10:20], strict=True):
        assert_same(item, wanted)


def test_splits_of_graphs(tmp_path):
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
    build = kmip_data.save(TUDatasetLike(), tmp_path / "masks", split={"train": ~mask, "test": mask})
    assert kmip_data.open(build.path, "test").records.tolist() == [2, 4]


def test_splits_of_nodes(tmp_path):
    data = planetoid_like()
    build = kmip_data.save(data, tmp_path / "masks")
    assert [c.attribute for c in build.card.schema_.columns] == ["x", "y"]
    assert build.card.splits["given"].parts["train"].nodes == 30
    assert_same(kmip_data.open(build.path, "train")[0], data, ordered=False)
    masks = {part: data[f"{part}_mask"] for part in ("train", "val", "test")}
    bare = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    build = kmip_data.save([bare], tmp_path / "given", split=masks)
    assert_same(kmip_data.open(build.path)[0], data, ordered=False)


def test_splits_that_do_not_fit(tmp_path):
    def check(split):
        with pytest.raises(UsageError):
            kmip_data.save(TUDatasetLike(), tmp_path / "b", split=split)

    parts = (
        {"train": [40]},
        {"train": [-1]},
        {"training": [1]},
        {"train": [0.5]},
        {"train": [1], "test": [1]},
    )
    check_each(check, parts)
    with pytest.raises(UsageError):
        kmip_data.save([regular_graph(10, 2)], tmp_path / "b", split={"train": [1], "test": [1, 11]})
    assert list(tmp_path.iterdir()) == []


def several(change):
    items = [Data(x=torch.zeros(n, 2), edge_index=torch.zeros(2, n, dtype=torch.long)) for n in (2, 3, 4)]
    change(items)
    return items


def set_item(number, **values):
    def change(items):
        for name, value in values.items():
            items[number][name] = value

    return change


def set_all(**values):
    return lambda items: [set_item(i, **values)(items) for i in range(len(items))]


class Pair(Data):
    """Data with a rule of its own for batching."""

    def __inc__(self, key, value, *args, **kwargs):
        return 0


def widths(items):
    for i, item in enumerate(items):
        item.edge_attr = torch.zeros(item.num_edges, 1 + i)


def test_what_cannot_be_saved(tmp_path):
    z = {
        "complex": torch.zeros(3, dtype=torch.complex64),
        "bfloat16": torch.zeros(3, dtype=torch.bfloat16),
        "sparse": torch.eye(3).to_sparse(),
    }
    cases = [
        (several(set_item(2, extra=torch.zeros(1))), "00000002 has other attributes"),
        (several(set_item(1, x=torch.zeros(3, 5))), "'x' of graph 00000001 does not go"),
        (several(set_item(1, x=torch.zeros(3, 2).double())), "'x' of graph 00000001 does not go"),
        (several(lambda items: [set_item(i, u=torch.zeros(7 + i))(items) for i in range(3)]), "'u' of graph"),
        (several(set_all(words=["a", "b"])), "'words' of graph 00000000 cannot be saved"),
        *((several(set_all(z=value)), "'z' of graph 00000000 cannot be saved") for value in z.values()),
        (several(set_all(n=2**70)), "'n' of graph 00000000 cannot be saved"),
        (several(set_all(edge_index=torch.zeros(2, 1, dtype=torch.int32))), "edge_index is not valid"),
        (several(set_item(1, edge_index=torch.full((2, 3), 9))), "00000001"),
        (several(widths), "'edge_attr' of graph 00000001"),
        (several(widths), r"float32, rows of shape \[1\], one for each edge"),
        (several(widths), r"float32 \[3, 2\], in a graph of 3 nodes and 3 edges"),
        ([Data(x=torch.zeros(1), y=1), Data(x=torch.zeros(1), y=1.0)], "another type than before"),
        ([Data(x=torch.zeros(2), batch=torch.tensor([0, 1]))], "it is several graphs"),
        ([Pair(x=torch.zeros(2))], "rules of its own"),
        *(
            (items, "homogeneous")
            for items in (
                *([HeteroData()], [Batch.from_data_list([Data(x=torch.zeros(1))])], [torch.zeros(3)]),
                FakeHeteroDataset(),
            )
        ),
        ([], "nothing to save"),
    ]

    def check(case):
        with pytest.raises((UsageError, DamagedInput), match=case[1]):
            kmip_data.save(case[0], tmp_path / "b")
        assert list(tmp_path.iterdir()) == []

    check_each(check, cases)


def test_the_target_is_a_new_folder(tmp_path):
    build = kmip_data.save(KarateClub(), tmp_path / "there")
    before = (build.path / "card.json").read_bytes()
    with pytest.raises(UsageError, match="already exists"):
        kmip_data.save(KarateClub(), tmp_path / "there")
    assert (build.path / "card.json").read_bytes() == before
    (tmp_path / "empty").mkdir()
    assert kmip_data.save(KarateClub(), tmp_path / "empty").card.dataset == "empty"
    with pytest.raises(UsageError, match="belongs to a dataset of this package"):
        kmip_data.save(KarateClub(), tmp_path / "x", name="s3dis")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        kmip_data.save(KarateClub(), tmp_path / "file" / "below")


def test_many_shards(tmp_path, monkeypatch):
    monkeypatch.setattr("kmip_data.saving.save.MAX_SHARD_BYTES", 5_000)
    build = kmip_data.save(TUDatasetLike(), tmp_path / "b", name="tu")
    assert len(build.card.shards) > 4
    assert verify_build(build.path).ok
    for item, wanted in zip(kmip_data.open(build.path), TUDatasetLike(), strict=True):
        assert_same(item, wanted, ordered=False)
    assert writer.MAX_SHARD_BYTES == 64 << 20


def test_the_same_graphs_give_the_same_bytes(tmp_path):
    one = kmip_data.save(QM9Like(), tmp_path / "one", name="qm9")
    two = kmip_data.save(QM9Like(), tmp_path / "two", name="qm9")
    other = kmip_data.save(QM9Like()[1:], tmp_path / "other", name="qm9")
    files = sorted(p.relative_to(one.path) for p in one.path.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(two.path) for p in two.path.rglob("*") if p.is_file())
    assert all((one.path / file).read_bytes() == (two.path / file).read_bytes() for file in files)
    assert one.card.key != other.card.key


def test_the_card(tmp_path):
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


def test_found_by_name_in_a_home(tmp_path):
    kmip_data.save(KarateClub(), tmp_path / "built" / "club", name="club")
    assert len(kmip_data.open("club", home=tmp_path)) == 1


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OutOfResources):
        kmip_data.save(KarateClub(), tmp_path / "b")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_a_transform_that_changes_the_graphs_between_passes(tmp_path):
    class Fickle(TUDatasetLike):
        reads = 0

        def get(self, idx):
            data = super().get(idx)
            Fickle.reads += 1
            data.x = data.x.long() * (1000 if Fickle.reads > 40 else 1)
            return data

    with pytest.raises(UsageError, match="changed while it was saved"):
        kmip_data.save(Fickle(), tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


DTYPES = [torch.float32, torch.float64, torch.float16, torch.int64, torch.int16, torch.uint8, torch.bool]


@st.composite
def datasets(draw):
    widths = {name: draw(st.none() | st.integers(0, 3)) for name in ("x", "z", "edge_attr", "y", "u")}
    dtypes = {name: draw(st.sampled_from(DTYPES)) for name in widths}
    seed = draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)

    def values(name, rows):
        shape = (rows,) if not widths[name] else (rows, widths[name])
        return torch.randint(0, 2**15, shape, generator=generator).to(dtypes[name])

    items = []
    for nodes, edges in draw(
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=6)
    ):
        count = edges if nodes else 0
        data = Data(
            num_nodes=nodes, edge_index=torch.randint(0, max(nodes, 1), (2, count), generator=generator)
        )
        for name, rows in (("x", nodes), ("z", nodes), ("edge_attr", count), ("y", 1), ("u", 4)):
            if widths[name] is not None:
                data[name] = values(name, rows)
        items.append(data)
    return items


@given(items=datasets())
@settings(max_examples=30, deadline=None)
def test_any_dataset_comes_back(tmp_path_factory, items):
    folder = tmp_path_factory.mktemp("any") / "b"
    dataset = kmip_data.open(kmip_data.save(items, folder).path)
    for item, wanted in zip(dataset, items, strict=True):
        assert_same(item, wanted, ordered=False)
    for batch, wanted in zip(GraphLoader(dataset, 3), DataLoader(list(dataset), 3), strict=True):
        assert_same(batch, wanted)
