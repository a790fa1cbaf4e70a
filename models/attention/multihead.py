"""Drop-in replacement for ``torch.nn.MultiheadAttention`` by k-MIP attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kmip_data.errors import UsageError
from kmip_data.models.attention.kmip import attend_to_best, pointers_of_mask, require_known_backend
from kmip_data.models.layers.linear import linear
from kmip_data.models.search.problem import FLOATS, check_k, check_strided


class KMIPMultiheadAttention(nn.MultiheadAttention):
    """Multi-head attention of each query to its k best keys.

    Weights have the names and shapes of ``torch.nn.MultiheadAttention``, whose ``state_dict`` can
    be loaded. It works wherever that class does: in ``torch_geometric.nn.GPSConv`` (as
    ``conv.attn``) or ``torch.nn.TransformerEncoderLayer`` (as ``layer.self_attn``). Padding is
    removed, not masked, so it costs nothing.

    Parameters
    ----------
    embed_dim, num_heads, dropout, bias, kdim, vdim, batch_first, device, dtype
        As in ``torch.nn.MultiheadAttention``.
    k
        Keys per query; all if there are fewer. The attribute may be changed.
    backend
        Search backend: ``"auto"``, or a name that :func:`kmip_data.models.search.topk.backend_status`
        lists.

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
        """Draw all weights as the constructor does, in its order."""
        self.out_proj.reset_parameters()
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Draw the weights that torch's method draws: all but the output matrix."""
        # torch uses this flag to find the weights. It must be false elsewhere: in evaluation,
        # torch's transformer layers replace an attention with a true flag by a fused kernel.
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        self._qkv_same_embed_dim = False

    def extra_repr(self) -> str:
        """Sizes and options that the sub-modules do not show."""
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
        """Attend, as ``torch.nn.MultiheadAttention.forward``: output in the form of ``query``, and weights.

        Parameters
        ----------
        query, key, value
            (L, B, E), (S, B, kdim), (S, B, vdim), both widths E by default; batch first where so
            made; without B for one sequence.
        key_padding_mask
            (B, S) or (S): True (or −inf) marks padding, which is never chosen. If ``query`` is
            ``key``, padded queries are skipped as well and return the output bias.
        need_weights, average_attn_weights
            Also return the weights, (B, L, S), or (B, heads, L, S) if not averaged; before dropout
            and without a gradient. That is a dense tensor: leave it out for long sequences.
        attn_mask, is_causal
            Not supported: None and False.

        Raises
        ------
        UsageError
            An unsupported mask, or inconsistent shapes.
        """
        if attn_mask is not None or is_causal:
            raise UsageError(
                "k-MIP attention takes key_padding_mask, but no attn_mask and no is_causal=True."
            )

        # 1. Batch first, one sequence as a batch of one.
        same = query is key
        operands = {"query": query, "key": key, "value": value}
        query, key, value = (check_strided(name, rows) for name, rows in operands.items())
        alone = query.ndim == 2
        self._check_operands(query, key, value)
        if alone:
            query, key, value = (rows[None] for rows in (query, key, value))
        elif not self.batch_first:
            query, key, value = (rows.transpose(0, 1) for rows in (query, key, value))

        # 2. Concatenate all sequences without padding. Torch has no query mask: padded queries are
        # known in self-attention alone.
        key_rows = _Packing.of(key, key_padding_mask)
        query_rows = key_rows if same else _Packing.of(query, None)
        queries, keys, values = self._project_rows(
            query_rows.pack(query), key_rows.pack(key), key_rows.pack(value)
        )
        attended = attend_to_best(
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
        if alone:
            return out[0], None if dense is None else dense[0]
        return out if self.batch_first else out.transpose(0, 1), dense

    def _project_rows(self, *rows: Tensor) -> Iterator[Tensor]:
        """Queries, keys and values (H, R, E / H) of their rows (R, width)."""
        weights: Sequence[Tensor] = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        if self.kdim == self.vdim == self.embed_dim:  # one parameter for all three
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
        batch = 0 if self.batch_first else 1
        fits = (
            query.ndim in (2, 3)
            and query.ndim == key.ndim == value.ndim
            and key.shape[:-1] == value.shape[:-1]
            and tuple(rows.shape[-1] for rows in operands) == widths
            and (query.ndim == 2 or query.shape[batch] == key.shape[batch])
        )
        lowered = torch.is_autocast_enabled(weight.device.type)
        alike = all(
            rows.device == weight.device
            and rows.dtype in FLOATS
            and (rows.dtype == weight.dtype or lowered)
            for rows in operands
        )
        if not fits or not alike:
            shape = "batch, rows" if self.batch_first else "rows, batch"
            expected = ", ".join(f"({shape}, {width})" for width in widths)
            shapes = [f"{tuple(rows.shape)} {rows.dtype} on {rows.device}" for rows in operands]
            raise UsageError(
                f"query, key and value do not match: they are {', '.join(shapes)}.",
                expected=f"{expected} of {weight.dtype} on {weight.device}, or without batch",
            )


@dataclass(frozen=True)
class _Packing:
    """Concatenated rows of all sequences, without padding: (B, L, width) ↔ (R, width)."""

    sequences: int
    length: int
    present: Tensor | None  #: (R,) int64, rows of (B · L, width) without padding; None: all
    starts: Tensor  #: (B + 1) first packed rows, on the CPU, where the search reads them

    @classmethod
    def of(cls, rows: Tensor, mask: Tensor | None) -> _Packing:
        """Return the packing of sequences (B, L, width) with a ``key_padding_mask``; None: no padding."""
        sequences, length = rows.shape[:2]
        if mask is None:
            starts = torch.arange(sequences + 1) * length
            return cls(sequences, length, None, starts)
        present = _mask_of_real_keys(mask, rows)
        chosen = present.flatten().nonzero()[:, 0]
        return cls(sequences, length, chosen, pointers_of_mask(present))

    def pack(self, rows: Tensor) -> Tensor:
        """(B, L, width) → (R, width)."""
        rows = rows.flatten(0, 1)
        return rows if self.present is None else rows.index_select(0, self.present)

    def unpack(self, rows: Tensor) -> Tensor:
        """(R, …) → (B, L, …), zeros for padding."""
        if self.present is not None:
            padded = rows.new_zeros(self.sequences * self.length, *rows.shape[1:])
            rows = padded.index_copy(0, self.present, rows)
        return rows.view(self.sequences, self.length, *rows.shape[1:])


def _mask_of_real_keys(mask: Tensor, key: Tensor) -> Tensor:
    """Return (B, S) bool, True for keys that are not padding."""
    mask = check_strided(
        "key_padding_mask", mask, "a tensor of bool, or of floats that are 0 or -inf"
    )
    if mask.ndim == 1:
        mask = mask[None]
    if mask.dtype == torch.bool:
        padding = mask
        others = False
    else:  # a float mask is added to scores: 0 keeps, −inf removes, and no other value is supported
        padding = mask == -torch.inf
        others = bool(((mask != 0) & ~padding).any())
    if mask.shape != key.shape[:2] or others:
        raise UsageError(
            f"key_padding_mask is {mask.dtype} of shape {tuple(mask.shape)}, not"
            f" bool of shape {tuple(key.shape[:2])}, or floats that are 0 or -inf."
        )
    return ~padding


def _dense_weights(weights: Tensor, indices: Tensor, queries: _Packing, keys: _Packing) -> Tensor:
    """Convert weights of packed rows (H, R, k) to (B, H, L, S)."""
    columns = torch.arange(keys.length, device=weights.device)
    columns = keys.pack(columns.expand(keys.sequences, -1))
    # Slots without a key write to an extra last column, which is cut off.
    columns = torch.cat([columns, columns.new_full((1,), keys.length)])
    column = columns[indices.long()]  # index −1 is the last
    empty = weights.new_zeros(*weights.shape[:2], keys.length + 1)
    spread = empty.scatter(2, column, weights)[..., :-1]
    return queries.unpack(spread.transpose(0, 1)).transpose(1, 2)
