"""k-MIP attention: each node attends to the k keys with the largest inner product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from kmip_data.models.components import Fraction, LayerInfo, MultiHead

if TYPE_CHECKING:
    from torch import nn

Positive = Annotated[int, Field(ge=1)]


class KMIPComponent(MultiHead):
    """Each node attends to the k nodes of its graph with the largest inner product."""

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
    dropout: Fraction = Field(default=0.0, description="dropout of attention weights")
    legacy_padding: bool = Field(default=False, description="attend to zero padding, as upstream")
    search: str = Field(
        default="auto",
        description="search backend: auto, dense, cpu, cuda, keops; reference: formula",
    )

    def k_of(self, layer: int) -> int:
        """Keys that a query attends to in a layer."""
        return self.k if isinstance(self.k, int) else self.k[layer]

    def check(self, layers: int, dim: int | None) -> None:
        """Require a k for every layer, and heads that divide the channels."""
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
        """Require a search backend that runs on the device."""
        from kmip_data.models.search.topk import usable_backend

        if self.search not in {"auto", "reference"}:
            usable_backend(self.search, device)

    @property
    def not_captured(self) -> str | None:
        """A search that waits for the GPU, or no search on it."""
        from kmip_data.models.search.topk import get_backend

        if self.search not in {"auto", "cuda"}:
            # A graph cannot repeat the host's part of a step.
            return f"the search {self.search} waits for the GPU"
        reason: str | None = get_backend("cuda").why_unusable("cuda")
        return reason

    def saved_values(self, dim: int, layers: int, training_k: int) -> float:
        """Projections, and the neighbours of the layer with the largest k."""
        largest_k = max(training_k, *map(self.k_of, range(layers)))
        values_per_pair = 4  # a score, an int64 index, a weight
        if self.dropout:
            values_per_pair += 2  # the number drawn for each, and its mask
        return 2 * dim + self.heads * (2 * self.key_dim + values_per_pair * largest_k)

    def build(self, layer: LayerInfo) -> nn.Module:
        """Make a :class:`~kmip_data.models.attention.kmip.KMIPAttention`."""
        from kmip_data.models.attention.kmip import KMIPAttention

        options = self.model_dump(exclude={"kind", "k", "search"})
        return KMIPAttention(
            layer.dim,
            k=self.k_of(layer.index),
            backend=self.search,
            **options,
        )


COMPONENT = KMIPComponent
