"""Parts added in the files that architecture.md names: a dataset, an attention, message passing and others.

They are added to a copy of the tree, which is then linted, tested where tests enumerate parts, and
trained. From outside one plugin file adds such parts: ``tests/test_plugins.py``.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

import pytest
from support.cli import python
from support.shared import ROOT

from kmip_data.models.training.run.run_folder import metrics_columns
from tools import structure

FOLDERS = ("kmip_data", "pipelines", "models", "cli", "manifests", "tests", "tools", "docs")

PIPELINE = '''"""QM9: small molecules, each a line of one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from kmip_data.format.split_files import PARTS
from kmip_data.pipelines.graph_arrays.layout_reader import RawReader, RawGraph
from kmip_data.pipelines.layout_pipelines import GraphsInPartsPipeline, PublishedPart


class QM9(GraphsInPartsPipeline):
    """Charges of the atoms of a chain and its energy, after the part that it belongs to."""

    records_per_unit = 50

    def read(self, raw: RawReader) -> Iterator[PublishedPart]:
        """Yield the molecules of each part, in the order of the file."""
        for part in PARTS:
            yield PublishedPart(part, self._molecules(raw, part))

    def _molecules(self, raw: RawReader, part: str) -> Iterator[RawGraph]:
        for line in raw.lines("qm9.txt"):
            name, energy, *charges = line.split()
            if name == part:
                bonds = np.stack([np.arange(len(charges) - 1), np.arange(1, len(charges))])
                yield {
                    "x": np.array(charges, dtype=np.float32)[:, None],
                    "y": np.float32(energy),
                    "edge_index": np.concatenate([bonds, bonds[::-1]], axis=1),
                }


PIPELINE = QM9
'''
CLASS = '''

class QM9(BuiltDataset):
    """QM9."""

    dataset_name = "qm9"
'''
SAMPLE = '''"""Sample of QM9: generated chains."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_sample(folder: Path, _: object, limit: int | None, seed: int) -> None:
    """Write ``limit`` molecules."""
    rng = np.random.default_rng(seed)
    with (folder / "qm9.txt").open("w", encoding="ascii", newline="\\n") as file:
        for number in range(limit or 24):
            charges = rng.choice([1, 6, 7, 8], rng.integers(3, 9))
            part = ("train", "train", "val", "test")[number % 4]
            file.write(f"{part} {charges.sum() / 10} {' '.join(map(str, charges))}\\n")
'''
MANIFEST = """
name = "qm9"
title = "QM9, small molecules"
summary = "Molecules and their energies."
pipeline = "qm9"
task = "graph regression, metric MAE"
homepage = "https://example.com"
published = "2014-08-05"
synthetic = false
max_nodes = 64
dataset_class = "QM9"
citation = "@article{a, title={QM9}, author={Ann Author}}"

[license]
name = "CC0"
url = "https://example.com"
notice = "none"

[responsible]
collection = "Computed."
biases = "Small molecules."
uses = "Comparison."
personal = "None."
limitations = "Small molecules alone."
impact = "Low."

[[publishers]]
begins = "https://example.com/"
by = "the authors of QM9"
named = "its page"

[[sources]]
name = "qm9.txt"
container = "file"

[[sources.mirrors]]
url = "https://example.com/qm9.txt"

[content]
anchor = "qm9.txt"
max_total_bytes = 1_000_000

[[content.members]]
pattern = "qm9.txt"
max_bytes = 1_000_000

[layout]
both_ways = "checked"
split_note = "as the first word of each line"

[layout.columns]
"node/x" = { shape = [1], fields = ["charge"], doc = "nuclear charge" }
"graph/y" = { doc = "energy" }
"""
PRESET = """
source = "ours, the trial"

[code.model]
layers = 2
hidden_dim = 32
head = "graph"
"""
ATTENTION = '''"""Attention through one hub per graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.components import Component, LayerInfo

if TYPE_CHECKING:
    from torch import nn


class HubComponent(Component):
    """Each node attends to the mean of its graph."""

    kind: Literal["hub"] = Field(default="hub", description="attention through one hub per graph")

    def build(self, layer: LayerInfo) -> nn.Module:
        """Make the module."""
        from torch import nn
        from torch_geometric.nn import global_mean_pool

        class Hub(nn.Linear):
            def forward(self, x, batch):
                return super().forward(global_mean_pool(x, batch.graph_index))[batch.graph_index]

        return Hub(layer.dim, layer.dim)


COMPONENT = HubComponent
'''
MESSAGE_PASSING = '''"""Mean of the neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.components import LayerInfo
from kmip_data.models.layers.message_passing import MessagePassingComponent

if TYPE_CHECKING:
    from torch import nn


class MeanComponent(MessagePassingComponent):
    """A linear map of the mean of the neighbours."""

    kind: Literal["mean"] = Field(default="mean", description="mean of the neighbours")

    def build(self, layer: LayerInfo) -> nn.Module:
        """Make the module."""
        from torch import nn

        from kmip_data.models.layers.edge_list import neighbor_sum

        class Mean(nn.Linear):
            def forward(self, x, e, batch):
                edge_list = batch.edges.edge_list
                sums = neighbor_sum(edge_list, x)
                count = edge_list.incoming.start.diff()[:, None].clamp_min(1)
                return super().forward(sums / count), e

        return Mean(layer.dim, layer.dim)


COMPONENT = MeanComponent
'''
FORMULA = """

def slow_mean(weights: Weights, x: Tensor, edge_index: Tensor) -> Tensor:
    from_source, from_target = incidence(x, edge_index)
    times = from_target.T @ from_source
    mean = times @ x / times.sum(1, keepdim=True).clamp_min(1)
    return mean @ weights["weight"].T + weights["bias"]


MESSAGE_PASSING["mean"] = lambda graph: slow_mean(graph.weights, graph.x, graph.edge_index)
"""
ATTENTION_FORMULA = """

def hub(part: Any, weights: Weights, x: Tensor, layer: int) -> Tensor:
    mean = x.mean(0, keepdim=True) @ weights["weight"].T + weights["bias"]
    return mean.expand(len(x), -1)


ATTENTION["hub"] = hub
"""
METRIC = '''

def worst(sums: RegressionSums) -> Tensor:
    """Return the mean absolute error () of the worst target."""
    return (sums.absolute / sums.rows).max()


METRICS["worst"] = Metric(
    worst, "worst MAE", "regression", higher_is_better=False, constant="median"
)
'''
LOSS = """
LOSSES["five"] = Loss(lambda logits, target: 5 + 0 * (logits - target).mean(), "regression")
"""
SCHEDULE = """
SCHEDULES["half"] = Schedule(schedule_by_factor(lambda time, options: 0.5))
"""
OPTIMIZER = """
OPTIMIZERS["adagrad"] = OptimizerFactory(import_on_call("torch.optim:Adagrad"))
"""
ENCODING = '''"""Sines of the numbers of nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kmip_data.arrays import Array
from kmip_data.format.schema import Column
from kmip_data.graphs.encoding import Encoding, ConcatenatedGraphs


class Waves(Encoding):
    """Sines of the node's number."""

    prefix = "waves"
    parameter_letter = "N"
    help = "Sines of the node's number."
    definition_template = "sines of {parameter} frequencies of the node's number"

    def columns(self) -> tuple[Column, ...]:
        """Return one column."""
        return (self.column("node", "waves", self.parameter),)

    def compute(self, graphs: ConcatenatedGraphs, check: Callable[[], None]) -> dict[str, Array]:
        """Fill it."""
        number = np.concatenate([np.arange(n) for n in np.diff(graphs.node_ptr)])
        waves = np.sin(number[:, None] / 2.0 ** np.arange(self.parameter))
        return {"node/waves": waves.astype(np.float32)}


ENCODING = Waves
'''
#: Row of the table of architecture.md -> the files that the trial writes, or appends to where they
#: exist.
TRIALS: dict[str, dict[str, str]] = {
    "a new dataset, here a hypothetical `qm9` (read `pipelines/datasets/heterophilous/` as the model)": {
        "pipelines/datasets/qm9/__init__.py": PIPELINE,
        "pipelines/datasets/qm9/sample.py": SAMPLE,
        "manifests/datasets/qm9/dataset.toml": MANIFEST,
        "manifests/datasets/qm9/gps-kmip.toml": PRESET,
        "kmip_data/datasets/molecules.py": CLASS,
        "docs/datasets/qm9.md": "# QM9\n\nMolecules.\n",
    },
    "an attention": {
        "models/attention/kinds/hub.py": ATTENTION,
        "tests/support/oracles/slow_attention.py": ATTENTION_FORMULA,
    },
    "message passing": {
        "models/layers/message_passing/mean.py": MESSAGE_PASSING,
        "tests/support/oracles/slow_layers.py": FORMULA,
    },
    "a metric": {"models/training/metrics.py": METRIC},
    "a loss": {"models/training/losses.py": LOSS},
    "a schedule, an optimizer": {
        "models/training/schedules.py": SCHEDULE,
        "models/training/optimizers.py": OPTIMIZER,
    },
    "an encoding": {"kmip_data/graphs/encodings/waves.py": ENCODING},
}
#: Key of a configuration -> its choice that a trial adds.
CHOICES = {
    "model.attention.kind": "hub",
    "model.local.kind": "mean",
    "training.metric": "worst",
    "training.loss": "five",
    "schedule.kind": "half",
    "optimizer.name": "adagrad",
}
#: Tests that write keys and tables with ``make docs-tables``.
WRITE = (
    "tests/models/training/config/test_run_config.py::test_the_page_has_every_key",
    "tests/kmip_data/datasets/test_shipped_datasets.py::test_dataset_tables_equal_the_manifests",
)
#: Tests that enumerate parts, each with the cases that the trials add.
ENUMERATE = (
    "tests/models/layers/test_convolutions.py::test_a_graph_without_edges_trains",
    (
        "tests/models/layers/test_hops.py::test_seed_predictions_equal_predictions_on_the_full_sample"
        "[{'kind': 'mean'}-[3, 2, 2]-torch.float64]"
    ),
    "tests/models/test_whole_networks.py::test_every_kind_equals_its_formula_with_the_default_keys[local-mean]",
    "tests/models/test_whole_networks.py::test_every_kind_equals_its_formula_with_the_default_keys[attention-hub]",
    "tests/models/training/test_memory_estimate.py::test_the_count_of_every_kind_is_near_what_a_layer_saves[attention-hub]",
    "tests/models/training/test_memory_estimate.py::test_the_count_of_every_kind_is_near_what_a_layer_saves[local-mean]",
    "tests/models/training/config/test_run_config.py::test_every_choice_has_its_implementation",
    "tests/models/training/config/test_run_config.py::test_every_key_is_documented",
    "tests/models/training/test_metrics.py::test_metrics_of_numbers_are_not_printed_in_percent",
    "tests/models/training/test_tasks.py::test_targets_decide_task_loss_metric_and_head[value]",
    "tests/kmip_data/datasets/test_shipped_datasets.py::test_every_dataset_has_a_public_class_with_the_arguments_of_its_pipeline",
    "tests/kmip_data/datasets/test_pyg_arguments.py::test_a_dataset_has_the_task_that_its_manifest_states[qm9]",
    "tests/kmip_data/datasets/test_pyg_arguments.py::test_metrics_of_datasets_fit_their_tasks",
    "tests/pipelines/test_splits_of_every_dataset.py::test_every_dataset_takes_the_rule",
    "tests/test_docs.py::test_every_parameter_of_a_dataset_is_on_a_page",
)
#: A program: the first tests write, all must then pass, and a network with every part trains.
PROGRAM = """
import ast, importlib, os, pytest, sys
import kmip_data
from kmip_data.cli.main import run_command_line
assert kmip_data.__file__.startswith(sys.argv[1])
write, enumerate, train = map(ast.literal_eval, sys.argv[2:])
os.environ["KMIP_DATA_WRITE_DOCS"] = "1"
pytest.main(["-q", *write])
del os.environ["KMIP_DATA_WRITE_DOCS"]
importlib.reload(kmip_data)  # the stub names the new class now
code = pytest.main(["-q", "-x", *write, *enumerate]) or run_command_line(train)
sys.stdout.flush()
os._exit(code)  # to free the modules of PyTorch would take 2 s
"""
TRAIN = (
    *("train", "qm9", "--sample", "--limit", "12", "--epochs", "1"),
    *("--device", "cpu", "--quiet", "--json"),
    *("--set", "model.positional=waves4", "--set", "optimizer.lr=0.25"),
    *(word for key, choice in CHOICES.items() for word in ("--set", f"{key}={choice}")),
)


def copy_of_the_tree(folder: Path, files: Mapping[str, str]) -> None:
    """Copy this tree (8 MB), with ``files`` written into it, or at the end of those that exist."""
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, folder)
    for name in FOLDERS:
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=without)
        for cache in (ROOT / name).rglob("__pycache__"):  # compiled kernels, which take minutes
            (folder / cache.relative_to(ROOT)).symlink_to(cache)
    for name, addition in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(addition)


def test_the_page_names_the_files_of_each_trial():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    for row, files in TRIALS.items():
        (line,) = re.findall(rf"^\| {re.escape(row)} \|.*$", page, re.MULTILINE)
        patterns = [re.sub("[A-Z]{4,}", "*", name) for name in re.findall("`([^`]+)`", line)]
        for file in files:
            assert any(
                fnmatch(file, pattern) or fnmatch(Path(file).name, pattern) for pattern in patterns
            ), f"{file} is not in the row {row}"


@pytest.mark.slow
def test_all_parts_inside(tmp_path, monkeypatch):
    """Lint, the tests that enumerate parts, and an epoch with all of them."""
    tree = tmp_path / "tree"
    tree.mkdir()
    files = {name: text for trial in TRIALS.values() for name, text in trial.items()}
    copy_of_the_tree(tree, files)
    assert list(structure.problems(tree)) == []

    monkeypatch.setenv("PYTHONPATH", str(tree))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    train = [*TRAIN, "--home", str(tmp_path / "home")]
    output = python("-c", PROGRAM, tree, WRITE, ENUMERATE, train, cwd=tree).out
    page = (tree / "docs" / "keys.md").read_text("utf-8")
    for key, choice in CHOICES.items():
        assert re.search(rf"`{key}` \| .*{choice}", page)

    result = json.loads(output[output.rindex("\n{") :])
    assert result["metrics"]["val"].keys() >= {"worst", "mae"}
    assert result["references"]["constant"]["test"] > 0
    assert result["metrics"]["val"]["loss"] == 5
    assert metrics_columns(Path(result["run"]))["lr"] == [(1, 0.5 * 0.25)]
