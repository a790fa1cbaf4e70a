"""Generated graphs (long distances, stochastic blocks), and the tasks of ECHO and LRIM."""

from __future__ import annotations

from typing import Literal, Unpack

from kmip_data.datasets.base import BuiltDataset, Folder, RuleArguments, names_of_class
from kmip_data.datasets.pyg_arguments import STEPS, accept_pyg_order
from kmip_data.errors import unknown_name_error


class SBMPattern(BuiltDataset):
    """PATTERN (benchmarking-gnns).

    14,000 random graphs of about 119 nodes; which nodes belong to a pattern that was hidden
    among blocks.

    Items are ``Data(x=[N, 3], edge_index=[2, E], y=[N])``.

    Parameters
    ----------
    root, transform, columns, build, sample, limit, **arguments
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
    root, transform, columns, build, sample, limit, **arguments
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
    root, transform, columns, build, sample, limit, **arguments
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


class LRIM(BuiltDataset):
    """LRIM (ICLR 2026): 10,000 periodic grids of spins of a long-range Ising model, as published.

    Items are ``Data(x=[N, 1], edge_index=[2, 4 * N], y=[N, 1])``: spins of -1 and 1, and s_i times
    the sum of the other spins s_j / r_ij^(2 + sigma), float32.

    Parameters
    ----------
    name
        ``"16-hard"``, or another size (16, 32, 64, 128, 256) and difficulty (hard, easy).
    *pyg
        More positional arguments have the order of PyTorch Geometric's classes: root, name,
        transform, pre_transform, …
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "lrim-16-hard"

    @accept_pyg_order("root", "name", *STEPS)
    def __init__(
        self,
        name: str,
        *pyg: object,
        root: Folder | None = None,
        **arguments: Unpack[RuleArguments],
    ) -> None:
        known = [dataset.removeprefix("lrim-") for dataset in names_of_class(LRIM)]
        if name not in known:
            raise unknown_name_error("set of LRIM", name, known, command="help(kmip_data.LRIM)")
        self._open(root, arguments, name=f"lrim-{name}")


class GeneratedLRIM(BuiltDataset):
    """Grids generated here by LRIM's construction: not the published files, which are :class:`LRIM`.

    Items are as of :class:`LRIM`.

    Parameters
    ----------
    size
        Rows and columns of a grid.
    difficulty
        hard: sigma 0.6; easy: sigma 1.5, where far nodes count less.
    graphs
        Number of grids.
    seed
        Seed of all grids.
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "lrim-generated"

    def __init__(
        self,
        root: Folder | None = None,
        *,
        size: Literal[16, 32, 64, 128, 256] = 16,
        difficulty: Literal["hard", "easy"] = "hard",
        graphs: int = 10_000,
        seed: int = 0,
        **arguments: Unpack[RuleArguments],
    ) -> None:
        self._open(root, arguments, size=size, difficulty=difficulty, graphs=graphs, seed=seed)


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
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "echo-sssp"

    @accept_pyg_order("root", "task", *STEPS)
    def __init__(
        self,
        task: Literal["sssp", "ecc", "diam", "charge", "energy"],
        *pyg: object,
        root: Folder | None = None,
        **arguments: Unpack[RuleArguments],
    ) -> None:
        known = [name.removeprefix("echo-") for name in names_of_class(ECHO)]
        if task not in known:
            raise unknown_name_error("task of ECHO", task, known, command="help(kmip_data.ECHO)")
        self._open(root, arguments, name=f"echo-{task}")
