"""Typed configuration of a network: its keys with types, defaults and descriptions."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from kmip_data.errors import unknown_name_error
from kmip_data.graphs.encoding import Encoding
from kmip_data.models.attention import kinds as attention_kinds
from kmip_data.models.attention.kinds.kmip import KMIPComponent
from kmip_data.models.components import Activation, Component, Fraction, NoComponent
from kmip_data.models.layers import message_passing
from kmip_data.models.layers.message_passing.gated_gcn import GatedGCNComponent
from kmip_data.models.positional_encodings import (
    POSITIONAL_ENCODINGS,
    EquivStableOptions,
    LapPEOptions,
    PositionalEncoding,
    PositionalName,
    RWSEOptions,
    find_positional_encoding,
)
from kmip_data.models.registries import (
    Encoder,
    ModuleBuilder,
    RegisteredName,
    all_heads,
    all_norms,
    edge_encoders,
    encoding_attributes,
    node_encoders,
)
from kmip_data.registry import PLUGIN_OBJECTS, import_modules_in, with_plugin_entries
from kmip_data.strict_model import StrictModel, read_shipped, shipped_names


def _components_by_kind(components: Iterable[type[Component]]) -> dict[str, type[Component]]:
    return {component.model_fields["kind"].default: component for component in components}


#: Components by ``model.local.kind``; GatedGCN is listed first.
MESSAGE_PASSING = _components_by_kind(
    [
        NoComponent,
        GatedGCNComponent,
        *(module.COMPONENT for module in import_modules_in(message_passing)),
    ]
)
#: Components by ``model.attention.kind``; k-MIP is listed first.
ATTENTION = _components_by_kind(
    [
        NoComponent,
        KMIPComponent,
        *(module.COMPONENT for module in import_modules_in(attention_kinds)),
    ]
)


class ComponentSection(NamedTuple):
    """Section of ``model`` whose ``kind`` selects a component."""

    plugin_group: str  #: entry-point group of plugins
    built_in: dict[str, type[Component]]  #: built-in components by ``kind``


#: Sections of ``model`` that configure the two branches of a layer.
COMPONENT_SECTIONS = {
    "attention": ComponentSection("attention", ATTENTION),
    "local": ComponentSection("message_passing", MESSAGE_PASSING),
}


def component_kinds(section: str) -> Mapping[str, type[Component]]:
    """Return the kinds of ``model.attention`` or ``model.local``, including kinds of loaded plugins."""
    return with_plugin_entries(*COMPONENT_SECTIONS[section])


def _kind_validator(section: str) -> Callable[[object], object]:
    """Return a validator that checks a section against the class of its ``kind``."""

    def check(value: object) -> object:
        # A discriminated union would be fixed at import, before plugins are loaded.
        kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
        kinds = component_kinds(section)
        if str(kind) not in kinds:
            error = unknown_name_error(f"kind of model.{section}", str(kind), list(kinds))
            raise ValueError(f"{error.message} Known: {error.expected}")
        if isinstance(value, Mapping):
            return kinds[str(kind)].model_validate(value)
        return value

    return check


def known_models() -> Mapping[str, Mapping[str, Any]]:
    """Return the keys of each model, from its file in ``manifests/models`` or a loaded plugin."""
    # A plugin's network has no GPS layers, so it passes the checks only without their branches.
    keys = {**with_plugin_entries("models", _shipped_models())}
    for name in PLUGIN_OBJECTS["models"]:
        network = plugin_network(name)
        if network is not None:
            no_layers = {"attention": {"kind": "none"}, "local": {"kind": "none"}}
            keys[name] = {**no_layers, **getattr(network, "keys", {})}
    return keys


def plugin_network(name: str) -> ModuleBuilder | None:
    """Return the plugin's builder of a complete network; None for a model of GPS layers."""
    added = PLUGIN_OBJECTS["models"].get(name)
    return None if added is None or isinstance(added.value, Mapping) else added.value


@functools.cache
def _shipped_models() -> dict[str, dict[str, Any]]:
    return {name: read_shipped("models", name) for name in shipped_names("models")}


if TYPE_CHECKING:
    AnyAttention = Component
    AnyMessagePassing = Component
else:
    AnyAttention = Annotated[
        SerializeAsAny[Component], BeforeValidator(_kind_validator("attention"))
    ]
    AnyMessagePassing = Annotated[
        SerializeAsAny[Component], BeforeValidator(_kind_validator("local"))
    ]

DEFAULT_HIDDEN_DIM = 56


def dotted_keys(values: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of nested tables, and their values."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from dotted_keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def merge_tables(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``changes``, merging tables key by key.

    A table with a different ``kind`` replaces the old table.
    """
    result = dict(base)
    for key, value in changes.items():
        result[key] = value
        old = base.get(key)
        # The keys of one kind do not apply to another, which starts from its own defaults.
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            kind = old.get("kind")
            if value.get("kind", kind) == kind:
                result[key] = merge_tables(old, value)
    return result


class ModelConfig(StrictModel):
    """Architecture of a GPS network: the ``model.…`` keys of docs/keys.md.

    The defaults are the paper's S3DIS network, as the published code ran it.

    >>> from kmip_data.models import ModelConfig
    >>> ModelConfig(layers=4, hidden_dim=64, attention={"kind": "k-mip", "k": 20}).layers
    4
    """

    name: str = Field(default="gps-kmip", description="architecture: a file of manifests/models")
    layers: int = Field(
        default=8,
        ge=1,
        le=1_000,
        description="GPS layers",
    )
    hidden_dim: int = Field(
        default=DEFAULT_HIDDEN_DIM, ge=1, description="channels of nodes and edges"
    )
    parameter_budget: int | None = Field(
        default=None,
        ge=1,
        description="largest number of parameters: hidden_dim becomes the widest that fits",
    )
    attention: AnyAttention = Field(
        default_factory=KMIPComponent, description="attention of a layer"
    )
    local: AnyMessagePassing = Field(
        default_factory=GatedGCNComponent, description="message passing of a layer"
    )
    dropout: Fraction = Field(default=0.1, description="dropout of all branches of a layer")
    norm: Annotated[str, RegisteredName("norms", "norm", all_norms)] = Field(
        default="batch",
        description="mean and variance per channel (batch), graph (graph-layer: the code's layer norm),"
        " node (layer: the paper's) or graph and channel (graph)",
    )
    feed_forward: bool = Field(default=True, description="two linear layers after the branches")
    ffn_activation: Activation = Field(
        default="relu",
        description="activation of the feed-forward block: relu (code) or gelu (text)",
    )
    head: Annotated[str, RegisteredName("heads", "head", all_heads)] | None = Field(
        default=None,
        description="level of the predictions; san: graphs, with layers that halve the channels; none:"
        " level of the targets",
    )
    head_layers: int = Field(default=2, ge=1, le=1_000, description="linear layers of the head")
    head_l2norm: bool = Field(
        default=True, description="scale hidden rows of the head to length 1 (code)"
    )
    head_dropout: Fraction = Field(
        default=0.0, description="dropout before each linear layer of the head"
    )
    head_activation: Activation = Field(default="relu", description="activation of the head")
    output_scale: float = Field(
        default=1.0,
        gt=0,
        description="factor of the head's output; 40 scales targets of up to 40 to at most 1",
    )
    pooling: Literal["mean", "max", "sum", "first"] = Field(
        default="mean",
        description="pooling before a graph head; first: the first node, a tree's root",
    )
    node_encoder: Annotated[
        str,
        RegisteredName(
            "node_encoders", "node encoder", node_encoders, patterns=("typesN", "typesNxC")
        ),
    ] = Field(
        default="linear",
        description="encoder of node features: linear; atom: embeddings of OGB's nine integers; voc,"
        " coco: standardised, then linear; block: the block of input_layers, on the features; linear-norm:"
        " linear, layer norm, ReLU; types28: one embedding of 28 types; types28x2: the sum of two, one for"
        " each column; none: the first layer maps them",
    )
    input_dropout: Fraction = Field(default=0.0, description="dropout after the node encoder")
    node_encoder_norm: bool = Field(
        default=False, description="batch norm after the node encoder (GraphGym's node_encoder_bn)"
    )
    edge_encoder: Annotated[
        str,
        RegisteredName(
            "edge_encoders",
            "edge encoder",
            edge_encoders,
            patterns=("typesN", "ENCODER+edge-rwseN"),
        ),
    ] = Field(
        default="dummy",
        description="encoder of edge features: dummy: one learned vector; linear; bond: embeddings of"
        " OGB's three integers; voc, coco: standardised, then linear; voc-rwse32: with walk"
        " probabilities along the edge; types4: one embedding of four types; types4+edge-rwse20: plus a"
        " linear map of these probabilities; none: edge features are ignored",
    )
    positional: Annotated[
        str,
        PositionalName(
            "encodings",
            "positional encoding",
            lambda: POSITIONAL_ENCODINGS,
            patterns=("ENCODING", "ENCODING+ENCODING"),
        ),
    ] = Field(
        default="none",
        description="positional encoding: Laplacian eigenvectors (lappe), random walks (rwse;"
        " rwse32: 32 steps, 28 channels), messages scaled by distances of eigenvectors (equivstable),"
        " any encoding of one column, such as rwse24, also of a plugin (16 channels); or a sum:"
        " lappe+rwse",
    )
    lappe: LapPEOptions = Field(default_factory=LapPEOptions, description="Laplacian eigenvectors")
    rwse: RWSEOptions = Field(default_factory=RWSEOptions, description="random walks")
    equivstable: EquivStableOptions = Field(
        default_factory=EquivStableOptions, description="EquivStableLapPE"
    )
    input_layers: int = Field(
        default=0,
        ge=0,
        le=1_000,
        description="blocks of linear, batch norm, ReLU, rows of length 1 before the first layer"
        " (GraphGym's layers_pre_mp)",
    )
    checkpoint_layers: bool | None = Field(
        default=None,
        description="recompute layers in the backward pass: less memory, a third more time, same bits;"
        " none: if memory runs short",
    )

    @property
    def positional_encodings(self) -> list[PositionalEncoding]:
        """Positional encodings, configured by their sections."""
        positional_encodings = []
        for name in self.positional.split("+"):
            encoding = find_positional_encoding(name)
            if encoding.options is not None:
                encoding = encoding.with_options(getattr(self, name))
            positional_encodings.append(encoding)
        return positional_encodings

    @property
    def encodings(self) -> list[Encoding]:
        """Encodings that the network reads as added columns."""
        readers: tuple[PositionalEncoding | Encoder | Component, ...] = (
            *self.positional_encodings,
            node_encoders()[self.node_encoder],
            edge_encoders()[self.edge_encoder],
            self.attention,
            self.local,
        )
        columns = [reader.encoding for reader in readers if reader.encoding is not None]
        return [*dict.fromkeys(columns)]

    @property
    def added_attributes(self) -> list[str]:
        """Batch attributes that hold the columns of these encodings."""
        attributes = map(encoding_attributes, self.encodings)
        return [*itertools.chain.from_iterable(attributes)]

    @property
    def plugin_entries(self) -> list[tuple[str, str]]:
        """Plugin group and name of each selected entry."""
        encodings = [("encodings", encoding.prefix) for encoding in self.encodings]
        return [
            ("models", self.name),
            ("attention", self.attention.kind),
            ("message_passing", self.local.kind),
            ("norms", self.norm),
            ("heads", str(self.head)),
            ("node_encoders", self.node_encoder),
            ("edge_encoders", self.edge_encoder.partition("+")[0]),
            *encodings,
        ]

    @property
    def reads_edges(self) -> bool:
        """True if a branch of the layers reads edge features, or a plugin's network asks for them."""
        if self.is_plugins_network:
            return self.edge_encoder != "dummy"
        return self.attention.reads_edges or self.local.reads_edges

    @property
    def is_plugins_network(self) -> bool:
        """True if a plugin builds the complete network, which may read any key."""
        return plugin_network(self.name) is not None

    def missing_reader(self, key: str) -> str:
        """Return the part that reads ``key``, below ``model``, if the network lacks it; else nothing."""
        if self.is_plugins_network:
            return ""
        section = key.partition(".")[0]
        if section in POSITIONAL_ENCODINGS and section not in self.positional.split("+"):
            return f"the positional encoding {section}"
        if key == "edge_encoder" and not self.reads_edges:
            return "message passing with edge features, such as gine's"
        return ""

    @property
    def _can_skip_node_encoder(self) -> bool:
        """True if the first layer can read the raw features."""
        first_is_local = self.attention.kind == "none" and self.input_layers == 0
        return first_is_local and not self.node_encoder_norm and self.local.accepts_input_dim

    @model_validator(mode="before")
    @classmethod
    def _fill_in_model_keys(cls, values: object) -> object:
        """Fill in missing keys from the model's file, and expand sections given as a string."""
        if not isinstance(values, Mapping):
            return values
        # `attention = "k-mip"` is short for `attention = {kind = "k-mip"}`.
        keys = dict(values)
        for section in COMPONENT_SECTIONS:
            if isinstance(keys.get(section), str):
                keys[section] = {"kind": keys[section]}
        name = str(keys.get("name", cls.model_fields["name"].default))
        if name not in known_models():
            raise ValueError(unknown_name_error("model", name, list(known_models())).message)
        return merge_tables(known_models()[name], keys)

    @model_validator(mode="after")
    def _check_components_fit(self) -> Self:
        # With a parameter budget, hidden_dim is chosen later, as a multiple that fits the components.
        dim = self.hidden_dim
        budget = self.parameter_budget
        positional = self.positional
        local = self.local.kind
        for component in (self.attention, self.local):
            component.check(self.layers, dim if budget is None else None)
        encodings = self.positional_encodings
        width = sum(encoding.width for encoding in encodings)
        prefixes = [encoding.prefix for encoding in self.encodings]
        problem = ""
        if budget is not None and dim != DEFAULT_HIDDEN_DIM:
            problem = f"parameter_budget = {budget} would replace hidden_dim = {dim}; leave one of them out"
        elif self.attention.kind == local == "none" and not self.is_plugins_network:
            problem = "attention and local are both none: layers need one of them"
        elif any(e.adds_distances for e in encodings) and not self.local.reads_distances:
            problem = (
                f"{positional} scales the gates of message passing, and local = {local} has none"
            )
        elif len({*positional.split("+")}) < len(encodings) or len({*prefixes}) < len(prefixes):
            problem = f"two terms of {positional} read the same column, whose width is fixed"
        elif self.node_encoder == "none" and not self._can_skip_node_encoder:
            problem = "node_encoder = none needs message passing that accepts other input channels"
        elif width >= dim and budget is None:
            problem = (
                f"hidden_dim = {dim} leaves no room next to the {width} channels of {positional}"
            )
        if problem:
            raise ValueError(problem)
        return self
