"""Typed configuration of a network: every key, its type, its default and what it means."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

USUAL_DIM = 56  #: hidden_dim where nobody chose one
Positive = Annotated[int, Field(ge=1)]


class ModelConfig(BaseModel):
    """Architecture of a GPS network. The defaults are the paper's S3DIS network, as its code ran it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: str = Field(default="gps-kmip", description="architecture, one of the names of the model registry")
    layers: int = Field(default=8, ge=1, le=1_000, description="GPS layers")
    hidden_dim: int = Field(
        default=USUAL_DIM, ge=1, description="channels of nodes and edges between the layers"
    )
    parameter_budget: int | None = Field(
        default=None,
        ge=1,
        description="largest number of parameters: hidden_dim becomes the widest that fits; a hidden_dim of"
        " one's own switches it off",
    )
    heads: int = Field(default=4, ge=1, description="attention heads")
    k: Positive | tuple[Positive, ...] = Field(
        default=10, description="keys that a query attends to, or a list with one number a layer"
    )
    key_dim: int = Field(default=5, ge=1, description="length of a query and a key of one head")
    value_dim: int | None = Field(
        default=None, ge=1, description="length of a value of one head; unset: hidden_dim / heads"
    )
    output_projection: bool = Field(
        default=False,
        description="linear layer after the heads (W_O of the paper's Algorithm 1; its code has none)",
    )
    attention_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="dropout of attention weights (the paper names 0.5; its code ignored it for k-MIP)",
    )
    legacy_padding: bool = Field(
        default=False,
        description="attend zero padding up to the largest graph of the batch, as the paper's code did",
    )
    warm_start: bool = Field(
        default=False,
        description="begin each search with the pairs of the step before, where the shape is the same: for"
        " training on one graph; same result",
    )
    search: str = Field(default="auto", description="search backend: auto, dense, cpu, keops, …")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="dropout of all branches of a layer")
    local: Literal["gated-gcn"] = Field(
        default="gated-gcn", description="message passing beside the attention"
    )
    local_residual: Literal["none", "inside", "outside"] = Field(
        default="none",
        description="residual connection of the local branch: none (the paper's code), inside the"
        " message-passing layer (thesis, Exphormer) or after it (LRGB); for gated-gcn the last two are equal",
    )
    norm: Literal["batch", "graph-layer", "layer", "graph"] = Field(
        default="batch",
        description="batch; graph-layer (one mean and variance a graph: the code's layer norm); layer"
        " (a node: the paper's word); graph (a graph and channel)",
    )
    ffn_activation: Literal["relu", "gelu"] = Field(
        default="relu",
        description="activation of the feed-forward block: relu (the code) or gelu (the paper)",
    )
    head: Literal["node", "graph", "link"] | None = Field(
        default=None, description="what a prediction belongs to; none: what the targets belong to"
    )
    head_layers: int = Field(default=2, ge=1, description="linear layers of the head")
    head_l2norm: bool = Field(
        default=True, description="rows scaled to length 1 inside the head (the code; the paper does not say)"
    )
    head_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="dropout before each linear layer of the head"
    )
    head_activation: Literal["relu", "gelu"] = Field(
        default="relu", description="activation between the linear layers of the head"
    )
    pooling: Literal["mean", "max", "sum"] = Field(
        default="mean", description="nodes to a graph, before a head for graphs"
    )
    node_encoder: Literal["linear", "atom", "voc", "coco"] = Field(
        default="linear",
        description="raw node features to hidden_dim: linear; atom: embeddings of OGB's nine integers; voc,"
        " coco: standardised by the constants of the paper's code, then linear",
    )
    edge_encoder: Literal["dummy", "linear", "bond", "voc", "coco"] = Field(
        default="dummy",
        description="dummy: one learned vector for all edges; linear: of edge_attr; bond: embeddings of OGB's"
        " three integers; voc, coco: standardised, then linear",
    )
    positional: Literal["none", "lappe", "rwse", "equivstable"] = Field(
        default="none",
        description="positional encoding: beside the node features Laplacian eigenvectors (lappe, 16"
        " channels) or return probabilities of random walks (rwse, 28); equivstable: gates of message passing"
        " scaled by the distance of eigenvectors. Training adds the columns that it reads (kmip-data encode)",
    )
    input_layers: int = Field(
        default=0,
        ge=0,
        description="blocks before the first layer: linear, batch norm, ReLU, rows scaled to length 1"
        " (GraphGym's layers_pre_mp)",
    )
    checkpoint_layers: bool | None = Field(
        default=None,
        description="recompute each layer in the backward pass, but for its search: a fraction of the memory"
        " for about a third more time, same result; none: training does so where memory asks for it",
    )

    @model_validator(mode="after")
    def _position_leaves_room(self) -> Self:
        width = {"lappe": 16, "rwse": 28}.get(self.positional, 0)
        if width >= self.hidden_dim and self.parameter_budget is None:
            msg = (
                f"hidden_dim = {self.hidden_dim} leaves no room beside the {width} channels of"
                f" {self.positional}"
            )
            raise ValueError(msg)
        return self

    @property
    def k_of_layers(self) -> tuple[int, ...]:
        """Keys that a query attends to, for each layer."""
        return (self.k,) * self.layers if isinstance(self.k, int) else self.k

    @model_validator(mode="after")
    def _a_number_for_each_layer(self) -> Self:
        if len(self.k_of_layers) != self.layers:
            msg = f"k lists {len(self.k_of_layers)} numbers, and there are {self.layers} layers"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _one_of_width_and_budget(self) -> Self:
        if self.parameter_budget is not None and self.hidden_dim != USUAL_DIM:
            msg = (
                f"parameter_budget = {self.parameter_budget} would replace hidden_dim = {self.hidden_dim};"
                " leave one of them out"
            )
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _heads_fill_hidden_dim(self) -> Self:
        if self.value_dim is None and self.hidden_dim % self.heads and self.parameter_budget is None:
            msg = f"hidden_dim = {self.hidden_dim} is no multiple of heads = {self.heads}; or set value_dim"
            raise ValueError(msg)
        if self.value_dim is not None and self.parameter_budget is not None:
            msg = "value_dim follows from hidden_dim where parameter_budget chooses that; leave it unset"
            raise ValueError(msg)
        if (
            self.value_dim is not None
            and not self.output_projection
            and self.heads * self.value_dim != self.hidden_dim
        ):
            msg = (
                f"heads · value_dim = {self.heads * self.value_dim} must be hidden_dim = {self.hidden_dim}"
                " unless output_projection is on"
            )
            raise ValueError(msg)
        return self
