"""Configuration of k-MIP attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field

from kmip_data.models.components import Fraction, LayerInfo, MultiHeadComponent

if TYPE_CHECKING:
    from torch import nn

Positive = Annotated[int, Field(ge=1)]


class KMIPComponent(MultiHeadComponent):
    """Attention to the k nodes of the graph with the largest inner product."""

    test_keys: ClassVar = frozenset({"k", "search"})

    kind: Literal["k-mip"] = Field(default="k-mip", description="k-MIP attention")
    heads: int = Field(default=4, ge=1, description="attention heads")
    k: Positive | tuple[Positive, ...] = Field(
        default=10, description="keys per query, or a list with one number per layer"
    )
    key_dim: int = Field(default=5, ge=1, description="channels of a head's queries and keys")
    value_dim: int | None = Field(
        default=None, ge=1, description="channels of a head's values; none: hidden_dim / heads"
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

    def layer_k(self, layer: int) -> int:
        """Return the keys per query in a layer."""
        return self.k if isinstance(self.k, int) else self.k[layer]

    def check(self, layers: int, dim: int | None) -> None:
        """Check that there is a k for every layer, and that the heads fit the channels."""
        heads = self.heads
        width = self.value_dim
        msg = ""
        if not isinstance(self.k, int) and len(self.k) != layers:
            msg = f"k lists {len(self.k)} numbers, but there are {layers} layers"
        elif width is None:
            super().check(layers, dim)
        elif dim is None:
            msg = "value_dim cannot be set together with parameter_budget; leave one of them out"
        elif not self.output_projection and heads * width != dim:
            msg = f"heads · value_dim = {heads * width} must be hidden_dim = {dim}, or output_projection on"
        if msg:
            raise ValueError(msg)

    def check_device(self, device: str) -> None:
        """Check that the search backend supports the device."""
        from kmip_data.models.search.topk import usable_backend

        if self.search not in {"auto", "reference"}:
            usable_backend(self.search, device)

    @property
    def why_not_capturable(self) -> str | None:
        """Reason why the search cannot be captured, if any."""
        from kmip_data.models.search.topk import get_backend

        if self.search not in {"auto", "cuda"}:
            # A graph does not repeat the host's work.
            return f"the search {self.search} waits for the GPU"
        reason: str | None = get_backend("cuda").why_unusable("cuda")
        return reason

    @property
    def of_largest_layer(self) -> Self:
        """Configuration with the largest k."""
        return self if isinstance(self.k, int) else self.model_copy(update={"k": max(self.k)})

    def build(self, layer: LayerInfo) -> nn.Module:
        """Build a :class:`~kmip_data.models.attention.kmip.KMIPAttention`."""
        from kmip_data.models.attention.kmip import KMIPAttention

        options = self.model_dump(exclude={"kind", "k", "search"})
        return KMIPAttention(
            layer.dim,
            k=self.layer_k(layer.index),
            backend=self.search,
            **options,
        )


COMPONENT = KMIPComponent
