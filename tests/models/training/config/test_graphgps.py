"""YAML files of GraphGPS and of the k-MIP code become the presets made from them, or say what they cannot."""

from __future__ import annotations

import functools

import pytest
import yaml
from support.cli import expect_refusal
from support.oracles.upstream import entries, preset_of

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.models.training.config.graphgps import read_graphgps
from kmip_data.models.training.config.overrides import documented_keys, value_of_key
from kmip_data.models.training.config.presets import load_preset

#: Presets that follow another code than their file tells: the code of the thesis, which has no key of
#: its own.
THESIS = {
    "ShapeNet/GPS+kmip-4layer (thesis only)": {"model.local.residual"},
    "S3DIS/GPS+kmip-4layer (thesis only)": {"model.local.residual"},
}
VOC = """
out_dir: results
metric_best: f1
seed: 7
wandb: {use: True, project: mine}
dataset:
  {format: PyG-VOCSuperpixels, name: edge_wt_region_boundary, slic_compactness: 30, task: graph,
   task_type: classification, node_encoder: True, node_encoder_name: VOCNode+LapPE, node_encoder_bn: False,
   edge_encoder: True, edge_encoder_name: VOCEdge, edge_encoder_bn: False}
posenc_LapPE:
  {enable: True, eigen: {laplacian_norm: none, eigvec_norm: L2, max_freqs: 10}, model: DeepSet, dim_pe: 16,
   layers: 2, raw_norm_type: none}
train: {mode: custom, batch_size: 32, eval_period: 1, ckpt_period: 100}
model: {type: GPSModel, loss_fun: weighted_cross_entropy}
gt:
  {layer_type: CustomGatedGCN+Transformer, layers: 4, n_heads: 8, dim_hidden: 96, attn_dropout: 0.5,
   layer_norm: False, batch_norm: True}
gnn: {head: inductive_node, layers_post_mp: 3, dim_inner: 96, act: relu, agg: mean}
optim:
  {clip_grad_norm: True, optimizer: adamW, weight_decay: 1e-5, base_lr: 0.0005, max_epoch: 300,
   scheduler: cosine_with_warmup, num_warmup_epochs: 10}
"""


def nested(keys: dict) -> dict:
    tables: dict = {}
    for key, value in keys.items():
        *sections, last = key.split(".")
        functools.reduce(lambda table, name: table.setdefault(name, {}), sections, tables)[last] = (
            value
        )
    return tables


def written(tmp_path, keys: dict):
    path = tmp_path / "graphgps.yaml"
    path.write_text(
        yaml.safe_dump(nested({key: v for key, v in keys.items() if not key.startswith("_")}))
    )
    return path


def test_all_of_upstreams_files_are_their_presets(tmp_path, subtests):
    """All 132: two are dummies without a model, four swept k."""
    for name, keys in entries().items():
        with subtests.test(name):
            swept = {"gt.sparse.k": 10} if str(keys.get("gt.sparse.k")).startswith("swept") else {}
            path = written(tmp_path, keys | swept)
            if "model.type" not in keys:
                with pytest.raises(UsageError, match=r"dataset\.format"):
                    read_graphgps(path)
                continue
            config, wanted = read_graphgps(path)[0], load_preset(*preset_of(name))
            differ = {
                key.name
                for key in documented_keys()
                if value_of_key(config, key.name) != value_of_key(wanted, key.name)
            }
            differ -= {"preset", "variant"} if name in THESIS else set()
            assert differ == THESIS.get(name, set())
            if wanted.model.attention.kind == "k-mip":  # upstream's ignores both keys
                assert (wanted.model.attention.dropout, wanted.model.ffn_activation) == (
                    0.0,
                    "relu",
                )
    assert len(entries()) == 132


def test_a_swept_k_is_named(tmp_path):
    swept = [keys for keys in entries().values() if "swept" in str(keys.get("gt.sparse.k"))]
    assert len(swept) == 4
    for keys in swept:
        with pytest.raises(UsageError, match=r"gt.sparse.k = 'swept"):
            read_graphgps(written(tmp_path, keys))


def test_a_file_of_graphgps_becomes_a_configuration(tmp_path):
    path = tmp_path / "voc.yaml"
    path.write_text(VOC)
    config, unread = read_graphgps(path)
    assert (config.preset, config.data.dataset, config.model.name) == (
        "",
        "pascalvoc-sp",
        "gps-transformer",
    )
    model, training = config.model, config.training
    assert (model.layers, model.hidden_dim, model.parameter_budget) == (4, 96, None)
    assert (model.attention.heads, model.attention.dropout, model.dropout) == (8, 0.5, 0.0)
    assert (model.norm, model.positional, model.head_layers) == ("batch", "lappe", 3)
    assert (model.node_encoder, model.edge_encoder, model.local.residual) == (
        "linear",  # the preset's constants are of LRGB's code
        "linear",
        "outside",
    )
    assert (model.ffn_activation, model.local.activation) == (
        "relu",
        "relu",
    )  # the preset's are gelu
    assert (config.optimizer.lr, config.optimizer.weight_decay) == (
        5e-4,
        1e-5,
    )  # YAML reads 1e-5 as text
    assert (training.epochs, training.batch_size, training.clip_norm, training.seed) == (
        300,
        32,
        1.0,
        7,
    )
    assert unread == ["gnn.agg"]
    # Keys that GraphGPS's code does not read for this network.
    more = VOC.replace("agg: mean", "agg: mean, dropout: 0.3, batchnorm: False")
    path.write_text(more.replace("layers: 2,", "layers: 2, n_heads: 4,"))
    again, unread = read_graphgps(path)
    assert again == config
    assert unread == ["posenc_LapPE.n_heads", "gnn.agg", "gnn.batchnorm", "gnn.dropout"]
    path.write_text(VOC.replace("metric_best: f1", "metric_best: auc"))
    assert read_graphgps(path)[0].training.metric == "roc_auc"


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (
            "laplacian_norm: none",
            "laplacian_norm: sym",
            "posenc_LapPE.eigen.laplacian_norm = 'sym'",
        ),
        ("dim_inner: 96", "dim_inner: 64", "gnn.dim_inner = 64"),
        ("num_warmup_epochs: 10", "steps: [30]", r"optim.steps = \[30\]"),
        ("slic_compactness: 30, ", "", "dataset.slic_compactness is missing"),
        ("adamW", "rmsprop", "optim.optimizer = 'rmsprop'"),
        ("task_type: classification", "task_type: regression", "task_type = 'regression'"),
        ("metric_best: f1", "metric_best: f1\nmetric_agg: argmin", "metric_agg = 'argmin'"),
        ("metric_best: f1", "metric_best: mae", "metric_agg is missing"),
        ("VOCNode+LapPE", "VOCNode", "dataset.node_encoder_name = 'VOCNode'"),
        ("node_encoder: True, ", "", "dataset.node_encoder is missing"),
        ("mode: custom", "mode: inference-only", "train.mode = 'inference-only'"),
        ("VOCSuperpixels", "AQSOL", "dataset.format = 'PyG-AQSOL'"),
        ("GPSModel", "SANTransformer", "model.type = 'SANTransformer': SAN's attention"),
        ("batch_norm: True", "batch_norm: False, full_graph: True", "gt.full_graph = True"),
        ("inductive_node", "san_graph", "gnn.head = 'san_graph'"),
        ("n_heads: 8", "n_heads: [8]", r"gt.n_heads = \[8\]"),
        ("act: relu", "act: {relu: [1]}", r"gnn.act.relu = \[1\]"),
        ("head: inductive_node", "head: [1]", r"gnn.head = \[1\]"),
        ("+Transformer", "+SparseAttention", "gt.sparse.val_dim is missing"),
        ("layers_post_mp: 3", "layers_post_mp: x", "model.head_layers: must be a valid integer"),
        ("layers: 4,", "layers: deep,", "model.layers: must be a valid integer"),
        ("layers_post_mp: 3", "layers_pre_mp: x", "gnn.layers_pre_mp = 'x'"),
        ("n_heads: 8", "n_heads: many", "gt.n_heads = 'many'"),
        ("+Transformer, layers: 4", "+SparseAttention, sparse: {val_dim: x}", "val_dim = 'x'"),
    ],
)
def test_unmappable_keys_are_listed(tmp_path, old, new, named):
    path = tmp_path / "other.yaml"
    path.write_text(VOC.replace(old, new))
    assert VOC.count(old) >= 1
    with pytest.raises(UsageError, match=named):
        read_graphgps(path)


def test_all_unmappable_keys_are_in_one_message_and_no_run_starts(tmp_path):
    path = tmp_path / "other.yaml"
    path.write_text(VOC.replace("adamW", "rmsprop").replace("agg: mean", "keep_edge: 0.1"))
    message = expect_refusal("train", "--config", path, "--home", tmp_path / "home")
    assert "2 keys that cannot be mapped" in message
    assert all(key in message for key in ("optim.optimizer = 'rmsprop'", "gnn.keep_edge = 0.1"))
    lists = "".join(
        f"l{i}: &l{i} [{', '.join([f'*l{i - 1}' if i else 'lol'] * 9)}]\n" for i in range(12)
    )
    path.write_text(VOC + lists)
    message = expect_refusal("train", "--config", path, "--home", tmp_path / "home", code=4)
    assert str(path) in message
    assert len(message) < 1_000
    assert "--model has no effect" in expect_refusal("train", "--config", path, "--model", "gcn")


@pytest.mark.parametrize(
    "text",
    ['x: !!int ""', "x: !!bool x", "x: !!float 1" + ":1" * 2_000, f"x: {'1' * 70_000}x",
     "k0: &k0 {}\n" + "".join(f"k{i + 1}: &k{i + 1} {{a: *k{i}, b: *k{i}}}\n" for i in range(40)),
     "- a\n- b\n", "a: [\n", "text", "", "!!python/object/apply:os.system [ls]", "\x00",
     "a: &a {b: 1, c: 2}\nb: &b {d: *a, e: *a, f: *a}\n" + "".join(
         f"k{i}: &k{i} {{a: *{'b' if i == 0 else f'k{i - 1}'}, b: *{'b' if i == 0 else f'k{i - 1}'}}}\n"
         for i in range(40))],
)  # fmt: skip
def test_a_file_that_is_not_a_configuration_is_refused(tmp_path, text):
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    with pytest.raises(DamagedInput, match=r"odd\.yaml"):
        read_graphgps(path)
