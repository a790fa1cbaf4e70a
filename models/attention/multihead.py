"""Drop-in replacement for ``torch.nn.MultiheadAttention`` that uses k-MIP attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kmip_data.errors import UsageError
from kmip_data.models.attention.kmip import (
    kmip_attention_with_weights,
    pointers_from_mask,
    require_known_backend,
)
from kmip_data.models.layers.linear import linear
from kmip_data.models.search.problem import FLOATS, check_k, check_strided


class KMIPMultiheadAttention(nn.MultiheadAttention):
    """Multi-head attention of each query to its k best keys.

    It loads the ``state_dict`` of ``torch.nn.MultiheadAttention`` and works wherever that class
    does: in ``torch_geometric.nn.GPSConv`` (as ``conv.attn``) or
    ``torch.nn.TransformerEncoderLayer`` (as ``layer.self_attn``). Padding is removed instead of
    masked, so it costs nothing.

    Parameters
    ----------
    embed_dim, num_heads, dropout, bias, kdim, vdim, batch_first, device, dtype
        As in ``torch.nn.MultiheadAttention``.
    k
        Keys per query; sequences with fewer keys use all of them. The attribute may be changed.
    backend
        Search backend: ``"auto"``, or a name from
        :func:`kmip_data.models.search.topk.backend_status`.

    Examples
    --------
    >>> import torch
    >>> from kmip_data.models import KMIPMultiheadAttention
    >>> attention = KMIPMultiheadAttention(8, 2, k=3, batch_first=True)
    >>> x = torch.randn(2, 5, 8)  # (batch, length, channels)
    >>> output, weights = attention(x, x, x)
    >>> output.shape, weights.shape
    (torch.Size([2, 5, 8]), torch.Size([2, 5, 5]))
    """

    def __init__(  # noqa: PLR0913 -- options, by keyword
        self,
        embed_dim: int,
        num_heads: int,
        k: int,
        *,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise UsageError(
                f"embed_dim = {embed_dim} cannot be split among num_heads = {num_heads}, both at least 1."
            )
        check_k(k)
        require_known_backend(backend)
        options = {"batch_first": batch_first, "device": device, "dtype": dtype}
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            kdim=kdim,
            vdim=vdim,
            **options,
        )
        self.k = k
        self.backend = backend

    def reset_parameters(self) -> None:
        """Redraw all weights in the order of the constructor."""
        self.out_proj.reset_parameters()
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Redraw all weights but the output matrix, as torch's method does."""
        # torch's method reads this flag to find the weights. Afterwards it must be false: in
        # evaluation, torch's transformer layers replace an attention with a true flag by a kernel.
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        self._qkv_same_embed_dim = False

    def extra_repr(self) -> str:
        """Describe the options that no submodule shows."""
        return f"{self.embed_dim}, num_heads={self.num_heads}, k={self.k}, backend={self.backend!r}"

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output, in the form of ``query``, and weights, as ``torch.nn.MultiheadAttention``.

        Parameters
        ----------
        query, key, value
            (L, B, E), (S, B, kdim) and (S, B, vdim); kdim and vdim are E by default. B comes first
            with ``batch_first``, and is missing for a single sequence.
        key_padding_mask
            (B, S) or (S): True (or −inf) marks padding, which is never chosen. If ``query`` is
            ``key``, padded queries are skipped too and return the output bias.
        need_weights, average_attn_weights
            Also return the weights, (B, L, S), or (B, heads, L, S) if not averaged; before dropout
            and without a gradient. This tensor is dense: avoid it for long sequences.
        attn_mask, is_causal
            Must be None and False.

        Raises
        ------
        UsageError
            An unsupported mask, or inconsistent shapes.
        """
        if attn_mask is not None or is_causal:
            raise UsageError(
                "k-MIP attention supports key_padding_mask, but neither attn_mask nor is_causal=True."
            )

        # 1. Put the batch first; a single sequence is a batch of one.
        is_self_attention = query is key
        operands = {"query": query, "key": key, "value": value}
        query, key, value = (check_strided(name, rows) for name, rows in operands.items())
        is_single = query.ndim == 2
        self._check_operands(query, key, value)
        if is_single:
            query, key, value = (rows[None] for rows in (query, key, value))
        elif not self.batch_first:
            query, key, value = (rows.transpose(0, 1) for rows in (query, key, value))

        # 2. Concatenate all sequences without padding. There is no query mask, so only
        # self-attention can skip padded queries.
        key_rows = _Packing.of(key, key_padding_mask)
        query_rows = key_rows if is_self_attention else _Packing.of(query, None)
        queries, keys, values = self._project_rows(
            query_rows.pack(query), key_rows.pack(key), key_rows.pack(value)
        )
        attended = kmip_attention_with_weights(
            queries,
            keys,
            values,
            self.k,
            query_ptr=query_rows.starts,
            key_ptr=key_rows.starts,
            dropout=self.dropout if self.training else 0.0,
            backend=self.backend,
        )

        # 3. Restore the layout of the query.
        joined_heads = attended.out.transpose(0, 1).flatten(1)
        out = self.out_proj(query_rows.unpack(joined_heads))
        dense = None
        if need_weights:
            dense = _dense_weights(attended.weights, attended.indices, query_rows, key_rows)
            if average_attn_weights:
                dense = dense.mean(1)
        if is_single:
            return out[0], None if dense is None else dense[0]
        return out if self.batch_first else out.transpose(0, 1), dense

    def _project_rows(self, *rows: Tensor) -> Iterator[Tensor]:
        """Project rows (R, width) of query, key and value to (H, R, E / H)."""
        weights: Sequence[Tensor] = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        if self.kdim == self.vdim == self.embed_dim:  # one parameter holds all three
            weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        for operands in zip(rows, weights, biases, strict=True):
            projected = linear(*operands)
            yield projected.view(len(projected), self.num_heads, self.head_dim).transpose(0, 1)

    def _check_operands(self, *operands: Tensor) -> None:
        """Raise ``UsageError`` unless query, key and value fit each other and the weights."""
        query, key, value = operands
        weight = self.out_proj.weight
        widths = (self.embed_dim, self.kdim, self.vdim)
        batch_axis = 0 if self.batch_first else 1
        shapes_fit = (
            query.ndim in (2, 3)
            and query.ndim == key.ndim == value.ndim
            and key.shape[:-1] == value.shape[:-1]
            and tuple(rows.shape[-1] for rows in operands) == widths
            and (query.ndim == 2 or query.shape[batch_axis] == key.shape[batch_axis])
        )
        under_autocast = torch.is_autocast_enabled(weight.device.type)
        types_fit = all(
            rows.device == weight.device
            and rows.dtype in FLOATS
            and (rows.dtype == weight.dtype or under_autocast)
            for rows in operands
        )
        if not shapes_fit or not types_fit:
            shape = "batch, rows" if self.batch_first else "rows, batch"
            expected = ", ".join(f"({shape}, {width})" for width in widths)
            shapes = [f"{tuple(rows.shape)} {rows.dtype} on {rows.device}" for rows in operands]
            raise UsageError(
                f"query, key and value do not match: they are {', '.join(shapes)}.",
                expected=f"{expected} of {weight.dtype} on {weight.device}, or without batch",
            )


@dataclass(frozen=True)
class _Packing:
    """Conversion between padded sequences (B, L, width) and concatenated rows (R, width)."""

    sequences: int
    length: int
    real_rows: Tensor | None  #: (R,) int64, rows of (B · L, width) that are no padding; None: all
    starts: Tensor  #: (B + 1) first packed row of each sequence, on the CPU for the search

    @classmethod
    def of(cls, rows: Tensor, mask: Tensor | None) -> _Packing:
        """Return the packing of sequences (B, L, width) with a ``key_padding_mask``; None: no padding."""
        sequences, length = rows.shape[:2]
        if mask is None:
            starts = torch.arange(sequences + 1) * length
            return cls(sequences, length, None, starts)
        is_real = _invert_padding_mask(mask, rows)
        real_rows = is_real.flatten().nonzero()[:, 0]
        return cls(sequences, length, real_rows, pointers_from_mask(is_real))

    def pack(self, rows: Tensor) -> Tensor:
        """(B, L, width) → (R, width)."""
        rows = rows.flatten(0, 1)
        return rows if self.real_rows is None else rows.index_select(0, self.real_rows)

    def unpack(self, rows: Tensor) -> Tensor:
        """(R, …) → (B, L, …), with zeros for padding."""
        if self.real_rows is not None:
            padded = rows.new_zeros(self.sequences * self.length, *rows.shape[1:])
            rows = padded.index_copy(0, self.real_rows, rows)
        return rows.view(self.sequences, self.length, *rows.shape[1:])


def _invert_padding_mask(mask: Tensor, key: Tensor) -> Tensor:
    """Check a ``key_padding_mask``, and return (B, S) bool, True for real keys."""
    mask = check_strided(
        "key_padding_mask", mask, "a tensor of bool, or of floats that are 0 or -inf"
    )
    if mask.ndim == 1:
        mask = mask[None]
    if mask.dtype == torch.bool:
        padding = mask
        has_other_values = False
    else:  # a float mask is added to scores: 0 keeps, −inf removes; no other value is supported
        padding = mask == -torch.inf
        has_other_values = bool(((mask != 0) & ~padding).any())
    if mask.shape != key.shape[:2] or has_other_values:
        raise UsageError(
            f"key_padding_mask is {mask.dtype} of shape {tuple(mask.shape)}, not"
            f" bool of shape {tuple(key.shape[:2])}, or floats that are 0 or -inf."
        )
    return ~padding


def _dense_weights(weights: Tensor, indices: Tensor, queries: _Packing, keys: _Packing) -> Tensor:
    """Convert weights of packed rows (H, R, k) to a dense tensor (B, H, L, S)."""
    positions = torch.arange(keys.length, device=weights.device)
    positions = keys.pack(positions.expand(keys.sequences, -1))
    # Slots without a key (index −1) write to an extra last column, which is cut off.
    positions = torch.cat([positions, positions.new_full((1,), keys.length)])
    zeros = weights.new_zeros(*weights.shape[:2], keys.length + 1)
    dense = zeros.scatter(2, positions[indices.long()], weights)[..., :-1]
    return queries.unpack(dense.transpose(0, 1)).transpose(1, 2)
