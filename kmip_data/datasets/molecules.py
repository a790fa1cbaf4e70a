"""Molecule datasets: Peptides-func, Peptides-struct and PCQM-Contact."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np
import torch
from torch_geometric.data import Data

from kmip_data.datasets.base import BuiltDataset, Folder, PartArguments, RuleArguments

OnError = Literal["stop", "skip"]


class PeptidesFunc(BuiltDataset):
    """Peptides-func (LRGB): 15,535 peptides with ten binary labels of function.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 10])``: features of the Open
    Graph Benchmark as int64 indices, each bond in both directions, labels as float32 0 and 1.

    Parameters
    ----------
    root, home, split, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.points.S3DIS`.
    split_rule, split_seed
        See :class:`~kmip_data.datasets.points.ShapeNetPart`.
    on_error
        A SMILES that RDKit refuses: ``"stop"``, or ``"skip"`` the record and list it on the card.
    """

    _name = "peptides-func"

    def __init__(
        self, root: Folder | None = None, *, on_error: OnError = "stop", **arguments: Unpack[RuleArguments]
    ) -> None:
        self._open(root, {"on_error": on_error}, {}, arguments)


class PeptidesStruct(BuiltDataset):
    """Peptides-struct (LRGB): 15,535 peptides, eleven properties of their 3D structure.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 11])``, as those of
    :class:`PeptidesFunc` but for the targets, which are standardised.

    Parameters
    ----------
    root, home, split, transform, columns, build, sample, limit, on_error, **arguments
        See :class:`PeptidesFunc`, also for ``split_rule`` and ``split_seed``.
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
        rule = {"split": split_rule, "split_seed": split_seed}
        self._open(root, {"on_error": on_error}, rule, arguments)

    def get(self, idx: int) -> Data:
        """Return record ``idx`` of the part, without the transform; contacts as pairs of atoms."""
        data = super().get(idx)
        if "contact" not in data:
            return data
        record = idx % self.len() if self._records is None else int(self._records[idx])
        if self.schema.links is None:
            what = "contacts are not rows of bits"
            raise self._store.damaged_record(record, what, "uint8 (N, W)", str(data.contact.shape))
        touching = np.unpackbits(data.contact.numpy(), axis=1, bitorder="little")
        if touching[:, data.num_nodes :].any():
            what, nodes = "a contact leads out of its graph", f"nodes below {data.num_nodes}"
            raise self._store.damaged_record(record, what, nodes, "another node")
        del data.contact
        data.edge_label_index = torch.from_numpy(np.stack(np.nonzero(touching)))
        data.edge_label = torch.ones(data.edge_label_index.size(1), dtype=torch.int32)
        return data
