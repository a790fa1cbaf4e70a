"""Configuration keys of every attention, and how its module is built.

A class here that names its ``kind`` is discovered automatically; :class:`~kmip_data.models.parts.Part` says
what training asks of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from kmip_data.graphs.encodings.expander import Expander
from kmip_data.models.parts import Part, Place

if TYPE_CHECKING:
    from torch import nn

Positive = Annotated[int, Field(ge=1)]


class MultiHead(Part):
    """Attention whose heads share the channels."""

    heads: int = Field(default=4, ge=1, description="attention heads; must divide hidden_dim")

    @property
    def multiple(self) -> int:
        """Each head has as many channels."""
        return self.heads

    def check(self, layers: int, dim: int | None) -> None:
        """The heads fill the channels."""
        if dim is not None and dim % self.heads:
            raise ValueError(f"hidden_dim = {dim} is not a multiple of heads = {self.heads}")


class KMIPPart(MultiHead):
    """Each node attends to the k nodes of its graph with the largest inner product."""

    divides = True

    kind: Literal["k-mip"] = Field(default="k-mip", description="k-MIP attention")
    heads: int = Field(default=4, ge=1, description="attention heads")
    k: Positive | tuple[Positive, ...] = Field(
        default=10, description="keys per query, or a list with one number per layer"
    )
    key_dim: int = Field(default=5, ge=1, description="channels of a query and a key of one head")
    value_dim: int | None = Field(
        default=None, ge=1, description="channels of a value of one head; none: hidden_dim / heads"
    )
    output_projection: bool = Field(
        default=False, description="linear layer W_O after the heads (text)"
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout of attention weights")
    legacy_padding: bool = Field(default=False, description="attend to zero padding, as upstream")
    warm_start: bool | None = Field(
        default=None,
        description="begin each search with the previous step's pairs; same result; none: when training"
        " on one whole graph on a GPU",
    )
    search: str = Field(default="auto", description="search backend: auto, dense, cpu, cuda, keops")

    def k_of(self, layer: int) -> int:
        """Keys that a query attends to in a layer."""
        return self.k if isinstance(self.k, int) else self.k[layer]

    def check(self, layers: int, dim: int | None) -> None:
        """Every layer must have its k, and the heads fill the channels."""
        heads = self.heads
        width = self.value_dim
        msg = ""
        if not isinstance(self.k, int) and len(self.k) != layers:
            msg = f"k lists {len(self.k)} numbers, and there are {layers} layers"
        elif width is None:
            super().check(layers, dim)
        elif dim is None:
            msg = "value_dim follows from hidden_dim where parameter_budget chooses that; leave it unset"
        elif not self.output_projection and heads * width != dim:
            msg = f"heads · value_dim = {heads * width} must be hidden_dim = {dim}, or output_projection on"
        if msg:
            raise ValueError(msg)

    def check_device(self, device: str) -> None:
        """The search backend must run there."""
        from kmip_data.models.search.topk import check_backend

        check_backend(self.search, device)

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.attention.kmip.KMIPAttention`."""
        from kmip_data.models.attention.kmip import KMIPAttention
        from kmip_data.models.search.topk import get_backend

        if self.search != "auto":
            get_backend(self.search)  # an unknown name fails now, not at the first batch
        options = self.model_dump(exclude={"kind", "k", "search"}) | {
            "warm_start": bool(self.warm_start)
        }
        return KMIPAttention(place.dim, k=self.k_of(place.layer), backend=self.search, **options)


class TransformerPart(MultiHead):
    """Each node attends to all nodes of its graph."""

    kind: Literal["transformer"] = Field(default="transformer", description="full attention")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout of attention weights")

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.attention.transformer.TransformerAttention`."""
        from kmip_data.models.attention.transformer import TransformerAttention

        return TransformerAttention(place.dim, heads=self.heads, dropout=self.dropout)


class PerformerPart(MultiHead):
    """Each node attends to all nodes of its graph, by random features."""

    kind: Literal["performer"] = Field(
        default="performer", description="attention by random features"
    )
    head_dim: int = Field(default=64, ge=2, description="channels of a head")
    features: int | None = Field(
        default=None, ge=1, description="random features; none: ⌊head_dim · ln head_dim⌋"
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout after the output layer")
    legacy_mask: bool = Field(default=False, description="count zero padding as keys, as upstream")

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.attention.performer.PerformerAttention`."""
        from kmip_data.models.attention.performer import PerformerAttention

        return PerformerAttention(place.dim, **self.model_dump(exclude={"kind"}))


class BigBirdPart(MultiHead):
    """Blocks of nodes, in the order of the data, attend to a few blocks; a whole encoder layer."""

    kind: Literal["bigbird"] = Field(
        default="bigbird", description="BigBird: a whole encoder layer of block-sparse attention"
    )
    block_size: int = Field(
        default=3, ge=1, description="nodes per block, in the order of the data"
    )
    random_blocks: int = Field(default=3, ge=0, description="random blocks per block and head")
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**32,
        description="seed of the random blocks, the same in all layers and steps",
    )
    norm_eps: float = Field(default=1e-6, gt=0, description="epsilon of the layer norms")
    legacy_padding: bool = Field(
        default=False,
        description="lay out blocks as for the longest graph of the batch, as upstream",
    )

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.attention.bigbird.BigBirdAttention`."""
        from kmip_data.models.attention.bigbird import BigBirdAttention

        return BigBirdAttention(
            place.dim, dropout=place.dropout, **self.model_dump(exclude={"kind"})
        )


class ExphormerPart(MultiHead):
    """Each node attends along its edges, those of an expander, and to virtual nodes."""

    reads: ClassVar[tuple[str, ...]] = ("expander",)

    kind: Literal["exphormer"] = Field(
        default="exphormer", description="Exphormer's sparse attention"
    )
    expander: int = Field(
        default=3,
        ge=0,
        le=1024,
        description="permutations of the expander, each with edges in both directions; 0: no expander",
    )
    expander_seed: int = Field(default=0, ge=0, lt=10**9, description="seed of the permutations")
    self_loops: bool = Field(
        default=True, description="keep expander edges from a node to itself, as upstream"
    )
    real_edges: bool = Field(default=True, description="attend along the graph's edges")
    virtual_nodes: int = Field(default=3, ge=0, description="virtual nodes per graph")
    clamp: float = Field(default=5.0, gt=0, le=50, description="bound of the scores, both ways")
    output_projection: bool = Field(
        default=False, description="linear layer W_O after the heads (text)"
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout of attention weights")

    @property
    def reads_edges(self) -> bool:  # type: ignore[override]
        """As far as it attends along them."""
        return self.real_edges

    @property
    def divides(self) -> bool:  # type: ignore[override]
        """Unless dropout draws for edges, which several processes hold in another order."""
        return not self.dropout

    @property
    def encoding(self) -> Expander | None:
        """The permutations."""
        return Expander(self.expander, self.expander_seed) if self.expander else None

    def check(self, layers: int, dim: int | None) -> None:
        """There must be edges of some sort, and the heads fill the channels."""
        if not (self.real_edges or self.expander or self.virtual_nodes):
            msg = "real_edges is off, expander and virtual_nodes are 0: nothing is left to attend along"
            raise ValueError(msg)
        super().check(layers, dim)

    def begin(self, dim: int) -> nn.Module:
        """Make the :class:`~kmip_data.models.attention.exphormer.ExphormerEdges` of a network."""
        from kmip_data.models.attention.exphormer import ExphormerEdges

        options = self.model_dump(include={"virtual_nodes", "self_loops", "real_edges"})
        return ExphormerEdges(dim, expander=self.expander > 0, **options)

    def build(self, place: Place) -> nn.Module:
        """Make an :class:`~kmip_data.models.attention.exphormer.ExphormerAttention`."""
        from kmip_data.models.attention.exphormer import ExphormerAttention

        options = self.model_dump(include={"heads", "clamp", "output_projection", "dropout"})
        return ExphormerAttention(place.dim, **options)
