"""Your own graphs in damaged, hostile or huge files: errors that name the file, and limits of memory."""

from __future__ import annotations

import gzip
import io
import re
import zipfile

import numpy as np
import pytest
from support.cases import check_each, steps_of
from support.cli import expect_refusal
from support.graph_files import (
    EDGES,
    GRAPHS,
    NODES,
    npz_bytes,
    pyg_graphs,
    read_folder,
    write_files,
)
from support.raises import raises

from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.pipelines import build
from kmip_data.pipelines.datasets import graphs
from kmip_data.runtime.memory import peak_host_memory


def test_refused_tensors_come_with_what_to_save_instead(tmp_path):
    import torch
    from torch_geometric.data import Batch, Data, HeteroData

    data, *_ = pyg_graphs()
    sparse = Data(x=data.x.to_sparse(), edge_index=data.edge_index)
    for value, words in (
        (Batch.from_data_list([data]), "to_data_list"),
        (HeteroData(), "to_homogeneous"),
        (sparse, "to_dense"),
        (Data(x=torch.complex(data.x, data.x), edge_index=data.edge_index), "view_as_real"),
    ):
        folder = write_files(tmp_path / words)
        torch.save(value, folder / "a.pt")
        with pytest.raises((DamagedInput, UsageError)) as caught:
            read_folder(folder)
        assert words in steps_of(caught.value)


def zip_of(name, content):
    """Bytes of a zip with one file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


EMPTY_MEMBER = zip_of("edge_index.npy", b"")


HUGE = 10**12


ENTRY = {"data": [1], "row": [0], "col": [0]}


ROWS = {f"attr_{key}": value for key, value in ENTRY.items()}


EDGE = np.zeros((2, 1), int)


MATRIX = {"adj_data": [1], "adj_indices": [0], "adj_indptr": [0, 1], "adj_shape": 1}


PICKLE = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00trueq\x01\x85R."


GRAPHML = "<graphml xmlns='http://graphml.graphdrawing.org/xmlns'>{}</graphml>"


TU = {"D_A_txt": "1, 2\n2, 1\n3, 3\n", "D_graph_indicator_txt": "1\n1\n2\n"}


FOLDS = {"train_mask": np.ones((1, 2), bool), "val_mask": np.zeros((1, 3), bool)}


DEEP = b"\x93NUMPY\1\0\xe7\3"


LARGE = GRAPHML.format(
    "<key id='k' for='node' attr.name='k' attr.type='int'/>"
    f"<graph edgedefault='directed'><node id='a'><data key='k'>{10**400}</data></node></graph>"
)


ENDS = ["x", "tx", "allx", "y", "ty", "ally", "graph"]


#: Files, options of the build, and what the error names.
BAD = [
    ({"edges_csv": ""}, {}, "edges.csv"),
    ({"edges_csv": "source,target\n"}, {}, "edges.csv"),
    ({"edges_csv": "source,target\n", "nodes_csv": "id,m\n1,2\n2,3\n"}, {}, "nodes.csv"),
    ({"edges_csv": "source,to,w\n1,2,3\n"}, {}, "source, to, w"),
    ({"edges_csv": "source,target,from,to\n1,2,3,4\n"}, {}, "source, target, from, to"),
    ({"edges_csv": "source,target\n1,2\n1,2,3\n"}, {}, "line 3; 3; 2"),
    ({"edges_csv": "source,target\n1,2\n1\n"}, {}, "line 3; 1; 2"),
    ({"edges_csv": "source,target\na,b\n,b\n"}, {}, "line 3; source"),
    ({"edges_csv": "source,target\n1,2\n3,nan\n"}, {}, "line 3; target; nan"),
    ({"edges_csv": b"source,target\n1,\xff\n"}, {}, "edges.csv, line 2; utf-8"),
    ({"edges_csv": 'source,target\n"1,2\n'}, {}, "edges.csv, line 2"),
    ({"edges_gz": gzip.compress(EDGES.encode())[:-9]}, {}, "edges.gz"),
    ({"edges_gz": b"\x1f\x8bnothing"}, {}, "edges.gz"),
    ({"a_npz": EMPTY_MEMBER}, {}, "a.npz, edge_index"),
    ({"a_npz": npz_bytes(**MATRIX)}, {}, "a.npz"),
    ({"a_npz": npz_bytes(edge_index=np.zeros((2, 1), int), x=1.0)}, {}, "a.npz"),
    ({"a_npz": npz_bytes(**ENTRY, shape=[HUGE, HUGE])}, {}, f"a.npz; {HUGE:,}"),
    ({"a_npz": npz_bytes(edge_index=EDGE + HUGE)}, {}, f"a.npz; {HUGE + 1:,}"),
    ({"a_npz": npz_bytes(edge_index=EDGE, **ROWS, attr_shape=[HUGE, 2])}, {}, f"a.npz; {HUGE:,}"),
    ({"edges_csv": "source,target,w\n1,2,3\n3,2,4\n2,1,x\n"}, {}, "line 4; w; x"),
    ({"edges_csv": "source,target,w\n1,2,1700000000\n2,1,1700000001\n"}, {}, "line 3; w; 1700000001"),
    ({"edges_csv": "source,target,w\n1,2,1e99\n"}, {}, "line 2; w; 1e+99"),
    ({"edges_csv": "graph,source,target,label\n1,1,2,0\n1,2,1,1\n"}, {}, "edges.csv, line 3; y"),
    ({"edges_csv": EDGES}, {"label": ("y",)}, "y"),
    ({"edges_csv": EDGES}, {"feature": ("y",)}, "y"),
    ({"edges_csv": EDGES, "nodes_csv": "graph,node\na,5\na,7\n"}, {}, "edges.csv, line 4; source; 1"),
    ({"edges_csv": EDGES, "nodes_csv": "graph\na\na\nb\nc\n"}, {}, "nodes.csv; graph"),
    ({"edges_csv": EDGES, "nodes_csv": NODES + "c,1,2,x\n"}, {"feature": ("none",)}, "nodes.csv, line 8; node 1"),
    ({"edges_csv": EDGES, "graphs_csv": "graph,label\na,1\nb,1\n"}, {}, "edges.csv, line 5; c"),
    ({"edges_csv": EDGES, "graphs_csv": GRAPHS + "d,good,no\n"}, {}, "line 5; fold; no"),
    ({"edges_csv": EDGES, "graphs_csv": "graph,split\na,1\nb,0\nc,0\n"}, {}, "line 2; split; 1, 0"),
    ({"edges_csv": EDGES, "edges_tsv": EDGES}, {}, "edges.csv, edges.tsv"),
    ({"edges_csv": "graph,graph_id,source,target\n1,1,0,1\n"}, {}, "graph, graph_id"),
    ({"edges_csv": "source,target\n0,1\n", "nodes_csv": "train_mask\n1\n2\n"}, {}, "nodes.csv; train; (2,)"),
    ({"a_npz": npz_bytes(edge_index=EDGE, x=[[1], [2]], train_idx=[2])}, {}, "train_idx; 2"),
    ({"a_npz": npz_bytes(edge_index=EDGE, train_idx=[0], train_mask=[1])}, {}, "train_mask, train_idx"),
    ({"a_bin": b"\0\1\2"}, {}, "a.bin"),
    ({"edges_csv": EDGES}, {"smiles": "y"}, "y"),
    ({"a_pt": PICKLE}, {}, "a.pt; os.system"),
    ({"a_npz": b"PK\3\4" + bytes(22) + b"\5\0\0\0a.npy"}, {}, "a.npz"),
    ({"a_graphml": "<!DOCTYPE x>" + GRAPHML.format("<graph><node id='a'/></graph>")}, {}, "a.graphml"),
    ({"a_graphml": GRAPHML.format("<graph>")}, {}, "a.graphml; GraphML"),
    ({"a_gexf": "<!DOCTYPE x><gexf><graph><nodes><node id='a'/></nodes></graph></gexf>"}, {}, "a.gexf"),
    ({"a_gexf": "<gexf version='9'/>"}, {}, "a.gexf; GEXF"),
    ({"a_gml": "graph [ node [ id 1 ] edge [ source 1 ] ]"}, {}, "a.gml; GML"),
    ({"a_json": "[" * 100_000}, {}, "a.json; JSON"),
    ({"a_json": '{"x": [1]}'}, {}, "a.json; x"),
    ({"ind.cora_x": PICKLE}, {}, "ind.cora.tx"),
    ({f"ind.{name}_x": PICKLE for name in "ab"}, {}, "a, b"),
    ({f"ind.a_{end}": PICKLE for end in ENDS} | {"ind.a.test_index": "3"}, {}, "os.system"),
    ({f"ind.a_{end}": PICKLE for end in ENDS} | {"ind.a.test_index": "x"}, {}, "ind.a.test.index"),
    ({**TU, "D_graph_indicator_txt": "2\n1\n2\n"}, {}, "D_graph_indicator.txt, line 2"),
    ({**TU, "D_graph_indicator_txt": f"1\n1\n{HUGE}\n"}, {}, f"line 3; {HUGE:,}"),
    ({**TU, "D_graph_indicator_txt": f"1\n1\n{HUGE}\n", "D_graph_labels_txt": "1\n"}, {}, f"1; {HUGE:,}"),
    ({**TU, "D_A_txt": "1, 2\n1, 3\n"}, {}, "D_A.txt, line 2"),
    ({**TU, "D_A_txt": "1, 4\n"}, {}, "D_A.txt, line 1; [1 4]"),
    ({**TU, "D_A_txt": "1, 2, 3\n"}, {}, "D_A.txt, line 1"),
    ({**TU, "D_node_labels_txt": "1\n2\n"}, {}, "D_node_labels.txt; 2; 3"),
    ({**TU, "D_graph_labels_txt": "1\nx\n"}, {}, "D_graph_labels.txt, line 2; x"),
    ({**TU, "D_node_labels_txt": f"{-(2**63)}\n1\n{2**63 - 1}\n"}, {}, "D_node_labels.txt, line 3; 10,000"),
    ({"a_npz": npz_bytes(edge_index=EDGE, x=[[1e300]])}, {}, "a.npz"),
    ({"a_npz": npz_bytes(edge_index=EDGE, y=[[np.nan]])}, {}, "y"),
    ({"a_npz": npz_bytes(edge_index=EDGE, y=[[1e300, 0.5]])}, {}, "0.5; 1e+300; regression"),
    ({"a_npz": npz_bytes(edge_index=EDGE, y=[[0]]), "b_npz": npz_bytes(edge_index=EDGE)}, {}, "Graph b; y"),
    ({"a_npz": npz_bytes(edge_index=EDGE, **FOLDS)}, {}, "a.npz; [2, 3]"),
    ({"a_npz": npz_bytes(edge_index=EDGE, x=np.eye(3), y=[0, 1])}, {}, "2; 3"),
    ({"a_mtx": "%%MatrixMarket matrix coordinate real general\n2 3 1\n1 1 1\n"}, {}, "a.mtx; 2 x 3"),
    ({"a_mtx": "%%MatrixMarket matrix coordinate real general\n2 2 9\n1 1 1\n"}, {}, "a.mtx; 8"),
    ({"a_mtx": "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 1\n"}, {}, "a.mtx; complex"),
    ({"a_npz": zip_of("edges.npy", DEEP + b"(" * 999)}, {}, "a.npz, edges"),
    ({"a_npz": zip_of("edges.npy", DEEP + b"-" * 999)}, {}, "a.npz, edges"),
    ({"a_graphml": LARGE}, {}, "a.graphml, node a; k; inf"),
    ({"m_csv": f"smiles,y\nC,1\n{'C' * 10_001},1\n"}, {}, "m.csv, line 3; 10,001"),
]  # fmt: skip


def test_a_label_that_no_table_has_lists_the_columns_of_all(tmp_path):
    folder = write_files(tmp_path / "t", edges_csv=EDGES, nodes_csv=NODES, graphs_csv=GRAPHS)
    columns = "edges.csv: graph, source, target, weight; graphs.csv: graph, label"
    with raises(UsageError, naming=["club", columns]):
        read_folder(folder, label=("club",))


def test_bad_files_are_errors_that_name_the_row(tmp_path):
    def check(case):
        files, options, named = case
        number = len(list(tmp_path.iterdir()))
        with raises((DamagedInput, UsageError), naming=named.split("; ")) as caught:
            read_folder(write_files(tmp_path / f"{number:03d}", **files), **options)
        assert caught.value.steps

    check_each(check, BAD)


@pytest.mark.parametrize("bounds", [[], 5, [0, 1], [1, 2, 3, 4, 5, 6, 7], [0, 3, 2, 3, 4, 5, 6]])
def test_slices_that_do_not_fit_are_refused(tmp_path, bounds):
    import torch
    from torch_geometric.data import InMemoryDataset

    data, slices = InMemoryDataset.collate(pyg_graphs())
    folder = write_files(tmp_path / "t")
    torch.save((data, {**slices, "y": torch.tensor(bounds)}), folder / "a.pt")
    with raises(DamagedInput, naming=["a.pt", "y"]):
        read_folder(folder)


def test_names_and_tensors_of_other_kinds_are_read(tmp_path):
    """Names of graphs beyond ASCII, and a tensor of no axes."""
    import torch
    from torch_geometric.data import Data

    schema, (record,) = read_folder(
        write_files(tmp_path / "t", edges_csv="source,target,graph\n1,2,中国\n")
    )
    assert len(record.key) <= schema.key_length
    folder = write_files(tmp_path / "p")
    torch.save(Data(edge_index=torch.tensor([[0], [1]]), x=torch.tensor(2.0)), folder / "a.pt")
    _, (record,) = read_folder(folder)
    assert (record.num_nodes, record.columns["graph/x"]) == (2, 2)


def test_a_build_of_which_every_record_is_skipped_is_refused(tmp_path):
    table = tmp_path / "m.csv"
    table.write_text("smiles\nC(C\n")
    line = ["build", "graphs", "--name=own", f"--archive={table}", "--set=on_error=skip"]
    message = expect_refusal(*line, f"--home={tmp_path / 'home'}", code=4)
    assert "All 1 records were skipped" in message
    assert "m.csv, line 2" in message


def bomb(gigabytes: int) -> bytes:
    """Bytes of an npz whose features are zeros."""
    file = io.BytesIO()
    header = io.BytesIO()
    columns = gigabytes * 10**9 // 8
    kind = {"descr": "<f4", "fortran_order": False, "shape": (2, columns)}
    np.lib.format.write_array_header_1_0(header, kind)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("edge_index.npy", npy(np.array([[0, 1], [1, 0]])))
        with archive.open("x.npy", "w") as member:
            member.write(header.getvalue())
            block = bytes(2**20)
            for start in range(0, 8 * columns, len(block)):
                member.write(block[: 8 * columns - start])
    return file.getvalue()


def npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def far_tensors() -> bytes:
    import torch
    from torch_geometric.data import Data

    file = io.BytesIO()
    torch.save(Data(edge_index=torch.tensor([[0], [2**31]])), file)
    return file.getvalue()


#: File -> its bytes, and what is said; each takes 5 to 100 GB where it is read.
HUGE_FILES = {
    "many.mtx": (
        lambda: b"%%MatrixMarket matrix coordinate pattern general\n9 9 999999999\n1 1\n",
        r"many\.mtx .* 48\.0 GB",
    ),
    "far.npz": (
        lambda: npz_bytes(edge_index=np.array([[0], [2**31]])),
        "2,147,483,649 nodes",
    ),
    "far.pt": (far_tensors, "2,147,483,649 nodes"),
    "zeros.npz": (lambda: bomb(1), r"zeros\.npz .* 6\.0 GB"),
    "long.npz": (
        lambda: npz_bytes(edge_index=EDGE, **ROWS, attr_shape=[10**7, 10**3]),
        r"long\.npz .* 120\.0 GB",
    ),
    "wide.npz": (
        lambda: npz_bytes(edge_index=EDGE, **ROWS, attr_shape=[1, HUGE]),
        r"wide\.npz .* 12\.0 TB",
    ),
    "many.net": (lambda: b"*Vertices 999999999\n*Arcs\n1 2\n", r"many\.net .* 1\.2 TB"),
    "bomb.csv.gz": (
        lambda: gzip.compress(b"source,target\n") + 120 * gzip.compress(b"1,2\n" * 2**20),
        r"bomb\.csv\.gz .* 4\.5 GB",
    ),
}


@pytest.mark.parametrize("name", HUGE_FILES)
def test_a_small_file_of_a_large_graph_is_refused_before_it_is_read(tmp_path, name):
    content, message = HUGE_FILES[name]
    path = tmp_path / name
    path.write_bytes(content())
    line = ["build", "graphs", "--name=own", f"--archive={path}", f"--home={tmp_path / 'home'}"]
    before = peak_host_memory()
    said = expect_refusal(*line, "--quiet", code=6)
    assert re.search(message, said), said
    assert re.search("next: kmip-data build .* --memory [0-9]+GiB\n", said), said
    assert peak_host_memory() - before < 2**29
    assert not list((tmp_path / "home").rglob("*.*"))


def test_reading_is_limited_by_memory(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_bytes(b"source,target,a,b,c\n" + b"1,2,3,4,5\n" * 20_000_000)
    line = ["build", "graphs", "--name=own", f"--archive={path}", f"--home={tmp_path / 'home'}"]
    assert "536.9 MB are allowed" in expect_refusal(*line, "--quiet", "--memory=512MiB", code=6)


def test_graphml_takes_many_times_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "DEFAULT_MEMORY", 2**20)
    nodes = "".join(f"<node id='{number}'/>" for number in range(2_000))
    path = tmp_path / "a.graphml"
    path.write_text(GRAPHML.format(f"<graph edgedefault='directed'>{nodes}</graph>"))
    line = ("build", "graphs", "--name=own", f"--archive={path}", f"--home={tmp_path / 'home'}")
    message = expect_refusal(*line, code=6)
    assert re.search(r"a\.graphml .* 2\.[0-9] MB .* 1\.0 MB", message)


def test_memory_that_runs_out_while_tensors_are_read_is_no_damage(tmp_path, monkeypatch):
    import torch

    folder = write_files(tmp_path / "t")
    torch.save(pyg_graphs(), folder / "a.pt")

    def full(*_, **__):
        raise MemoryError("no room")

    monkeypatch.setattr(graphs, "key_columns_by_level", full)
    with raises(OutOfResources, naming="no room"):
        read_folder(folder)
    monkeypatch.setattr(np, "frombuffer", full)
    with raises(OutOfResources, naming="no room"):
        read_folder(folder)


@pytest.mark.parametrize("ending", [b"6.5E-", b"6.5e+", b"6.5", b"-", b"1 ", b"1 2", b"nan"])
def test_a_matrix_cut_anywhere_in_its_last_number_is_damaged(tmp_path, ending):
    """scipy's parser crashed on an exponent without digits at the end of a file."""
    file = tmp_path / "a.mtx"
    entries = b"".join(b"%d %d 2.5E-1\n" % (i % 5 + 1, i % 3 + 1) for i in range(9))
    file.write_bytes(
        b"%%MatrixMarket matrix coordinate real general\n5 5 11\n" + entries + b"2 4 " + ending
    )
    message = expect_refusal(
        "build", "graphs", "--name", "a", "--archive", file, "--dry-run", code=4
    )
    assert "a.mtx has no graph" in message
