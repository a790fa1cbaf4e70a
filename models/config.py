"""Typed configuration of a network: every key, its type, default and meaning."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, WrapValidator, model_validator

from kmip_data.errors import UsageError
from kmip_data.graphs.encoding import Encoding, parse_encoding
from kmip_data.graphs.encodings.edge_rwse import EdgeRandomWalk
from kmip_data.graphs.encodings.lappe import Laplacian
from kmip_data.graphs.encodings.rwse import RandomWalk
from kmip_data.manifest import ADDED, Strict, read_shipped, shipped_names, unknown_name, with_added
from kmip_data.models.attention.configuration import KMIPPart
from kmip_data.models.parts import GatedGCNPart, MessagePassing, Part


def _kinds(base: type[Part]) -> dict[str, type[Part]]:
    """Return our classes below ``base`` that name their ``kind``, by it, in the order of their definition."""
    found: dict[str, type[Part]] = {}
    for part in base.__subclasses__():
        kind = part.model_fields["kind"].default
        ours = part.__module__.startswith("kmip_data.")
        found |= {kind: part} if isinstance(kind, str) and ours else {}
        found |= _kinds(part)
    return found


_ALL = _kinds(Part)
MESSAGE_PASSING = {"none": _ALL["none"], **_kinds(MessagePassing)}  #: by ``model.local.kind``
#: By ``model.attention.kind``.
ATTENTION = {kind: part for kind, part in _ALL.items() if not issubclass(part, MessagePassing)}
#: Section of the model -> its group of entry points, and our own kinds.
SECTIONS: Final = {
    "attention": ("attention", ATTENTION),
    "local": ("message_passing", MESSAGE_PASSING),
}


def kinds_of(section: str) -> Mapping[str, type[Part]]:
    """Return the kinds of ``model.attention`` or ``model.local``, with those of loaded plugins."""
    return with_added(*SECTIONS[section])


def _of_kind(section: str) -> Callable[[Any], Any]:
    """Make the validator of a section: the class of its ``kind`` checks it."""

    def check(given: Any) -> Any:
        # A union by kind would be fixed when this module is imported, before plugins are.
        kind = given.get("kind") if isinstance(given, Mapping) else getattr(given, "kind", None)
        kinds = kinds_of(section)
        if kind not in kinds:
            raise ValueError(unknown_name(f"kind of model.{section}", str(kind), list(kinds)).what)
        return kinds[str(kind)].model_validate(given) if isinstance(given, Mapping) else given

    return check


@dataclass(frozen=True)
class Positional:
    """One value of ``model.positional``: how a network reads an encoding of the positions of nodes."""

    encoding: Encoding | None = (
        None  #: the added column that it reads; training adds it where it is missing
    )
    width: int = (
        0  #: channels that it takes from those of the node encoder; 0: it changes the batch instead
    )
    distances: bool = False  #: True if it gives the edges the squared distance of their ends

    @property
    def reads(self) -> tuple[str, ...]:
        """Attributes of a batch; distances are of eigenvectors, without their eigenvalues."""
        if self.distances:
            return ("lappe_vectors",)
        return (
            tuple(column.attribute for column in self.encoding.columns()) if self.encoding else ()
        )


POSITIONAL = {
    "equivstable": Positional(Laplacian(8), distances=True),
    "lappe": Positional(Laplacian(10), width=16),
    "none": Positional(),
    "rwse": Positional(RandomWalk(20), width=28),
    "rwse32": Positional(RandomWalk(32), width=28),
}
#: Values of ``model.edge_encoder`` that read an added column, and the column.
EDGE_ENCODINGS = {"voc-rwse32": EdgeRandomWalk(32)}
ADDED_WIDTH: Final = 16  #: channels of a plugin's encoding


def positional(name: str) -> Positional:
    """Return a value of ``model.positional``: ours, or that of an encoding of a loaded plugin."""
    found = POSITIONAL.get(name)
    return found or Positional(parse_encoding(name), width=ADDED_WIDTH)


def _or_added(given: Any, check: Callable[[Any], Any]) -> Any:
    """Check ``model.positional``, which may be an encoding of a loaded plugin, of one column of nodes."""
    kinds = [kind for kind, _ in ADDED["encodings"].values()] if isinstance(given, str) else []
    for encoding in filter(None, (kind.parse(given) for kind in kinds)):
        found = [
            (column.level, len(column.shape), column.presented[:5]) for column in encoding.columns()
        ]
        if found != [("node", 1, "float")]:
            raise UsageError(
                f"The encoding {given} has other columns than one of floats, (N, width)."
            )
        return given
    return check(given)


def models() -> Mapping[str, dict[str, Any]]:
    """Return the keys of every model by name, from its file in ``manifests/models`` or a loaded plugin."""
    return with_added("models", _shipped_models())


@functools.cache
def _shipped_models() -> dict[str, dict[str, Any]]:
    return {name: read_shipped("models", name) for name in shipped_names("models")}


if TYPE_CHECKING:
    AnyAttention = Part
    AnyMessagePassing = Part
else:
    AnyAttention = Annotated[SerializeAsAny[Part], BeforeValidator(_of_kind("attention"))]
    AnyMessagePassing = Annotated[SerializeAsAny[Part], BeforeValidator(_of_kind("local"))]

USUAL_DIM = 56  #: hidden_dim where nobody chose one


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``changes``, merging tables key by key; a table of another kind replaces one."""
    found = dict(base)
    for key, value in changes.items():
        old = found.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            alike = value.get("kind", old.get("kind")) == old.get("kind")
            found[key] = merged(old, value) if alike else value
        else:
            found[key] = value
    return found


class ModelConfig(Strict):
    """Architecture of a GPS network. The defaults are the paper's S3DIS network, as its code ran it."""

    name: str = Field(default="gps-kmip", description="architecture: a file of manifests/models")
    layers: int = Field(default=8, ge=1, le=1_000, description="GPS layers")
    hidden_dim: int = Field(default=USUAL_DIM, ge=1, description="channels of nodes and edges")
    parameter_budget: int | None = Field(
        default=None,
        ge=1,
        description="largest number of parameters: hidden_dim becomes the widest that fits",
    )
    attention: AnyAttention = Field(default_factory=KMIPPart, description="attention of a layer")
    local: AnyMessagePassing = Field(
        default_factory=GatedGCNPart, description="message passing of a layer"
    )
    dropout: float = Field(
        default=0.1, ge=0, lt=1, description="dropout of all branches of a layer"
    )
    norm: Literal["batch", "graph-layer", "layer", "graph", "none"] = Field(
        default="batch",
        description="mean and variance per channel (batch), graph (graph-layer: the code's layer norm),"
        " node (layer: the paper's) or graph and channel (graph)",
    )
    feed_forward: bool = Field(default=True, description="two linear layers after the branches")
    ffn_activation: Literal["relu", "gelu"] = Field(
        default="relu",
        description="activation of the feed-forward block: relu (code) or gelu (text)",
    )
    head: Literal["node", "graph", "link"] | None = Field(
        default=None, description="level of a prediction; none: that of the targets"
    )
    head_layers: int = Field(default=2, ge=1, description="linear layers of the head")
    head_l2norm: bool = Field(
        default=True, description="scale hidden rows of the head to length 1 (code)"
    )
    head_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="dropout before each linear layer of the head"
    )
    head_activation: Literal["relu", "gelu"] = Field(
        default="relu", description="activation of the head"
    )
    output_scale: float = Field(
        default=1.0,
        gt=0,
        description="factor of the head's output: 40 learns targets of at most 40 as shares",
    )
    pooling: Literal["mean", "max", "sum"] = Field(
        default="mean", description="pooling before a graph head"
    )
    node_encoder: Literal["linear", "atom", "voc", "coco", "block"] = Field(
        default="linear",
        description="encoder of node features: linear; atom: embeddings of OGB's nine integers; voc,"
        " coco: standardised, then linear; block: that of input_layers, on the features",
    )
    node_encoder_norm: bool = Field(
        default=False, description="batch norm after the node encoder (GraphGym's node_encoder_bn)"
    )
    edge_encoder: Literal["dummy", "linear", "bond", "voc", "coco", "voc-rwse32"] = Field(
        default="dummy",
        description="encoder of edge features: dummy: one learned vector; linear; bond: embeddings of"
        " OGB's three integers; voc, coco: standardised, then linear; voc-rwse32: with chances of walks"
        " between the ends",
    )
    positional: Annotated[
        SerializeAsAny[Literal["equivstable", "lappe", "none", "rwse", "rwse32"]],
        WrapValidator(_or_added),
    ] = Field(
        default="none",
        description="positional encoding: Laplacian eigenvectors (lappe, 16 channels), random walks"
        " of 20 or 32 steps (rwse, rwse32, 28), gates scaled by distances of eigenvectors (equivstable),"
        " or a plugin's encoding (16)",
    )
    input_layers: int = Field(
        default=0,
        ge=0,
        description="blocks of linear, batch norm, ReLU, rows of length 1 before the first layer"
        " (GraphGym's layers_pre_mp)",
    )
    checkpoint_layers: bool | None = Field(
        default=None,
        description="recompute layers in the backward pass: less memory, a third more time, same bits;"
        " none: where memory runs short",
    )

    @property
    def encodings(self) -> list[Encoding]:
        """Added columns that the network reads."""
        found = (
            positional(self.positional).encoding,
            EDGE_ENCODINGS.get(self.edge_encoder),
            self.attention.encoding,
            self.local.encoding,
        )
        return [encoding for encoding in found if encoding is not None]

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """Add the keys of the model's file that are not given; a section given as a word is its kind."""
        if not isinstance(given, Mapping):
            return given
        words = {
            part: given[part] for part in ("attention", "local") if isinstance(given.get(part), str)
        }
        found = {**given, **{part: {"kind": word} for part, word in words.items()}}
        name = str(found.get("name", cls.model_fields["name"].default))
        if name not in models():
            raise ValueError(unknown_name("model", name, list(models())).what)
        return merged(models()[name], found)

    @model_validator(mode="after")
    def _parts_go_together(self) -> Self:
        dim = self.hidden_dim
        budget = self.parameter_budget
        name = self.positional
        for part in (self.attention, self.local):
            part.check(self.layers, dim if budget is None else None)
        position = positional(name)
        msg = ""
        if budget is not None and dim != USUAL_DIM:
            msg = f"parameter_budget = {budget} would replace hidden_dim = {dim}; leave one of them out"
        elif self.attention.kind == self.local.kind == "none":
            msg = "attention and local are both none: layers need one of them"
        elif position.distances and not self.local.reads_distances:
            msg = f"{name} scales the gates of message passing, and local = {self.local.kind} has none"
        elif position.width >= dim and budget is None:
            msg = (
                f"hidden_dim = {dim} leaves no room next to the {position.width} channels of {name}"
            )
        if msg:
            raise ValueError(msg)
        return self
