"""`verify_build`: a good build passes, and every problem is found and named."""

from __future__ import annotations

import dataclasses
import os
import shutil

import h5py
import numpy as np
import pytest
from support.builds.records import EDGE_SCHEMA, POINT_SCHEMA, encode_shard, make_records
from support.builds.written import put_build, sizes_of

from kmip_data.builds.home import Build
from kmip_data.builds.verify import verify_build
from kmip_data.errors import UsageError
from kmip_data.files.small_files import RunningDigests
from kmip_data.format import reader
from kmip_data.format.build_files import write_split_file
from kmip_data.format.card import CARD_NAME, read_card
from kmip_data.format.reader import Shard
from kmip_data.format.split_files import encode_node_split, encode_split

SIZES = [[40, 0, 1, 30], [7], [100, 50, 5]]
SHARDS = ["shards/00000.h5", "shards/00001.h5", "shards/00002.h5"]


def dealt(schema, sizes=SIZES):
    """Records of all shards, with keys unique over the build."""
    records = iter(make_records(schema, [size for shard in sizes for size in shard]))
    return [[next(records) for _ in shard] for shard in sizes]


def make_build(folder, shards, schema):
    """Write shards, a split that takes turns and a card by the writers of the package."""
    (folder / "splits").mkdir(parents=True)
    everything = [record for records in shards for record in records]
    positions = np.arange(len(everything))
    parts = {"train": positions[::2], "val": positions[1::4], "test": positions[3::4]}
    rule = {"rule": "stride", "parameters": {"step": 2}}
    keys, sizes = [record.key for record in everything], sizes_of(everything)
    put_build(
        folder,
        shards,
        schema,
        dataset="sample-points",
        key="0123456789ab",
        sample=True,
        complete=False,
        parameters={"k": schema.k},
        splits={"stride": write_split_file(folder, "stride", parts, keys, sizes, **rule)},
        statistics={"mean": 0.1},
        notes=["letters beyond ASCII: ä, ö, ü"],
    )


@pytest.fixture(params=[POINT_SCHEMA, EDGE_SCHEMA], ids=["points", "edges"])
def build(request, tmp_path):
    make_build(tmp_path / "build", dealt(request.param), request.param)
    return tmp_path / "build"


@pytest.fixture
def points(tmp_path):
    make_build(tmp_path / "build", dealt(POINT_SCHEMA), POINT_SCHEMA)
    return tmp_path / "build"


def problems_of(report):
    """The problems as (file, what)."""
    return [(problem.file, problem.message) for problem in report.problems]


def reseal(folder):
    """Make the card agree with the bytes on disk, so that only deeper checks can find a problem."""
    card = read_card(folder)
    for entry in (*card.shards, *card.splits.values()):
        data = (folder / entry.file).read_bytes()
        digests = RunningDigests()
        digests.update(data)
        vars(entry).update({k: v for k, v in digests.facts.items() if k in vars(entry)})  # frozen
    (folder / CARD_NAME).write_text(card.to_json())


def change_card(folder, change):
    card = read_card(folder)
    change(card)
    (folder / CARD_NAME).write_text(card.to_json())


def test_a_good_build_has_no_problems(build):
    report = verify_build(build)
    assert report.ok
    assert report.problems == report.broken_shards == []
    shards = [Shard(build / file) for file in SHARDS]
    assert report.checked == {
        "shards": 3,
        "splits": 1,
        "graphs": 8,
        "nodes": 233,
        "edges": sum(shard.edges for shard in shards),
        "bytes": sum((build / file).stat().st_size for file in SHARDS),
    }


def test_a_folder_without_card_is_refused(tmp_path):
    with pytest.raises(UsageError):
        verify_build(tmp_path)


# Faults that digests find


def test_bit_flips_are_found(build):
    random = np.random.default_rng(0)
    for file in [*SHARDS, "splits/stride.h5", CARD_NAME] * 5:
        original = (build / file).read_bytes()
        data = bytearray(original)
        data[random.integers(len(data))] ^= 1 << random.integers(8)
        (build / file).write_bytes(data)
        report = verify_build(build)
        assert file in {problem.file for problem in report.problems}
        if file != CARD_NAME:  # a flip in the card may spoil the digest of any file
            assert report.broken_shards == ([file] if file in SHARDS else []), report.problems
        (build / file).write_bytes(original)
    assert verify_build(build).ok


def test_every_bit_of_the_card_counts(points):
    """A change of spelling is found even if the values stay: `1e-05` and `1E-05`, `\\u00e4` and `\\u00E4`."""
    change_card(points, lambda card: card.statistics.update(small=1e-5, big=1e300))
    assert verify_build(points).ok
    text = (points / CARD_NAME).read_text()
    changes = {"e-05": "E-05", "1e+300": "1E+300", " ": "  ", "ö": "\\u00f6", "\n": "\r\n"}
    for old, new in changes.items():
        assert old in text
        (points / CARD_NAME).write_text(text.replace(old, new, 1), newline="")
        assert problems_of(verify_build(points)) == [
            (CARD_NAME, "was changed after it was written")
        ]


def test_unreadable_cards_are_reported(points):
    for text in ("", "[]", '{"version": 3}', "\xff", "[" * 100_000):
        (points / CARD_NAME).write_text(text, encoding="latin-1")
        report = verify_build(points)
        assert problems_of(report) == [(CARD_NAME, "cannot be read as a card")]
        assert not report.checked
    (points / CARD_NAME).unlink()
    (points / CARD_NAME).mkdir()
    assert not verify_build(points).ok


def test_missing_extra_swapped_and_longer_shards_are_reported(points):
    data = [(points / file).read_bytes() for file in SHARDS]
    for changed in (data[2] + b"\0", data[2][:-1], b""):
        (points / SHARDS[2]).write_bytes(changed)
        assert verify_build(points).broken_shards == [SHARDS[2]]
    (points / SHARDS[0]).write_bytes(data[2])
    (points / SHARDS[2]).write_bytes(data[0])
    assert verify_build(points).broken_shards == [SHARDS[0], SHARDS[2]]
    reseal(points)  # the digests agree now; the counts do not
    assert (SHARDS[0], "has a different number of graphs") in problems_of(verify_build(points))
    for file, original in zip(SHARDS, data, strict=True):
        (points / file).write_bytes(original)
    reseal(points)
    (points / SHARDS[1]).unlink()
    shutil.copy(points / SHARDS[0], points / "shards/00003.h5")
    report = verify_build(points)
    assert problems_of(report) == [(SHARDS[1], "is missing")]
    assert report.notes[-1:] == ["shards/00003.h5 is not part of the build, and is left unchanged"]
    assert report.broken_shards == [SHARDS[1]]
    shutil.rmtree(points / "shards")
    assert verify_build(points).broken_shards == SHARDS


# Faults that only reading finds: the digests in the card are made to agree


def patch(folder, file, key, position, value):
    """Overwrite one value of a dataset and make the card agree."""
    shard = Shard(folder / file)
    view = shard.mapped_view(key)
    with h5py.File(folder / file) as plain:
        offset = plain[key].id.get_offset()
    with (folder / file).open("r+b") as raw:
        raw.seek(offset + position * view.dtype.itemsize)
        raw.write(np.asarray(value, view.dtype).tobytes())
    reseal(folder)


WRONG = [  # schema, dataset, position, value, what is wrong, record, row in it
    (POINT_SCHEMA, "edge/neighbor", 4 * 41 + 1, 30, "leads to node 30, out of its graph", "g3", 0),
    (POINT_SCHEMA, "edge/neighbor", 4 * 40 + 3, 1, "leads to node 1, out of its graph", "g2", 0),
    (POINT_SCHEMA, "edge/neighbor", 4 * 70 + 3, 65_535, "leads to node 65,535, out of its graph", "g3", 29),
    (POINT_SCHEMA, "node/x", 6 * 40 + 5, np.nan, "has values that are not finite", "g2", 0),
    (POINT_SCHEMA, "node/y", 41, 13, "is 13 to 13, not 0 to 12", "g3", 0),
    (POINT_SCHEMA, "graph/category", 1, 16, "is 16 to 16, not 0 to 15", "g1", 0),
    (EDGE_SCHEMA, "edge/index", 0, 40, "leads to node 40, out of its graph", "g0", 0),
    (EDGE_SCHEMA, "edge/attr", 2 * 3, np.nan, "has values that are not finite", "g0", 3),
]  # fmt: skip


@pytest.mark.parametrize("block", [2**20, 10])
@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_are_found(tmp_path, monkeypatch, case, block):
    schema, key, position, value, problem, record, row = case
    monkeypatch.setattr(reader, "BLOCK_VALUES", block)
    make_build(tmp_path / "build", dealt(schema), schema)
    patch(tmp_path / "build", SHARDS[0], key, position, value)
    report = verify_build(tmp_path / "build")
    assert problems_of(report) == [(SHARDS[0], f"is damaged: {key} {problem}")]
    assert report.problems[0].found == f"record {record!r}, row {row}"
    assert report.broken_shards == [SHARDS[0]]


def test_unordered_pointers_are_reported(points):
    patch(points, SHARDS[0], "graph/node_ptr", 2, 39)
    report = verify_build(points)
    assert problems_of(report) == [
        (SHARDS[0], "has row pointers that are not in order (graph/node_ptr)")
    ]


def test_shards_of_other_builds_are_found(points):
    schema, of_build = (
        dataclasses.replace(POINT_SCHEMA, directed=False),
        dict(dataset="sample-points"),
    )
    for other, options, what in (
        (POINT_SCHEMA, dict(dataset="other", build_key="0123456789ab"), "has a different dataset"),
        (POINT_SCHEMA, dict(build_key="ba9876543210", **of_build), "has a different build key"),
        (schema, dict(build_key="0123456789ab", **of_build), "has a different schema"),
    ):
        (points / SHARDS[1]).write_bytes(encode_shard(dealt(other)[1], other, **options).data)
        reseal(points)
        assert problems_of(verify_build(points)) == [(SHARDS[1], what)]
    records = [dataclasses.replace(dealt(POINT_SCHEMA)[1][0], key="g0")]
    shard = encode_shard(records, POINT_SCHEMA, build_key="0123456789ab", **of_build)
    (points / SHARDS[1]).write_bytes(shard.data)
    reseal(points)
    assert ("shards", "hold two records with the same key") in problems_of(verify_build(points))


@pytest.mark.parametrize(
    ("part", "change", "what"),
    [
        (lambda card: card, {"format_version": 2}, "has a different format version"),
        (lambda card: card, {"default_split": ""}, "has no default split"),
        (
            lambda card: card.splits["stride"].parts["val"],
            {"nodes": 3},
            "has a different number of nodes in val of splits/stride.h5",
        ),
    ],
)
def test_cards_that_contradict_the_files_are_reported(points, part, change, what):
    change_card(points, lambda card: vars(part(card)).update(change))
    assert problems_of(verify_build(points)) == [(CARD_NAME, what)]
    change_card(points, lambda card: card.counts.update(nodes=1))
    assert (CARD_NAME, "has a different number of nodes") in problems_of(verify_build(points))


def test_missing_and_truncated_files_are_reported(points):
    """A link to a device, or a pipe, in the place of a file is not read."""
    for name in (SHARDS[0], "splits/stride.h5"):
        data = (points / name).read_bytes()
        for put in (lambda _: None, lambda path: path.symlink_to("/dev/zero"), os.mkfifo):
            (points / name).unlink()
            put(points / name)
            is_link = (points / name).is_symlink()
            what = "is a symbolic link, or inside a linked folder" if is_link else "is missing"
            assert problems_of(verify_build(points)) == [(name, what)]
            (points / name).unlink(missing_ok=True)
            (points / name).write_bytes(data)


@pytest.mark.parametrize("name", ["README.md", "croissant.json", CARD_NAME])
def test_a_linked_metadata_file_is_one_problem_and_no_note(points, tmp_path, name):
    stored = read_card(points).to_json().encode() if name == CARD_NAME else b"another page"
    (points / name).unlink(missing_ok=True)
    (tmp_path / "elsewhere").write_bytes(stored)
    (points / name).symlink_to(tmp_path / "elsewhere")
    report = verify_build(points)
    assert problems_of(report) == [(name, "is a symbolic link, or inside a linked folder")]
    assert not [note for note in report.notes if name in note]
    assert name in report.outdated


# Splits


def put_split(folder, data):
    (folder / "splits/stride.h5").write_bytes(data)
    reseal(folder)


KEYS = [f"g{i}" for i in range(8)]
PARTS = {"train": [0, 2, 4, 6], "val": [1, 5], "test": [3, 7]}


SPLIT = {"parts": PARTS, "rule": "stride", "parameters": {"step": 2}, "keys": KEYS}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (dict(rule="room"), "has a different rule"),
        (dict(parameters={"step": 3}), "has a different rule"),
        (dict(parts={**PARTS, "train": [2, 0, 4, 6]}), "has different records in train"),
        (dict(parts={**PARTS, "val": [5]}), "has different records in val"),
        (dict(keys=[*KEYS[:-1], "other"]), "has different records in test"),
        (dict(parts={**PARTS, "more": []}), "has different records in more"),
    ],
)
def test_splits_that_differ_from_the_card_are_reported(points, changes, what):
    put_split(points, encode_split(**{**SPLIT, **changes})[0])
    assert problems_of(verify_build(points)) == [("splits/stride.h5", what)]


def test_faulty_split_files_are_problems(points):
    put_split(points, b"<html>")
    assert problems_of(verify_build(points)) == [("splits/stride.h5", "is not an HDF5 file")]
    # Overlapping, repeated and out of range: what the writer refuses, made by hand.
    for part, position, value in (("val", 0, 2), ("val", 1, 1), ("test", 0, 8), ("train", 0, -1)):
        put_split(points, encode_split(**SPLIT)[0])
        with h5py.File(points / "splits/stride.h5", "r+") as file:
            file[f"split/{part}"][position] = value
        reseal(points)
        assert problems_of(verify_build(points)) == [
            ("splits/stride.h5", "has parts that are not valid")
        ]


def node_build(folder, code):
    """One graph of 40 nodes with a split of its nodes."""
    make_build(folder, [make_records(EDGE_SCHEMA, [40])], EDGE_SCHEMA)
    data, digests = encode_node_split(code, rule="random", parameters={"seed": 0})
    (folder / "splits/stride.h5").write_bytes(data)

    def enter(card):
        split = card.splits["stride"]
        vars(split).update(rule="random", parameters={"seed": 0})
        for value, name in enumerate(("train", "val", "test")):
            vars(split.parts[name]).update(nodes=int((code == value).sum()), digest=digests[name])

    change_card(folder, enter)
    reseal(folder)


def test_a_split_of_fewer_nodes_is_not_valid(tmp_path):
    code = np.array([0, 1, 2, 255] * 10, np.uint8)
    good, short = tmp_path / "good", tmp_path / "short"
    node_build(good, code)
    assert verify_build(good).ok
    node_build(short, code[:-1])
    not_valid = ["has parts that are not valid"]
    assert [what for _, what in problems_of(verify_build(short))] == not_valid
    for value, problems in (
        (1, ["has different records in train", "has different records in val"]),
        (7, not_valid),
    ):
        with h5py.File(good / "splits/stride.h5", "r+") as file:
            file["split/node_code"][0] = value
        reseal(good)
        assert [what for _, what in problems_of(verify_build(good))] == problems


def test_the_repair_of_a_folder_with_a_space_can_be_pasted(points):
    build = Build(points.with_name("my build"), read_card(points))
    assert str(build.remedy) == f"kmip-data verify '{build.path}' --repair"
