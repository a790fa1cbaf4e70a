"""MalNet-Tiny."""

from __future__ import annotations

from typing import Literal, Unpack

from kmip_data.datasets.base import BuiltDataset, Folder, RuleArguments
from kmip_data.datasets.inputs import LocalDegreeProfile
from kmip_data.graphs.encodings.degree_profile import DegreeProfile


class MalNetTiny(BuiltDataset):
    """MalNet-Tiny: 5,000 function call graphs of Android apps in five types.

    Items are ``Data(edge_index=[2, E], y=[1], num_nodes=N)``; directed, with self loops, without
    features unless ``degree_profile`` is set.

    Parameters
    ----------
    root, home, split, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.points.S3DIS`.
    split_rule, split_seed
        See :class:`~kmip_data.datasets.points.ShapeNetPart`.
    isolated
        ``"drop"``: nodes without an edge to another node are left out, as GraphGPS and the k-MIP code
        do (1,410.3 nodes on average); ``"keep"``: all numbers up to the largest, as PyTorch Geometric's
        class since 2.1 (1,522.1).
    label_order
        ``"alphabetical"``: addisplay 0, adware 1, benign 2, downloader 3, trojan 4, as GraphGPS;
        ``"first-seen"``: adware 0, benign 1, downloader 2, trojan 3, addisplay 4, as PyTorch Geometric's
        class since 2.1.
    degree_profile
        ``x`` is the local degree profile, float32 [N, 5], computed on reading with the deviation of
        PyTorch Geometric ``"2.0"`` (the k-MIP code's) or ``"2.8"``; ``None``: no ``x``.
    """

    _name = "malnet-tiny"

    def __init__(
        self,
        root: Folder | None = None,
        *,
        isolated: Literal["drop", "keep"] = "drop",
        label_order: Literal["alphabetical", "first-seen"] = "alphabetical",
        degree_profile: DegreeProfile | None = None,
        **arguments: Unpack[RuleArguments],
    ) -> None:
        profile = None if degree_profile is None else LocalDegreeProfile(degree_profile)
        parameters = {"isolated": isolated, "label_order": label_order}
        self._open(root, parameters, {}, arguments, first=profile)
