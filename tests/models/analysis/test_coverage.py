"""Which keys are chosen, against counting one by one; where gradients go, against what was chosen."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from support.cli import kmip
from support.training_data import TINY_RUN, learnable_build

from kmip_data.errors import UsageError
from kmip_data.models.analysis import coverage as module
from kmip_data.models.analysis.coverage import coverage, key_use

TRAIN = ["--epochs", 4, *TINY_RUN]
KEEP = ["--set", "training.keep_best=3", "--set", "schedule.warmup_epochs=0"]


def slow_key_use(indices, norms, ptr):
    found = []
    for start, stop in itertools.pairwise(ptr):
        n = stop - start
        chosen, hubs, entropies, ever = [], [], [], set()
        for head in range(len(indices)):
            links = [i for row in indices[head].tolist()[start:stop] for i in row if i >= 0]
            assert all(start <= i < stop for i in links)
            counts = sorted((links.count(i) for i in range(start, stop)), reverse=True)
            chosen.append(sum(count > 0 for count in counts) / n)
            hubs.append(sum(counts[: math.ceil(0.01 * n)]) / len(links))
            ever |= set(links)
            norm = norms[head, start:stop].tolist()
            shares = [value / sum(norm) for value in norm] if sum(norm) else []
            if shares and n > 1:
                entropies.append(-sum(p * math.log(p) for p in shares if p) / math.log(n))
        found.append([np.mean(chosen), 1 - len(ever) / n, np.mean(hubs), np.mean(entropies or [math.nan])])
    return np.array(found)


def test_equals_counting_one_by_one():
    generator = torch.Generator().manual_seed(0)
    ptr, heads, k = [0, 150, 151, 171], 2, 4
    indices = torch.full((heads, ptr[-1], k), -1)
    for start, stop in itertools.pairwise(ptr):
        some = min(k, stop - start)
        low = torch.randint(start, stop, (heads, stop - start, some), generator=generator)
        indices[:, start:stop, :some] = low
    norms = torch.rand(heads, ptr[-1], generator=generator)
    norms[1, :150] = 0  # a head without gradient
    found = key_use(indices, norms, ptr).numpy()
    np.testing.assert_allclose(found, slow_key_use(indices, norms, ptr), rtol=1e-12)
    assert np.isnan(found[1, 3])  # one node


def test_even_and_uneven_gradients():
    every, one = torch.ones(1, 100), torch.eye(1, 100)
    indices = torch.arange(100).view(1, 100, 1)
    (even,) = key_use(indices, every, [0, 100])
    (single,) = key_use(torch.zeros_like(indices), one, [0, 100])
    torch.testing.assert_close(even, torch.tensor([1, 0, 0.01, 1]).double())
    torch.testing.assert_close(single, torch.tensor([0.01, 0.99, 1, 0]).double())


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A run with a fixed k and one with a schedule, which has kept its weights."""
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path))
    build = learnable_build(tmp_path / "build", graphs=8, nodes=40)
    train = ["train", "--dataset", build.path, *TRAIN, "--set", "model.attention.k=3"]
    return [
        kmip(*train).json["run"],
        kmip(*train, *KEEP, "--set", "training.k_schedule=linear:12:3", "--name", "falling").json["run"],
    ]


def test_each_kept_epoch_has_the_k_of_its_training(runs):
    rows = list(coverage(runs[1], graphs=3))
    assert {row["graphs"] for row in rows} == {3}
    weights = {(row["weights"], row["epoch"]): row["k"] for row in rows}
    assert len(rows) == 2 * len(weights)
    assert sum(name == "best" for name, _ in weights) == 1
    assert sum(name == "kept" for name, _ in weights) == 2
    assert all(k == [12, 9, 6, 3][epoch] for (_, epoch), k in weights.items())
    assert {epoch for _, epoch in weights} >= {3} or ("last", 3) in weights
    for row in rows:
        assert 0 < row["chosen"] <= 1
        assert 0 <= row["unused"] < 1
        assert 0 < row["entropy"] <= 1


def test_no_gradient_reaches_a_key_that_no_query_chose(runs, monkeypatch):
    seen = []

    def look(indices, norms, ptr):
        seen.append((indices, norms))
        return key_use(indices, norms, ptr)

    monkeypatch.setattr(module, "key_use", look)
    rows = list(coverage(runs[0]))
    assert {row["k"] for row in rows} == {3}
    for indices, norms in seen:
        for head, norm in zip(indices, norms, strict=True):
            chosen = torch.bincount(head[head >= 0], minlength=len(norm)) > 0
            assert not norm[~chosen].any()
            assert norm[chosen].any()
    assert any(row["chosen"] < 1 for row in rows)


def test_command_sets_runs_side_by_side(runs, tmp_path):
    outcome = kmip("analyze", "coverage", *runs, "--graphs", 2, "--save", tmp_path / "c", "--split", "val")
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines()[0].split()[:3] == ["run", "layer", "chosen"]
    assert "2 graphs of the part val" in outcome.out
    assert (tmp_path / "c.png").read_bytes()[:4] == b"\x89PNG"
    shown = kmip("analyze", "coverage", *runs, "--graphs", 2, "-q", "--json").json
    assert {row["run"] for row in shown["rows"]} == set(runs)
    assert shown["saved"][0] == f"{runs[0]}/coverage.png"


def test_a_model_without_attention_is_refused(runs, tmp_path):
    build = tmp_path / "build"
    gcn = kmip("train", "--dataset", build, *TRAIN, "--model", "gcn").json["run"]
    with pytest.raises(UsageError, match="no k-MIP attention"):
        list(coverage(gcn))
    with pytest.raises(UsageError, match="nothing to record"):
        list(coverage(runs[0], part="none"))
