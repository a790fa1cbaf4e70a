"""The Parquet view of a push and the export: read back by their own libraries, equal in every value."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from pyarrow import parquet
from support.builds.same import assert_same_data
from support.cases import read_contents
from torch_geometric.data import Data, InMemoryDataset

import kmip_data
from kmip_data.builds.home import Build, Home
from kmip_data.builds.verify import verify_build
from kmip_data.errors import SAME_AGAIN, KmipDataError, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.atomic_writes import write_marker
from kmip_data.saving import export as exporting
from kmip_data.saving.export import export, parquet_view, records_by_part, write_parquet
from kmip_data.sharing.pull import pull
from kmip_data.sharing.push import push_build

SPLIT = {"train": [4, 0], "val": [], "test": [3, 2]}
PARTS = {"train": [4, 0], "test": [3, 2], "unassigned": [1]}


def graph(nodes: int, edges: int) -> Data:
    """Return a graph with an attribute of every form."""
    generator = torch.Generator().manual_seed(nodes)
    index = torch.randint(max(nodes, 1), (2, edges), generator=generator)
    return Data(
        x=torch.rand(nodes, 3, generator=generator),
        edge_index=index,
        edge_attr=torch.randint(-9, 9, (edges, 2), generator=generator),
        y=torch.tensor([nodes / 3]),
        pos=torch.rand(nodes, 2, 2, generator=generator).half(),
        flag=torch.rand(nodes, generator=generator) > 0.5,
        short=torch.arange(nodes, dtype=torch.int16),
        byte=torch.arange(nodes, dtype=torch.uint8),
        wide=torch.arange(nodes) + 2**40,
        target=torch.rand(1, 4, generator=generator).double(),
        nothing=torch.zeros(nodes, 0),
        name=f"graph {nodes} ✓",
        count=nodes,
    )


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Five graphs, two of them without edges, in two parts and none."""
    items = [graph(*size) for size in ((3, 4), (1, 0), (5, 9), (2, 0), (4, 7))]
    return kmip_data.save(
        items, tmp_path_factory.mktemp("build") / "graphs", split=SPLIT, title="Graphs"
    )


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """One graph with masks of its nodes, whose number of nodes no attribute gives."""
    code = torch.tensor([0, 1, 2, 0, -1])
    masks = {f"{part}_mask": code == at for at, part in enumerate(("train", "val", "test"))}
    item = Data(
        edge_index=torch.tensor([[0, 1], [4, 3]]), level=torch.arange(5), num_nodes=5, **masks
    )
    return kmip_data.save(item, tmp_path_factory.mktemp("build") / "town")


@pytest.fixture
def pushed(graphs: Build, tmp_path: Path) -> Path:
    """A push with its view."""
    push_build(graphs, str(tmp_path / "share"), view=parquet_view, quiet=True)
    return tmp_path / "share"


def plain(build: Build, record: int) -> dict[str, object]:
    """Return an item as a row has it: graph columns without the leading axis, tensors as lists."""
    leading = {
        c.attribute for c in build.card.schema_.columns if c.level == "graph" and c.form == "axis"
    }
    item = kmip_data.ShardedDataset(build)[record].to_dict()
    values = {name: value[0] if name in leading else value for name, value in item.items()}
    return {
        name: value.tolist() if torch.is_tensor(value) else value for name, value in values.items()
    }


def dtypes(build: Build) -> dict[str, str]:
    item = kmip_data.ShardedDataset(build)[0].to_dict()
    return {
        name: str(value.numpy().dtype) for name, value in item.items() if torch.is_tensor(value)
    }


def leaf(kind: object) -> object:
    return leaf(kind.value_type) if hasattr(kind, "value_type") else kind


def test_parquet_has_every_value_dtype_order_and_part(
    graphs, city, tmp_path, monkeypatch, subtests
) -> None:
    monkeypatch.setattr(exporting, "_ROW_GROUP_BYTES", 300)
    for build, parts in ((graphs, PARTS), (city, {"graphs": [0]})):
        with subtests.test(build.path.name):
            (tmp_path / build.path.name).mkdir()
            paths = write_parquet(build, tmp_path / build.path.name, quiet=True)
            assert {
                part: records.tolist() for part, records in records_by_part(build).items()
            } == parts
            assert list(paths) == list(parts)
            for part, records in parts.items():
                rows = parquet.read_table(paths[part]).to_pylist()
                for row, record in zip(rows, records, strict=True):
                    record_keys = {
                        "key": kmip_data.ShardedDataset(build).keys[record],
                        "split": part,
                    }
                    assert row == record_keys | plain(build, record)
            file = parquet.ParquetFile(paths[part])
            types = {name: leaf(file.schema_arrow.field(name).type) for name in dtypes(build)}
            assert {name: np.dtype(t.to_pandas_dtype()) for name, t in types.items()} == dtypes(
                build
            )
    assert parquet.ParquetFile(tmp_path / "graphs/train.parquet").num_row_groups == 2


def test_view_of_a_push_is_read_by_datasets_duckdb_and_croissant(
    graphs, pushed, tmp_path, caplog
) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    mlcroissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed")
    assert "\nviewer: false\n" in (pushed / "README.md").read_text()
    view = datasets.load_dataset(str(pushed), cache_dir=str(tmp_path))  # by the header of the page
    for part, records in PARTS.items():
        for row, record in zip(view[part], records, strict=True):
            assert plain(graphs, record).items() <= row.items()
    rows = duckdb.sql(f"select * from '{pushed}/parquet/*.parquet'")
    by_key = {row[0]: dict(zip(rows.columns, row, strict=True)) for row in rows.fetchall()}
    keys = kmip_data.ShardedDataset(graphs).keys
    for part, records in PARTS.items():
        for record in records:
            assert by_key[keys[record]]["split"] == part
            assert plain(graphs, record).items() <= by_key[keys[record]].items()
    croissant = mlcroissant.Dataset(pushed / "croissant.json")
    assert not (croissant.metadata.ctx.issues.errors | croissant.metadata.ctx.issues.warnings)
    assert not caplog.records
    records = list(croissant.records("train"))
    assert [row["train/count"] for row in records] == [4, 3]
    assert np.array_equal(records[0]["train/edge_index"], plain(graphs, 4)["edge_index"])
    sets = json.loads((pushed / "croissant.json").read_text())["recordSet"]
    shapes = {field["name"]: field.get("arrayShape") for field in sets[0]["field"]}
    wanted = {
        "x": "-1,3",
        "edge_index": "2,-1",
        "y": None,
        "pos": "-1,2,2",
        "target": "4",
        "byte": "-1",
    }
    assert wanted.items() <= shapes.items()


def test_views_contain_only_the_push(graphs, pushed, tmp_path, monkeypatch, capsys) -> None:
    pulled = pull(str(pushed), Home(tmp_path / "home"), quiet=True)
    assert not (pulled.path / "parquet").exists()
    assert verify_build(pulled.path).ok
    monkeypatch.setattr(exporting, "MEMBER_BYTES", 1)
    without = push_build(graphs, str(pushed), view=parquet_view)
    said = [line for line in capsys.readouterr().err.splitlines() if "Parquet" in line]
    assert len(said) == 1
    assert not any(entry.file.startswith("parquet/") for entry in without.files)
    assert pull(str(pushed), Home(tmp_path / "home"), quiet=True).path == pulled.path


def test_an_export_as_pt_has_every_tensor(graphs, city, tmp_path, subtests) -> None:
    for build, parts in ((graphs, PARTS), (city, {"graphs": [0]})):
        dataset = kmip_data.ShardedDataset(build)
        files = export(build, tmp_path / build.path.name, quiet=True)
        for part, records in parts.items():
            memory = InMemoryDataset()
            memory.load(str(files[part]))
            with subtests.test(f"{build.path.name} {part}"):
                assert len(memory) == len(records)
                for at, record in enumerate(records):
                    wanted = dataset[record]
                    if len(records) > 1:  # joined: PyG makes a tensor of a number
                        wanted.count = torch.tensor([wanted.count])
                    assert_same_data(memory[at], wanted, ordered=False)


def interrupt(items: list[Data], path: str) -> None:
    """Write half a file, as an export that is stopped."""
    Path(path).write_bytes(b"PK")
    raise KeyboardInterrupt


def test_exports_replace_nothing_and_leave_nothing(graphs, tmp_path, monkeypatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(UsageError, match=str(tmp_path / "out")):
        export(graphs, out, quiet=True)
    out.rmdir()

    with monkeypatch.context() as patch:
        patch.setattr(exporting.InMemoryDataset, "save", interrupt)
        with pytest.raises(KeyboardInterrupt):
            export(graphs, out, quiet=True)
    assert not list(tmp_path.iterdir())
    hidden = tmp_path / ".out.partial"
    (hidden / "train").mkdir(parents=True)  # of the user's: it has no marker
    with pytest.raises(KmipDataError):
        export(graphs, out, quiet=True)
    assert list(tmp_path.rglob("*")) == [hidden, hidden / "train"]
    write_marker(hidden, "export")  # of an export that was killed
    assert export(graphs, out, quiet=True)["test"] == out / "test.pt"
    assert list(tmp_path.iterdir()) == [out]

    # Killed when all was renamed: the same command says so.
    assert export(graphs, out, quiet=True)["test"] == out / "test.pt"
    (out / "test.pt").unlink()
    with pytest.raises(UsageError):
        export(graphs, out, quiet=True)


def test_the_second_of_two_exports_learns_of_the_first(graphs, tmp_path, monkeypatch) -> None:
    """The other process finishes after this one has looked at the folder, and before it has the lock."""
    lock = atomic_writes.folder_lock
    folder = tmp_path / "export"

    @contextlib.contextmanager
    def wait_for_another_export(path, **options):
        monkeypatch.setattr(atomic_writes, "folder_lock", lock)
        export(graphs, folder, quiet=True)
        with lock(path, **options):
            yield

    monkeypatch.setattr(atomic_writes, "folder_lock", wait_for_another_export)
    with pytest.raises(UsageError) as error:
        export(graphs, folder, quiet=True)
    assert error.value.steps == [SAME_AGAIN]
    contents = read_contents(tmp_path)
    assert export(graphs, folder, quiet=True)["train"] == folder / "train.pt"
    assert read_contents(tmp_path) == contents


def test_a_folder_filled_without_a_lock_is_no_lack_of_space(graphs, tmp_path, monkeypatch) -> None:
    save = exporting.InMemoryDataset.save
    folder = tmp_path / "export"

    def save_and_fill(*arguments):
        folder.mkdir(exist_ok=True)
        (folder / "notes.txt").write_text("mine")
        save(*arguments)

    monkeypatch.setattr(exporting.InMemoryDataset, "save", save_and_fill)
    with pytest.raises(UsageError):
        export(graphs, folder, quiet=True)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
