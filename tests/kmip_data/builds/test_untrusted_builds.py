"""A build folder is data from a stranger: what it says is checked before anything relies on it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import h5py
import pytest
from support.builds.strangers import ENCODING, copy_build, reseal
from support.cases import check_each
from support.raises import raises

import kmip_data
from kmip_data import GraphLoader, ShardedDataset
from kmip_data.builds.home import Build
from kmip_data.drawing.plottable_record import read_plottable_record
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format.card import CARD_NAME, read_card
from kmip_data.format.writer import write_text_attribute
from kmip_data.graphs.encoding import parse_encoding
from kmip_data.pipelines.engine import encode

COLUMN = f"columns/{ENCODING}/00000.h5"


def put(folder: Path, file: str, key: str, at: object, value: object) -> None:
    """Change values of an array of an HDF5 file of a build, and its cards to go with it."""
    with h5py.File(folder / file, "r+") as opened:
        opened[key][at] = value
    reseal(folder)


@pytest.fixture
def copy(originals, tmp_path):
    return lambda name: copy_build(originals / name, tmp_path / "build")


def change_card(folder, change, file=CARD_NAME):
    content = json.loads((folder / file).read_bytes())
    change(content)
    (folder / file).write_text(json.dumps(content))


BUILDS = ("neighbor", "index", "one")


# Edges that lead out of their graph


def lead_out(folder, name):
    key = "edge/neighbor" if name == "neighbor" else "edge/index"
    put(folder, "shards/00000.h5", key, (0, 0), 63)


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("encoding", ["rwse4", "lappe2", "degree-profile-2.0"])
def test_encoding_refuses_edges_out_of_range(copy, name, encoding):
    folder = copy(name)
    lead_out(folder, name)
    build = Build(folder, read_card(folder))
    (folder / "columns" / encoding).mkdir()
    task = encode._list_tasks(build, [parse_encoding(encoding)], folder / "stop", 1)[0]
    with raises(DamagedInput, naming=63):
        encode.encode_shard_columns(task)
    assert not list((folder / "columns" / encoding).iterdir())


@pytest.mark.parametrize("name", BUILDS)
def test_reading_refuses_edges_out_of_range(copy, name):
    folder = copy(name)
    whole = ShardedDataset(folder)
    assert sum(data.num_nodes for data in whole) == whole.nodes.sum()
    del whole
    lead_out(folder, name)
    dataset = ShardedDataset(folder)
    uses = [lambda: dataset[0]] * 2 + [lambda: read_plottable_record(dataset, 0)]
    uses += [
        lambda: list(GraphLoader(dataset, batch_size=4)),
        lambda: list(GraphLoader(dataset, batch_size=4, compact=name == "neighbor")),
    ]
    for use in uses:
        with raises(DamagedInput, naming=0):
            use()
    assert ShardedDataset(folder, columns=["x"])[0].x.shape[1] == 3  # no edges are read


# Values out of range


@pytest.mark.parametrize(("key", "value"), [("node/y", 3), ("node/y", 255), ("edge/weight", 10)])
def test_edges_out_of_range_are_refused_by_every_reader(copy, key, value):
    folder = copy("index")
    put(folder, "shards/00000.h5", key, 0, value)
    dataset = ShardedDataset(folder)
    for use in (
        lambda: dataset[0],
        lambda: list(GraphLoader(dataset, batch_size=2)),
        lambda: read_plottable_record(dataset, 0),
    ):
        with raises(DamagedInput, naming=value):
            use()


@pytest.mark.parametrize("position", [-1, 4, -(2**63), 2**62])
def test_positions_out_of_range_are_refused(copy, position):
    folder = copy("index")
    put(folder, "splits/default.h5", "split/train", 0, position)
    with raises(DamagedInput, naming=position):
        ShardedDataset(folder, "train")


def test_a_split_with_unknown_nodes_is_refused(copy):
    folder = copy("one")
    put(folder, "splits/default.h5", "split/node_code", 0, 3)
    with raises(DamagedInput, naming=3):
        ShardedDataset(folder)
    folder = copy("one")
    with h5py.File(folder / "splits/default.h5", "r+") as file:
        code = file["split/node_code"][:]
        del file["split/node_code"]
        file.create_dataset("split/node_code", data=code[:-1], track_times=False)
    reseal(folder)
    with raises(DamagedInput, naming=len(code) - 1):
        ShardedDataset(folder)


# Added columns


def test_a_column_with_a_key_of_the_build_is_refused(copy):
    folder = copy("index")

    def rename(schema):
        schema["columns"][0].update(key="node/x", shape=[100])

    for file in sorted((folder / "columns" / ENCODING).glob("*.h5")):
        with h5py.File(file, "r+") as opened:
            schema = json.loads(opened.attrs["schema"])
            rename(schema)
            nodes = opened["node/rwse"].shape[0]
            del opened["node/rwse"], opened.attrs["schema"]
            opened.create_dataset("node/x", (nodes, 100), "<f4", track_times=False)
            opened["node/x"][...] = 1
            write_text_attribute(opened, "schema", json.dumps(schema))
    change_card(folder, lambda card: rename(card["data_schema"]), f"columns/{ENCODING}/{CARD_NAME}")
    reseal(folder)
    with pytest.raises(DamagedInput):
        kmip_data.open(folder, columns=["x", ENCODING])


# Names


BAD_NAMES = (
    "../elsewhere.h5",
    "/etc/passwd",
    "a/b",
    "a\x1b[31m",
    "a\n",
    "\u00e4",
    "-a",
    "x" * 300,
    1,
)
NAMES = [
    lambda card, name: card.update(dataset=name),
    lambda card, name: card.update(manifest=name),
    lambda card, name: card.update(pipeline=name),
    lambda card, name: card.update(key=name),
    lambda card, name: card["shards"][0].update(file=f"shards/{name}/x"),
    lambda card, name: card["splits"]["default"].update(file=name),
    lambda card, name: card["splits"].update({f"{name}/": card["splits"]["default"]}),
]


def test_cards_with_wrong_names_are_refused(copy, tmp_path):
    folder = copy("index")
    original = (folder / CARD_NAME).read_text()

    def check(case):
        name, change = case
        (folder / CARD_NAME).write_text(original)
        change_card(folder, lambda card: change(card, name))
        with raises(DamagedInput, naming=CARD_NAME) as caught:
            read_card(folder)
        assert caught.value.found  # not: changed after it was written

    check_each(check, itertools.product(BAD_NAMES, NAMES))
    (folder / CARD_NAME).write_text(original)
    change_card(
        folder, lambda card: card["files"][0].update(file="../x"), f"columns/{ENCODING}/{CARD_NAME}"
    )
    with raises(DamagedInput, naming=f"{ENCODING}/{CARD_NAME}"):
        ShardedDataset(folder, columns=[ENCODING])
    with raises(UsageError, naming="../b"):
        kmip_data.save([], tmp_path / "a", name="../b")


# Values of the card


def test_cards_with_wrong_values_are_refused(copy):
    changes = [
        lambda card: card.update(data_schema={}),
        lambda card: card.update(default_split="absent"),
        lambda card: card["parameters"].update(k="32"),
        lambda card: card["parameters"].update(more={"a": {}}),
        lambda card: card["counts"].pop("nodes"),
        lambda card: card["counts"].update(edges=-1),
        lambda card: card["statistics"].update(
            classes={"total": [1, 2], "splits": {"a": {"b": [1]}}}
        ),
        lambda card: card["statistics"].update(in_degree={"min": 1}),
        lambda card: card["statistics"].update(city={"features": {"mean": "a"}}),
        lambda card: card["data_schema"].update(columns=[{}]),
        lambda card: card["data_schema"]["columns"][0].update(low=10**400),
        lambda card: card["data_schema"]["columns"][0].update(shape=[2**31] * 8),
        lambda card: card["license"].update(url="https://example.com"),
        lambda card: card["shards"][0].update(graphs=-1),
        lambda card: card.update(shards=[0] * 2_000_000),
    ]

    def check(number):
        folder = copy("index")
        change_card(folder, changes[number])
        with raises(DamagedInput, naming=CARD_NAME) as caught:
            read_card(folder)
        assert caught.value.found  # not: changed after it was written

    check_each(check, range(len(changes)))
