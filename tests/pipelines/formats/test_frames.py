"""Tables in JSON lines and Parquet: their faults name the line, the package or the option."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pandas as pd
import pytest
from support.own_graphs import read_files, write_files

from kmip_data.errors import DamagedInput, KmipDataError, MissingExtra, OutOfResources, UsageError
from kmip_data.pipelines.formats.frames import read_frame

EDGES = '{"source": "a", "target": "b", "w": 1.5}\n\n{"source": "b", "target": "c", "w": 2}\n'


def test_lines_of_json_are_a_table_and_blank_lines_are_counted(tmp_path: Path) -> None:
    content = read_files(write_files(tmp_path / "plain", edges_jsonl=EDGES))
    packed = write_files(tmp_path / "gzip", edges_ndjson=gzip.compress(EDGES.encode()))
    for found in (content, read_files(packed)):
        assert found.edges() == {(0, 1), (1, 2)}
        assert found.first.columns["edge/edge_attr"].tolist() == [[1.5], [2]]
    write_files(tmp_path / "plain", edges_jsonl=EDGES.replace('"c"', "null"))
    with pytest.raises(DamagedInput, match=r"edges\.jsonl, line 3: 'target' is empty"):
        read_files(tmp_path / "plain")


#: Files and parameters -> error, and its message and advice.
FAULTS = [
    ({"edges_jsonl": EDGES + "nothing\n"}, {}, DamagedInput, "line 4: not an object", "to_json"),
    ({"edges_jsonl": EDGES + "[1, 2]\n"}, {}, DamagedInput, "line 4: not an object", "to_json"),
    (
        {"edges_jsonl": EDGES + '[["source", 1], ["target", 2]]\n'},
        {},
        DamagedInput,
        "line 4: not an object",
        "to_json",
    ),
    ({"edges_jsonl": "\n"}, {}, DamagedInput, "is empty", "an object into each line"),
    ({"edges_parquet": b"PAR1\0\0\0\0"}, {}, KmipDataError, "Parquet|pyarrow", "parquet|pyarrow"),
    ({"edges_jsonl": EDGES}, {"header": "no"}, UsageError, "header=no has no effect", "leave out"),
]


@pytest.mark.parametrize("case", range(len(FAULTS)))
def test_a_fault_says_where_it_is_and_what_to_do(tmp_path: Path, case: int) -> None:
    files, parameters, kind, message, remedy = FAULTS[case]
    with pytest.raises(kind, match=message) as caught:
        read_files(write_files(tmp_path / "files", **files), **parameters)
    assert any(word in caught.value.next for word in remedy.split("|"))


def test_a_column_of_smiles_is_found_in_all_tables(tmp_path: Path) -> None:
    pytest.importorskip("rdkit", reason="rdkit (extra chem) is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow (extra parquet) is not installed")
    table = pd.DataFrame({"label": [1, 0], "smiles": ["CCO", "C=O"]})
    for suffix in ("csv", "jsonl", "parquet"):
        (tmp_path / suffix).mkdir()
    table.to_csv(tmp_path / "csv" / "a.csv", index=False)
    table.to_json(tmp_path / "jsonl" / "a.jsonl", orient="records", lines=True)
    table.to_parquet(tmp_path / "parquet" / "a.parquet")
    for suffix in ("csv", "jsonl", "parquet"):
        records = read_files(tmp_path / suffix).records
        assert [record.num_nodes for record in records] == [3, 2]


def test_parquet_needs_its_extra_and_its_size_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "edges.parquet"
    pytest.importorskip("pyarrow", reason="pyarrow (extra parquet) is not installed")
    pd.DataFrame({"source": [0, 1], "target": [1, 0]}).to_parquet(path)

    def refuse(size: int, name: str) -> None:
        raise OutOfResources(f"{name} needs {size}")

    with pytest.raises(OutOfResources, match=r"edges\.parquet"):
        read_frame(path, refuse)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtra, match="extra parquet") as caught:
        read_frame(path, refuse)
    assert caught.value.next == "pip install pyarrow"
