"""Read the YAML configurations of GraphGPS and of the repositories made from it.

What no key of these files says (residual connections, activations that the code fixes, scaling of features)
stays as in the preset of the dataset and model, the published code's. A key that the file leaves out has
GraphGPS's default, not the preset's value.
"""

from __future__ import annotations

import itertools
import re
import reprlib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.reading import first_fault, read_small
from kmip_data.manifest import read_shipped
from kmip_data.models.config import USUAL_DIM, merged
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.config.presets import load_preset, read_preset
from kmip_data.wording import counted

MOST = 10_000  #: keys; aliases of YAML could make a small file of any number
_TEXT = reprlib.Repr()  # lists of aliases of lists, written out, could fill any memory
_TEXT.maxlevel = 2
_TEXT.maxstring = 200
_TEXT.maxother = 200
_NAMES = read_shipped("tables", "graphgps")  #: their names -> ours


class _File:
    """Keys of a file, which are struck off as they are read, and those that cannot be mapped."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.left = set(values)
        self.unmapped: list[str] = []
        self.unread: list[str] = []  # without effect in upstream's code

    def get(self, key: str, default: Any = None) -> Any:
        """Return a number, text, truth value or none; others, such as lists, are refused."""
        self.left.discard(key)
        value = self.values.get(key, default)
        if isinstance(value, str | int | float | None):
            return value
        self.refuse(key)
        return default

    def refuse(self, key: str) -> None:
        self.left.discard(key)
        found = (
            f"{key} = {_TEXT.repr(self.values[key])}" if key in self.values else f"{key} is missing"
        )
        self.unmapped.append(found)

    def pick(self, key: str, choices: Mapping[Any, Any], default: Any = None) -> Any:
        """Return what the key's value is here; a value that is not among the choices cannot be mapped."""
        value = self.get(key, default)
        for theirs, ours in choices.items():
            if theirs == value and isinstance(theirs, bool) == isinstance(value, bool):
                return ours
        return self.refuse(key)

    def require(self, key: str, value: Any, default: Any) -> None:
        """Refuse another value than this; ``default`` is GraphGPS's."""
        self.pick(key, {value: True}, default)

    def skip(self, *patterns: str) -> list[str]:
        """Strike off the keys that match, and return them."""
        found = [
            key for key in sorted(self.left) if any(fnmatchcase(key, each) for each in patterns)
        ]
        self.left -= {*found}
        return found


def read_graphgps(path: Path) -> tuple[RunConfig, list[str]]:
    """Return the configuration that a GraphGPS or k-MIP YAML file describes, and keys without effect there.

    A configuration that equals a variant of a preset has its name; another names none.

    Raises
    ------
    DamagedInput
        The file is no YAML mapping.
    UsageError
        Keys cannot be mapped; the message lists all of them with their values.
    """
    file = _File(_read(path))
    kinds = _NAMES["networks"]
    kind = file.pick("model.type", {name: name for name in (*kinds, "gnn", "custom_gnn")}, "gnn")
    names = file.pick("dataset.format", _NAMES["datasets"], "PyG")
    dataset = names and file.pick("dataset.name", names, "none")
    layer = ("gt.layer_type", kinds[kind], "SANLayer") if kind in kinds else None
    model = kind and file.pick(*(layer or ("gnn.layer_type", _NAMES["stacks"], "generalconv")))
    if file.unmapped:
        raise _refusal(path, file, "kmip-data list shows the datasets, docs/models.md the models")
    budgeted = "model.auto_satisfy_param_budget" in file.values
    base, reads_activation = _as_its_code(
        load_preset(dataset, model, "code"), kind, budgeted=budgeted
    )
    seed = file.get("seed", 0)
    changes = _training(file, base)
    changes["model"] = _network(file, kind, base, reads_activation=reads_activation)
    file.unread += file.skip(*_NAMES["unread"]["gps" if kind in kinds else "stack"])
    file.skip(*_NAMES["harmless"])
    for key in sorted(file.left):
        file.refuse(key)
    if file.unmapped:
        raise _refusal(
            path, file, "remove them from a copy of the file, and set what they mean with --set"
        )
    values = base.model_dump()
    values |= {section: merged(values[section], keys) for section, keys in changes.items()}
    config = config_from_mapping(values, str(path))
    for variant in read_preset(*base.preset.split("/")).variants:
        preset = load_preset(dataset, model, variant)
        if preset == config.model_copy(update={"variant": variant, "data": preset.data}):
            return _seeded(preset, seed), file.unread
    return _seeded(config.model_copy(update={"preset": ""}), seed), file.unread


def _seeded(config: RunConfig, seed: Any) -> RunConfig:
    return config.model_copy(update={"training": config.training.model_copy(update={"seed": seed})})


def _as_its_code(base: RunConfig, kind: str, *, budgeted: bool) -> tuple[RunConfig, bool]:
    """Return the preset with what no key says as in the code of the file; True if that reads ``gnn.act``.

    A parameter budget is the k-MIP paper's code, and so are cities and point clouds. GraphGPS, and LRGB's
    version, add the input to message passing, read ``gnn.act`` and standardise superpixels.
    """
    model = base.model
    kept = dict[str, Any]()
    if kind == "GPSModel" and budgeted:
        code = load_preset(base.data.dataset, "gps-kmip", "code").model
        kept = {
            "local": code.local,
            "ffn_activation": code.ffn_activation,
            "edge_encoder": code.edge_encoder,
        }
    graphgps = kind == "GPSModel" and not (
        budgeted or (model.head, model.node_encoder) == ("node", "linear")
    )
    if graphgps:
        local: Any = model.local  # never none in a GPSModel
        residual = "inside" if local.residual == "none" else local.residual
        kept["local"] = local.model_copy(update={"residual": residual})
        if model.node_encoder in {"voc", "coco"}:
            kept["edge_encoder"] = model.node_encoder
    return base.model_copy(update={"model": model.model_copy(update=kept)}), graphgps


def _network(file: _File, kind: str, base: RunConfig, *, reads_activation: bool) -> dict[str, Any]:
    preset = base.model
    stack = kind in {"gnn", "custom_gnn"}
    part, width = ("gnn", "gnn.dim_inner") if stack else ("gt", "gt.dim_hidden")
    found: dict[str, Any] = {
        "layers": file.get("gnn.layers_mp" if stack else "gt.layers", 2 if stack else 3),
        "dropout": file.get(f"{part}.dropout", 0.0),
        "hidden_dim": file.get(width, 16 if stack else 64),
        "parameter_budget": None,
        "input_layers": file.get("gnn.layers_pre_mp", 0),
    }
    budget = file.get("model.auto_satisfy_param_budget", False)
    limit = file.get("model.param_budget")
    if budget and kind != "MultiModel":  # whose width upstream does not search
        found |= {"hidden_dim": USUAL_DIM, "parameter_budget": limit}
    elif not stack:
        file.require("gnn.dim_inner", found["hidden_dim"], 16)
    if kind == "gnn" or found["input_layers"]:
        file.require("gnn.batchnorm", True, True)
    file.skip("gnn.batchnorm", "gnn.dim_inner")
    activation = file.pick("gnn.act", {"relu": "relu", "gelu": "gelu"}, "relu")
    if stack:
        found["local"] = _stack(file, kind, preset.local, activation)
    else:
        norms = {(True, False): "batch", (False, False): "none"}
        norms[False, True] = "graph" if kind == "MultiModel" else "graph-layer"
        both = file.get("gt.batch_norm", True), file.get("gt.layer_norm", False)
        if both not in norms:
            file.refuse("gt.batch_norm")
        found["norm"] = norms.get(both)
        found["attention"] = _attention(file, base, found)
        if reads_activation:
            found |= {"ffn_activation": activation, "local": {"activation": activation}}
        elif activation != preset.ffn_activation:
            file.unread.append("gnn.act")
    return found | _encoders(file, base) | _head(file, preset, activation)


def _stack(file: _File, kind: str, local: Any, activation: str) -> dict[str, Any]:
    """Return ``model.local`` of a network without attention."""
    residual = (
        bool(file.get("gnn.residual", False)) and kind == "custom_gnn"
    )  # GraphGym's does not read it
    if local.kind == "gated-gcn":
        # GraphGPS's GatedGCN adds its input in either network, and has ReLU.
        file.unread += ["gnn.act"] if activation != "relu" else []
        return {"residual": "inside" if residual or kind == "gnn" else "none"}
    stack = "graphgps" if local.kind == "gine" else "graphgym"
    if kind == "custom_gnn":
        stack = "lrgb" if local.stack == "graphgym" else local.stack
    return {"residual": "outside" if residual else "none", "stack": stack, "activation": activation}


def _attention(file: _File, base: RunConfig, network: Mapping[str, Any]) -> dict[str, Any]:
    kind = base.model.attention.kind
    found: dict[str, Any] = {"heads": file.get("gt.n_heads", 8)}
    dropout = file.get("gt.attn_dropout", 0.0)
    if kind in {"transformer", "performer"}:
        found["dropout"] = dropout
    elif dropout:
        file.unread.append("gt.attn_dropout")
    if kind == "k-mip":
        for theirs, ours in {"k": "k", "kq_dim": "key_dim", "val_dim": "value_dim"}.items():
            found[ours] = file.get(f"gt.sparse.{theirs}")
            if type(found[ours]) is not int:
                file.refuse(f"gt.sparse.{theirs}")
        usual = str(network["hidden_dim"]) == str((found["heads"] or 0) * (found["value_dim"] or 0))
        if usual or network["parameter_budget"] is not None:
            found["value_dim"] = None
        found["output_projection"] = (
            "gt.sparse.head_agg" not in file.values
        )  # the thesis's code has no key
        file.require("gt.sparse.head_agg", "none", "none")
    elif kind == "exphormer":
        used = file.get("prep.exp", False) and file.get("prep.use_exp_edges", True)
        found["expander"] = file.get("prep.exp_deg", 5) if used else 0
        found["virtual_nodes"] = file.get("prep.num_virt_node", 0)
        found["real_edges"] = file.get("prep.add_edge_index", True)
        file.skip("prep.exp_deg", "prep.use_exp_edges")
    elif kind == "none":
        found = {}
    file.skip("gt.sparse.*")
    return found


def _encoders(file: _File, base: RunConfig) -> dict[str, Any]:
    file.require("dataset.node_encoder", True, False)
    file.require("dataset.edge_encoder", True, False)
    file.require("dataset.edge_encoder_bn", False, True)
    names = str(file.get("dataset.node_encoder_name", "Atom")).split("+")
    positional = [name for name in names if name in _NAMES["encodings"]]
    node = "+".join(name for name in names if name not in _NAMES["encodings"]) or "LinearNode"
    enabled = [name for name in _NAMES["encodings"] if file.get(f"posenc_{name}.enable", False)]
    if node not in _NAMES["nodes"] or positional != enabled or len(positional) > 1:
        file.refuse("dataset.node_encoder_name")
    for name in enabled:
        for key, value in _NAMES["encodings"][name].items():
            file.require(f"posenc_{name}.{key}", value, value)
    for key in [key for key in file.left if key.startswith("posenc_")]:
        section = key.partition(".")[0]
        if not file.values.get(f"{section}.enable", False) or key.endswith(
            (".n_heads", "RWSE.layers")
        ):
            file.left.discard(key)  # of an encoding that is off, or of another kind of it
    edge = file.pick("dataset.edge_encoder_name", _NAMES["edges"], "Bond")
    return {
        "node_encoder": _NAMES["nodes"].get(node) or base.model.node_encoder,
        "node_encoder_norm": file.get("dataset.node_encoder_bn", True),
        "edge_encoder": edge or base.model.edge_encoder,
        "positional": "+".join(enabled).lower().replace("stablelappe", "stable") or "none",
    }


def _head(file: _File, preset: Any, activation: str) -> dict[str, Any]:
    task = file.get("dataset.task", "node")
    head = file.get("gnn.head", "default")
    level = _NAMES["heads"].get(task if head == "default" else head)
    if level == "graph" and head == "default":
        level = preset.head  # files of point clouds leave it to the command line of their run
    if level != preset.head:
        file.refuse("gnn.head")
    found: dict[str, Any] = {"head": level, "head_layers": file.get("gnn.layers_post_mp", 0) or 1}
    mlp = head == "mlp_graph"
    dropout = file.get("gnn.dropout", 0.0)
    found |= {"head_l2norm": not mlp, "head_dropout": dropout if mlp else 0.0}
    found["head_activation"] = activation if mlp else "relu"
    if level == "graph":
        poolings = {"mean": "mean", "max": "max", "add": "sum", "sum": "sum"}
        found["pooling"] = file.pick("model.graph_pooling", poolings, "add")
    file.require("model.edge_decoding", "dot", "dot")
    file.skip("model.graph_pooling")
    return found


def _training(file: _File, base: RunConfig) -> dict[str, Any]:
    optimiser: dict[str, Any] = {
        "name": file.pick(
            "optim.optimizer", {"adamW": "adamw", "adam": "adam", "sgd": "sgd"}, "adam"
        ),
        "lr": file.get("optim.base_lr", 0.01),
        "weight_decay": file.get("optim.weight_decay", 5e-4),
    }
    if optimiser["name"] == "sgd":
        optimiser["momentum"] = file.get("optim.momentum", 0.9)
    schedules = {
        "cosine_with_warmup": "cosine_with_warmup",
        "reduce_on_plateau": "reduce_on_plateau",
    }
    schedule = {"kind": file.pick("optim.scheduler", schedules | {"none": "constant"}, "cos")}
    if schedule["kind"] == "cosine_with_warmup":
        schedule["warmup_epochs"] = file.get("optim.num_warmup_epochs", 50)
    elif schedule["kind"] == "reduce_on_plateau":
        schedule["patience"] = file.get("optim.schedule_patience", 10)
        file.require("optim.reduce_factor", 0.5, 0.1)
        file.require("optim.min_lr", 0.0, 0.0)
    file.skip(
        "optim.num_warmup_epochs", "optim.schedule_patience", "optim.reduce_factor", "optim.min_lr"
    )
    file.skip("optim.momentum")
    clip = file.get("optim.clip_grad_norm_value", 1.0)
    training: dict[str, Any] = {
        "epochs": file.get("optim.max_epoch", 200),
        "accumulate": file.get("optim.batch_accumulation", 1),
        "clip_norm": clip if file.get("optim.clip_grad_norm", False) else 0.0,
        "batch_size": file.get("train.batch_size", 16),
        "eval_every": file.get("train.eval_period", 10),
        "shuffle": file.get("train.shuffle", True),
        "metric": str(file.get("metric_best", base.training.metric)).lower(),
    }
    losses = {name: name for name in ("weighted_cross_entropy", "cross_entropy", "l1")}
    if base.training.loss in {"binary_cross_entropy", "link_cross_entropy"}:
        losses["cross_entropy"] = base.training.loss  # upstream's decides by the targets
    training["loss"] = file.pick("model.loss_fun", losses, "cross_entropy")
    file.require("train.mode", "custom", "custom")
    file.require("train.sampler", "full_batch", "full_batch")
    file.require("dataset.split_mode", "standard", "standard")
    file.require("dataset.split_index", 0, 0)
    if base.data.dataset in {"pascalvoc-sp", "coco-sp"}:
        file.require("dataset.slic_compactness", 30, 10)
    return {"optimiser": optimiser, "schedule": schedule, "training": training}


def _refusal(path: Path, file: _File, remedy: str) -> UsageError:
    many = counted(len(file.unmapped), "key")
    found = "\n    " + "\n    ".join(file.unmapped)
    return UsageError(f"{path} has {many} that cannot be mapped.", found=found, next=remedy)


def _read(path: Path) -> dict[str, Any]:
    """Return the dotted keys of a YAML file."""
    import yaml

    try:
        values = yaml.safe_load(read_small(path, 2**16))  # upstream's have 4 kB
        found = dict(itertools.islice(_flat(values, ""), MOST + 1))
    except Exception as error:  # tags and digits provoke errors of many classes in PyYAML
        fault = (
            "its top level is no mapping"
            if isinstance(error, AttributeError)
            else first_fault(error)
        )
        raise DamagedInput(f"{path} cannot be read as a YAML configuration: {fault}") from error
    if len(found) > MOST:
        raise DamagedInput(f"{path} has more than {MOST:,} keys, which no configuration has.")
    return {key: value for key, value in found.items() if not isinstance(value, dict)}


def _flat(values: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Dotted keys and values, sections too; numbers such as 1e-5, which YAML takes for text, as numbers."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield (
                f"{prefix}{key}",
                value,
            )  # counted: aliases of empty sections have no end, and no other key
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, str) and re.fullmatch(r"[-+]?(\d+|\d*\.\d+)[eE][-+]?\d+", value):
            yield f"{prefix}{key}", float(value)
        else:
            yield f"{prefix}{key}", value
