"""Memory of a step: the formula against measured steps, what is refused, what runs out under a limit."""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.builds.learnable import learnable_build, streets_build, tiny_config
from support.cli import kmip
from support.kernels.allocations import count_numpy_too, measure_peak, saved_for_backward
from support.raises import raises
from torch import nn

from kmip_data.builds.home import Build, Home
from kmip_data.errors import OutOfResources, Setting
from kmip_data.format.schema import Column
from kmip_data.graphs.encoding import Encoding
from kmip_data.graphs.encodings.edge_rwse import EdgeRandomWalk
from kmip_data.graphs.encodings.lappe import Laplacian
from kmip_data.graphs.encodings.rwse import RandomWalk
from kmip_data.models.components import Component, LayerInfo
from kmip_data.models.config import ATTENTION, COMPONENT_SECTIONS, MESSAGE_PASSING
from kmip_data.models.layers.batch import BatchSize
from kmip_data.models.network import build_model, count_parameters
from kmip_data.models.training import memory_estimate
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import load_preset
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.devices import Device
from kmip_data.models.training.optimizers import build_optimizer
from kmip_data.models.training.run import fit
from kmip_data.models.training.run.prepared_run import PreparedRun
from kmip_data.models.training.run.training_module import TrainingModule
from kmip_data.runtime import memory as host

pytestmark = pytest.mark.whole_run
GIB = 2**30
CPU, GPU = Device("cpu", "cpu", "asked for"), Device("cuda", "a GPU", "asked for")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> RunData:
    folder = tmp_path_factory.mktemp("data")
    build = learnable_build(folder / "build", nodes=300)
    return open_data(tiny_config(build, training={"batch_size": 8}), home=Home(folder))


def measured(
    config: RunConfig,
    data: RunData,
    batch: Any,
    monkeypatch: pytest.MonkeyPatch,
    *,
    recompute: bool,
) -> int:
    """Most bytes that a second step has allocated, beyond what there was before it."""
    module = TrainingModule(config, data, recompute=recompute).train()
    optimizer = build_optimizer(module, config.optimizer, fused=False)

    def step() -> None:
        module.train_loss(batch).backward_loss.backward()
        optimizer.step()

    step()  # compiles, and makes gradients and the moments of the optimizer
    with monkeypatch.context() as patched:
        count_numpy_too(patched)
        return measure_peak(step)


#: Presets whose measured step is compared, with the records of their samples: each kind of
#: attention, norms, edge features, positions.
PRESETS = {
    "peptides-func/gcn": 12,
    "peptides-func/gat": 12,
    "peptides-func/exphormer": 12,
    "peptides-func/gps-bigbird": 12,
    "peptides-struct/gps-performer": 12,
    "pascalvoc-sp/gine": 24,
    "pascalvoc-sp/gps-transformer": 24,
    "cluster/gps-kmip": 24,
    "malnet-tiny/gps-kmip": 12,
    "london/gps-kmip": 2000,
}
#: Those of ``make test``: a stack without attention, one with edge features and the search.
FEW_PRESETS = {"peptides-func/gcn", "peptides-func/exphormer", "malnet-tiny/gps-kmip"}


#: Kinds of message passing whose measured step is compared, each in place of GCN.
KINDS = [kind for kind in MESSAGE_PASSING if kind != "none"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            pytest.param(name, None, marks=[] if name in FEW_PRESETS else pytest.mark.torture)
            for name in PRESETS
        ),
        *(pytest.param("peptides-func/gcn", kind, marks=pytest.mark.torture) for kind in KINDS),
    ],
)
def test_the_formula_is_near_a_measured_step(
    name: str, kind: str | None, tmp_path: Path, monkeypatch
) -> None:
    """Within 1.5 ×, with and without recomputed layers; weights, gradients and moments exist before."""
    dataset, model = name.split("/")
    changes = ["data.sample=true", f"data.parameters.limit={PRESETS[name]}", "system.device=cpu"]
    if kind is not None:
        changes += [f"model.local.kind={kind}", "model.edge_encoder=linear"]
    data = open_data(
        apply_overrides(load_preset(dataset, model), [*changes, "training.batch_size=8"]),
        home=Home(tmp_path),
    )
    config = data.pin_settings(data.config)
    batch = next(iter(data.train_batches(0)))
    sizes = batch.ptr.diff() if "ptr" in batch else torch.tensor([batch.num_nodes])
    size = replace(BatchSize.of(batch), node_pairs=int(sizes.square().sum()))
    weights = 4 * count_parameters(build_model(config.model, **data.network_sizes))

    for recompute in (False, True):
        computed = memory_estimate.step_bytes(config, data.network_sizes, size, recompute=recompute)
        whole = 4 * weights + measured(config, data, batch, monkeypatch, recompute=recompute)
        assert 1 / 1.5 < computed / whole < 1.5, (recompute, computed, whole)


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        *(("attention", kind) for kind in ATTENTION if kind != "none"),
        *(("local", kind) for kind in KINDS),
    ],
)
def test_the_count_of_every_kind_is_near_what_a_layer_saves(
    section: str, kind: str, data: RunData
) -> None:
    """On a batch of other sizes, three layers save that much more than two."""
    # Dropout draws masks on a batch as small as this one.
    config = tiny_config(data.build, model={"hidden_dim": 32, "dropout": 0})
    config = apply_overrides(config, [f"model.{section}.kind={kind}"])
    opened = open_data(config, home=Home(data.build.path.parent))  # adds the expander
    batch = next(iter(opened.train_batches(0)))
    saved = {}
    for layers in (2, 3):
        deeper = opened.pin_settings(config).with_values("model", layers=layers)
        module = TrainingModule(deeper, opened).train()
        with saved_for_backward() as sizes:
            module.train_loss(batch)
        saved[layers] = sum(sizes.values()) / 4
    size = replace(BatchSize.of(batch), node_pairs=int(batch.ptr.diff().square().sum()))
    per_node, per_edge = memory_estimate.count_saved_values(config, size)
    counted = size.nodes * per_node + size.edges * per_edge
    assert 1 / 1.3 < counted / (saved[3] - saved[2]) < 1.3


COPIES = 40


class SavesRows(nn.Module):
    """Sum of ``COPIES`` of each node, all saved, shifted by the sums of added columns."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, x, *rest):
        *edges, batch = rest
        shift = sum(batch.added[column.attribute].sum() for column in self.columns)
        copies = (x + shift)[:, None].repeat(1, COPIES, 1).exp()
        return (copies.sum(1), *edges) if edges else copies.sum(1)


@pytest.mark.parametrize(
    "encoding", [None, RandomWalk(4), EdgeRandomWalk(4), Laplacian(4)], ids=str
)
@pytest.mark.parametrize("section", ["attention", "local"])
def test_a_new_kind_is_counted(
    section: str, encoding: Encoding | None, data: RunData, monkeypatch
) -> None:
    """Its files state no figures; it may read an encoding of nodes, edges or graphs."""

    class Kind(Component):
        kind: str = "saves-rows"

        @property
        def encoding(self) -> Encoding | None:
            return encoding

        def build(self, layer: LayerInfo) -> nn.Module:
            columns = () if encoding is None else encoding.columns()
            return SavesRows(columns)

    monkeypatch.setitem(COMPONENT_SECTIONS[section].built_in, "saves-rows", Kind)
    other = {"attention": "local", "local": "attention"}[section]
    changes = [f"{section}.kind=saves-rows", f"{other}.kind=none", "dropout=0", "norm=none"]
    changes.append("feed_forward=false")
    config = apply_overrides(data.config, [f"model.{change}" for change in changes])
    counted = memory_estimate.count_saved_values(config, data.largest_batch)
    assert counted == (COPIES * config.model.hidden_dim, 0)


def test_full_attention_with_dropout_saves_its_weights_in_small_graphs(data: RunData) -> None:
    changes = ["model.attention.kind=transformer", "model.attention.dropout=0.5"]
    config = apply_overrides(data.config, changes)
    counted = []
    for nodes in (8, 256, 5_000, 100_000):
        size = BatchSize(10, 10 * nodes, 0, 10 * nodes**2)
        counted.append(memory_estimate.count_saved_values(config, size)[0])
    assert counted[0] + 200 * config.model.attention.heads < counted[1]
    assert counted[0] > 0.9 * counted[2] == 0.9 * counted[3]


def test_larger_problems_need_more_memory(data: RunData) -> None:
    def need(*changes: str, recompute: bool = False, size: BatchSize = data.largest_batch) -> int:
        config = apply_overrides(data.config, list(changes))
        return memory_estimate.step_bytes(config, data.network_sizes, size, recompute=recompute)

    plain, deep = need(), need("model.layers=9")
    assert deep > need("model.layers=9", recompute=True) > 0
    assert min(deep, need("model.attention.k=10")) > plain
    assert need("training.k_schedule=linear:30:3") > plain
    assert (
        need("model.attention.k=[3, 10]") == need("model.attention.k=10") > need("model.layers=1")
    )
    large = data.largest_batch
    half = replace(large, graphs=4, nodes=large.nodes // 2, edges=large.edges // 2, node_pairs=0)
    assert need(size=half) == pytest.approx(plain / 2, rel=0.05, abs=9 * 8 * 2**10)


def test_estimating_changes_no_generator_or_weight(data: RunData) -> None:
    before = torch.get_rng_state()
    memory_estimate.estimate_step_memory(data.config, data, CPU)
    assert torch.equal(torch.get_rng_state(), before)


def test_layers_are_recomputed_where_nothing_else_fits(data: RunData, monkeypatch) -> None:
    config = apply_overrides(data.config, ["model.layers=8"])
    plain, lean = (
        memory_estimate.step_bytes(
            config, data.network_sizes, data.largest_batch, recompute=recompute
        )
        for recompute in (False, True)
    )
    assert lean < plain
    resident = int(memory_estimate.FRAGMENTATION * plain)
    for free, recompute in ((resident, False), (resident - 1, True), (lean, True)):
        monkeypatch.setattr(memory_estimate, "free_host_memory", lambda free=free: free)
        memory = memory_estimate.estimate_step_memory(config, data, CPU)
        assert (memory.recompute, memory.free_bytes) == (recompute, free)
    for fixed in ("none", "false"):
        monkeypatch.setattr(memory_estimate, "free_host_memory", lambda: lean - 1)
        with raises(OutOfResources, naming=data.largest_batch) as caught:
            memory_estimate.estimate_step_memory(
                apply_overrides(config, [f"model.checkpoint_layers={fixed}"]), data, CPU
            )
        assert caught.value.steps[:2] == [
            Setting({"training.batch_size": 4, "training.accumulate": 4}),
            Setting({"model.checkpoint_layers": "true"}),
        ]


def test_evaluations_are_sampled_where_the_graph_does_not_fit(tmp_path: Path, monkeypatch) -> None:
    training = {"neighbors": [3, 2], "batch_size": 16}
    config = tiny_config(streets_build(tmp_path / "streets"), training=training)
    data, lines = open_data(config, home=Home(tmp_path)), list[str]()
    for free, device, sampled in ((GIB, CPU, ()), (1, GPU, ()), (1, CPU, (3, 2))):
        monkeypatch.setattr(memory_estimate, "free_host_memory", lambda free=free: free)
        needed = memory_estimate.is_graph_too_large(data.config, data, device, lines.append)
        assert needed == bool(sampled)
    data.sample_in_evaluation()
    assert data.pin_settings(config).training.eval_neighbors == (3, 2)
    assert len(lines) == 1
    assert "evaluation: sampled like training, because the whole graph takes about" in lines[0]
    assert [len(batches) > 1 for _, batches in data.evaluation_passes(["val", "test"])] == [
        True,
        True,
    ]


def test_a_gpu_out_of_memory_is_retried_once(data: RunData, monkeypatch) -> None:
    """The second try recomputes layers; if that fails, or is not allowed, the error lists the options."""
    tried: list[bool] = []

    def attempt(job: PreparedRun) -> str:
        tried.append(job.memory.recompute)
        if not job.memory.recompute or job.config.training.seed == 1:
            raise OutOfResources("Memory ran out.") from torch.cuda.OutOfMemoryError()
        return "trained"

    monkeypatch.setattr(fit, "_fit_once", attempt)
    lines: list[str] = []
    memory = memory_estimate.StepMemory(False, None, GIB)
    job = PreparedRun(data.config, data, None, GPU, memory, lines.append, quiet=True)
    assert fit.fit_retrying_out_of_memory(job) == "trained"
    assert tried == [False, True]
    assert "Retrying with layers recomputed" in lines[0]
    for change, times in (
        ("model.checkpoint_layers=false", 1),
        ("system.devices=2", 1),
        ("training.seed=1", 2),
    ):
        tried.clear()
        with pytest.raises(OutOfResources):
            fit.fit_retrying_out_of_memory(
                replace(job, config=apply_overrides(data.config, [change]))
            )
        assert len(tried) == times
    with pytest.raises(OutOfResources):
        fit.fit_retrying_out_of_memory(replace(job, device=CPU))


def test_the_command_line_refuses_a_graph_that_does_not_fit(tmp_path: Path, monkeypatch) -> None:
    """BigBird is refused for the size of its gathered keys."""
    build = streets_build(tmp_path / "build", nodes=60_000)
    monkeypatch.setattr(memory_estimate, "free_host_memory", lambda: GIB)
    changes = ("--set", "model.layers=16", "--set", "model.hidden_dim=64")
    words = ("train", build.path, "--model", "gps-bigbird", *changes)
    done = kmip(*words, "--device", "cpu", "--home", tmp_path / "home", "--quiet")
    assert done.code == OutOfResources.exit_code
    assert "A training step on " in done.err
    assert "1 graph, 60,000 nodes" in done.err
    assert "--neighbor-sampling 10,10" in done.err
    assert not list((tmp_path / "home").glob("runs/*/*/*"))


def _train(build: Build, home: Path) -> list[str]:
    """Command that trains the paper's network on a build on the CPU."""
    command = [sys.executable, "-m", "kmip_data", "train", str(build.path)]
    return [*command, "--device", "cpu", "--model", "gps-kmip", "--home", str(home)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
@pytest.mark.parametrize("more", [2**27, pytest.param(2**28, marks=pytest.mark.torture)])
def test_a_city_under_a_limit_ends_with_the_exit_code_of_memory(tmp_path: Path, more: int) -> None:
    """Whichever limit: refused before, or an allocation that fails, and never a signal."""
    build = streets_build(tmp_path / "build", nodes=100_000)
    command = [*_train(build, tmp_path / "home"), "--epochs", "1"]
    held = 700 * 2**20  # what the process has before it measures anything, generously
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (held + more, held + more)),
    )
    assert done.returncode == OutOfResources.exit_code, (done.returncode, done.stderr[-2000:])
    assert "Traceback" not in done.stderr


@pytest.mark.torture
def test_london_starts_on_24_gib(tmp_path: Path) -> None:
    """570,000 generated nodes and the paper's depth: the run chooses to recompute its layers, and begins."""
    if host.free_host_memory() < 15 * GIB:
        pytest.skip("needs 15 GiB of free memory, which a machine of 24 GiB has")
    build = streets_build(tmp_path / "build", nodes=570_000)
    command = _train(build, tmp_path / "home")
    for key in (
        "layers=7",
        "hidden_dim=76",
        "norm=graph-layer",
        "attention.k=15",
        "attention.key_dim=10",
    ):
        command += ["--set", f"model.{key}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        lines = []
        for line in run.stderr:
            lines.append(line)
            if line.startswith("run: "):  # the first step begins
                break
        begun = run.poll() is None
        run.terminate()
        run.communicate()
    assert begun, "".join(lines)
    assert any("memory: about" in line and "layers are recomputed" in line for line in lines), (
        "".join(lines)
    )


def test_limits_of_the_process_and_its_group_apply(tmp_path: Path, monkeypatch) -> None:
    system = host.free_host_memory()
    assert system > 10**6
    monkeypatch.setattr(host, "CGROUPS", tmp_path)
    for folder, (limit, used) in {
        tmp_path: ("memory.max", "memory.current"),
        tmp_path / "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    }.items():
        folder.mkdir(exist_ok=True)
        (folder / limit).write_text("1000\n")
        (folder / used).write_text("400\n")
        (folder / "memory.stat").write_text("anon 250\ninactive_file 150\n")
        assert host.free_host_memory() == 750
        (folder / limit).write_text("max\n")
        assert host.free_host_memory() > 10**6
    none = (resource.RLIM_INFINITY,) * 2
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        limits = {kind: (2**50, 2**50)}
        monkeypatch.setattr(
            host.resource, "getrlimit", lambda of, known=limits: known.get(of, none)
        )
        assert 0 < host.free_host_memory() < 2**50, kind
        limits[kind] = (1, 1)
        assert host.free_host_memory() == 0
