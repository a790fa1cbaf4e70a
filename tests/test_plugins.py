"""Plugins: a file, an installed package, what a run may import, and every error."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import os
import re
import signal
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from support.cases import check_each
from support.cli import expect_refusal, expect_success, kmip_process
from support.metrics import usual_metrics
from support.plugins import fresh
from support.raises import raises
from support.shared import ROOT
from torch_geometric.datasets import FakeDataset

import kmip_data
from kmip_data import plugins
from kmip_data.models.training.config.compose import read_users_config
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.run.run_folder import _FILES, CONFIG_NAME
from kmip_data.registry import PLUGIN_OBJECTS

DOCS = ROOT / "docs"
PAGES = "".join((DOCS / name).read_text() for name in ("bring-your-own.md", "own-components.md"))
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGES, re.MULTILINE | re.DOTALL)
EXAMPLE, ENCODING, TRAINING, NETWORK = (block for block in BLOCKS if "PLUGIN" in block)
#: One file that adds a dataset, an attention, a model, an encoding and a metric from outside.
FOUR = EXAMPLE + ENCODING.replace("PLUGIN = {", "PLUGIN |= {")
SMALL = (
    "--epochs",
    1,
    "--set",
    "model.layers=1",
    "--set",
    "model.hidden_dim=16",
    "--device",
    "cpu",
    "-q",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a home in it."""
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with fresh():
        yield tmp_path


def write_rings(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for part, count in (("train", 8), ("val", 4), ("test", 4)):
        (folder / part).mkdir(parents=True)
        for i in range(count):
            np.savetxt(folder / part / f"{i}.txt", rng.integers(0, 3, 5 + i), "%d")


@pytest.mark.slow
def test_the_file_of_the_page_trains_and_its_run_imports_nothing(folder, request, monkeypatch):
    mine, config = folder / "mine.py", folder / "home/runs/rings/gps-hub/mine/config.toml"
    mine.write_text(FOUR)
    assert len(EXAMPLE.splitlines()) < 70
    write_rings(folder / "raw")
    # The worker, which --memory asks for, imports the file by its name.
    words = ("build", "rings", "--archive", folder / "raw", "--plugin", mine)
    with monkeypatch.context() as patch, fresh():
        for name, executor in request.getfixturevalue("_light").items():
            if "engine" in name:
                patch.setattr(name, executor)
        expect_success(*words, "--memory", "8GiB", "--jobs", "1")
    keys = ("model.hidden_dim=24", "model.positional=waves4", "training.metric=recall")
    run = ("train", "rings", "--model", "gps-hub", "--name", "mine", *SMALL)
    with fresh():
        chosen = [f"--set={key}" for key in keys]
        result = expect_success(*run, *chosen, "--plugin", "mine.py", "--json").json
        assert result["run"] == str(config.parent)
        assert "recall" in result["metrics"]["val"]
        assert "mine.py" in expect_success("report", "--format", "csv").out
    recorded = tomllib.loads(config.read_text())["plugins"]
    digest = hashlib.sha256(FOUR.encode()).hexdigest()
    assert recorded == [{"source": str(mine), "sha256": digest}]

    strangers = (
        ("evaluate", "mine"),
        ("predict", "mine", "--output", "p.npz"),
        ("train", "--resume", "mine"),
        ("explore", "mine", "--output", "e.html"),
        ("train", "--config", config),
    )

    def refuses(line):
        with fresh():
            message = expect_refusal(*line)
            assert f"--plugin {mine}" in message, message
            assert digest in message, message
            assert "mine" not in sys.modules

    check_each(refuses, strangers)
    with fresh():
        assert (
            "equal to result.json" in expect_success("evaluate", "mine", "--plugin", "mine.py").out
        )
        assert "has no sample" in expect_refusal("build", "rings", "--sample")
    with fresh(), pytest.MonkeyPatch.context() as patch:
        patch.setenv(plugins.PLUGINS_VARIABLE, str(mine))
        assert "is finished already" in expect_success("train", "--resume", "mine").err
    with fresh():
        assert "skipped" in expect_refusal("report")
        assert len(kmip_data.open("rings", "train")) == 8  # a build needs no plugin
        assert "--plugin FILE" in expect_refusal("build", "rings")
        assert "mine" not in sys.modules
    mine.write_text(f"{FOUR}#")
    with fresh():
        assert f"expected: SHA-256 {digest}" in expect_refusal(
            "evaluate", "mine", "--plugin", "mine.py", code=1
        )


def test_a_configuration_names_its_plugins(folder):
    (folder / "part.py").write_text(PART)
    text = '{} [data]\ndataset = "long-range"\n[model.attention]\nkind = "late"\n'
    (folder / "own.toml").write_text(text.format('plugins = ["part.py"]\n'))
    with fresh(), raises(plugins.UsageError, naming="part.py"):
        read_config(folder / "own.toml")
    (folder / "metrics.csv").touch()  # as in a run, which may be a stranger's
    with fresh(), raises(plugins.UsageError, naming="part.py") as error:
        read_users_config(folder / "own.toml")
    advised = error.value.steps[1].values["plugin"]
    with fresh(), pytest.MonkeyPatch.context() as patch:
        patch.chdir("/")
        plugin = plugins.load(advised)
        assert read_users_config(folder / "own.toml").plugins == (plugin,)
    (folder / "metrics.csv").unlink()
    (folder / "none.toml").write_text(text.format(""))
    with (
        fresh(),
        raises(plugins.UsageError, naming="late"),
    ):
        read_config(folder / "none.toml")
    config = read_users_config(folder / "own.toml")
    assert config.with_plugins().plugins == (plugins.load("part.py"),)
    (folder / "damaged.toml").write_text(text.format("plugins = [3]\n"))
    with pytest.raises(plugins.DamagedInput):
        read_config(folder / "damaged.toml")


RUN_NAMES = sorted({Path(name).parts[0] for name in _FILES} - {CONFIG_NAME} | {".kmip-data"})


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, lambda path: path.symlink_to("gone")])
def test_any_file_of_a_run_makes_its_folder_one_that_imports_nothing(folder, make):
    """A stranger chooses which files their run lacks, and what they are."""
    assert {"checkpoints", "metrics.csv", "model.safetensors", "result.json"} < {*RUN_NAMES}
    config = 'plugins = ["evil.py"]\n[data]\ndataset = "long-range"\n'
    subsets = [
        subset
        for size in range(1, len(RUN_NAMES) + 1)
        for subset in itertools.combinations(RUN_NAMES, size)
    ]
    for number, names in enumerate(subsets):
        run = folder / str(number)
        run.mkdir()
        (run / "evil.py").write_text("raise SystemExit('imported')")
        (run / "config.toml").write_text(config)
        (folder / f"{number}.toml").symlink_to(run / "config.toml")
        for name in names:
            make(run / name)
        for file in (run / "config.toml", folder / f"{number}.toml"):
            with raises(plugins.UsageError, naming="evil.py"):
                read_users_config(file)
    message = expect_refusal("train", "--config", folder / "0/config.toml")
    assert f"--plugin {folder / '0/evil.py'}" in message


PART = """
from typing import Literal
from kmip_data.models.components import Component
class Late(Component):
    kind: Literal["late"] = "late"
    def build(self, layer):
        from torch.nn import Identity
        class Same(Identity):
            def forward(self, x, batch):
                return x
        return Same()
PLUGIN = {"attention": {"late": Late}}
"""
GRAPHS = """
import numpy as np
from kmip_data.format.schema import Schema
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines.base import Pipeline
from kmip_data.pipelines.common_columns import class_column, feature_column
from kmip_data.pipelines.units_and_splits import units_of_rows
class Paths(Pipeline):
    version = 1
    manifest_fields = {"title": "Paths with a marked end"}
    def schema(self, params):
        columns = feature_column("node/x", ("mark",), "of one end"), class_column("graph/y", 2, "even")
        return Schema(columns=columns)
    def units(self, prepared, params):
        return units_of_rows(range(12), 6)
    def records(self, prepared, unit, params):
        for row in unit.selection["rows"]:
            nodes, part = 3 + row, ("train", "val", "test")[row % 3]
            edges, x = np.stack([np.arange(nodes - 1), np.arange(1, nodes)]), np.zeros((nodes, 1), np.float32)
            yield GraphRecord(key=f"{part}/{row}", num_nodes=nodes, edge_index=edges,
                              columns={"node/x": x, "graph/y": np.uint8(row % 2)})
"""
POINTS = """
[kmip_data.datasets]
paths = lib_of_paths.graphs:Paths
[kmip_data.attention]
late = lib_of_paths.attention:Late
[kmip_data.norms]
rms = lib_of_paths:Norm
[kmip_data.models]
gps-late = lib_of_paths:GPS_LATE
"""


@pytest.fixture
def package(folder):
    """An installed package of three files."""
    package, info = folder / "lib_of_paths", folder / "lib_of_paths-1.0.dist-info"
    package.mkdir(), info.mkdir()
    (package / "__init__.py").write_text(
        'GPS_LATE = {"attention": {"kind": "late"}, "local": {"kind": "gcn"}}\nclass Norm:\n    pass'
    )
    (package / "graphs.py").write_text(GRAPHS)
    (package / "attention.py").write_text(PART)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lib-of-paths\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    return folder


@pytest.mark.slow
def test_a_package_outside_ours_is_trained_by_its_names(package, monkeypatch):
    monkeypatch.syspath_prepend(package)
    monkeypatch.setenv("PYTHONPATH", str(package))
    run = ("paths", "--model", "gps-late", *SMALL[:-3], "-q", "--json")
    with fresh():
        summary = expect_success("train", *run).json
    recorded = tomllib.loads((Path(summary["run"]) / "config.toml").read_text())
    assert recorded["model"]["attention"] == {"kind": "late"}
    (plugin,) = recorded["plugins"]
    assert plugin["source"] == "lib-of-paths"
    with fresh():  # runs of a sweep are processes, which get the plugin from it
        assert [
            each["state"] for each in expect_success("sweep", "--dataset", *run).json["runs"]
        ] == ["done"]
    listed = expect_success("list", "--all", "--json").json["datasets"]
    assert {"name": "paths", "title": "of the plugin lib-of-paths"} in listed


def test_installed_names_are_found_where_they_are_typed_alone(package, monkeypatch):
    from kmip_data.models.training.config.overrides import apply_overrides, config_from_mapping
    from kmip_data.pipelines.find_builds import find_or_build

    monkeypatch.syspath_prepend(package)
    config = config_from_mapping({"data": {"dataset": "s3dis"}}, "the test")
    with raises(plugins.UsageError, naming="paths"):
        find_or_build("paths")  # a run's configuration may have said it
    assert "lib_of_paths" not in sys.modules
    assert apply_overrides(config, ["model.attention.kind=late"]).model.attention.kind == "late"
    with fresh():
        monkeypatch.syspath_prepend(package)
        assert "Paths with a marked end" in expect_success("info", "paths").out
    with fresh():
        monkeypatch.syspath_prepend(package)
        assert apply_overrides(config, ["model.norm=rms"]).model.norm == "rms"


OWN = f"""{ENCODING}
class Whole(Waves):
    prefix = "whole"
    def columns(self):
        return (self.column("graph", "whole", self.parameter),)
def by_class(task):
    from torchmetrics.classification import MulticlassAccuracy
    return MulticlassAccuracy(task.outputs, average="macro")
PLUGIN["encodings"]["whole"] = Whole
PLUGIN["metrics"]["by-class"] = Metric(
    float, "recall", "classification", higher_is_better=False, accumulator=by_class
)
"""
NO_UNITS = GRAPHS.replace("def units", "def pieces")
FACTS = GRAPHS.replace('"title"', '"heading"')
ERRORS = {
    "import": (
        "1 / 0",
        r"failed at odd.py, line 1: ZeroDivisionError: division by zero\n",
    ),
    "syntax": ("def", r"found: SyntaxError: invalid syntax \(odd.py, line 1\)"),
    "exit": ("import sys; sys.exit(3)", "failed at odd.py, line 1: SystemExit: 3"),
    "no table": ("x = 1", "has no table PLUGIN"),
    "a group": (
        'PLUGIN = {"graphs": {}, "dataset": {"x": 1}}',
        "no group of plugins called 'dataset'",
    ),
    "a name": (
        'PLUGIN = {"models": {"../x": {}}}',
        "'../x' in models of the plugin odd.py is not a valid name",
    ),
    "a class": (
        'PLUGIN = {"datasets": {"x": 1}}',
        r"lacks manifest_fields, version, schema, units, records\.\n  found: 1\n",
    ),
    "a method": (f"{NO_UNITS}\nPLUGIN = {{'datasets': {{'x': Paths}}}}", "lacks units"),
    "facts": (
        f"{FACTS}\nPLUGIN = {{'datasets': {{'x': Paths}}}}",
        "manifest fields of 'x' .*\n  found: heading",
    ),
    "a model": ('PLUGIN = {"models": {"x": {"attention": "hub"}}}', "lacks attention, local"),
    "a network": ('PLUGIN = {"models": {"x": 1}}', "'x' in models .* lacks __call__"),
    "a norm": ('PLUGIN = {"norms": {"x": 1}}', "'x' in norms .* lacks __call__"),
    "an encoder": ('PLUGIN = {"node_encoders": {"x": len}}', "'x' in node_encoders .* lacks build"),
    "a head": ('PLUGIN = {"heads": {"x": len}}', "'x' in heads .* lacks build, level"),
    "a level": (
        NETWORK.replace('level="graph"', 'level="edge"'),
        "node, graph or link, not 'edge'",
    ),
    "another kind": (f"{PART}\nPLUGIN['attention'] = {{'x': Late}}", "calls itself 'late'"),
    "no kind": (
        "class A:\n model_fields = {}\n build = 1\nPLUGIN = {'attention': {'x': A}}",
        "calls itself ''",
    ),
    "no table of facts": (
        f"{GRAPHS}\nPaths.manifest_fields = 1\nPLUGIN = {{'datasets': {{'x': Paths}}}}",
        "`manifest_fields` of 'x' .* not a mapping",
    ),
    "a constructor": (
        f"{GRAPHS}\nPaths.__init__ = lambda self, m: 1 / 0\nPLUGIN = {{'datasets': {{'x': Paths}}}}",
        "ZeroDivisionError",
    ),
    "our dataset": (
        f"{GRAPHS}\nPLUGIN = {{'datasets': {{'s3dis': Paths}}}}",
        "is built into kmip-data",
    ),
    "our model": ('PLUGIN = {"models": {"gcn": {}}}', "is built into kmip-data"),
    "a loss": ('PLUGIN = {"losses": {"x": len}}', "'x' in losses .* lacks compute, target_type"),
    "a schedule": ('PLUGIN = {"schedules": {"x": 1}}', "'x' in schedules .* lacks build"),
    "an optimizer": ('PLUGIN = {"optimizers": {"x": 1}}', "'x' in optimizers .* lacks build"),
    "our kind": (PART.replace("late", "k-mip"), "adds 'k-mip', which is built into kmip-data"),
}


def test_every_fault_of_a_plugin_is_one_error(folder):
    def check(case):
        code, message = ERRORS[case]
        (folder / "odd.py").write_text(code)
        with fresh():
            message_shown = expect_refusal(
                "info", "helsinki", "--model", "gps-kmip", "--plugin", "odd.py"
            )
            assert re.search(message, message_shown), message_shown
            assert len(re.findall("^Error: ", message_shown, re.MULTILINE)) == 1, message_shown
            assert (
                "odd" not in sys.modules or case == "our kind"
            )  # corrected, it can be loaded again

    check_each(check, ERRORS)


def test_missing_plugins_are_reported(folder, package, monkeypatch):
    monkeypatch.syspath_prepend(package)
    (folder / "json.py").write_text("")
    points = package / "lib_of_paths-1.0.dist-info/entry_points.txt"
    points.write_text("[kmip_data.attention]\nlate = lib_of_paths.attention:Gone\n")
    for source, message in {
        "gone.py": "gone.py.\n  remedy: check the path of the plugin",
        "json.py": "'json' is not a valid module name, or is taken",
        "no-such-package": "There is no plugin 'no-such-package'",
        "lib-of-paths": "found: AttributeError: module 'lib_of_paths.attention' has no attribute 'Gone'",
    }.items():
        assert message in expect_refusal("info", "helsinki", "--plugin", source)
    monkeypatch.setenv(plugins.PLUGINS_VARIABLE, "gone.py")
    assert "/gone.py." in expect_refusal("list")


def test_an_encoding_and_a_metric_of_a_plugin_are_chosen_by_their_names(folder):
    (folder / "own.py").write_text(OWN)
    parts = {"train": range(6), "val": range(6, 9), "test": range(9, 12)}
    kmip_data.save(FakeDataset(num_graphs=12, avg_num_nodes=6, edge_dim=2), "graphs", split=parts)
    expect_success("encode", "./graphs", "waves3", "--plugin", "own.py", "-q")
    with fresh():
        assert kmip_data.open("./graphs", columns=["waves3"])[0].waves.shape[1] == 3
        expect_success("verify", "./graphs")
    keys = [f"--set={key}" for key in ("model.positional=waves2", "training.metric=recall")]
    run = (
        "train",
        "./graphs",
        "--name",
        "own",
        *SMALL,
        "--set=model.hidden_dim=24",
        *keys,
    )
    with fresh():
        assert "model.positional cannot be 'waves2'" in expect_refusal(*run)
        plugin = ("--plugin", "own.py")
        assert "is not one column of floats" in expect_refusal(
            *run, *plugin, "--set=model.positional=whole2"
        )
        out = expect_success(*run, *plugin).out
        assert "the best by mean recall on val" in out
        assert f"own --plugin {folder / 'own.py'}" in out.rstrip().splitlines()[-1], (
            "the next command"
        )
        assert "mean recall" in expect_success("report", *plugin).out
    (result,) = (folder / "home/runs").glob("*/*/own/result.json")
    values = json.loads(result.read_text())
    assert values["metric"] == "recall"
    reported = {"loss", "recall"} | usual_metrics("classification", "graph")
    assert {*values["metrics"]["val"]} == {*values["metrics"]["test"]} == reported
    with fresh():
        assert "recall" in expect_success("runs").out
        assert "--plugin" in expect_refusal("evaluate", "own")
        assert "equal to result.json" in expect_success("evaluate", "own", *plugin).out


MINE = f"""{TRAINING}
from kmip_data.models.training.metrics import Metric
def mean_recall(confusion):
    return (confusion.diagonal() / confusion.sum(1).clamp_min(1)).mean()
PLUGIN["metrics"] = {{"recall": Metric(mean_recall, "mean recall", "classification", percent=True)}}
"""
CHOSEN = (
    "training.metric=recall",
    "training.loss=focal",
    "schedule.kind=line",
    "optimizer.name=radam",
)


def test_a_plugin_adds_a_metric_a_loss_a_schedule_and_an_optimizer(folder):
    from kmip_data.models.training.config.overrides import read_config
    from kmip_data.models.training.run.checkpoint import LAST_CHECKPOINT, read_checkpoint

    (folder / "own.py").write_text(MINE)
    parts = {"train": range(6), "val": range(6, 9), "test": range(9, 12)}
    kmip_data.save(FakeDataset(num_graphs=12, avg_num_nodes=6, edge_dim=2), "graphs", split=parts)
    run = ("train", "./graphs", "--name", "own", *SMALL, "--epochs", 2)
    chosen = [f"--set={key}" for key in CHOSEN]
    for key in chosen:
        with fresh():
            name, value = key.removeprefix("--set=").split("=")
            assert f"{name} cannot be '{value}'" in expect_refusal(*run, key)
    with fresh():
        shown = expect_success(
            *run, *chosen, "--set=optimizer.betas=0.8,0.9", "--plugin", "own.py"
        ).out
        assert "mean recall [%]" in shown
        assert "radam takes no momentum" in expect_refusal(
            *run, *chosen, "--set=optimizer.momentum=0.9", "--plugin", "own.py"
        )

    (path,) = (folder / "home/runs").glob("*/*/own")
    with (path / "metrics.csv").open() as file:
        rates = [float(row["lr"]) for row in csv.DictReader(file)]
    assert rates[1] == rates[0] / 2  # half of a line
    (group,) = read_checkpoint(path / LAST_CHECKPOINT)["optimizer"]["param_groups"]
    assert group["betas"] == (0.8, 0.9)
    assert "decoupled_weight_decay" in group  # RAdam's own
    with fresh():
        assert "equal to result.json" in expect_success("evaluate", "own", "--plugin", "own.py").out
        assert {plugin.name for plugin in read_config(path / "config.toml").plugins} == {"own.py"}
    with fresh():
        assert "--plugin" in expect_refusal("train", "--resume", "own")


def test_the_loss_of_the_page_is_focal(folder):
    (folder / "own.py").write_text(MINE)
    plugins.load("own.py")
    focal = PLUGIN_OBJECTS["losses"]["focal"].value
    logits, target = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
    chosen = logits.log_softmax(1)[torch.arange(5), target]
    assert focal(logits, target) == pytest.approx(
        float((-((1 - chosen.exp()) ** 2) * chosen).mean())
    )
    assert focal(logits[:0], target[:0]) == 0


def test_a_metric_of_a_plugin_accumulates_as_it_says(folder):
    from sklearn.metrics import balanced_accuracy_score

    from kmip_data.models.training.accumulators import PartMetrics
    from kmip_data.models.training.tasks import Task

    (folder / "own.py").write_text(OWN)
    plugins.load("own.py")
    logits, target = torch.randn(40, 3), torch.arange(40) % 3
    first, then = (PartMetrics(Task("graph", "classification", 3), "by-class") for _ in range(2))
    first.update(logits[:30], target[:30], torch.zeros(()))
    then.load(first.state())  # as a run that was stopped in an epoch
    then.update(logits[30:], target[30:], torch.zeros(()))
    values = then.compute()
    assert values["by-class"] == pytest.approx(balanced_accuracy_score(target, logits.argmax(1)))
    assert "recall" not in values  # which is not chosen
    first.reset()
    assert not first.state()["metric_accumulator"]["tp"].any()


PARTS = ("norm=rms", "node_encoder=sines", "edge_encoder=lengths", "head=largest")


def test_a_plugin_adds_a_norm_encoders_a_head_and_a_whole_network(folder):
    from kmip_data.models.training.run.checkpoint import read_weights

    (folder / "own.py").write_text(NETWORK)
    parts = {"train": range(6), "val": range(6, 9), "test": range(9, 12)}
    kmip_data.save(FakeDataset(num_graphs=12, avg_num_nodes=6, edge_dim=2), "graphs", split=parts)
    run = ("train", "./graphs", *SMALL, "--name")
    chosen = [f"--set=model.{part}" for part in PARTS]
    for key in chosen:
        with fresh():
            name, value = key.removeprefix("--set=").split("=")
            assert f"{name} cannot be '{value}'" in expect_refusal(*run, "none", key)
    with fresh():
        expect_success(*run, "parts", "--model", "gine", *chosen, "--plugin", "own.py")
        assert "both none" in expect_refusal(
            *run, "none", "--set=model.attention.kind=none", "--set=model.local.kind=none"
        )
    with fresh():
        expect_success(*run, "whole", "--model", "two-hops", "--plugin", "own.py")

    (path,) = (folder / "home/runs").glob("*/*/parts/model.safetensors")
    names = {name.rpartition(".")[0] for name in read_weights(path)}
    assert {
        "layers.0.norm_local",
        "node_encoder.linear",
        "edge_encoder.linear",
        "head.linear",
    } <= names
    (path,) = (folder / "home/runs").glob("*/two-hops/whole/model.safetensors")
    names = {*read_weights(path)}
    assert {name for name in names if name.startswith("network.layers.")}
    # The scales of the user's own features lie next to the weights.
    assert all(name.startswith(("network.layers.", "scaling.")) for name in names)
    for name in ("parts", "whole"):
        with fresh():
            assert "--plugin" in expect_refusal("evaluate", name)
            assert (
                "equal to result.json" in expect_success("evaluate", name, "--plugin", "own.py").out
            )


RINGLETS = """
from kmip_data.format.schema import Schema
from kmip_data.pipelines.base import Pipeline

class Ringlets(Pipeline):
    manifest_fields = {"files": "*/*.txt"}
    version = 1
    def schema(self, params): return Schema(columns=())
    def units(self, prepared, params): return []
    def records(self, prepared, unit, params): return []

PLUGIN = {"datasets": {"ringlets": Ringlets}}
"""


def test_an_anchor_that_is_the_only_member_is_named_once(folder):
    plugin = folder / "ringlet_plugin.py"
    plugin.write_text(RINGLETS)
    (folder / "other").mkdir()
    (folder / "other" / "x.dat").touch()
    words = ["build", "ringlets", "--plugin", plugin, "--archive", folder / "other"]
    assert kmip_process(*words, code=4).err.count("*/*.txt") == 1


def test_a_signal_while_a_plugin_is_imported_is_not_its_fault(folder):
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nimport time; time.sleep(60)\n"
    (folder / "slow_plugin.py").write_text(text)
    words = ["info", "s3dis", "--plugin", folder / "slow_plugin.py"]
    ended = kmip_process(*words, code=128 + signal.SIGTERM)
    assert "cannot be imported" not in ended.err


@pytest.mark.parametrize("command", ["push", "explore", "report"])
def test_a_command_that_opens_runs_takes_their_plugins(command):
    assert "--plugin FILE" in expect_success(command, "--help").out


def test_a_command_restores_the_variable_of_plugins(folder, monkeypatch):
    """Also the second command, which finds the plugin imported, passes it on to child processes."""
    plugin = folder / "empty.py"
    plugin.write_text('PLUGIN = {"norms": {}}\n')
    inherited = []

    def record(*_: object) -> None:
        inherited.append(os.environ[plugins.PLUGINS_VARIABLE])

    monkeypatch.setattr("kmip_data.cli.info.print_result", record)
    for _ in range(2):
        expect_success("info", "s3dis", "--plugin", plugin)
        assert plugins.PLUGINS_VARIABLE not in os.environ
    assert inherited == [str(plugin)] * 2


#: Faults in the code of a plugin -> the code with it, and the command that runs it.
PARTS_OF_PATHS = f"{GRAPHS}\n{PART}\nPLUGIN |= {{'datasets': {{'paths': Paths}}}}\n"
NETWORK_OF_PATHS = (
    "train",
    "paths",
    "--model",
    "gps-none",
    *SMALL,
    "--set=model.attention.kind=late",
)
FAULTS = {
    "schema": ("columns = feature", ("build", "paths")),
    "units": ("return units_of", ("build", "paths")),
    "records in a worker": (
        "nodes, part = 3",
        ("build", "paths", "--jobs", "2", "--memory", "8GiB"),
    ),
    "build": ("from torch.nn import", NETWORK_OF_PATHS),
    "forward": ("return x\n", NETWORK_OF_PATHS),
}


def test_a_plugins_own_fault_has_its_file_and_line(folder):
    def check(case):
        line, command = FAULTS[case]
        for fault, words in (
            ("1 / 0", "ZeroDivisionError: division by zero"),
            ("open('gone')", "FileNotFoundError: [Errno 2] No such file or directory: 'gone'"),
            ("int('x')", "ValueError: invalid literal for int() with base 10: 'x'"),
        ):
            code = PARTS_OF_PATHS.replace(line, f"{fault}; {line}", 1)
            (folder / "odd.py").write_text(code)
            number = code[: code.index(fault)].count("\n") + 1
            with fresh():
                message = expect_refusal(*command, "--plugin", "odd.py")
            assert f"odd.py, line {number}: {words}\n" in message, message

    check_each(check, FAULTS)


def test_an_installed_plugins_fault_has_its_file_and_line(package, monkeypatch):
    faulty = GRAPHS.replace("return units_of", "return units_of_rows(gone, 1) or units_of")
    (package / "lib_of_paths" / "graphs.py").write_text(faulty)
    monkeypatch.syspath_prepend(package)
    with fresh():
        message = expect_refusal("build", "paths")
    number = faulty[: faulty.index("gone")].count("\n") + 1
    assert f"graphs.py, line {number}: NameError: name 'gone' is not defined\n" in message
