"""Function call graphs of Android apps."""

from __future__ import annotations

from typing import Literal, Unpack

from kmip_data.datasets.base import BuiltDataset, Folder, RuleArguments
from kmip_data.datasets.pyg_arguments import PYG_PROCESSING_ARGUMENTS, accept_pyg_order
from kmip_data.datasets.transforms import LocalDegreeProfile
from kmip_data.graphs.encodings.degree_profile import Rule


class MalNetTiny(BuiltDataset):
    """MalNet-Tiny, function call graphs.

    5,000 function call graphs of Android apps without node features; four types of malware, or
    benign.

    Items are ``Data(y=[1], edge_index=[2, E])``.

    Graphs are directed and have self loops. They have no features unless ``degree_profile`` is set.

    Parameters
    ----------
    degree_profile
        Compute ``x``, the local degree profile, float32 [N, 5], on each read. ``"2.0"`` (the k-MIP
        code's) and ``"2.8"`` name the version of PyTorch Geometric that defines its deviation.
        ``None``: no ``x``.
    isolated
        drop: only nodes with an edge to another node, as in GraphGPS and the k-MIP code; keep: all
        node numbers up to the largest, as in PyTorch Geometric since 2.1.
    label_order
        alphabetical: addisplay 0 to trojan 4, as in GraphGPS and the k-MIP code; first-seen:
        adware 0, benign 1, downloader 2, trojan 3, addisplay 4, as in PyTorch Geometric since 2.1.
    *pyg
        Further positional arguments, in the order of PyTorch Geometric's class: root, split,
        transform, pre_transform, …
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "malnet-tiny"

    @accept_pyg_order("root", "split", *PYG_PROCESSING_ARGUMENTS)
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: object,
        degree_profile: Rule | None = None,
        isolated: Literal["drop", "keep"] = "drop",
        label_order: Literal["alphabetical", "first-seen"] = "alphabetical",
        **arguments: Unpack[RuleArguments],
    ) -> None:
        profile = None if degree_profile is None else LocalDegreeProfile(degree_profile)
        self._open(
            root,
            arguments,
            class_transform=lambda _: profile,
            isolated=isolated,
            label_order=label_order,
        )
