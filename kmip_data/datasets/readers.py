"""Arguments of dataset classes that the build does not have: chosen features, computed columns, another name.

:mod:`~kmip_data.datasets.shipped` makes the public classes from these and the parameters of the
pipelines. The arguments of ``_reading`` and their descriptions become those of the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch_geometric.data import Data

from kmip_data.datasets.base import Arguments, BuiltDataset, names_of
from kmip_data.datasets.inputs import LocalDegreeProfile, Standardise, feature_views
from kmip_data.graphs.encodings.degree_profile import DegreeProfile
from kmip_data.manifest import unknown_name


class S3DIS(BuiltDataset):
    """Views of the features, and lengths of edges.

    ``x`` has the nine columns in file order (position relative to the block centre [m], colour 0 to
    1, position in the room 0 to 1), as in the paper's code. Unlike PyTorch Geometric's class it has
    a validation part, reads from disk, and keeps builds of different parameters apart.

    Parameters
    ----------
    train
        As in PyTorch Geometric, instead of ``split``: True, all blocks outside ``test_area``
        (``"trainval"``); False, the test part.
    features
        ``"all"``: nine columns, as in the code; ``"position-color"``: six, as in the text.
    edge_attr
        Compute ``edge_attr``, float32 [E, 1], the Euclidean length of each edge.
    """

    def _reading(
        self,
        *,
        train: bool | None = None,
        features: Literal["all", "position-color"] = "all",
        edge_attr: bool = False,
    ) -> dict[str, Any]:
        return {"views": feature_views("s3dis", features), "edge_lengths": edge_attr}


class ShapeNetPart(BuiltDataset):
    """Categories by name, and lengths of edges.

    ``x`` has the normal, then the position, the order that produced the paper's numbers.

    Parameters
    ----------
    categories
        Name or names of the categories to take (``"Airplane"``); ``None``: all 16. ``category`` of
        an item is then its position among those taken.
    include_normals
        As in PyTorch Geometric: False leaves out ``x``.
    edge_attr
        Compute ``edge_attr``, float32 [E, 1], the Euclidean length of each edge.
    """

    _replaced = ("category",)

    def _reading(
        self,
        *,
        categories: str | Sequence[str] | None = None,
        include_normals: bool = True,
        edge_attr: bool = False,
    ) -> dict[str, Any]:
        names = (categories,) if isinstance(categories, str) else tuple(categories or ())
        return {"parameters": {"category": names}, "edge_lengths": edge_attr}


class PCQMContact(BuiltDataset):
    """Contacts as pairs of atoms.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], edge_label_index=[2, L],
    edge_label=[L])``: features of the Open Graph Benchmark, bonds in both directions, and the
    contacts, which are targets rather than edges, in both directions and sorted, with labels of 1
    (int32). All other pairs are negative.
    """

    def get(self, idx: int) -> Data:
        """Return record ``idx`` of the part, without the transform; contacts as pairs of atoms."""
        data = super().get(idx)
        if "contact" not in data:
            return data
        # The number of the record in the shards: an error names it.
        record = idx % self.len() if self._records is None else int(self._records[idx])
        if self.schema.links is None:
            shape = str(data.contact.shape)
            raise self._store.damaged_record(
                record, "contacts are not rows of bits", "uint8 (N, W)", shape
            )
        # A matrix of bits becomes pairs; bits behind the last atom would be contacts with nothing.
        touching = np.unpackbits(data.contact.numpy(), axis=1, bitorder="little")
        if touching[:, data.num_nodes :].any():
            nodes = f"nodes below {data.num_nodes}"
            raise self._store.damaged_record(
                record, "a contact leads out of its graph", nodes, "another node"
            )
        # Sorted by first, then second atom, as the nonzero entries of a matrix are.
        del data.contact
        data.edge_label_index = torch.from_numpy(np.stack(np.nonzero(touching)))
        data.edge_label = torch.ones(data.edge_label_index.size(1), dtype=torch.int32)
        return data


class Superpixels(BuiltDataset):
    """Features standardised by the published constants.

    ``x`` has mean, deviation, largest and least red, green, blue of a superpixel, row and column of
    its centre in pixels; ``edge_attr`` strength and length of a boundary; ``y`` the class at the
    centre, 0 background.

    Parameters
    ----------
    split_rule
        ``"upstream"``: the published parts; ``"stratified"``: parts are drawn by the rule that made
        the published ones (of COCO-SP train and val alone), with ``split_seed``.
    split_seed
        Seed of ``"stratified"``; on PascalVOC-SP 0 gives the published parts.
    standardise
        Standardise ``x`` and ``edge_attr`` by the published constants, for your own models: the
        encoders ``voc`` and ``coco`` of the trainer include it.
    """

    def _reading(
        self,
        *,
        split_rule: Literal["upstream", "stratified"] = "upstream",
        split_seed: int = 0,
        standardise: bool = False,
    ) -> dict[str, Any]:
        return {
            "rule": {"split": split_rule, "split_seed": split_seed},
            "first": lambda build: Standardise.of(build.card) if standardise else None,
        }


class MalNetTiny(BuiltDataset):
    """The local degree profile as features.

    Graphs are directed, with self loops, without features unless ``degree_profile`` is set.

    Parameters
    ----------
    degree_profile
        ``x`` is the local degree profile, float32 [N, 5], computed on reading with the deviation of
        PyTorch Geometric ``"2.0"`` (the k-MIP code's) or ``"2.8"``; ``None``: no ``x``.
    """

    def _reading(self, *, degree_profile: DegreeProfile | None = None) -> dict[str, Any]:
        profile = None if degree_profile is None else LocalDegreeProfile(degree_profile)
        return {"first": lambda _: profile}


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
    """

    _name = "echo-sssp"

    def _reading(self, task: Literal["sssp", "ecc", "diam", "charge", "energy"]) -> dict[str, Any]:
        return {"name": f"echo-{task}"}


class ZINC(BuiltDataset):
    """ZINC: molecules as atoms and bonds, and their penalised logP.

    Items are ``Data(x=[N, 1], edge_index=[2, E], edge_attr=[E], y=[1])``: types of atoms (0 to 27)
    and bonds (1 to 3) as int64, ``y`` float32.

    Parameters
    ----------
    subset
        The 12,000 molecules of the benchmark, ``zinc``; by default, as PyTorch Geometric's class,
        all 249,456, ``zinc-full``.
    """

    _name = "zinc"

    def _reading(self, *, subset: bool = False) -> dict[str, Any]:
        return {"name": "zinc" if subset else "zinc-full"}


class GeomGCN(BuiltDataset):
    """Six graphs of Geom-GCN, each of pages or actors that link to each other, with a class for each node.

    The item is ``Data(x=[N, F], edge_index=[2, E], y=[N], train_mask=[N], val_mask=[N],
    test_mask=[N])``: edges in one direction, as published; the masks are those of one of the ten
    published splits.

    Parameters
    ----------
    name
        ``"actor"``, ``"cornell"``, ``"texas"``, ``"wisconsin"``, ``"chameleon"`` or ``"squirrel"``, in
        any case.
    """

    _name = "actor"
    _arguments = Arguments

    def _reading(self, name: str) -> dict[str, Any]:
        return {"name": _known(name, GeomGCN)}


class HeterophilousGraphDataset(BuiltDataset):
    """Seven node benchmarks of Platonov et al., each one graph with a class for each node.

    The item is ``Data(x=[N, F], edge_index=[2, E], y=[N], train_mask=[N], val_mask=[N],
    test_mask=[N])``: both directions of each edge; the masks are those of one of the ten published
    splits, ``fold``.

    Parameters
    ----------
    name
        ``"minesweeper"``, ``"tolokers"``, ``"roman-empire"``, ``"amazon-ratings"``, ``"questions"``,
        ``"chameleon-filtered"`` or ``"squirrel-filtered"``, in any case.
    """

    _name = "minesweeper"
    _arguments = Arguments

    def _reading(self, name: str) -> dict[str, Any]:
        return {"name": _known(name, HeterophilousGraphDataset)}


class Planetoid(BuiltDataset):
    """Cora, CiteSeer and PubMed: papers and their citations, with a subject for each paper.

    The item is ``Data(x=[N, F], edge_index=[2, E], y=[N], train_mask=[N], val_mask=[N],
    test_mask=[N])``; the masks are those of the public split.

    Parameters
    ----------
    name
        ``"cora"``, ``"citeseer"`` or ``"pubmed"``, in any case.
    """

    _name = "cora"
    _arguments = Arguments

    def _reading(self, name: str) -> dict[str, Any]:
        return {"name": _known(name, Planetoid)}


def _known(name: str, dataset_class: type[BuiltDataset]) -> str:
    """Return the name of a dataset of a class, given in any case and with ``_`` for ``-``."""
    known = names_of(dataset_class)
    wanted = name.lower().replace("_", "-")
    if wanted not in known:
        raise unknown_name("graph", name, known)
    return wanted
