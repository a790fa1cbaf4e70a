"""Read YAML configurations of GraphGPS and derived repositories.

Settings without a key in these files (residual connections, activations fixed in code, scaling of
features) come from the preset of the dataset and model, which follows the published code. A key
that a file omits has GraphGPS's default, not the preset's value.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.small_files import check_yaml, first_problem, read_small_file
from kmip_data.manifest import load_manifest
from kmip_data.models.components import Component
from kmip_data.models.config import (
    DEFAULT_HIDDEN_DIM,
    ModelConfig,
    component_kinds,
    dotted_keys,
    merge_tables,
)
from kmip_data.models.layers.message_passing import ConvolutionComponent
from kmip_data.models.layers.message_passing.gated_gcn import GatedGCNComponent
from kmip_data.models.registries import all_heads
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.config.presets import config_for_data, load_preset, read_preset
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.metrics import METRICS
from kmip_data.strict_model import read_shipped, shipped_datasets
from kmip_data.text import count_with_noun

#: Our names by GraphGPS's, and its keys that are required, harmless or never read.
_TABLES = read_shipped("tables", "graphgps")
#: Dataset formats that only the k-MIP paper's code reads.
_PAPER_FORMATS = ("PyG-CityNetwork", "PyG-ShapeNet", "PyG-S3DISOnDisk")
SAN_LAYERS = 3  #: linear layers of ``san_graph``, regardless of ``gnn.layers_post_mp``


class _GraphGPSFile:
    """Values of a file, and the keys that are unused, unmapped or ignored so far."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.unused = set(values)
        #: descriptions of keys that have no equivalent here
        self.unmapped: list[str] = []
        #: keys that upstream's code ignores
        self.ignored: list[str] = []

    def get(self, key: str, default: object = None) -> object:
        """Return a number, string, boolean or ``None``; refuse any other value, such as a list."""
        self.unused.discard(key)
        value = self.values.get(key, default)
        if isinstance(value, str | int | float | None):
            return value
        self.refuse(key)
        return default

    def get_integer(self, key: str, default: int | None = None) -> int:
        """Return an integer; refuse any other value."""
        value = self.get(key, default)
        if type(value) is int:
            return value
        self.refuse(key)
        return 0

    def map_keys(self, keys: Mapping[str, tuple[str, object]]) -> dict[str, object]:
        """Return values by our names; ``keys`` maps them to GraphGPS's names and defaults."""
        return {ours: self.get(theirs, default) for ours, (theirs, default) in keys.items()}

    def refuse(self, key: str) -> None:
        """Record that a key cannot be mapped."""
        self.unused.discard(key)
        if key not in self.values:
            self.unmapped.append(f"{key} is missing")
            return
        value = self.values[key]
        reason = _TABLES["reasons"].get(value) if isinstance(value, str) else None
        explanation = f": {reason}" if reason else ""
        self.unmapped.append(f"{key} = {value!r:.200}{explanation}")

    def get_mapped(self, key: str, choices: Mapping[Any, Any], default: object) -> Any:
        """Map a key's value to our name; refuse a value that is not among the choices."""
        value = self.get(key, default)
        for theirs, ours in choices.items():
            if theirs == value and isinstance(theirs, bool) == isinstance(value, bool):
                return ours
        return self.refuse(key)

    def require(self, key: str, value: object, default: object) -> None:
        """Refuse a key unless it has this value; ``default`` is GraphGPS's."""
        self.get_mapped(key, {value: True}, default)

    def drop_keys(self, *patterns: str) -> list[str]:
        """Remove the unused keys that match, and return them."""
        dropped = set[str]()
        for pattern in patterns:
            dropped.update(fnmatch.filter(self.unused, pattern))
        self.unused -= dropped
        return sorted(dropped)


def read_graphgps(path: Path) -> tuple[RunConfig, list[str]]:
    """Read a GraphGPS or k-MIP YAML file; return its configuration, and keys that upstream ignores.

    The configuration has the name of a preset only if it equals one of its variants.

    Raises
    ------
    DamagedInput
        The file is not a YAML mapping.
    UsageError
        Keys cannot be mapped; the message lists all of them with their values.
    """
    # 1. Map dataset and model, which determine the preset.
    file = _GraphGPSFile(_read_dotted_keys(path))
    gps_networks = _TABLES["networks"]
    networks = {name: name for name in (*gps_networks, "gnn", "custom_gnn")}
    file.require("train.mode", "custom", "custom")
    network_type = file.get_mapped("model.type", networks, "gnn")
    names = file.get_mapped("dataset.format", _datasets_by_format(), "PyG")
    dataset = names and file.get_mapped("dataset.name", names, "none")
    model = network_type
    passing = None
    if network_type in gps_networks:
        first, _, second = str(file.get("gt.layer_type", "SANLayer")).partition("+")
        passing = _TABLES["locals"].get(first)
        model = gps_networks[network_type].get(second)
        if passing is None or model is None:
            file.refuse("gt.layer_type")
    elif network_type:
        model = file.get_mapped("gnn.layer_type", _TABLES["stacks"], "generalconv")
    if file.unmapped:
        raise _unmapped_keys_error(
            path,
            file,
            "kmip-data list --all, which shows the datasets; docs/models.md has the models",
        )

    # 2. Map all other keys; refuse the rest.
    base = config_for_data(dataset, model, "code")
    is_graphgps = False
    if network_type == "GPSModel":
        has_budget = "model.auto_satisfy_param_budget" in file.values
        is_graphgps = not has_budget and file.values.get("dataset.format") not in _PAPER_FORMATS
        base = _adapt_to_upstream(
            base, str(passing), has_budget=has_budget, is_graphgps=is_graphgps
        )
    seed = file.get("seed", 0)
    changes = _training_tables(file, base)
    changes["model"] = _network_keys(file, network_type, base, reads_activation=is_graphgps)
    file.ignored += file.drop_keys(
        *_TABLES["unread"]["gps" if network_type in gps_networks else "stack"]
    )
    for key, (value, default) in _TABLES["required"].items():
        file.require(key, value, default)
    file.drop_keys(*_TABLES["harmless"], *_TABLES["conditional"])
    for key in sorted(file.unused):
        file.refuse(key)
    if file.unmapped:
        raise _unmapped_keys_error(
            path, file, "remove them from a copy of the file, and use --set for their meaning"
        )

    # 3. Build the configuration, and name the preset variant that equals it.
    values = base.model_dump()
    for section, keys in changes.items():
        values[section] = merge_tables(values[section], keys)
    config = config_from_mapping(values, str(path))
    variants = read_preset(*base.preset.split("/")).variants if base.preset else []
    for variant in variants:
        preset = load_preset(dataset, model, variant)
        if preset == config.model_copy(update={"variant": variant, "data": preset.data}):
            return preset.with_values("training", seed=seed), file.ignored
    config = config.model_copy(update={"preset": ""})
    return config.with_values("training", seed=seed), file.ignored


def _datasets_by_format() -> dict[str, dict[str, str]]:
    """Return our datasets by ``dataset.format`` and ``dataset.name``, from the manifests."""
    formats: dict[str, dict[str, str]] = {}
    for dataset in shipped_datasets():
        names = load_manifest(dataset).graphgps
        if names is not None:
            formats.setdefault(names[0], {})[names[1]] = dataset
    return formats


def _adapt_to_upstream(
    base: RunConfig, passing: str, *, has_budget: bool, is_graphgps: bool
) -> RunConfig:
    """Adapt a GPSModel's preset to the code that a file was written for.

    This concerns settings without a key, and message ``passing``. Files with a parameter budget
    belong to the k-MIP paper's code, and so do cities and point clouds. GraphGPS and LRGB's version
    add the input to message passing and read ``gnn.act``.
    """
    model = base.model
    changes: dict[str, object] = {}
    if has_budget:
        code = load_preset(base.data.dataset, "gps-kmip", "code").model
        changes = {
            "local": code.local,
            "ffn_activation": code.ffn_activation,
            "edge_encoder": code.edge_encoder,
        }
    elif is_graphgps:
        local = model.local
        if passing != "gated-gcn":
            component = component_kinds("local")[passing]
            local = component.model_validate({"stack": "none", "residual": "outside"})
        elif not isinstance(local, GatedGCNComponent) or local.residual == "none":
            local = GatedGCNComponent(residual="inside")
        changes["local"] = local
        if model.node_encoder in {"voc", "coco"}:
            changes["edge_encoder"] = model.node_encoder
    return base.with_values("model", **changes)


def _network_keys(
    file: _GraphGPSFile, network_type: str, base: RunConfig, *, reads_activation: bool
) -> dict[str, object]:
    preset = base.model
    stack = network_type in {"gnn", "custom_gnn"}
    network = file.map_keys(_TABLES["keys"]["stack" if stack else "gps"])
    network["parameter_budget"] = None
    blocks = file.get_integer("gnn.layers_pre_mp", 0)
    network["input_layers"] = blocks

    budget = file.get("model.auto_satisfy_param_budget", False)
    limit = file.get("model.param_budget")
    # Upstream does not search the width of a MultiModel.
    if budget and network_type != "MultiModel":
        network |= {"hidden_dim": DEFAULT_HIDDEN_DIM, "parameter_budget": limit}
    elif not stack:
        file.require("gnn.dim_inner", network["hidden_dim"], 16)
    if network_type == "gnn" or blocks:
        file.require("gnn.batchnorm", True, True)
    activation = file.get_mapped("gnn.act", {"relu": "relu", "gelu": "gelu"}, "relu")
    if stack:
        network["local"] = _stack_keys(file, network_type, preset.local, activation)
    else:
        norms: dict[tuple[object, object], str] = {
            (True, False): "batch",
            (False, False): "none",
            (False, True): "graph" if network_type == "MultiModel" else "graph-layer",
        }
        both = file.get("gt.batch_norm", True), file.get("gt.layer_norm", False)
        if both not in norms:
            file.refuse("gt.batch_norm")
        network["norm"] = norms.get(both)
        network["attention"] = _attention_keys(file, base, network)
        if reads_activation:
            network |= {"ffn_activation": activation, "local": {"activation": activation}}
        elif activation != preset.ffn_activation:
            file.ignored.append("gnn.act")
    return network | _encoder_keys(file, base, blocks) | _head_keys(file, preset, activation)


def _stack_keys(
    file: _GraphGPSFile, network_type: str, local: Component, activation: str
) -> dict[str, object]:
    """Return ``model.local`` for a network without attention."""
    # GraphGym's network ignores ``gnn.residual``.
    residual = bool(file.get("gnn.residual", False)) and network_type == "custom_gnn"
    if not isinstance(local, ConvolutionComponent):
        # GraphGPS's GatedGCN always uses ReLU, and adds its input in either network.
        if activation != "relu":
            file.ignored.append("gnn.act")
        return {"residual": "inside" if residual or network_type == "gnn" else "none"}
    stack = "graphgps" if local.kind == "gine" else "graphgym"
    # GraphGPS's GINE always uses ReLU, so a file with another activation belongs to LRGB's code.
    is_lrgb = activation != "relu" or local.kind != "gine"
    if network_type == "custom_gnn" and is_lrgb:
        stack = "lrgb" if local.stack == "graphgym" else local.stack
    return {"residual": "outside" if residual else "none", "stack": stack, "activation": activation}


def _attention_keys(
    file: _GraphGPSFile, base: RunConfig, network: Mapping[str, object]
) -> dict[str, object]:
    kind = base.model.attention.kind
    heads = file.get_integer("gt.n_heads", 8)
    attention = {"heads": heads, **file.map_keys(_TABLES["keys"].get(kind, {}))}
    if file.get("gt.attn_dropout", 0.0) and "dropout" not in attention:
        file.ignored.append("gt.attn_dropout")
    if kind == "k-mip":
        attention["k"] = file.get_integer("gt.sparse.k")
        attention["key_dim"] = file.get_integer("gt.sparse.kq_dim")
        width = file.get_integer("gt.sparse.val_dim")
        # The default value width is hidden_dim / heads; with a budget, hidden_dim is not known yet.
        is_default = network["hidden_dim"] == heads * width
        if is_default or network["parameter_budget"] is not None:
            attention["value_dim"] = None
        else:
            attention["value_dim"] = width
        # Only the thesis's code lacks this key.
        attention["output_projection"] = "gt.sparse.head_agg" not in file.values
        file.require("gt.sparse.head_agg", "none", "none")
    elif kind == "exphormer":
        has_expander = file.get("prep.exp", False) and file.get("prep.use_exp_edges", True)
        attention["expander"] = file.get("prep.exp_deg", 5) if has_expander else 0
        file.drop_keys("prep.exp_deg", "prep.use_exp_edges")
    elif kind == "none":
        attention = {}
    return attention


def _encoder_keys(file: _GraphGPSFile, base: RunConfig, blocks: int) -> dict[str, object]:
    # 1. Map the names of both encoders.
    has_nodes = file.get("dataset.node_encoder", False)
    has_edges = file.get("dataset.edge_encoder", False)
    positions, names = _positional_sections(file)
    node = "+".join(names) or "LinearNode"
    if node not in _TABLES["nodes"]:
        file.refuse("dataset.node_encoder_name")
    edge = file.get_mapped("dataset.edge_encoder_name", _TABLES["edges"], "Bond")
    encoders = {"node": _TABLES["nodes"].get(node), "edge": edge}

    # 2. Choose ours. LRGB's code, whose files use GELU, and code derived from it standardise
    #    superpixels by constants, like the preset's encoders; GraphGPS does not.
    preset_encoders = {"node": base.model.node_encoder, "edge": base.model.edge_encoder}
    is_graphgps = file.get("gnn.act", "relu") == "relu" and base.model.attention.kind != "exphormer"
    for level, encoder in encoders.items():
        if encoder == "types":
            encoders[level] = f"types{file.get(f'dataset.{level}_encoder_num_types', 0)}"
        elif encoder == "":
            encoders[level] = "linear" if is_graphgps else preset_encoders[level]
    keys: dict[str, object] = {
        "node_encoder": encoders["node"],
        "node_encoder_norm": file.get("dataset.node_encoder_bn", True),
        "edge_encoder": encoders["edge"] if has_edges else "none",
        "positional": "+".join(positions) or "none",
    }
    file.require("dataset.edge_encoder_bn", False, has_edges)

    # 3. Without a node encoder, use the first block before message passing.
    if not has_nodes:
        if not blocks or positions:
            file.refuse("dataset.node_encoder")
        keys["node_encoder"] = "block"
        keys["node_encoder_norm"] = False
        keys["input_layers"] = max(0, blocks - 1)
    return keys | positions


def _positional_sections(file: _GraphGPSFile) -> tuple[dict[str, object], list[str]]:
    """Return the sections of the positional encodings, and the names of the node encoders."""
    encodings = _TABLES["encodings"]
    names = str(file.get("dataset.node_encoder_name", "Atom")).split("+")
    terms = [name for name in names if name in encodings]
    enabled = [name for name in encodings if file.get(f"posenc_{name}.enable", False)]
    if sorted(terms) != sorted(enabled):
        file.refuse("dataset.node_encoder_name")
    sections: dict[str, object] = {}
    for name in terms:
        for key, value in encodings[name]["fixed"].items():
            file.require(key, value, value)
        section = f"posenc_{name}"
        sections[encodings[name]["section"]] = _positional_keys(
            file, section, encodings[name]["keys"]
        )
    # Skip the keys of disabled encodings.
    for key in file.unused.copy():
        section = key.partition(".")[0]
        if section.startswith("posenc_") and not file.values.get(f"{section}.enable", False):
            file.unused.discard(key)
    return sections, [name for name in names if name not in encodings]


def _positional_keys(
    file: _GraphGPSFile, section: str, keys: Mapping[str, tuple[str, object]]
) -> dict[str, object]:
    """Map an encoding's settings to our keys, except those that its reader ignores."""
    values = file.map_keys(keys)
    if "reader" in values:
        values["reader"] = str(values["reader"]).lower()
    unused = {"deepset": "heads", "linear": "layers"}.get(str(values.get("reader")))
    if unused in values:
        values.pop(unused)
        file.ignored += file.values.keys() & {keys[unused][0]}
    if "norm" in values:
        values["norm"] = str(values["norm"]).lower() == "batchnorm"
    if "steps" in values:
        steps = re.fullmatch(r"range\(1, ?([0-9]{1,4})\)", str(values["steps"]))
        if steps is None:
            file.refuse(f"{section}.kernel.times_func")
            return {}
        values["steps"] = int(steps[1]) - 1
    file.ignored += file.drop_keys(f"{section}.n_heads", f"{section}.layers")
    return values


def _head_keys(file: _GraphGPSFile, preset: ModelConfig, activation: str) -> dict[str, object]:
    task = file.get("dataset.task", "node")
    head = file.get("gnn.head", "default")
    name = _TABLES["heads"].get(task if head == "default" else head)
    levels = {key: component.level for key, component in all_heads().items()}
    level = levels.get(str(preset.head or name))
    if head == "default" and name == "graph" != level:
        name = preset.head  # upstream sets it on the command line for point clouds
    if levels.get(str(name)) != level:
        file.refuse("gnn.head")
    is_mlp = head == "mlp_graph"
    is_san = name == "san"
    keys: dict[str, object] = {
        "head": name,
        "head_layers": SAN_LAYERS if is_san else file.get("gnn.layers_post_mp", 0) or 1,
        "head_l2norm": not is_mlp and not is_san,
        "head_dropout": file.get("gnn.dropout", 0.0) if is_mlp else 0.0,
        "head_activation": activation if is_mlp or is_san else "relu",
    }
    if level == "graph":
        keys["pooling"] = file.get_mapped("model.graph_pooling", _TABLES["poolings"], "add")
    return keys


def _training_tables(file: _GraphGPSFile, base: RunConfig) -> dict[str, dict[str, object]]:
    # 1. Optimizer and schedule, with the keys they read.
    keys = _TABLES["keys"]
    optimizer = file.map_keys(keys["optimizer"])
    optimizer["name"] = file.get_mapped("optim.optimizer", _TABLES["optimizers"], "adam")
    optimizer |= file.map_keys(keys.get(optimizer["name"], {}))
    kind = file.get_mapped("optim.scheduler", _TABLES["schedules"], "cos")
    schedule = {"kind": kind, **file.map_keys(keys.get(kind, {}))}
    if kind == "reduce_on_plateau":
        file.require("optim.reduce_factor", 0.5, 0.1)

    # 2. Loss and metric. Upstream's loss functions depend on the targets and the number of classes.
    losses = {name: name for name in ("weighted_cross_entropy", "cross_entropy", "l1")}
    preset_loss = str(base.training.loss)
    if preset_loss in {"binary_cross_entropy", "link_cross_entropy"}:
        losses["cross_entropy"] = preset_loss
    if preset_loss == "weighted_binary_cross_entropy":
        losses["weighted_cross_entropy"] = preset_loss
    loss = file.get_mapped("model.loss_fun", losses, "cross_entropy")
    task = "classification"
    if loss == "l1":
        task = "regression"
    elif loss == "binary_cross_entropy":
        targets = load_manifest(base.data.dataset).expected.classes or 1
        if targets > 1:
            task = "classification_multilabel"
    file.require("dataset.task_type", task, "classification")
    name = str(file.get("metric_best", base.training.metric)).lower().replace("-", "_")
    name = _TABLES["metrics"].get(name, name)
    metric = METRICS.get(name)
    if metric is not None:
        best = "argmax" if metric.higher_is_better else "argmin"
        file.require("metric_agg", best, "argmax")

    # 3. Training loop, and keys that have a fixed value here.
    clip = file.get("optim.clip_grad_norm_value", 1.0)
    clips = file.get("optim.clip_grad_norm", False)
    training = file.map_keys(keys["training"])
    training |= {"clip_norm": clip if clips else 0.0, "loss": loss, "metric": name}
    if str(file.values.get("dataset.format")).endswith("Superpixels"):
        file.require("dataset.slic_compactness", 30, 10)
    return {"optimizer": optimizer, "schedule": schedule, "training": training}


def _unmapped_keys_error(path: Path, file: _GraphGPSFile, remedy: str) -> UsageError:
    return UsageError(
        f"{path} has {count_with_noun(len(file.unmapped), 'key')} that cannot be mapped.",
        found=file.unmapped,
        next=remedy,
    )


def _read_dotted_keys(path: Path) -> dict[str, Any]:
    """Read the values of a YAML file by dotted key."""
    import yaml

    try:
        text = read_small_file(path, 2**16)  # upstream's files have 4 kB
        check_yaml(text)
        keys = dict(dotted_keys(yaml.safe_load(text)))
    except Exception as error:  # PyYAML raises errors of many classes for tags and digits
        problem = first_problem(error)
        if isinstance(error, AttributeError):
            problem = "its top level is not a mapping"
        raise DamagedInput(f"{path} cannot be read as a YAML configuration: {problem}") from error
    for key, value in keys.items():
        # YAML reads numbers such as 1e-5 as strings.
        if isinstance(value, str) and re.fullmatch(r"[-+]?(\d+|\d*\.\d+)[eE][-+]?\d+", value):
            keys[key] = float(value)
    return keys
