"""Habits from PyTorch Geometric, OGB and DGL work, or are answered with an expression that works."""

import re

import pytest
import torch
import torch_geometric.transforms as T
from support.raises import raises
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

import kmip_data
from kmip_data.errors import UsageError
from kmip_data.models import KMIPAttention
from kmip_data.reading.dataset import _EQUIVALENTS


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Ten graphs with features, classes and a split."""
    edges = torch.tensor([[0, 1], [1, 2]])
    graphs = [
        Data(x=torch.rand(3, 2), edge_index=edges, y=torch.tensor([i % 2])) for i in range(10)
    ]
    parts = {"train": range(6), "val": range(6, 8), "test": range(8, 10)}
    build = kmip_data.save(graphs, tmp_path_factory.mktemp("builds") / "mine", parts)
    return kmip_data.open(build.path)


#: Expressions of the usual tutorials -> their value.
HABITS = {
    "len(dataset)": 10,
    "len(dataset[0:4])": 4,
    "len(dataset[dataset.y == 1])": 5,
    "len(dataset.shuffle()[:3])": 3,
    "dataset[:3].num_features": 2,
    "dataset.num_node_features": 2,
    "dataset.num_classes": 2,
    "dataset.get_idx_split()['valid'].tolist()": [6, 7],
    "dataset.y.tolist()": [0, 1] * 5,
    "next(iter(DataLoader(dataset, batch_size=5))).num_graphs": 5,
    "dataset.processed_dir": None,
    "dataset.processed_paths": None,
}


@pytest.mark.parametrize("expression", HABITS)
def test_habits_work(dataset, expression):
    value = eval(expression, {"dataset": dataset, "DataLoader": DataLoader})
    if expression == "dataset.processed_dir":
        assert value == str(dataset.build.path)
    elif expression == "dataset.processed_paths":
        assert value == [str(dataset.build.path / "shards" / "00000.h5")]
    else:
        assert value == HABITS[expression]


@pytest.mark.parametrize("name", _EQUIVALENTS)
def test_a_foreign_attribute_is_answered_with_an_expression_that_works(dataset, name):
    expression = _EQUIVALENTS[name]
    with raises(AttributeError, naming=expression):
        getattr(dataset, name)
    eval(expression, {"dataset": dataset, "kmip_data": kmip_data})


@pytest.mark.parametrize(("typed", "meant"), [("num_class", "num_classes"), ("edge", "edges")])
def test_a_misspelt_attribute_is_answered_with_its_name(dataset, typed, meant):
    with raises(AttributeError, naming=meant):
        getattr(dataset, typed)


@pytest.mark.parametrize("key", ["y", "train", "valid", "0"])
def test_an_item_by_name_is_answered_with_an_expression_that_works(dataset, key):
    with raises(IndexError, naming=key) as error:
        dataset[key]
    expression = str(error.value).partition("Use ")[2]
    assert len(eval(expression, {"dataset": dataset, "kmip_data": kmip_data}))


@pytest.mark.parametrize("split", [0, True, ["train", "val"], "all", "", "eval"])
def test_a_part_that_does_not_exist_is_refused(dataset, split):
    with raises(UsageError, steps="split=None, for all"):
        kmip_data.open(dataset.build.path, split)
    assert len(kmip_data.open(dataset.build.path, split=None)) == 10


@pytest.mark.parametrize("transform", [[T.NormalizeFeatures()], "normalize", 3])
def test_a_transform_that_is_no_function_is_refused_when_it_is_given(dataset, transform):
    with pytest.raises(UsageError):
        kmip_data.open(dataset.build.path, transform=transform)


#: Calls with words of other libraries, and with a typing error -> what to use instead.
FOREIGN_CALLS = {
    "KMIPAttention(32, num_heads=4, k=3)": "heads=…",
    "KMIPAttention(embed_dim=32, heads=4, k=3)": "dim=…",
    "KMIPAttention(32, heads=4, k=3, dropuot=0.1)": "'dropout'",
    "kmip_data.GraphLoader(dataset, collate_fn=list)": "transform=… of the dataset",
    "kmip_data.GraphLoader(dataset, shufle=True)": "'shuffle'",
    "kmip_data.open(name='mine')": "path_or_name=…",
    "kmip_data.open(dataset.build.path, pre_transform=abs)": "transform=…, on reading",
    "dataset.process()": "transform=…",
    "dataset.download()": "transform=…",
}


@pytest.mark.parametrize("call", FOREIGN_CALLS)
def test_a_foreign_argument_or_method_is_answered_with_what_to_use(dataset, call):
    with pytest.raises(UsageError, match=re.escape(FOREIGN_CALLS[call])):
        eval(call, {"dataset": dataset, "kmip_data": kmip_data, "KMIPAttention": KMIPAttention})


@pytest.mark.parametrize("name", ["TUDataset", "QM9", "FakeDataset"])
def test_a_class_of_pyg_that_is_not_here_is_answered_with_a_command(name):
    with raises(ImportError, naming=f"class=torch_geometric.datasets:{name}"):
        getattr(kmip_data, name)


def test_public_classes_are_imported_from_the_package():
    with raises(ImportError, naming="Planetoid"):
        from kmip_data.datasets import Planetoid  # noqa: F401
