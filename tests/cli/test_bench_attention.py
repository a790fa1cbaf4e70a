"""``bench attention``: the sweep, the stages and the table through the command line, at tiny sizes."""

import csv
import re

import pytest
import torch
from support.cli import kmip
from support.emulated_graph import EmulatedGraphs
from support.shared import ROOT

from kmip_data.cli.bench import markdown_table, print_rows
from kmip_data.cli.benchmarks.attention import cuda_table, table
from kmip_data.cli.main import root
from kmip_data.models.profiling.methods import Method

TINY = ["--methods", "naive", "--max-n", "100", "--repeats", "2", "--threads", "1", "--memory-limit", "1"]


def test_sweep_prints_and_saves(tmp_path):
    outcome = kmip("bench", "attention", *TINY, "--save", tmp_path / "a", "--min-n", 31)
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[0].split()[:4] == ["inference", "31", "100", "growth"]
    assert any(re.match(r"naive +\S+ [µm]s", line) for line in lines)
    assert any(line.startswith("A100: symbolic") and "1.67 ms" in line for line in lines)
    assert "not of this machine" in outcome.out
    assert "naive, training, 100 nodes" in outcome.err
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["setting"], row["n"], row["status"]) for row in rows] == [
        ("inference", "31", "ok"),
        ("inference", "100", "ok"),
        ("training", "31", "ok"),
        ("training", "100", "ok"),
    ]
    assert float(rows[3]["backward"]) > 0
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_stages_print_and_save(tmp_path):
    outcome = kmip("bench", "attention", *TINY, "--breakdown", "--save", tmp_path / "a", "--d", 4, "--json")
    assert outcome.code == 0, outcome.err
    assert set(outcome.json["stages"]["naive"]) == {"search", "gather", "softmax", "multiply", "backward"}
    assert (tmp_path / "a-breakdown.png").is_file()
    assert len((tmp_path / "a-breakdown.csv").read_text().splitlines()) == 6


def test_other_shapes_have_no_paper_beside_them():
    args = ["--graphs", "3x5..9", "--k", 2, "--setting", "inference", "--json", "-q"]
    found = kmip("bench", "attention", *TINY, *args).json
    assert [cell["n"] for cell in found["cells"]] == [sum_of("3x5..9")]
    assert "3 graphs of" in found["what"]
    assert found["cells"][0]["status"] == "ok"


def sum_of(text):
    from kmip_data.models.profiling.workload import graph_sizes

    return sum(graph_sizes(text))


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--methods", "naiv"], "Did you mean 'naive'"),
        (["--max-n", "many"], "is not a number"),
        (["--min-n", "200", "--max-n", "300"], "no size between"),
        (["--data", "uniform"], "'uniform' is not a kind of data"),
        (["--data", "trained:no-such-file"], "no-such-file"),
        (["--graphs", "3"], "GRAPHSxNODES"),
        (["--save", "/no/such/folder/a"], "cannot be saved there"),
        (["--breakdown", "--table"], "exclude each other"),
        (["--time-limit", "0"], "time-limit"),
    ],
)
def test_wrong_usage(args, word):
    outcome = kmip("bench", "attention", *args)
    assert outcome.code == 2, outcome.err
    assert word in outcome.err


@pytest.mark.slow
def test_the_table_has_the_rows_it_should(monkeypatch):
    monkeypatch.setattr(table, "QUICK", table.Sizes(nodes=300, many=600, graphs=5, repeats=1))
    monkeypatch.setattr(table, "peer", lambda name, work: None if name == "symbolic" else lambda: None)
    outcome = kmip("bench", "attention", "--table", "--quick", "--threads", 1, "--json")
    assert outcome.code == 0, outcome.err
    rows = outcome.json["rows"]
    assert len(rows) == 9
    assert all(row["ours"] > 0 for row in rows if "growth" not in row["what"])  # of so few nodes it is noise
    assert all(row["met"] is None for row in rows), "targets are for the full sizes"
    missing = [row for row in rows if "not installed" in row["note"]]
    assert missing == rows[-2:], "those against KeOps come last"
    assert all(row["theirs"] is None for row in missing)


def test_options_are_documented_and_examples_parse():
    command = root.get_command(None, "bench").get_command(None, "attention")
    text = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    for param in command.params:
        for word in param.opts:
            assert not word.startswith("--") or f"`{word}" in text, f"{word} is not in docs/benchmarks.md"
    for example in command.examples:
        command.make_context("attention", example.split()[3:]).close()


CASES = (cuda_table.Case((40,) * 3, 1e6, heads=2, k=5), cuda_table.Case((90,), 1e-6))


def test_the_rows_of_a_gpu_are_made_of_the_same_calls_elsewhere():
    found = list(cuda_table.measure_on_gpu(device="cpu", cases=CASES, sizes=(60,)))
    assert [row.what.split(",")[0] for row in found] == [
        "search", "search", *["attention forward"] * 2, *["attention forward + backward"] * 2,
    ]  # fmt: skip
    assert found[0].what == "search, 3 × 40 nodes, 2 heads, d = 10, k = 5"
    assert [row.met for row in found[:2]] == [True, False]
    assert all(row.ours > 0 for row in found)
    assert all(row.theirs > 0 for row in found[:2])
    for naive, flash in (found[2:4], found[4:]):
        assert naive.against.startswith("naive")
        assert (naive.ratio >= 1) is naive.met
        assert flash.theirs is flash.met is None, "FlashAttention is not on the CPU"


class _Event:
    """A CUDA event in whose time each replay takes 2 ms."""

    recorder = None

    def __init__(self, *, enable_timing):
        assert enable_timing

    def record(self):
        self.replayed = self.recorder.replayed

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return 2.0 * (other.replayed - self.replayed)


def test_a_search_is_also_timed_as_a_graph_which_its_target_is_for(monkeypatch, capsys):
    graphs = _Event.recorder = EmulatedGraphs()
    monkeypatch.setattr(cuda_table, "CudaGraphs", lambda device: graphs)
    monkeypatch.setattr(torch.cuda, "Event", _Event)
    plain = lambda queries, keys, k, **_: (queries @ keys.mT).topk(k)
    monkeypatch.setattr(cuda_table, "topk_inner_product", plain)
    cases = [case._replace(target=target) for case, target in zip(CASES, (1.9, 2.1), strict=True)]
    found = list(cuda_table.measure_on_gpu(device="cpu", cases=cases, sizes=()))
    assert [row.captured for row in found] == [0.002, 0.002]
    assert [row.met for row in found] == [False, True]
    assert graphs.recorded == 2
    assert not any(row.note for row in found)
    print_rows([("attention", row) for row in found], "", quick=False, markdown=False, as_json=False)
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["what", "against", "ours", "captured"]
    assert all(" 2 ms " in line for line in lines[:2])
    assert "; captured 2 ms |" in markdown_table([("attention", found[0])], "")


def test_a_search_that_cannot_be_recorded_says_so(monkeypatch):
    monkeypatch.setattr(cuda_table, "CudaGraphs", lambda device: EmulatedGraphs())
    (found,) = cuda_table.measure_on_gpu(device="cpu", cases=CASES[:1], sizes=())  # looks at a number
    assert found.captured is None
    assert found.met is True
    assert found.note.startswith(f"{found.what}: not recorded as a CUDA graph: operation not permitted")


@pytest.mark.parametrize(("large", "timed"), [("naive", "ours"), ("auto", "theirs")])
def test_a_row_that_does_not_fit_says_so_and_the_next_comes(large, timed, monkeypatch):
    attend = Method.attend

    def limited(self, work, chunk):
        if self.name == large:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return attend(self, work, chunk)

    monkeypatch.setattr(Method, "attend", limited)
    naive, *others = cuda_table.measure_on_gpu(device="cpu", cases=(), sizes=(60,))
    assert len(others) == 3
    assert naive.ratio is naive.met is None
    assert getattr(naive, timed) > 0
    who = naive.against if large == "naive" else "ours"
    assert naive.note == f"attention forward, 60 nodes, d = 10, k = 10: out of memory: {who}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_the_table_of_a_gpu_needs_one():
    outcome = kmip("bench", "attention", "--table", "--device", "cuda")
    assert outcome.code == 2
    assert "1 GPU cannot be had" in outcome.err
