"""Items of a sharded dataset (kernel: gather) are the records that were written.

They have PyG's interface.
"""

import copy
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from support.builds.learnable import streets_build
from support.builds.same import assert_same_data
from support.builds.written import s3dis_records, s3dis_schema, write_build
from support.raises import raises
from torch_geometric import typing as pyg_typing
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.loader import NeighborLoader as Theirs

from kmip_data import NeighborLoader
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.small_files import sealed_json
from kmip_data.format.card import read_card
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Column, Schema, View
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader
from kmip_data.runtime import memory

PARTS = {"train": [3, 1, 20, 7, 8, 9], "val": [0, 2], "test": [25, 26, 27, 28]}


@pytest.fixture(scope="module")
def records():
    return s3dis_records(30)


@pytest.fixture(scope="module")
def build(tmp_path_factory, records):
    names = [f"class {i}" for i in range(13)]
    folder = tmp_path_factory.mktemp("reading") / "build"
    return write_build(folder, records, s3dis_schema(), parts=PARTS, class_names=names)


@pytest.fixture
def dataset(build):
    return ShardedDataset(build.path)


def expected(record, k=4):
    """The item of a record, by the definition: one column of ``edge_index`` after the other."""
    sources = [
        int(record.neighbor[target, j]) for target in range(record.num_nodes) for j in range(k)
    ]
    targets = [target for target in range(record.num_nodes) for _ in range(k)]
    x = torch.from_numpy(record.columns["node/x"].copy())
    y = torch.tensor(record.columns["node/y"].tolist(), dtype=torch.int64)
    return Data(x=x, edge_index=torch.tensor([sources, targets]), y=y, pos=x[:, :3].clone())


class Memory(InMemoryDataset):
    """PyG's dataset over the same items."""

    def __init__(self, items):
        super().__init__(None)
        self.data, self.slices = self.collate(items)


def test_a_part_has_its_records_in_its_order(build, records):
    for part, positions in PARTS.items():
        dataset = ShardedDataset(build, part)
        assert dataset.records.tolist() == positions
        assert dataset.keys == [records[i].key for i in positions]
        assert dataset.split_digest == build.card.splits["default"].parts[part].digest
        for item, position in zip(dataset, positions, strict=True):
            assert_same_data(item, expected(records[position]))
        assert dataset.nodes.tolist() == [records[i].num_nodes for i in positions]
        assert dataset.edges.tolist() == [records[i].num_edges for i in positions]


INDICES = [
    *(slice(2, 5), slice(None, None, -3), slice(0.5, None), [4, -1, 4], (0,), torch.tensor([3, 2])),
    *(torch.tensor([True] + [False] * 28 + [True]), np.array([1, 5]), np.arange(30) % 7 == 0),
    torch.tensor([], dtype=torch.long),
]


def test_selection_equals_pyg(dataset, records, subtests):
    memory = Memory(list(dataset))
    for index in INDICES:
        with subtests.test(str(index)):
            theirs, ours = memory[index], dataset[index]
            assert isinstance(ours, ShardedDataset)
            assert len(ours) == len(theirs) == len(dataset.index_select(index))
            for item, wanted in zip(ours, theirs, strict=True):
                assert_same_data(item, wanted)
            if len(ours):
                assert_same_data(ours[-1], ours[len(ours) - 1])
                assert_same_data(ours[:2][0], ours[0])
                assert ours.nodes.tolist() == [item.num_nodes for item in ours]
    for index in (7, np.int64(7), torch.tensor(7), -23):
        with subtests.test(str(index)):
            assert_same_data(dataset[index], expected(records[7]))
    for index in (30, -31, "0", 1.5, None):
        with subtests.test(str(index)), pytest.raises(IndexError):
            dataset[index]


def test_properties_equal_pyg(dataset):
    theirs = Memory(list(dataset))
    for name in ("num_node_features", "num_features", "num_edge_features"):
        assert getattr(dataset, name) == getattr(theirs, name)
    assert dataset.num_classes == 13
    assert dataset.has_download is False
    assert dataset.has_process is False


def test_attributes_of_all_graphs_equal_pyg(dataset):
    for ours in (dataset, dataset[[7, 2, 11]]):
        theirs = Memory(list(ours))
        for name in ("x", "y", "pos"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name))
    for name in ("edge_index", "z", "_data", "__deepcopy__"):
        assert not hasattr(dataset, name)


def test_a_summary_is_printed(dataset):
    """PyTorch Geometric's, by a package that it leaves to others to install."""
    assert f"#graphs={len(dataset)}" in str(dataset.get_summary())


def test_properties_follow_the_transform(build):
    def change(data):
        return Data(x=data.x[:, :2], edge_index=data.edge_index, y=data.y % 2, pos=data.pos)

    dataset = ShardedDataset(build, transform=T.Compose([change, T.Distance()]))
    assert (dataset.num_node_features, dataset.num_edge_features, dataset.num_classes) == (2, 1, 2)


def test_classes_are_counted_without_a_number_in_the_schema(tmp_path):
    column = Column(key="graph/y", attribute="y", stored="float32", presented="float32", shape=(3,))
    targets = [
        GraphRecord(key=str(i), num_nodes=i, columns={"graph/y": np.ones(3, "f4")})
        for i in range(4)
    ]
    dataset = ShardedDataset(
        write_build(tmp_path / "b", targets, Schema(columns=(column,), edges="none"))
    )
    assert dataset.num_classes == Memory(list(dataset)).num_classes == 3
    assert (dataset[2].y.shape, dataset[2].num_nodes) == ((1, 3), 2)
    assert dataset[:0].num_classes == 0


def test_a_replaced_build_is_opened_again(tmp_path):
    """Even if its card names the digests of the one before, as a damaged one's may."""
    values, cards = {"node/y": np.array([0, 1, 1], np.uint8)}, []
    for classes in (3, 2):
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        column = Column(
            key="node/y", attribute="y", stored="uint8", presented="int64", num_classes=classes
        )
        schema = Schema(columns=(column,), edges="none")
        write_build(tmp_path / "b", [GraphRecord(key="a", num_nodes=3, columns=values)], schema)
        cards.append((tmp_path / "b/card.json").read_text())
        if classes == 3:
            before = ShardedDataset(tmp_path / "b")
    first, second = (json.loads(card)["shards"][0]["sha256"] for card in cards)
    (tmp_path / "b/card.json").write_text(sealed_json(json.loads(cards[1].replace(second, first))))
    assert (before.num_classes, ShardedDataset(tmp_path / "b").num_classes) == (3, 2)


def test_the_text_of_a_dataset_states_name_size_and_split(build, records, tmp_path):
    dataset = ShardedDataset(build.path, "val")
    assert repr(dataset) == (
        "ShardedDataset('s3dis', 2 graphs, split='val', split_name='default', k=4)"
    )
    assert dataset.class_names[3] == "class 3"
    sample = ShardedDataset(write_build(tmp_path / "b", records, s3dis_schema(), sample=True))
    assert "'s3dis' sample" in repr(sample)
    with pytest.raises(UsageError):
        ShardedDataset(sample.build, "train")
    with pytest.raises(UsageError):
        sample.get_idx_split()
    with pytest.raises(UsageError) as caught:
        ShardedDataset(build.path, split_name="nonsense")
    assert "default" in caught.value.expected


def test_columns_and_views_can_be_selected(build, records):
    dataset = ShardedDataset(build, columns=["y", "pos"])
    wanted = expected(records[2])
    assert_same_data(dataset[2], Data(y=wanted.y, pos=wanted.pos))
    with raises(AttributeError, naming=["dataset[0]", "y", "pos"]):
        _ = dataset.data
    only_edges = ShardedDataset(build, columns=["edge_index"])[2]
    assert_same_data(only_edges, Data(edge_index=wanted.edge_index, num_nodes=records[2].num_nodes))
    dataset = ShardedDataset(build, views=[View(attribute="x", source="node/x", start=0, stop=6)])
    assert torch.equal(dataset[2].x, wanted.x[:, :6])
    assert dataset.num_node_features == 6


def test_lengths_of_edges_are_computed_in_float32(build, records):
    item = ShardedDataset(build, edge_lengths=True)[4]
    pos, (source, target) = expected(records[4]).pos.numpy(), item.edge_index.numpy()
    difference = pos[source] - pos[target]
    x, y, z = (difference[:, axis] * difference[:, axis] for axis in range(3))
    wanted = np.sqrt((x + y) + z)[:, None]
    assert wanted.dtype == np.float32
    assert item.edge_attr.numpy().tobytes() == wanted.tobytes()
    without = ShardedDataset(build, columns=["edge_index"], edge_lengths=True)[4]
    assert torch.equal(without.edge_attr, item.edge_attr)
    assert "pos" not in without
    views = [View(attribute="pos", source="node/x", start=1, stop=3)]
    flat = ShardedDataset(build, views=views, edge_lengths=True)[4]
    assert flat.edge_attr.numpy().tobytes() == np.sqrt(y + z)[:, None].tobytes()


def test_wrong_names_of_parts_and_splits_are_refused(build):
    for arguments, text in (
        ({"split": "trian"}, "'train'"),
        ({"split_name": "defualt", "split": "val"}, "'default'"),
        ({"columns": ["z"]}, "'z'"),
    ):
        with pytest.raises(UsageError, match=text):
            ShardedDataset(build, **arguments)


def test_a_damaged_split_or_card_is_refused(tmp_path, records):
    folder, other, third = tmp_path / "b", tmp_path / "other", tmp_path / "third"
    write_build(folder, records, s3dis_schema(), parts=PARTS)
    split = folder / "splits/default.h5"
    split.write_bytes(split.read_bytes()[:-1])
    with pytest.raises(DamagedInput):
        ShardedDataset(folder, "train")
    write_build(other, records, s3dis_schema(), parameters={"seed": 1})
    (other / "shards/00001.h5").rename(folder / "shards/00001.h5")
    with pytest.raises(DamagedInput):
        ShardedDataset(folder)
    with pytest.raises(DamagedInput):  # without a shard
        ShardedDataset(other)
    # A forged card: rows of another layout must not be read as if they had its columns.
    forged = write_build(third, s3dis_records(30, k=3), s3dis_schema(3), parameters={"seed": 1})
    shutil.copy(third / "shards/00001.h5", other / "shards/00001.h5")
    card = read_card(other)
    card.shards[1] = forged.card.shards[1]
    (other / "card.json").write_text(card.to_json())
    with pytest.raises(DamagedInput):
        ShardedDataset(other)
    with pytest.raises(UsageError):
        ShardedDataset(tmp_path)


@pytest.fixture
def one_graph(tmp_path):
    (record,) = s3dis_records(1, nodes=(50, 50))
    code = np.array([0] * 20 + [1] * 10 + [2] * 15 + [255] * 5, np.uint8)
    return write_build(tmp_path / "one", [record], s3dis_schema(), part_codes=code), record, code


def test_one_graph_has_masks(one_graph):
    build, record, code = one_graph
    for part in (None, "train", "test"):
        dataset = ShardedDataset(build, part)
        item = dataset[0]
        for value, name in enumerate(("train_mask", "val_mask", "test_mask")):
            assert item[name].dtype == torch.bool
            assert item[name].tolist() == (code == value).tolist()
            item[name].fill_(False)
            assert dataset[0][name].any()
            del item[name]
        assert_same_data(item, expected(record))
        for name in ("x", "train_mask", "edge_index"):
            assert torch.equal(getattr(dataset, name), dataset[0][name])


def test_a_pickled_or_copied_dataset_has_the_same_items(build, records):
    dataset = ShardedDataset(build, "test")[1:]
    dataset[0]  # maps the shards
    for other in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset), copy.copy(dataset)):
        assert other.records.tolist() == PARTS["test"][1:]
        assert_same_data(other[1], expected(records[PARTS["test"][2]]))


def test_every_stored_type_as_numpy_presents_it(tmp_path):
    """Items and batches, also of graphs without nodes or edges.

    The kernel widens ``uint8`` itself.
    """
    types = [("uint8", "float32"), ("uint8", "int64"), ("uint8", "int32"), ("float16", "float32")]
    types += [("int8", "int64"), ("uint8", "bool")]
    columns = tuple(
        Column(
            key=f"{level}/c{i}",
            attribute=f"{level}_c{i}",
            stored=stored,
            presented=kind,
            shape=(3,),
        )
        for level in ("graph", "node", "edge")
        for i, (stored, kind) in enumerate(types)
    )
    rng, records = np.random.default_rng(5), []
    for key, (nodes, edges) in enumerate([(1, 0), (0, 0), (4, 7), (70_000, 900)]):
        rows = {"graph": (), "node": (nodes,), "edge": (edges,)}
        made = {}
        for column in columns:
            most = 2 if column.presented == "bool" else 128
            made[column.key] = rng.integers(0, most, (*rows[column.level], 3)).astype(column.stored)
        made["graph/c0"][0] = 255
        index = rng.integers(0, max(1, nodes), (2, edges))
        records.append(GraphRecord(key=str(key), num_nodes=nodes, columns=made, edge_index=index))
    schema = Schema(columns=columns, edges="index", max_nodes=100_000)
    build = write_build(tmp_path / "b", records, schema, per_shard=2)
    dataset = ShardedDataset(build)
    batch = next(iter(GraphLoader(dataset, 4))).to_data_list()
    of_rows = [column for column in columns if column.level != "graph"]
    rows = ShardedDataset(build, columns=["edge_index", *(column.attribute for column in of_rows)])
    assert dataset.mapped_edges(3) is None  # a column of the graph
    for number, record in enumerate(records):
        index = rows.mapped_edges(number)
        assert index.tolist() == record.edge_index.tolist()
        if number >= 2:
            chosen = {"node": rng.permutation(record.num_nodes)[:3], "edge": rng.permutation(7)[:5]}
            selected = rows.select_rows(number, chosen["node"], chosen["edge"])
            for column in of_rows:
                wanted = record.columns[column.key].astype(column.presented)[chosen[column.level]]
                assert selected[column.attribute].numpy().dtype == wanted.dtype
                np.testing.assert_array_equal(selected[column.attribute].numpy(), wanted)
    for wanted, *items in zip(records, dataset, batch, strict=True):
        for item in items:
            assert item.edge_index.tolist() == wanted.edge_index.tolist()
            assert item.edge_index.dtype == torch.int64
            for column in columns:
                values, tensor = (
                    wanted.columns[column.key].astype(column.presented),
                    item[column.attribute],
                )
                assert tensor.dtype == getattr(torch, column.presented)
                np.testing.assert_array_equal(tensor.numpy().reshape(values.shape), values)


@pytest.mark.parametrize("loader", [NeighborLoader, Theirs])
def test_a_large_graph_is_mapped_not_copied(tmp_path, monkeypatch, loader):
    """Equal to its copy; what is written into an item stays there; loaders cut rows out of it."""
    build = streets_build(tmp_path / "streets")
    copied = ShardedDataset(build)[0]
    monkeypatch.setattr(memory, "MIN_MAPPED_BYTES", 6_000)  # bytes of x
    dataset = ShardedDataset(build, split="train")
    mapped = dataset[0]
    assert mapped.keys() == copied.keys()
    for name in copied.keys():  # noqa: SIM118
        assert torch.equal(mapped[name], copied[name])
    maps = Path("/proc/self/maps").read_text().splitlines()
    ranges = [line.split() for line in maps if "00000.h5" in line and " rw-p " in line]
    bounds = [[int(end, 16) for end in row[0].split("-")] for row in ranges]
    assert any(low <= mapped.x.data_ptr() < high for low, high in bounds)
    mapped.x[:] = -1.0
    assert torch.equal(dataset[0].x, copied.x)

    if loader is Theirs and not (pyg_typing.WITH_PYG_LIB or pyg_typing.WITH_TORCH_SPARSE):
        pytest.skip("PyG's loader needs pyg-lib or torch-sparse")
    options = {"num_neighbors": [-1], "input_nodes": mapped.train_mask, "batch_size": 30}
    batches = list(loader(dataset[0], **options))
    seeds = torch.cat([batch.n_id[: batch.batch_size] for batch in batches])
    assert torch.equal(seeds, copied.train_mask.nonzero()[:, 0])
    for batch in batches:
        assert torch.equal(batch.x, copied.x[batch.n_id])
