"""Datasets of many small graphs: molecules, superpixels and call graphs."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np
import torch
from torch_geometric.data import Data

from kmip_data.datasets.base import BuiltDataset, Folder, PartArguments, RuleArguments
from kmip_data.datasets.inputs import LocalDegreeProfile, Standardise
from kmip_data.graphs.encodings.degree_profile import DegreeProfile

OnError = Literal["stop", "skip"]


class PeptidesFunc(BuiltDataset):
    """Peptides-func (LRGB): 15,535 peptides with ten binary labels of function.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 10])``: features of the Open
    Graph Benchmark as int64 indices, each bond in both directions, labels as float32 0 and 1.

    Parameters
    ----------
    root, home, split, split_rule, split_seed, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.points.ShapeNetPart`.
    on_error
        A SMILES that RDKit refuses: ``"stop"``, or ``"skip"`` the record and list it on the card.
    """

    _name = "peptides-func"

    def __init__(
        self,
        root: Folder | None = None,
        *,
        on_error: OnError = "stop",
        **arguments: Unpack[RuleArguments],
    ) -> None:
        self._open(root, {"on_error": on_error}, {}, arguments)


class PeptidesStruct(BuiltDataset):
    """Peptides-struct (LRGB): 15,535 peptides, eleven properties of their 3D structure.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 11])``, as those of
    :class:`PeptidesFunc` but for the targets, which are standardised.

    Parameters
    ----------
    root, home, split, split_rule, split_seed, transform, columns, build, sample, limit, on_error, **arguments
        See :class:`PeptidesFunc`.
    target_scaling
        ``"none"``: the published targets, which were standardised over all rows including the test part;
        ``"train"``: standardised by the train rows alone, with the constants in
        ``card.statistics["target_scaling"]``.
    """

    _name = "peptides-struct"

    def __init__(
        self,
        root: Folder | None = None,
        *,
        target_scaling: Literal["none", "train"] = "none",
        on_error: OnError = "stop",
        **arguments: Unpack[RuleArguments],
    ) -> None:
        self._open(root, {"target_scaling": target_scaling, "on_error": on_error}, {}, arguments)


class PCQMContact(BuiltDataset):
    """PCQM-Contact (LRGB): 529,434 molecules, with the contacts of distant atoms in space.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], edge_label_index=[2, L],
    edge_label=[L])``: features of the Open Graph Benchmark, bonds in both directions, and the contacts,
    which are targets rather than edges, in both directions and sorted, with labels of 1 (int32). All other
    pairs are negative.

    Parameters
    ----------
    root, home, split, transform, columns, build, sample, limit, on_error, **arguments
        See :class:`PeptidesFunc`.
    split_rule
        ``"shuffle"``: at random; ``"num-atoms"``: the largest molecules validate and test;
        ``"stratified"`` with ``split_seed``: see :class:`~kmip_data.datasets.points.ShapeNetPart`.
    """

    _name = "pcqm-contact"

    def __init__(
        self,
        root: Folder | None = None,
        *,
        split_rule: Literal["shuffle", "num-atoms", "stratified"] = "shuffle",
        split_seed: int = 0,
        on_error: OnError = "stop",
        **arguments: Unpack[PartArguments],
    ) -> None:
        self._open(
            root, {"on_error": on_error}, {"split": split_rule, "split_seed": split_seed}, arguments
        )

    def get(self, idx: int) -> Data:
        """Return record ``idx`` of the part, without the transform; contacts as pairs of atoms."""
        data = super().get(idx)
        if "contact" not in data:
            return data
        record = idx % self.len() if self._records is None else int(self._records[idx])
        if self.schema.links is None:
            found = str(data.contact.shape)
            raise self._store.damaged_record(
                record, "contacts are not rows of bits", "uint8 (N, W)", found
            )
        touching = np.unpackbits(data.contact.numpy(), axis=1, bitorder="little")
        if touching[:, data.num_nodes :].any():
            what = "a contact leads out of its graph"
            nodes = f"nodes below {data.num_nodes}"
            raise self._store.damaged_record(record, what, nodes, "another node")
        del data.contact
        data.edge_label_index = torch.from_numpy(np.stack(np.nonzero(touching)))
        data.edge_label = torch.ones(data.edge_label_index.size(1), dtype=torch.int32)
        return data


class CIFAR10Superpixels(BuiltDataset):
    """CIFAR10 as graphs of up to 150 superpixels: 45,000, 5,000 and 10,000 pictures of ten classes.

    Items are ``Data(x=[N, 5], edge_index=[2, E], edge_attr=[E, 1], y=[1], pos=[N, 2])``; ``x`` has the mean
    colour and the position, as GraphGPS and the k-MIP code feed them, ``edge_attr`` the similarity of the
    two superpixels, and every node has eight out-edges.

    Parameters
    ----------
    root, home, split, split_rule, split_seed, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.points.ShapeNetPart`.
    """

    _name = "cifar10"


class _Superpixels(BuiltDataset):
    """Base of PascalVOC-SP and COCO-SP."""

    def __init__(
        self,
        root: Folder | None = None,
        *,
        split_rule: Literal["upstream", "stratified"] = "upstream",
        split_seed: int = 0,
        standardise: bool = False,
        **arguments: Unpack[PartArguments],
    ) -> None:
        rule = {"split": split_rule, "split_seed": split_seed}
        self._open(
            root,
            {},
            rule,
            arguments,
            first=lambda build: Standardise.of(build.card) if standardise else None,
        )


class PascalVOCSP(_Superpixels):
    """PascalVOC-SP (LRGB): 11,355 pictures as graphs of about 480 superpixels, 21 classes of nodes.

    Items are ``Data(x=[N, 14], edge_index=[2, E], edge_attr=[E, 2], y=[N])``: mean, deviation, largest and
    least red, green, blue of a superpixel, row and column of its centre in pixels; strength and length of a
    boundary; the class at the centre, 0 background.

    Parameters
    ----------
    root, home, split, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.points.S3DIS`.
    split_rule
        ``"upstream"``: the published parts; ``"stratified"``: val and test are drawn by the rule that made
        the published ones, with ``split_seed``.
    split_seed
        Seed of ``"stratified"``; 0 gives the published parts.
    standardise
        Standardise ``x`` and ``edge_attr`` by the published constants, for your own models: the encoders
        ``voc`` and ``coco`` of the trainer include it.
    """

    _name = "pascalvoc-sp"


class COCOSP(_Superpixels):
    """COCO-SP (LRGB): 123,286 pictures as graphs of about 480 superpixels, 81 classes of nodes.

    Items are those of :class:`PascalVOCSP`; ``y`` has the ranks 0 to 80 of COCO's category ids, 0 background.

    Parameters
    ----------
    root, home, split, standardise, transform, build, sample, limit, **arguments
        See :class:`PascalVOCSP`.
    split_rule
        ``"upstream"``: the published parts, val drawn at random; ``"stratified"``: train and val are drawn by
        LRGB's rule with ``split_seed``, test is the published one.
    split_seed
        Seed of ``"stratified"``.
    """

    _name = "coco-sp"


class MalNetTiny(BuiltDataset):
    """MalNet-Tiny: 5,000 function call graphs of Android apps in five types.

    Items are ``Data(edge_index=[2, E], y=[1], num_nodes=N)``; directed, with self loops, without
    features unless ``degree_profile`` is set.

    Parameters
    ----------
    root, home, split, split_rule, split_seed, transform, columns, build, sample, limit, **arguments
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
    *pyg
        More positional arguments have the order of PyTorch Geometric's class: ``MalNetTiny(root, split, …)``.
    """

    _name = "malnet-tiny"

    def __init__(
        self,
        root: Folder | None = None,
        *pyg: Any,
        isolated: Literal["drop", "keep"] = "drop",
        label_order: Literal["alphabetical", "first-seen"] = "alphabetical",
        degree_profile: DegreeProfile | None = None,
        **arguments: Unpack[RuleArguments],
    ) -> None:
        profile = None if degree_profile is None else LocalDegreeProfile(degree_profile)
        parameters = {"isolated": isolated, "label_order": label_order}
        self._open(root, parameters, {}, arguments, first=lambda _: profile)


class LongRange(BuiltDataset):
    """Long-range tasks on 3,000 generated graphs of up to 64 nodes: lines, ladders, grids, trees and others.

    Items are ``Data(x=[N, F], edge_index=[2, E], y, distance=[N])``. ``retrieval``: ``x`` has the 16 bits of
    a key, which one other node has too, and one of eight values; ``y`` (N,) is the value of that other node.
    ``sssp``, ``ecc`` and ``diam``: ``y`` float32 (N, 1), of ``diam`` (1, 1), are distances in edges.
    ``distance`` (of ``retrieval`` and ``sssp``) is the number of edges to the node that is asked for.

    Parameters
    ----------
    root, home, split, transform, columns, build, limit, **arguments
        See :class:`~kmip_data.datasets.points.S3DIS`.
    task
        ``"retrieval"``, ``"sssp"``, ``"ecc"`` or ``"diam"``.
    graphs, nodes, seed
        Number of graphs, nodes of the largest, and the seed of all.
    split_rule, split_seed
        See :class:`~kmip_data.datasets.points.ShapeNetPart`.
    """

    _name = "long-range"

    def __init__(
        self,
        root: Folder | None = None,
        *,
        task: Literal["retrieval", "sssp", "ecc", "diam"] = "retrieval",
        graphs: int = 3_000,
        nodes: int = 64,
        seed: int = 0,
        **arguments: Unpack[RuleArguments],
    ) -> None:
        self._open(
            root, {"task": task, "graphs": graphs, "nodes": nodes, "seed": seed}, {}, arguments
        )


class ECHO(BuiltDataset):
    """ECHO (ICLR 2026): distances in generated graphs, charges and energies of molecules.

    Items are ``Data(x=[N, 2], edge_index=[2, E], y)``, of molecules with ``edge_attr=[E, 2]``. ``y`` is
    float32, (N, 1) for ``sssp``, ``ecc`` and ``charge``, (1, 1) for ``diam`` and ``energy``: distances in
    edges, which the authors' class divides by 40, charges, and decimal logarithms of energies.

    Parameters
    ----------
    task
        ``"sssp"``, ``"ecc"``, ``"diam"``, ``"charge"`` or ``"energy"``.
    root, home, split, split_rule, split_seed, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.points.ShapeNetPart`.
    """

    def __init__(
        self,
        task: Literal["sssp", "ecc", "diam", "charge", "energy"],
        root: Folder | None = None,
        **arguments: Unpack[RuleArguments],
    ) -> None:
        self._open(root, {}, {}, arguments, name=f"echo-{task}")
