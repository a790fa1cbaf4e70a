"""Generated graphs, distances and charges in graphs (ECHO), and call graphs of programs."""

from __future__ import annotations

from typing import Literal, Unpack

from kmip_data.datasets.base import BuiltDataset, Folder, RuleArguments, names_of
from kmip_data.datasets.inputs import LocalDegreeProfile
from kmip_data.datasets.pyg_calls import STEPS, pyg_order
from kmip_data.errors import unknown_name
from kmip_data.graphs.encodings.degree_profile import DegreeProfile


class SBMPattern(BuiltDataset):
    """PATTERN (benchmarking-gnns).

    14,000 random graphs of about 119 nodes; which nodes belong to a pattern that was hidden
    among blocks.

    Items are ``Data(x=[N, 3], edge_index=[2, E], y=[N])``.

    Parameters
    ----------
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "pattern"


class SBMCluster(BuiltDataset):
    """CLUSTER (benchmarking-gnns).

    12,000 random graphs of six blocks, about 117 nodes; the block of each node, of which one
    node each is known.

    Items are ``Data(x=[N, 7], edge_index=[2, E], y=[N])``.

    Parameters
    ----------
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "cluster"


class LongRange(BuiltDataset):
    """Long-range tasks on generated graphs.

    3,000 generated graphs of six topologies; a node's target is held by another node, many
    edges away.

    Items are ``Data(x=[N, 24], edge_index=[2, E], y=[N], distance=[N])``.

    Parameters
    ----------
    task
        retrieval: the value held by the one other node with the same key; sssp: distance from a
        marked node; ecc: largest distance from each node; diam: largest distance in the graph.
    graphs
        Number of graphs, topologies in turn.
    nodes
        Nodes of the largest graph; least: half as many.
    seed
        Seed of all graphs.
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "long-range"

    def __init__(
        self,
        root: Folder | None = None,
        *,
        task: Literal["retrieval", "sssp", "ecc", "diam"] = "retrieval",
        graphs: int = 3000,
        nodes: int = 64,
        seed: int = 0,
        **arguments: Unpack[RuleArguments],
    ) -> None:
        self._open(root, arguments, task=task, graphs=graphs, nodes=nodes, seed=seed)


class ECHO(BuiltDataset):
    """ECHO (ICLR 2026): distances in generated graphs, charges and energies of molecules.

    Items are ``Data(x=[N, 2], edge_index=[2, E], y)``, of molecules with ``edge_attr=[E, 2]``.
    ``y`` is float32, (N, 1) for ``sssp``, ``ecc`` and ``charge``, (1, 1) for ``diam`` and
    ``energy``: distances in edges, which the authors' class divides by 40, charges, and decimal
    logarithms of energies.

    Parameters
    ----------
    task
        ``"sssp"``, ``"ecc"``, ``"diam"``, ``"charge"`` or ``"energy"``.
    *pyg
        More positional arguments have the order of PyTorch Geometric's classes: root, task,
        transform, pre_transform, …
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "echo-sssp"

    @pyg_order("root", "task", *STEPS)
    def __init__(
        self,
        task: Literal["sssp", "ecc", "diam", "charge", "energy"],
        *pyg: object,
        root: Folder | None = None,
        **arguments: Unpack[RuleArguments],
    ) -> None:
        known = [name.removeprefix("echo-") for name in names_of(ECHO)]
        if task not in known:
            raise unknown_name("task of ECHO", task, known, command="help(kmip_data.ECHO)")
        self._open(root, arguments, name=f"echo-{task}")


class MalNetTiny(BuiltDataset):
    """MalNet-Tiny, function call graphs.

    5,000 function call graphs of Android apps without node features; five types of malware or
    benign.

    Items are ``Data(y=[1], edge_index=[2, E])``.

    Graphs are directed, with self loops, without features unless ``degree_profile`` is set.

    Parameters
    ----------
    degree_profile
        ``x`` is the local degree profile, float32 [N, 5], computed on reading with the deviation of
        PyTorch Geometric ``"2.0"`` (the k-MIP code's) or ``"2.8"``; ``None``: no ``x``.
    isolated
        drop: only nodes with an edge to another node, as GraphGPS and the k-MIP code; keep: all
        node numbers up to the largest, as PyTorch Geometric since 2.1.
    label_order
        alphabetical: addisplay 0 to trojan 4, as GraphGPS and the k-MIP code; first-seen:
        adware 0, benign 1, downloader 2, trojan 3, addisplay 4, as PyTorch Geometric since 2.1.
    *pyg
        More positional arguments have the order of PyTorch Geometric's class: root, split,
        transform, pre_transform, …
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "malnet-tiny"

    @pyg_order("root", "split", *STEPS)
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: object,
        degree_profile: DegreeProfile | None = None,
        isolated: Literal["drop", "keep"] = "drop",
        label_order: Literal["alphabetical", "first-seen"] = "alphabetical",
        **arguments: Unpack[RuleArguments],
    ) -> None:
        profile = None if degree_profile is None else LocalDegreeProfile(degree_profile)
        self._open(
            root,
            arguments,
            first=lambda _: profile,
            isolated=isolated,
            label_order=label_order,
        )
