"""Mistaken calls of ``kmip_data.save`` are answered with a call that works."""

import networkx as nx
import pytest
import torch
from support.raises import raises
from torch_geometric.data import Batch, Data, HeteroData

import kmip_data
from kmip_data.errors import UsageError


def make_graphs(count=6):
    edges = torch.tensor([[0, 1], [1, 2]])
    return [
        Data(x=torch.rand(3, 2), edge_index=edges, y=torch.tensor([i % 2])) for i in range(count)
    ]


PARTS = {"train": range(4), "val": range(4, 5), "test": range(5, 6)}

#: Mistake -> (graphs, call with graphs and folder). The remedy of each saves six graphs.
MISTAKES = {
    "swapped": (make_graphs, lambda graphs, folder: kmip_data.save(folder, graphs)),
    "swapped, a path": (make_graphs, lambda graphs, folder: kmip_data.save(str(folder), graphs)),
    "a folder that exists": (
        make_graphs,
        lambda graphs, folder: [kmip_data.save(graphs[:2], folder), kmip_data.save(graphs, folder)],
    ),
    "lists of graphs by part": (
        lambda: {
            "train": make_graphs(4),
            "val": make_graphs(1),
            "test": make_graphs(1),
        },
        kmip_data.save,
    ),
    "a batch": (
        lambda: Batch.from_data_list(make_graphs()),
        lambda batch, folder: kmip_data.save([batch], folder),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_call_in_the_message_works(tmp_path, name):
    make, mistaken_call = MISTAKES[name]
    graphs = make()
    folder = tmp_path / "mine"
    with pytest.raises(UsageError) as error:
        mistaken_call(graphs, folder)
    exec(
        error.value.steps[0],
        {"kmip_data": kmip_data, "graphs": graphs, "batch": graphs, "folder": folder},
    )
    assert len(kmip_data.open(folder)) == 6
    if isinstance(graphs, dict):
        assert len(kmip_data.open(folder, "train")) == 4


@pytest.mark.parametrize(
    ("argument", "meant"),
    [
        ("labels", "label"),
        ("splits", "split"),
        ("overwrites", "overwrite"),
        ("classnames", "class_names"),
    ],
)
def test_a_misspelt_argument_is_answered_with_its_name(tmp_path, argument, meant):
    with pytest.raises(UsageError) as error:
        kmip_data.save(make_graphs(), tmp_path / "mine", **{argument: "y"})
    assert error.value.correction == (argument, meant)


#: Objects that are no graphs -> type or name that the error names.
OTHER_OBJECTS = {
    "nothing": (None, "NoneType"),
    "a number": (3, "int"),
    "types of nodes": ([HeteroData()], "HeteroData"),
    "pairs of graph and label": ([(nx.path_graph(3), 1)], "tuple"),
    "a name of a table": ({"atoms": []}, "atoms"),
}


@pytest.mark.parametrize("name", OTHER_OBJECTS)
def test_objects_that_are_no_graphs_are_refused(tmp_path, name):
    value, named = OTHER_OBJECTS[name]
    with raises(UsageError, naming=named):
        kmip_data.save(value, tmp_path / "mine")


@pytest.mark.parametrize("split", [[range(4), range(4, 6)], "train", 0.8])
def test_a_split_that_is_no_dictionary_is_refused(tmp_path, split):
    with pytest.raises(UsageError):
        kmip_data.save(make_graphs(), tmp_path / "mine", split=split)
