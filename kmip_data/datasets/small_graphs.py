"""The datasets of many small graphs as classes: molecules, superpixels, call graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform, Compose

from kmip_data.builds.home import Home
from kmip_data.datasets.points import Folder, open_dataset
from kmip_data.graphs.degree_profile import DegreeProfile, local_degree_profile
from kmip_data.manifest import Standardisation
from kmip_data.reading.dataset import ShardedDataset

OnError = Literal["stop", "skip"]


class PeptidesFunc(ShardedDataset):
    """Peptides-func (LRGB): 15,535 peptides, ten functions of which several may hold.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 10])``: features of the Open
    Graph Benchmark as int64 indices, each bond in both directions, labels as float32 0 and 1.

    Parameters
    ----------
    root, home, split, transform, columns, build, sample, limit, **build_options
        See :class:`~kmip_data.datasets.points.S3DIS`.
    split_rule, split_seed
        See :class:`~kmip_data.datasets.points.ShapeNetPart`.
    on_error
        A SMILES that RDKit refuses: ``"stop"``, or ``"skip"`` the record and list it on the card.

    Examples
    --------
    >>> from kmip_data import PeptidesFunc
    >>> dataset = PeptidesFunc(split="test")  # doctest: +SKIP
    """

    def __init__(
        self,
        root: Folder | None = None,
        *,
        home: Folder | Home | None = None,
        split: str | None = "train",
        transform: Callable[[Data], Data] | None = None,
        columns: Sequence[str] | None = None,
        build: bool = True,
        sample: bool = False,
        limit: int | None = None,
        on_error: OnError = "stop",
        **build_options: Any,
    ) -> None:
        found, split_name = open_dataset(
            "peptides-func",
            root,
            home,
            {"on_error": on_error, "limit": limit},
            {},
            build=build,
            sample=sample,
            **build_options,
        )
        super().__init__(found, split, transform, split_name=split_name, columns=columns)


class PeptidesStruct(ShardedDataset):
    """Peptides-struct (LRGB): 15,535 peptides, eleven properties of their 3D structure.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 11])``, as those of
    :class:`PeptidesFunc` but for the targets, which are standardised.

    Parameters
    ----------
    root, home, split, transform, columns, build, sample, limit, on_error, **build_options
        See :class:`PeptidesFunc`, also for ``split_rule`` and ``split_seed``.
    target_scaling
        ``"none"``: the targets as published, which were standardised over all rows, test rows among
        them; ``"train"``: with mean and deviation of the train rows alone, which are then in
        ``card.statistics["target_scaling"]``.
    """

    def __init__(
        self,
        root: Folder | None = None,
        *,
        home: Folder | Home | None = None,
        split: str | None = "train",
        target_scaling: Literal["none", "train"] = "none",
        transform: Callable[[Data], Data] | None = None,
        columns: Sequence[str] | None = None,
        build: bool = True,
        sample: bool = False,
        limit: int | None = None,
        on_error: OnError = "stop",
        **build_options: Any,
    ) -> None:
        found, split_name = open_dataset(
            "peptides-struct",
            root,
            home,
            {"target_scaling": target_scaling, "on_error": on_error, "limit": limit},
            {},
            build=build,
            sample=sample,
            **build_options,
        )
        super().__init__(found, split, transform, split_name=split_name, columns=columns)


class LocalDegreeProfile(BaseTransform):  # type: ignore[misc] # PyTorch Geometric is untyped
    """Transform that appends the local degree profile to ``x``, or makes it ``x``.

    Parameters
    ----------
    rule
        Of which PyTorch Geometric: see :func:`kmip_data.graphs.degree_profile.local_degree_profile`.
    """

    def __init__(self, rule: DegreeProfile = "2.0") -> None:
        self.rule = rule

    def forward(self, data: Data) -> Data:
        """Return ``data`` with five more columns of ``x``, float32."""
        profile = local_degree_profile(data.edge_index.numpy(), data.num_nodes, self.rule)
        x = torch.from_numpy(profile)
        data.x = x if data.x is None else torch.cat([data.x.view(len(x), -1), x], dim=-1)
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.rule!r})"


class MalNetTiny(ShardedDataset):
    """MalNet-Tiny: 5,000 function call graphs of Android apps in five types.

    Items are ``Data(edge_index=[2, E], y=[1], num_nodes=N)``; directed, with self loops, without
    features unless ``degree_profile`` is asked for.

    Parameters
    ----------
    root, home, split, transform, columns, build, sample, limit, **build_options
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

    Examples
    --------
    >>> from kmip_data import MalNetTiny
    >>> dataset = MalNetTiny(split="train", degree_profile="2.0")  # doctest: +SKIP
    """

    def __init__(
        self,
        root: Folder | None = None,
        *,
        home: Folder | Home | None = None,
        split: str | None = "train",
        isolated: Literal["drop", "keep"] = "drop",
        label_order: Literal["alphabetical", "first-seen"] = "alphabetical",
        degree_profile: DegreeProfile | None = None,
        transform: Callable[[Data], Data] | None = None,
        columns: Sequence[str] | None = None,
        build: bool = True,
        sample: bool = False,
        limit: int | None = None,
        **build_options: Any,
    ) -> None:
        if degree_profile is not None:
            profile = LocalDegreeProfile(degree_profile)
            transform = profile if transform is None else Compose([profile, transform])
        found, split_name = open_dataset(
            "malnet-tiny",
            root,
            home,
            {"isolated": isolated, "label_order": label_order, "limit": limit},
            {},
            build=build,
            sample=sample,
            **build_options,
        )
        super().__init__(found, split, transform, split_name=split_name, columns=columns)


class CIFAR10Superpixels(ShardedDataset):
    """CIFAR10 as graphs of up to 150 superpixels: 45,000, 5,000 and 10,000 pictures of ten classes.

    Items are ``Data(x=[N, 5], edge_index=[2, E], edge_attr=[E, 1], y=[1], pos=[N, 2])``; ``x`` has the mean
    colour and the position, as GraphGPS and the k-MIP code feed them, ``edge_attr`` the similarity of the
    two superpixels, and every node has eight out-edges.

    Parameters
    ----------
    root, home, split, transform, columns, build, sample, limit, **build_options
        See :class:`~kmip_data.datasets.points.S3DIS`.
    split_rule, split_seed
        See :class:`~kmip_data.datasets.points.ShapeNetPart`.

    Examples
    --------
    >>> from kmip_data import CIFAR10Superpixels
    >>> dataset = CIFAR10Superpixels(split="test")  # doctest: +SKIP
    """

    def __init__(
        self,
        root: Folder | None = None,
        *,
        home: Folder | Home | None = None,
        split: str | None = "train",
        transform: Callable[[Data], Data] | None = None,
        columns: Sequence[str] | None = None,
        build: bool = True,
        sample: bool = False,
        limit: int | None = None,
        **build_options: Any,
    ) -> None:
        found, split_name = open_dataset(
            "cifar10",
            root,
            home,
            {"limit": limit},
            {},
            build=build,
            sample=sample,
            **build_options,
        )
        super().__init__(found, split, transform, split_name=split_name, columns=columns)


class PCQMContact(ShardedDataset):
    """PCQM-Contact (LRGB): 529,434 molecules, and which far atoms touch in space.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], edge_label_index=[2, L],
    edge_label=[L])``: features of the Open Graph Benchmark, bonds in both directions, and the contacts,
    which are targets and no edges, in both directions and sorted, with labels that are all 1 (int32). Pairs
    that do not touch are all others.

    Parameters
    ----------
    root, home, split, transform, columns, build, sample, limit, on_error, **build_options
        See :class:`PeptidesFunc`.
    split_rule
        ``"shuffle"``: at random; ``"num-atoms"``: the largest molecules validate and test;
        ``"stratified"`` with ``split_seed``: see :class:`~kmip_data.datasets.points.ShapeNetPart`.
    """

    def __init__(
        self,
        root: Folder | None = None,
        *,
        home: Folder | Home | None = None,
        split: str | None = "train",
        split_rule: Literal["shuffle", "num-atoms", "stratified"] = "shuffle",
        transform: Callable[[Data], Data] | None = None,
        columns: Sequence[str] | None = None,
        build: bool = True,
        sample: bool = False,
        limit: int | None = None,
        on_error: OnError = "stop",
        **build_options: Any,
    ) -> None:
        found, split_name = open_dataset(
            "pcqm-contact",
            root,
            home,
            {"on_error": on_error, "limit": limit},
            {"split": split_rule},
            build=build,
            sample=sample,
            **build_options,
        )
        super().__init__(found, split, transform, split_name=split_name, columns=columns)

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


class Standardise(BaseTransform):  # type: ignore[misc] # PyTorch Geometric is untyped
    """Transform that takes the mean from ``x`` and ``edge_attr`` and divides by the deviation.

    Parameters
    ----------
    x, edge_attr
        Constants of each column; ``None`` leaves the attribute as it is.
    """

    def __init__(self, x: Standardisation | None = None, edge_attr: Standardisation | None = None) -> None:
        self._constants = {
            name: (torch.tensor(constants.mean), torch.tensor(constants.std))
            for name, constants in (("x", x), ("edge_attr", edge_attr))
            if constants is not None
        }

    def forward(self, data: Data) -> Data:
        """Return ``data`` with the attributes standardised, float32."""
        for name, (mean, std) in self._constants.items():
            data[name] = (data[name] - mean) / std
        return data


class _Superpixels(ShardedDataset):
    """What PascalVOC-SP and COCO-SP share."""

    _name: str

    def __init__(
        self,
        root: Folder | None = None,
        *,
        home: Folder | Home | None = None,
        split: str | None = "train",
        split_rule: Literal["upstream", "stratified"] = "upstream",
        split_seed: int = 0,
        standardise: bool = False,
        transform: Callable[[Data], Data] | None = None,
        columns: Sequence[str] | None = None,
        build: bool = True,
        sample: bool = False,
        limit: int | None = None,
        **build_options: Any,
    ) -> None:
        found, split_name = open_dataset(
            self._name,
            root,
            home,
            {"limit": limit},
            {"split": split_rule, "split_seed": split_seed},
            build=build,
            sample=sample,
            **build_options,
        )
        if standardise:
            # The card's, not the manifest's: what the build was made with.
            constants = {
                key: Standardisation.model_validate(value)
                for key, value in found.card.statistics["standardisation"].items()
            }
            first = Standardise(constants.get("node/x"), constants.get("edge/attr"))
            transform = first if transform is None else Compose([first, transform])
        super().__init__(found, split, transform, split_name=split_name, columns=columns)


class PascalVOCSP(_Superpixels):
    """PascalVOC-SP (LRGB): 11,355 pictures as graphs of about 480 superpixels, 21 classes of nodes.

    Items are ``Data(x=[N, 14], edge_index=[2, E], edge_attr=[E, 2], y=[N])``: mean, deviation, largest and
    least red, green, blue of a superpixel, row and column of its centre in pixels; strength and length of a
    boundary; the class at the centre, 0 background.

    Parameters
    ----------
    root, home, split, transform, columns, build, sample, limit, **build_options
        See :class:`~kmip_data.datasets.points.S3DIS`.
    split_rule
        ``"upstream"``: the published parts; ``"stratified"``: val and test are drawn by the rule that made
        the published ones, with ``split_seed``.
    split_seed
        Of ``"stratified"``; 0 gives the published parts.
    standardise
        Take the published mean from ``x`` and ``edge_attr`` and divide by the deviation. Only for models of
        your own: the encoders ``voc`` and ``coco`` of the trainer do it themselves.

    Examples
    --------
    >>> from kmip_data import PascalVOCSP
    >>> dataset = PascalVOCSP(split="val", standardise=True)  # doctest: +SKIP
    """

    _name = "pascalvoc-sp"


class COCOSP(_Superpixels):
    """COCO-SP (LRGB): 123,286 pictures as graphs of about 480 superpixels, 81 classes of nodes.

    Items are those of :class:`PascalVOCSP`; ``y`` has the ranks 0 to 80 of COCO's category ids, 0 background.

    Parameters
    ----------
    root, home, split, standardise, transform, build, sample, limit, **build_options
        See :class:`PascalVOCSP`.
    split_rule
        ``"upstream"``: the published parts, val drawn at random; ``"stratified"``: train and val are drawn by
        LRGB's rule with ``split_seed``, test is the published one.
    split_seed
        Of ``"stratified"``.
    """

    _name = "coco-sp"
