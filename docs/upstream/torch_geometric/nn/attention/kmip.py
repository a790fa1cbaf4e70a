import math
from typing import Optional

import torch
from torch import Tensor


class KMIPAttention(torch.nn.Module):
    r"""The :math:`k`-maximum inner product attention mechanism from the
    "k-Maximum Inner Product Attention for Graph Transformers and the
    Expressive Power of GraphGPS" paper.

    Each query :math:`\mathbf{q}_i` attends to the set
    :math:`\mathcal{N}_k(i)` of the :math:`k` keys of its graph with the
    largest inner product:

    .. math::
        \mathbf{o}_i = \sum_{j \in \mathcal{N}_k(i)} \frac{
        \exp ( \mathbf{q}_i^{\top} \mathbf{k}_j / \sqrt{d} )}{
        \sum_{l \in \mathcal{N}_k(i)}
        \exp ( \mathbf{q}_i^{\top} \mathbf{k}_l / \sqrt{d} )} \mathbf{v}_j

    .. note::
        This implementation computes all inner products of a graph, so its
        memory is quadratic in the number of nodes.

    Args:
        channels (int): Size of each input sample.
        heads (int, optional): Number of parallel attention heads.
            (default: :obj:`1`)
        k (int, optional): Number of keys each query attends to. Graphs with
            fewer nodes attend to all of them. (default: :obj:`10`)
        head_channels (int, optional): Size of each attention head.
            (default: :obj:`64`)
        qkv_bias (bool, optional): If specified, add bias to query, key
            and value in the self attention. (default: :obj:`False`)
        attn_out_bias (bool, optional): If specified, add bias to the
            attention output. (default: :obj:`True`)
        dropout (float, optional): Dropout probability of the attention
            weights. (default: :obj:`0.0`)
    """
    def __init__(
        self,
        channels: int,
        heads: int = 1,
        k: int = 10,
        head_channels: int = 64,
        qkv_bias: bool = False,
        attn_out_bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if k < 1:
            raise ValueError(f"'k' needs to be at least 1 (got {k})")

        self.heads = heads
        self.k = k
        self.head_channels = head_channels

        inner_channels = head_channels * heads
        self.q = torch.nn.Linear(channels, inner_channels, bias=qkv_bias)
        self.k_lin = torch.nn.Linear(channels, inner_channels, bias=qkv_bias)
        self.v = torch.nn.Linear(channels, inner_channels, bias=qkv_bias)
        self.attn_out = torch.nn.Linear(inner_channels, channels,
                                        bias=attn_out_bias)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        r"""Forward pass.

        Args:
            x (torch.Tensor): Node feature tensor
                :math:`\mathbf{X} \in \mathbb{R}^{B \times N \times F}`, with
                batch-size :math:`B`, (maximum) number of nodes :math:`N` for
                each graph, and feature dimension :math:`F`.
            mask (torch.Tensor, optional): Mask matrix
                :math:`\mathbf{M} \in {\{ 0, 1 \}}^{B \times N}` indicating
                the valid nodes for each graph. (default: :obj:`None`)
        """
        B, N, *_ = x.shape
        # Reshape queries, keys and values from
        # [B, N, heads * head_channels] to [B, heads, N, head_channels]:
        q, k, v = (lin(x).view(B, N, self.heads, self.head_channels).transpose(
            1, 2) for lin in (self.q, self.k_lin, self.v))

        score = q @ k.transpose(-2, -1) / math.sqrt(self.head_channels)
        if mask is not None:
            score = score.masked_fill(~mask[:, None, None, :], -math.inf)

        value, index = score.topk(min(self.k, N), dim=-1)
        # A graph without any valid node has no weights to normalize:
        weight = value.softmax(dim=-1).masked_fill(value == -math.inf, 0.0)
        weight = self.dropout(weight)

        attn = torch.zeros_like(score).scatter(-1, index, weight)
        out = (attn @ v).transpose(1, 2).reshape(B, N, -1)
        return self.attn_out(out)

    def reset_parameters(self) -> None:
        self.q.reset_parameters()
        self.k_lin.reset_parameters()
        self.v.reset_parameters()
        self.attn_out.reset_parameters()

    def __repr__(self) -> str:
        return (f'{self.__class__.__name__}('
                f'heads={self.heads}, '
                f'k={self.k}, '
                f'head_channels={self.head_channels})')
