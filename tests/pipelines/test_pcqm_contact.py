"""PCQM-Contact: numbers of rows, contacts as bits, and rows that are refused or skipped."""

from __future__ import annotations

import csv
import gzip
import pickle
import shutil

import numpy as np
import pytest
import torch
from support.builds.raw_graphs import records_of_folder, refused_folder, write_sample
from support.raises import raises
from torch_geometric.loader import DataLoader

from kmip_data import GraphLoader, PCQMContact
from kmip_data.format.writer import SkippedRecord
from kmip_data.pipelines.datasets.pcqm_contact import SPLIT_FILES, TABLE_FILE, record_from_smiles
from kmip_data.pipelines.domains.molecules import RefusedSmilesError
from kmip_data.pipelines.sample_writers import write_torch_zip


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return write_sample("pcqm-contact", tmp_path_factory.mktemp("raw"), limit=60)


def kept_rows(folder):
    with gzip.open(folder / TABLE_FILE, "rt", newline="") as file:
        texts = [row["cxsmiles"] for row in csv.DictReader(file, delimiter="\t")]
    return [text for i, text in enumerate(texts) if i % 6 == 0 and ".contact." in text]


def test_contacts_are_no_edges_and_rows_are_those_of_the_lists(raw, tmp_path):
    options = {"root": tmp_path, "archives": [raw], "unpinned": True, "quiet": True}
    dataset = PCQMContact(split=None, **options)
    assert len(dataset) == len(kept_rows(raw)) == 60
    _, records = records_of_folder("pcqm-contact", raw, tmp_path / "work")
    # Whoever opens the build without the class sees no contact among the edges.
    assert [record.num_edges for record in records] == [item.num_edges for item in dataset]
    assert all(record.columns["node/contact"].shape == (record.num_nodes, 32) for record in records)
    for rule, file in SPLIT_FILES.items():
        lists = torch.load(raw / file, weights_only=False)
        for part, rows in lists.items():
            assert PCQMContact(split=part, split_rule=rule, **options).keys == [
                f"{row:06d}" for row in rows
            ]
    one = next(iter(DataLoader(dataset, 8)))
    other = next(iter(GraphLoader(dataset, 8)))
    assert torch.equal(one.edge_label_index, other.edge_label_index)
    assert int(one.edge_label_index.max()) > 60  # counted over the batch, as edge_index is


@pytest.mark.parametrize("compressed", [True, False])
def test_a_table_of_the_used_rows_alone_has_the_same_records(raw, tmp_path, compressed):
    folder = tmp_path / "raw"
    shutil.copytree(raw, folder)
    table = "\n".join(["number\tcxsmiles", *(f"0\t{text}" for text in kept_rows(raw))]).encode()
    (folder / TABLE_FILE).write_bytes(gzip.compress(table) if compressed else table)
    _, records = records_of_folder("pcqm-contact", folder, tmp_path / "work")
    _, expected = records_of_folder("pcqm-contact", raw, tmp_path / "expected")
    assert [record.key for record in records] == [record.key for record in expected]
    for record, other in zip(records, expected, strict=True):
        for key, column in other.columns.items():
            assert np.array_equal(record.columns[key], column), key
    (folder / TABLE_FILE).write_bytes(table.rpartition(b"\n")[0])
    refused_folder("pcqm-contact", folder)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("C( |atomProp:0.contact.0|", ()),
        ("[H]C([H])[H] |atomProp:0.contact.0|", 1),
        ("[H]C([H])[H] |atomProp:0.contact.0:2.contact.0:3.contact.0|", 3),
        ("[H]C([H])[H] |atomProp:0.contact.x:2.contact.0|", "'x'"),
        ("C" * 257 + " |atomProp:0.contact.0:9.contact.0|", 257),
    ],
)
def test_bad_rows_are_refused(text, value):
    with raises(RefusedSmilesError, naming=value):
        record_from_smiles("key", text, 256)


def test_the_last_bits_are_kept():
    record = record_from_smiles(
        "key", "C" * 256 + " |atomProp:0.contact.0&#59;1:255.contact.0:254.contact.1|", 256
    )
    bits = np.unpackbits(record.columns["node/contact"], axis=1, bitorder="little")
    assert np.argwhere(bits).tolist() == [[0, 254], [0, 255], [254, 0], [255, 0]]


def test_refused_rows_can_be_skipped(raw, tmp_path):
    texts = kept_rows(raw)[:4]
    texts[2] = "C( |atomProp:0.contact.0|"
    lines = ["\tcxsmiles"] + [line for text in texts for line in [f"0\t{text}"] + ["0\tC"] * 5]
    (tmp_path / TABLE_FILE).write_bytes(gzip.compress("\n".join(lines).encode()))
    lists = {"train": np.array([0, 2]), "val": np.array([3]), "test": np.array([1])}
    for file in SPLIT_FILES.values():
        write_torch_zip(tmp_path / file, pickle.dumps(lists, 2))
    _, records = records_of_folder("pcqm-contact", tmp_path, tmp_path / "work", on_error="skip")
    assert [isinstance(record, SkippedRecord) for record in records] == [False, False, True, False]
    refused_folder("pcqm-contact", tmp_path, "000002")
    for file in SPLIT_FILES.values():
        write_torch_zip(tmp_path / file, pickle.dumps({**lists, "val": np.array([1])}, 2))
        refused_folder("pcqm-contact", tmp_path)
        write_torch_zip(tmp_path / file, pickle.dumps(lists, 2))
