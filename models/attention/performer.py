"""Performer attention: linear in the nodes, by random features."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from kmip_data.models.attention.favor import favor_attention
from kmip_data.models.attention.ragged import Pointers, pointers
from kmip_data.models.attention.transformer import check_heads
from kmip_data.models.layers.batch import context_of
from kmip_data.models.search.problem import check_nodes


def orthogonal_directions(count: int, dim: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw (count, dim) Gaussian directions, of which each ``dim`` are orthogonal to each other.

    The draws are performer-pytorch's: the same seed gives the same directions. As there, signs are those of
    the QR factorisation, so that the mean is not quite zero.
    """
    device = None if generator is None else generator.device

    def normal(rows: int) -> Tensor:
        return torch.randn(rows, dim, generator=generator, device=device)

    blocks = [torch.linalg.qr(normal(dim)).Q.T for _ in range(-(-count // dim))]
    lengths = normal(count).norm(dim=1, keepdim=True)
    directions: Tensor = lengths * torch.cat(blocks)[:count]
    return directions


class RandomFeatures(nn.Module):
    """The random directions (features, head_dim) of a layer, in its ``state_dict``.

    Drawn anew after ``redraw`` forward passes in training; None: never. They follow from a
    seed drawn at construction, so that a resumed run draws the same.
    """

    projection_matrix: Tensor
    seed: Tensor
    passes: Tensor

    def __init__(self, head_dim: int, features: int, redraw: int | None = None) -> None:
        super().__init__()
        self.redraw = redraw
        self.register_buffer("projection_matrix", orthogonal_directions(features, head_dim))
        if redraw is not None:
            self.register_buffer("seed", torch.randint(2**62, ()))
            self.register_buffer("passes", torch.zeros((), dtype=torch.int64))
        self._passes: int | None = None  # the same number, so that no pass waits for a GPU to read it

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self._passes = None

    def forward(self, repeated: bool = False) -> Tensor:
        """Directions (features, head_dim) for one forward pass; a ``repeated`` one is not counted."""
        if self.redraw is not None and self.training and not repeated:
            self._count(self.redraw)
        return self.projection_matrix

    @torch.compiler.disable  # type: ignore[untyped-decorator] # its number changes with each pass
    @torch.no_grad()
    def _count(self, redraw: int) -> None:
        passes = int(self.passes) if self._passes is None else self._passes
        if passes and passes % redraw == 0:
            # A generator of its own: a recomputed layer needs the global one where it was.
            count, dim = self.projection_matrix.shape
            generator = torch.Generator().manual_seed(int(self.seed) + passes)
            self.projection_matrix.copy_(orthogonal_directions(count, dim, generator))
        self._passes = passes + 1
        self.passes.fill_(passes + 1)


class PerformerAttention(nn.Module):
    """Multi-head attention whose softmax is estimated by random features: O(N) time and memory.

    Weights, names and result are those of ``SelfAttention`` of performer-pytorch 1.1.4 on each graph alone.

    Parameters
    ----------
    dim
        Channels of the input and the output, a multiple of ``heads``.
    heads
        Number of heads H.
    head_dim
        Channels of a query, key and value of one head, whatever ``dim`` is.
    features
        Random features m; ``int(head_dim · ln head_dim)`` by default.
    dropout
        Probability with which a channel of the result is dropped in training.
    redraw
        Forward passes in training after which the features are drawn anew; None: never, as the published
        code, which lacks what would.
    legacy_mask
        Reproduce the published code: zero rows up to the largest graph of the batch count as keys in the
        largest exponent and in the normaliser (their values are zero). The result for a graph then depends
        on the others in its batch. False: every graph as if alone.

    Examples
    --------
    >>> import torch
    >>> from kmip_data.models import PerformerAttention
    >>> attention = PerformerAttention(8, heads=2, head_dim=16)
    >>> attention(torch.randn(7, 8), [0, 3, 7]).shape  # two graphs, of three nodes and of four
    torch.Size([7, 8])
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int = 4,
        head_dim: int = 64,
        features: int | None = None,
        dropout: float = 0.0,
        redraw: int | None = None,
        legacy_mask: bool = False,
    ) -> None:
        super().__init__()
        check_heads(dim, heads)
        inner = heads * head_dim
        self.heads, self.legacy_mask = heads, legacy_mask
        self.fast_attention = RandomFeatures(head_dim, features or usual_features(head_dim), redraw)
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, inner, bias=False) for _ in range(3))
        self.to_out = nn.Linear(inner, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, ptr: Pointers = None) -> Tensor:
        """Attend within each graph: nodes of all graphs (N, dim) to the same.

        ``ptr`` (G + 1): graph g has the rows ``ptr[g]:ptr[g + 1]``; or a batch that has it; None: one graph.
        """
        x = check_nodes(x, self.to_q.weight)
        projected = [to(x).unflatten(1, (self.heads, -1)) for to in (self.to_q, self.to_k, self.to_v)]
        attended = self._attend(projected, self.fast_attention(context_of(ptr).repeated), ptr)
        out: Tensor = self.dropout(self.to_out(attended.flatten(1).to(projected[0].dtype)))
        return out

    @torch.compiler.disable  # type: ignore[untyped-decorator] # sizes depend on the data
    def _attend(self, projected: list[Tensor], directions: Tensor, ptr: Pointers) -> Tensor:
        """Features are exponentials: in float32 at least, under autocast too."""
        dtype = torch.promote_types(projected[0].dtype, torch.float32)
        starts = pointers(ptr, projected[0].shape[0])
        queries, keys, values, directions = (tensor.to(dtype) for tensor in (*projected, directions))
        with torch.autocast(directions.device.type, enabled=False):
            return favor_attention(
                queries,
                keys,
                values,
                directions,
                starts,
                legacy_mask=self.legacy_mask,
                context=context_of(ptr),
            )

    def extra_repr(self) -> str:
        """Options that the sub-modules do not show."""
        return f"heads={self.heads}, legacy_mask={self.legacy_mask}"


def usual_features(head_dim: int) -> int:
    """Return the usual number of random features."""
    return max(1, int(head_dim * math.log(head_dim)))
