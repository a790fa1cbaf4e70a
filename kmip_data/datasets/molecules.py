"""Molecules as graphs of atoms and bonds."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np
import torch
from torch_geometric.data import Data

from kmip_data.datasets.base import BuiltDataset, Folder, PartArguments, RuleArguments
from kmip_data.datasets.pyg_arguments import (
    PYG_PROCESSING_ARGUMENTS,
    accept_pyg_order,
    accept_root_and_split,
)


class ZINC(BuiltDataset):
    """ZINC: molecular graphs with their penalised logP.

    Items are ``Data(x=[N, 1], edge_index=[2, E], edge_attr=[E], y=[1])``: atom types (0 to 27) and
    bond types (1 to 3) as int64, ``y`` as float32.

    Parameters
    ----------
    subset
        Open only the 12,000 molecules of the benchmark, ``zinc``. Default, as in PyTorch
        Geometric's class: all 249,456, ``zinc-full``.
    *pyg
        Further positional arguments, in the order of PyTorch Geometric's class: root, subset,
        split, transform, …
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "zinc"

    @accept_pyg_order("root", "subset", "split", *PYG_PROCESSING_ARGUMENTS)
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: object,
        subset: bool = False,
        **arguments: Unpack[RuleArguments],
    ) -> None:
        self._open(root, arguments, name="zinc" if subset else "zinc-full")


class OGBGMolHIV(BuiltDataset):
    """ogbg-molhiv (OGB), molecular graphs.

    41,127 molecules of MoleculeNet; which of them inhibit the replication of HIV.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 1])``.

    Parameters
    ----------
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "ogbg-molhiv"


class OGBGMolPCBA(BuiltDataset):
    """ogbg-molpcba (OGB), molecular graphs.

    437,929 molecules of MoleculeNet; in which of 128 assays of PubChem they were active, where
    that was tested.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 128])``.

    Parameters
    ----------
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "ogbg-molpcba"


class PeptidesFunc(BuiltDataset):
    """Peptides-func (LRGB), molecular graphs.

    15,535 peptides as graphs of heavy atoms; ten functions, several of which may hold.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 10])``.

    Parameters
    ----------
    on_error
        For a SMILES that RDKit rejects: stop, or skip the record and list it on the card.
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "peptides-func"

    @accept_root_and_split
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: object,
        on_error: Literal["stop", "skip"] = "stop",
        **arguments: Unpack[RuleArguments],
    ) -> None:
        self._open(root, arguments, on_error=on_error)


class PeptidesStruct(BuiltDataset):
    """Peptides-struct (LRGB), molecular graphs.

    15,535 peptides as graphs of heavy atoms; eleven properties of their 3D structure.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 11])``.

    Parameters
    ----------
    on_error
        For a SMILES that RDKit rejects: stop, or skip the record and list it on the card.
    target_scaling
        none: the targets as published, standardised over all rows, including test rows; train:
        standardised with the mean and deviation of the train rows only.
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "peptides-struct"

    @accept_root_and_split
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: object,
        on_error: Literal["stop", "skip"] = "stop",
        target_scaling: Literal["none", "train"] = "none",
        **arguments: Unpack[RuleArguments],
    ) -> None:
        self._open(root, arguments, on_error=on_error, target_scaling=target_scaling)


class PCQM4Mv2(BuiltDataset):
    """PCQM4Mv2 (OGB-LSC), molecules.

    3,746,620 molecules of PubChemQC from SMILES; the gap between two orbitals, by density
    functional theory.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1])``.

    Parameters
    ----------
    on_error
        For a SMILES that RDKit rejects: stop, or skip the record and list it on the card.
    split_rule
        graphgps: 150,000 train molecules for validation and OGB's validation molecules for test, as
        in GraphGPS; upstream: OGB's train, valid and test-dev, which has no targets; stratified:
        redrawn at random, because there are no classes.
    split_seed
        Seed of the split rule.
    *pyg
        Further positional arguments, in the order of PyTorch Geometric's class: root, split,
        transform, backend, …
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "pcqm4mv2"

    @accept_pyg_order("root", "split", "transform", "backend", "from_smiles")
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: object,
        on_error: Literal["stop", "skip"] = "stop",
        split_rule: Literal["graphgps", "upstream", "stratified"] = "graphgps",
        split_seed: int = 0,
        **arguments: Unpack[PartArguments],
    ) -> None:
        self._open(root, arguments, on_error=on_error, split_rule=split_rule, split_seed=split_seed)


class PCQM4Mv2Subset(PCQM4Mv2):
    """PCQM4Mv2-subset (OGB-LSC, GraphGPS), molecules.

    446,405 molecules of PCQM4Mv2, as GraphGPS takes them: a tenth of its train molecules, a
    third of those for validation, all for the test.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1])``.

    Parameters
    ----------
    on_error
        For a SMILES that RDKit rejects: stop, or skip the record and list it on the card.
    split_rule
        graphgps: 150,000 train molecules for validation and OGB's validation molecules for test, as
        in GraphGPS; upstream: OGB's train, valid and test-dev, which has no targets; stratified:
        redrawn at random, because there are no classes.
    split_seed
        Seed of the split rule.
    *pyg
        Further positional arguments, in the order of PyTorch Geometric's class: root, split,
        transform, backend, …
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "pcqm4mv2-subset"


class PCQMContact(BuiltDataset):
    """PCQM-Contact (LRGB), molecules with contacts.

    529,434 molecules with hydrogens; which atoms, five bonds or more apart, are within 3.5 Å.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], edge_label_index=[2, L],
    edge_label=[L])``: features of the Open Graph Benchmark, bonds in both directions, and the
    contacts. Contacts are targets rather than edges: sorted pairs in both directions with label 1
    (int32). All other pairs are negative.

    Parameters
    ----------
    on_error
        For a SMILES that RDKit rejects: stop, or skip the record and list it on the card.
    split_rule
        shuffle: at random; num-atoms: the largest molecules for validation and test; stratified:
        redrawn at random, because there are no classes.
    split_seed
        Seed of the split rule.
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "pcqm-contact"

    @accept_root_and_split
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: object,
        on_error: Literal["stop", "skip"] = "stop",
        split_rule: Literal["shuffle", "num-atoms", "stratified"] = "shuffle",
        split_seed: int = 0,
        **arguments: Unpack[PartArguments],
    ) -> None:
        self._open(root, arguments, on_error=on_error, split_rule=split_rule, split_seed=split_seed)

    def get(self, idx: int) -> Data:
        """Return item ``idx`` of the part, without the transform; contacts as pairs of atoms."""
        data = super().get(idx)
        if "contact" not in data:
            return data
        # Number of the record in the shards, for error messages.
        record = idx if self._records is None else int(self._records[idx])
        if self.schema.link_column is None:
            problem = f"contacts have shape {tuple(data.contact.shape)}, not rows of bits"
            raise self._store.damaged_record_error(record, problem)
        # Unpack the bit matrix into pairs. Padding bits past the last atom must be zero.
        contact_matrix = np.unpackbits(data.contact.numpy(), axis=1, bitorder="little")
        if contact_matrix[:, data.num_nodes :].any():
            problem = f"a contact leads out of its graph of {data.num_nodes} nodes"
            raise self._store.damaged_record_error(record, problem)
        # ``np.nonzero`` sorts the pairs by first, then second atom.
        del data.contact
        data.edge_label_index = torch.from_numpy(np.stack(np.nonzero(contact_matrix)))
        data.edge_label = torch.ones(data.edge_label_index.size(1), dtype=torch.int32)
        return data
