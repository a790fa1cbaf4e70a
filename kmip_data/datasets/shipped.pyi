"""Classes of the shipped datasets: written by tests/kmip_data/datasets/test_shipped.py."""

from collections.abc import Sequence
from typing import Any, Literal, Optional, Unpack

from kmip_data.datasets.base import (
    Arguments,
    BuiltDataset,
    Folder,
    PartArguments,
    RuleArguments,
)
from kmip_data.datasets.city import GraphLandArguments
from kmip_data.graphs.city_columns import Coordinates
from kmip_data.graphs.encodings.degree_profile import DegreeProfile

def class_names() -> list[str]: ...

class CIFAR10Superpixels(BuiltDataset):
    """CIFAR10 superpixels (benchmarking-gnns).

    60,000 pictures as graphs of up to 150 superpixels, eight edges from each; ten classes.

    Items are ``Data(x=[N, 5], edge_index=[2, E], edge_attr=[E, 1], y=[1], pos=[N, 2])``.

    Parameters
    ----------
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

class COCOSP(BuiltDataset):
    """COCO-SP (LRGB), superpixel graphs.

    123,286 pictures as graphs of about 480 superpixels; the class of each, 81 with background.

    Items are ``Data(x=[N, 14], edge_index=[2, E], edge_attr=[E, 2], y=[N])``.

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
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        root: Folder | None = None,
        *,
        split_rule: Literal["upstream", "stratified"] = "upstream",
        split_seed: int = 0,
        standardise: bool = False,
        **arguments: Unpack[PartArguments],
    ) -> None: ...

class CityNetwork(BuiltDataset):
    """The streets of a city: one graph with nodes classified by their eccentricity.

    The item is ``Data(x=[N, 67], edge_index=[2, E], y=[N], pos=[N, 2], eccentricity=[N],
    edge_length=[E], train_mask=[N], val_mask=[N], test_mask=[N])``: every street in both
    directions, ``pos`` longitude and latitude in degrees, lengths in metres. ``y`` is derived from
    ``eccentricity``, which must therefore not be an input.

    Parameters
    ----------
    name
        ``"paris"``, ``"shanghai"``, ``"la"``, ``"london"``, ``"helsinki"``, in any case; or the
        name of a city that was built with ``kmip-data build city --name NAME``.
    coordinates
        Columns of ``x``: ``"replace"``, sinusoids instead of longitude and latitude, then the other
        35 columns standardised over the train nodes (67, as in the paper's code); ``"append"``:
        sinusoids besides all 37 (69, as in its text); ``"none"``: the 35 alone. There are 4
        sinusoids per band.
    raw_features
        Only the 37 stored columns, as in PyTorch Geometric's class: ``Data(x=[N, 37], edge_index,
        y, train_mask, val_mask, test_mask)``. Their names and units are
        ``schema.column("node/x").fields``.
    *pyg, augmented, delete_raw
        Two or more positional arguments have the order of PyTorch Geometric's class:
        ``CityNetwork(root, name, augmented, …)``. ``augmented=True``: its features,
        ``raw_features=True``. ``delete_raw`` must be False.
    hops
        Radius in hops of the eccentricity, from 1.
    classes
        Quantile chunks of the eccentricity.
    weight
        What the eccentricity adds up: length in metres, or travel_time in seconds at the speed
        of each street.
    bands
        Frequencies per coordinate of the encoding.
    split_rule
        random: intersections at random, as the paper has them; spatial: whole blocks of the map
        with a buffer between them, so that train and test streets are not neighbours;
        stratified: at random, with equal shares of the classes.
    split_seed
        Seed of the rule, where it draws.
    block_size
        Side of a block in metres (spatial); unless given, the largest of 1,000, 500, 250 … at
        which no block has more than a fifteenth of the intersections.
    buffer
        Hops between two parts (spatial): intersections nearer than that to another part are in
        none; 0: blocks touch.
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        name: str,
        *pyg: Any,
        root: Folder | None = None,
        coordinates: Coordinates = "replace",
        raw_features: bool = False,
        augmented: bool | None = None,
        delete_raw: bool = False,
        hops: int = 16,
        classes: int = 10,
        weight: Literal["length", "travel_time"] = "length",
        bands: int = 8,
        split_rule: Literal["random", "spatial", "stratified"] = "random",
        split_seed: int = 0,
        block_size: float | None = None,
        buffer: int = 1,
        **arguments: Unpack[Arguments],
    ) -> None: ...

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
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        task: Literal["sssp", "ecc", "diam", "charge", "energy"],
        root: Folder | None = None,
        **arguments: Unpack[RuleArguments],
    ) -> None: ...

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
    split_rule
        upstream: the published masks; stratified: drawn anew in parts of the same sizes, with
        equal shares of the classes.
    split_seed
        Seed of the rule, where it draws.
    fold
        Number of the published split, from 0.
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        name: str,
        root: Folder | None = None,
        *,
        split_rule: Literal["upstream", "stratified"] = "upstream",
        split_seed: int = 0,
        fold: int = 0,
        **arguments: Unpack[Arguments],
    ) -> None: ...

class GraphLandDataset(BuiltDataset):
    """GraphLand's ``city-roads-M`` and ``city-roads-L``: the streets of a city, with a number to predict.

    The item is ``Data(x=[N, F], edge_index=[2, E], y=[N], train_mask=[N], val_mask=[N],
    test_mask=[N], x_numerical_mask=[F], x_fraction_mask=[F], x_categorical_mask=[F])``, equal to
    that of PyTorch Geometric 2.8's class with its defaults; ``y`` is float32, NaN where unknown.
    ``schema.column("node/x").fields`` are the names of the features.

    Parameters
    ----------
    name
        ``"city-roads-m"`` or ``"city-roads-l"``, in any case.
    split_rule
        ``"RL"``: 10/10/80 of the streets, ``"RH"``: 50/25/25, both published; ``"stratified"`` with
        ``split_seed``.
    target_scaling
        Published split whose train streets standardise ``y``; default: that of ``split_rule``
        (``"RL"`` for ``"stratified"``). ``"none"``: ``y`` as published.
        ``card.statistics["roads"]`` has the constants.
    *pyg, split, numerical_features_transform, …
        Two or more positional arguments have the order of PyTorch Geometric's class:
        ``GraphLandDataset(root, name, split, …)``, where ``split`` is our ``split_rule``.
        Transforms must be the defaults, with which the build is stored;
        ``regression_targets_transform=None`` is ``target_scaling="none"``.
    split_seed
        Seed of the rule, where it draws.
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        name: str,
        *pyg: Any,
        root: Folder | None = None,
        split_rule: Literal["RL", "RH", "stratified"] = "RL",
        target_scaling: Literal["RL", "RH", "none"] | None = None,
        split_seed: int = 0,
        **arguments: Unpack[GraphLandArguments],
    ) -> None: ...

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
    split_rule
        upstream: the published masks; stratified: drawn anew in parts of the same sizes, with
        equal shares of the classes.
    split_seed
        Seed of the rule, where it draws.
    fold
        Number of the published split, from 0.
    *pyg
        More positional arguments have the order of PyTorch Geometric's class: root, name,
        transform, pre_transform, …
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        name: str,
        *pyg: Any,
        root: Folder | None = None,
        split_rule: Literal["upstream", "stratified"] = "upstream",
        split_seed: int = 0,
        fold: int = 0,
        **arguments: Unpack[Arguments],
    ) -> None: ...

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
    def __init__(
        self,
        root: Folder | None = None,
        *,
        task: Literal["retrieval", "sssp", "ecc", "diam"] = "retrieval",
        graphs: int = 3000,
        nodes: int = 64,
        seed: int = 0,
        **arguments: Unpack[RuleArguments],
    ) -> None: ...

class MNISTGraphs(BuiltDataset):
    """MNIST superpixels (benchmarking-gnns).

    70,000 handwritten digits as graphs of up to 75 superpixels, eight edges from each; ten
    classes.

    Items are ``Data(x=[N, 3], edge_index=[2, E], edge_attr=[E, 1], y=[1], pos=[N, 2])``.

    Parameters
    ----------
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

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
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: Any,
        degree_profile: DegreeProfile | None = None,
        isolated: Literal["drop", "keep"] = "drop",
        label_order: Literal["alphabetical", "first-seen"] = "alphabetical",
        **arguments: Unpack[RuleArguments],
    ) -> None: ...

class OGBGMolHIV(BuiltDataset):
    """ogbg-molhiv (OGB), molecular graphs.

    41,127 molecules of MoleculeNet; which of them inhibit the replication of HIV.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 1])``.

    Parameters
    ----------
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

class OGBGMolPCBA(BuiltDataset):
    """ogbg-molpcba (OGB), molecular graphs.

    437,929 molecules of MoleculeNet; in which of 128 assays of PubChem they were active, where
    that was tested.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 128])``.

    Parameters
    ----------
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

class OGBNArxiv(BuiltDataset):
    """ogbn-arxiv (OGB), citations of papers.

    169,343 papers of computer science on arXiv and their citations; the subject of each, 40
    classes.

    Items are ``Data(x=[N, 128], edge_index=[2, E], y=[N], node_year=[N, 1])``.

    Parameters
    ----------
    edges
        published: as OGB's class has them, citations one way, links of products there and, next
        to it, back; undirected: both ways, sorted, each once, as PyG's ToUndirected.
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        root: Folder | None = None,
        *,
        edges: Literal["published", "undirected"] = "published",
        **arguments: Unpack[RuleArguments],
    ) -> None: ...

class OGBNPapers100M(BuiltDataset):
    """ogbn-papers100M (OGB), citations of papers.

    111,059,956 papers and 1,615,685,872 citations; the subject of the 1.4 % on arXiv, 172
    classes.

    Items are ``Data(x=[N, 128], edge_index=[2, E], y=[N], node_year=[N, 1])``.

    Parameters
    ----------
    edges
        published: as OGB's class has them, citations one way, links of products there and, next
        to it, back; undirected: both ways, sorted, each once, as PyG's ToUndirected.
    features
        Dtype of the stored features; float16: half the bytes, values change by at most 1/2048
        of themselves, or 3e-8 below 6e-5; refused where one is beyond 65,504.
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        root: Folder | None = None,
        *,
        edges: Literal["published", "undirected"] = "published",
        features: Literal["float32", "float16"] = "float32",
        **arguments: Unpack[RuleArguments],
    ) -> None: ...

class OGBNProducts(BuiltDataset):
    """ogbn-products (OGB), products bought together.

    2,449,029 products of Amazon, linked where they were bought together; the category of each,
    47 classes.

    Items are ``Data(x=[N, 100], edge_index=[2, E], y=[N])``.

    Parameters
    ----------
    edges
        published: as OGB's class has them, citations one way, links of products there and, next
        to it, back; undirected: both ways, sorted, each once, as PyG's ToUndirected.
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        root: Folder | None = None,
        *,
        edges: Literal["published", "undirected"] = "published",
        **arguments: Unpack[RuleArguments],
    ) -> None: ...

class PCQM4Mv2(BuiltDataset):
    """PCQM4Mv2 (OGB-LSC), molecules.

    3,746,620 molecules of PubChemQC from SMILES; the gap between two orbitals, by density
    functional theory.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1])``.

    Parameters
    ----------
    on_error
        A SMILES that RDKit refuses: stop, or skip the record and list it on the card.
    split_rule
        graphgps: 150,000 train molecules validate and OGB's validation molecules test, as in
        GraphGPS; upstream: OGB's train, valid and test-dev, which has no targets; stratified:
        drawn anew (at random: there are no classes).
    split_seed
        Seed of the rule, where it draws.
    *pyg
        More positional arguments have the order of PyTorch Geometric's class: root, split,
        transform, backend, …
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: Any,
        on_error: Literal["stop", "skip"] = "stop",
        split_rule: Literal["graphgps", "upstream", "stratified"] = "graphgps",
        split_seed: int = 0,
        **arguments: Unpack[PartArguments],
    ) -> None: ...

class PCQM4Mv2Subset(BuiltDataset):
    """PCQM4Mv2-subset (OGB-LSC, GraphGPS), molecules.

    446,405 molecules of PCQM4Mv2, as GraphGPS takes them: a tenth of its train molecules, a
    third of those for validation, all for the test.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1])``.

    Parameters
    ----------
    on_error
        A SMILES that RDKit refuses: stop, or skip the record and list it on the card.
    split_rule
        graphgps: 150,000 train molecules validate and OGB's validation molecules test, as in
        GraphGPS; upstream: OGB's train, valid and test-dev, which has no targets; stratified:
        drawn anew (at random: there are no classes).
    split_seed
        Seed of the rule, where it draws.
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        root: Folder | None = None,
        *,
        on_error: Literal["stop", "skip"] = "stop",
        split_rule: Literal["graphgps", "upstream", "stratified"] = "graphgps",
        split_seed: int = 0,
        **arguments: Unpack[PartArguments],
    ) -> None: ...

class PCQMContact(BuiltDataset):
    """PCQM-Contact (LRGB), molecules with contacts.

    529,434 molecules with hydrogens; which atoms, five bonds or more apart, are within 3.5 Å.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], edge_label_index=[2, L],
    edge_label=[L])``: features of the Open Graph Benchmark, bonds in both directions, and the
    contacts, which are targets rather than edges, in both directions and sorted, with labels of 1
    (int32). All other pairs are negative.

    Parameters
    ----------
    on_error
        A SMILES that RDKit refuses: stop, or skip the record and list it on the card.
    split_rule
        shuffle: at random; num-atoms: the largest molecules validate and test; stratified:
        drawn anew (at random: the graphs have no classes).
    split_seed
        Seed of the rule, where it draws.
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        root: Folder | None = None,
        *,
        on_error: Literal["stop", "skip"] = "stop",
        split_rule: Literal["shuffle", "num-atoms", "stratified"] = "shuffle",
        split_seed: int = 0,
        **arguments: Unpack[PartArguments],
    ) -> None: ...

class PascalVOCSP(BuiltDataset):
    """PascalVOC-SP (LRGB), superpixel graphs.

    11,355 pictures as graphs of about 480 superpixels; the class of each, 21 with background.

    Items are ``Data(x=[N, 14], edge_index=[2, E], edge_attr=[E, 2], y=[N])``.

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
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        root: Folder | None = None,
        *,
        split_rule: Literal["upstream", "stratified"] = "upstream",
        split_seed: int = 0,
        standardise: bool = False,
        **arguments: Unpack[PartArguments],
    ) -> None: ...

class PeptidesFunc(BuiltDataset):
    """Peptides-func (LRGB), molecular graphs.

    15,535 peptides as graphs of heavy atoms; ten functions, several of which may hold.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 10])``.

    Parameters
    ----------
    on_error
        A SMILES that RDKit refuses: stop, or skip the record and list it on the card.
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        root: Folder | None = None,
        *,
        on_error: Literal["stop", "skip"] = "stop",
        **arguments: Unpack[RuleArguments],
    ) -> None: ...

class PeptidesStruct(BuiltDataset):
    """Peptides-struct (LRGB), molecular graphs.

    15,535 peptides as graphs of heavy atoms; eleven properties of their 3D structure.

    Items are ``Data(x=[N, 9], edge_index=[2, E], edge_attr=[E, 3], y=[1, 11])``.

    Parameters
    ----------
    on_error
        A SMILES that RDKit refuses: stop, or skip the record and list it on the card.
    target_scaling
        none: the targets as published, standardised over all rows, test rows among them; train:
        standardised with mean and deviation of the train rows alone.
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        root: Folder | None = None,
        *,
        on_error: Literal["stop", "skip"] = "stop",
        target_scaling: Literal["none", "train"] = "none",
        **arguments: Unpack[RuleArguments],
    ) -> None: ...

class Planetoid(BuiltDataset):
    """Cora, CiteSeer and PubMed: papers and their citations, with a subject for each paper.

    The item is ``Data(x=[N, F], edge_index=[2, E], y=[N], train_mask=[N], val_mask=[N],
    test_mask=[N])``; the masks are those of the public split.

    Parameters
    ----------
    name
        ``"cora"``, ``"citeseer"`` or ``"pubmed"``, in any case.
    split_rule
        upstream: the public split; per-class: 20 nodes of each class drawn to train, 500 of the
        others to val, 1,000 to test, as tunedGNN draws them; stratified: the public split's
        sizes with equal shares of the classes.
    split_seed
        Seed of the rule, where it draws.
    fold
        Number of the published split, from 0.
    *pyg
        More positional arguments have the order of PyTorch Geometric's class: root, name,
        split, num_train_per_class, …
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        name: str,
        *pyg: Any,
        root: Folder | None = None,
        split_rule: Literal["upstream", "per-class", "stratified"] = "upstream",
        split_seed: int = 0,
        fold: int = 0,
        **arguments: Unpack[Arguments],
    ) -> None: ...

class S3DIS(BuiltDataset):
    """S3DIS 1 m blocks, k-NN graphs.

    Indoor scans cut in 1 m × 1 m blocks of 4,096 points; semantic segmentation in 13 classes.

    Items are ``Data(x=[N, 9], edge_index=[2, E], y=[N], pos=[N, 3])``.

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
    k
        Neighbours per point.
    knn_rule
        exact: k nearest other points; torch-cluster: the upstream rule, which differs where
        more than k points coincide.
    short_graphs
        Records of fewer than k + 1 points: skip them, or keep them with fewer neighbours
        (default: an error).
    split_rule
        upstream: validation blocks drawn at random, as the paper's code does; room: whole
        rooms, so that no validation block overlaps a train block; stratified: drawn with equal
        shares of the blocks' most frequent classes.
    split_seed
        Seed of the rule, where it draws.
    test_area
        Area whose blocks are the test set.
    val_fraction
        Validation share of the other areas (default: 3294/20291).
    *pyg
        More positional arguments have the order of PyTorch Geometric's class: root, test_area,
        train, transform, …
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: Any,
        train: bool | None = None,
        features: Literal["all", "position-color"] = "all",
        edge_attr: bool = False,
        k: int = 32,
        knn_rule: Literal["exact", "torch-cluster"] = "exact",
        short_graphs: Optional[Literal["skip", "keep"]] = None,
        split_rule: Literal["upstream", "room", "stratified"] = "upstream",
        split_seed: int = 0,
        test_area: int = 6,
        val_fraction: float | None = None,
        **arguments: Unpack[PartArguments],
    ) -> None: ...

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

class ShapeNetPart(BuiltDataset):
    """ShapeNet-Part, k-NN graphs.

    3D shapes of 16 categories with normals; part segmentation in 50 labels.

    Items are ``Data(x=[N, 6], edge_index=[2, E], y=[N], category=[1], pos=[N, 3])``.

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
    k
        Neighbours per point.
    knn_rule
        exact: k nearest other points; torch-cluster: the upstream rule, which differs where
        more than k points coincide.
    short_graphs
        Records of fewer than k + 1 points: skip them, or keep them with fewer neighbours
        (default: an error).
    *pyg
        More positional arguments have the order of PyTorch Geometric's class: root, categories,
        include_normals, split, …
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: Any,
        categories: str | Sequence[str] | None = None,
        include_normals: bool = True,
        edge_attr: bool = False,
        k: int = 8,
        knn_rule: Literal["exact", "torch-cluster"] = "exact",
        short_graphs: Optional[Literal["skip", "keep"]] = None,
        **arguments: Unpack[RuleArguments],
    ) -> None: ...

class ZINC(BuiltDataset):
    """ZINC: molecules as atoms and bonds, and their penalised logP.

    Items are ``Data(x=[N, 1], edge_index=[2, E], edge_attr=[E], y=[1])``: types of atoms (0 to 27)
    and bonds (1 to 3) as int64, ``y`` float32.

    Parameters
    ----------
    subset
        The 12,000 molecules of the benchmark, ``zinc``; by default, as PyTorch Geometric's class,
        all 249,456, ``zinc-full``.
    *pyg
        More positional arguments have the order of PyTorch Geometric's class: root, subset,
        split, transform, …
    root, home, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """
    def __init__(
        self,
        root: Folder | None = None,
        *pyg: Any,
        subset: bool = False,
        **arguments: Unpack[RuleArguments],
    ) -> None: ...
