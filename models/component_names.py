"""Parts of a network by name, one entry each: norms, heads and encoders.

Plugins add to the tables. torch is imported when a component is built.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from kmip_data.graphs.encoding import Encoding
from kmip_data.graphs.encodings.edge_rwse import EdgeRandomWalk
from kmip_data.graphs.molecule_fields import ATOM_SIZES, BOND_SIZES
from kmip_data.registry import with_plugin_entries
from kmip_data.text import nearest_name

if TYPE_CHECKING:
    from torch import nn

Builder = Callable[..., "nn.Module"]


def import_on_call(reference: str, **options: object) -> Callable[..., Any]:
    """Make a function that imports ``module:name`` and calls it, with ``options`` besides its arguments."""

    def build(*arguments: object, **more: object) -> Any:
        return pkgutil.resolve_name(reference)(*arguments, **options, **more)

    return build


@dataclass(frozen=True)
class Names:
    """Annotation of a key whose value is a name of a table, which plugins add to."""

    group: str  #: entry-point group of plugins
    noun: str  #: for errors
    table: Callable[[], Mapping[str, object]]
    #: Word of other libraries, letters and digits alone -> name of the table.
    aliases: Mapping[str, str] = field(default_factory=dict, hash=False)
    patterns: tuple[str, ...] = ()  #: further names by their form, such as ``typesN``

    def __str__(self) -> str:
        """Return the names and patterns as the type of the key."""
        return " | ".join([*self.table(), *self.patterns])

    def nearest(self, text: str) -> str | None:
        """Return the name that was probably meant, if any: of a word of other libraries, or the most similar."""
        word = re.sub(r"[^a-z0-9]", "", text.lower())
        return self.aliases.get(word) or nearest_name(text, self.table())

    def check(self, name: str) -> str:
        """Return a name of the table; raise ``ValueError``, with the nearest one, for others."""
        table = self.table()
        if name not in table:
            close = self.nearest(name)
            hint = f" Did you mean {close!r}?" if close else ""
            message = f"There is no {self.noun} called {name!r}.{hint}"
            raise ValueError(f"{message} It must be {', '.join(table)}.")
        return name

    def __get_pydantic_core_schema__(
        self, source: type[str], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Let :meth:`check` follow the check of the type."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))


#: Called with the channels; the norm of nodes (N, d) is then called as ``norm(x, batch)``.
NORMS: dict[str, Builder] = {
    "batch": import_on_call("kmip_data.models.layers.norms:BatchNorm"),  # point clouds
    "graph-layer": import_on_call(
        "kmip_data.models.layers.norms:GraphLayerNorm"
    ),  # LRGB and cities
    # One mean and variance per node: the paper's word.
    "layer": import_on_call("torch_geometric.nn.norm:LayerNorm", mode="node"),
    "graph": import_on_call("kmip_data.models.layers.norms:GraphNorm"),  # the thesis and Exphormer
    "none": import_on_call("torch.nn:Identity"),  # stacks of message passing
}
#: Norms that read no sums over a graph in an evaluation: a row does not depend on the others.
NORMS_OF_ROWS = {"batch", "layer", "none"}


def all_norms() -> Mapping[str, Builder]:
    """Return the norms by name, with the norms of loaded plugins."""
    return with_plugin_entries("norms", NORMS)


@dataclass(frozen=True)
class Head:
    """A head: nodes (N, d) to predictions, called as ``head(x, batch)``."""

    #: Called with channels, outputs and the keys ``layers``, ``l2norm``, ``dropout``,
    #: ``activation`` of the head and ``pooling``.
    build: Builder
    level: str  #: unit that a prediction belongs to: node, graph or link

    def __post_init__(self) -> None:
        if self.level not in {"node", "graph", "link"}:
            raise ValueError(f"the level of a head is node, graph or link, not {self.level!r}")


HEADS: dict[str, Head] = {
    "node": Head(import_on_call("kmip_data.models.heads:NodeHead"), level="node"),
    "graph": Head(import_on_call("kmip_data.models.heads:GraphHead"), level="graph"),
    "san": Head(
        import_on_call("kmip_data.models.heads:SANHead"), level="graph"
    ),  # upstream ``san_graph``
    "link": Head(import_on_call("kmip_data.models.heads:LinkHead"), level="link"),
}


def all_heads() -> Mapping[str, Head]:
    """Return the heads by name, with the heads of loaded plugins."""
    return with_plugin_entries("heads", HEADS)


@dataclass(frozen=True)
class Integers:
    """Integers that an encoder embeds, such as the features of OGB's molecules (ogb 1.3.6)."""

    features: str  #: in errors
    sizes: tuple[int, ...]  #: values of each column, plus one for all others
    owner: str = "OGB's"  #: in errors
    others: str = ""  #: other numbers instead of these, in errors
    xavier: bool = True  #: embeddings are drawn by Xavier's uniform rule, not from a normal one

    @property
    def key(self) -> str:
        """Key of the configuration that names the encoder."""
        return f"model.{self.features.removesuffix(' features')}_encoder"

    def encoder_of_columns(self, columns: int) -> str:
        """Return the encoder for as many columns of integers; values are checked later."""
        for name, other in {"atom": ATOM, "bond": BOND}.items():
            if other.features == self.features and len(other.sizes) == columns:
                return name
        return "linear"

    def encoder_of_range(self, low: int, high: int) -> str:
        """Return the encoder for integers from ``low`` to ``high``."""
        if len(self.sizes) == 1 and low >= 0 and high < _MAX_TYPES:
            return f"types{high + 1}"
        return "linear"


_OGB = "OGB's numbers (ogb.utils.smiles2graph) instead of PyTorch Geometric's from_smiles'"
ATOM = Integers(
    features="node features",
    others=_OGB,
    sizes=ATOM_SIZES,
)
BOND = Integers(
    features="edge features",
    others=_OGB,
    sizes=BOND_SIZES,
)


@dataclass(frozen=True)
class Encoder:
    """Features of nodes or edges, called as ``encoder(batch)``, to the channels of the network."""

    #: Called with the columns of the features (None: there are none) and the channels.
    build: Builder
    encoding: Encoding | None = None  #: added column that it reads from ``batch.added``
    integers: Integers | None = None  #: numbers that it embeds, which are checked before a run
    dataset: str = ""  #: whose constants standardise its features, which others do not have

    @property
    def reads(self) -> tuple[str, ...]:
        """Attributes of a batch in its added column."""
        return encoding_attributes(self.encoding)


def encoding_attributes(encoding: Encoding | None) -> tuple[str, ...]:
    """Return the attributes of a batch in the columns of an encoding."""
    columns = () if encoding is None else encoding.columns()
    return tuple(column.attribute for column in columns)


def _linear_encoder(features: str, dataset: str = "", column: str = "") -> Encoder:
    """Linear, of features that are standardised first where a dataset publishes constants for a column."""
    published = (dataset, column) if dataset else None
    build = import_on_call(
        "kmip_data.models.encoders:LinearEncoder", features=features, published=published
    )
    return Encoder(build, dataset=dataset)


def _embedding_encoder(integers: Integers) -> Encoder:
    build = import_on_call("kmip_data.models.encoders:IntegerEncoder", integers=integers)
    return Encoder(build, integers=integers)


NODE_ENCODERS: dict[str, Encoder] = {
    "linear": _linear_encoder("node features"),
    "atom": _embedding_encoder(ATOM),  # upstream ``Atom``
    "voc": _linear_encoder("node features", "pascalvoc-sp", "node/x"),  # upstream VOCNode
    "coco": _linear_encoder("node features", "coco-sp", "node/x"),  # upstream COCONode
    "block": Encoder(import_on_call("kmip_data.models.encoders:BlockEncoder")),
    "linear-norm": Encoder(import_on_call("kmip_data.models.encoders:NormedEncoder")),
    "none": Encoder(
        import_on_call("kmip_data.models.encoders:RawNodes")
    ),  # the first layer maps them
}
_VOC_WALKS = EdgeRandomWalk(32)
EDGE_ENCODERS: dict[str, Encoder] = {
    "dummy": Encoder(import_on_call("kmip_data.models.encoders:DummyEdge")),
    "none": Encoder(import_on_call("torch.nn:Identity")),  # message passing reads no edge features
    "linear": _linear_encoder("edge features"),
    "bond": _embedding_encoder(BOND),  # upstream ``Bond``
    # LRGB's choice; the paper's code has ``linear``.
    "voc": _linear_encoder("edge features", "pascalvoc-sp", "edge/attr"),
    "coco": _linear_encoder("edge features", "coco-sp", "edge/attr"),  # upstream COCOEdge
    "voc-rwse32": Encoder(
        import_on_call("kmip_data.models.encoders:WalkedEdges", encoding=_VOC_WALKS),
        encoding=_VOC_WALKS,
        dataset="pascalvoc-sp",
    ),
}


def node_encoders() -> Mapping[str, Encoder]:
    """Return the encoders of node features by name, with the encoders of loaded plugins."""
    return _WithTypes("node features", with_plugin_entries("node_encoders", NODE_ENCODERS))


def edge_encoders() -> Mapping[str, Encoder]:
    """Return the encoders of edge features by name, with the encoders of loaded plugins."""
    return _WithTypes("edge features", with_plugin_entries("edge_encoders", EDGE_ENCODERS))


class _WithTypes(dict[str, Encoder]):
    """Encoders by name, also for any number of types (``types28``) and sums (``types4+edge-rwse20``)."""

    def __init__(self, features: str, encoders: Mapping[str, Encoder]) -> None:
        super().__init__(encoders)
        self.features = features

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name):
            return True
        try:
            self.__missing__(str(name))
        except KeyError:
            return False
        return True

    def __missing__(self, name: str) -> Encoder:
        # 1. A sum.
        first, _, added = name.partition("+")
        walks = EdgeRandomWalk.parse(added)
        if walks is not None and self.features == "edge features" and first != "none":
            encoder = self[first]
            if encoder.encoding is None:
                reference = "kmip_data.models.encoders:SummedEdges"
                build = import_on_call(
                    reference, encoder=first, features=encoder.build, encoding=walks
                )
                return replace(encoder, build=build, encoding=walks)

        # 2. One embedding of the first column (upstream ``TypeDictNode``).
        match = _TYPES.fullmatch(name)
        if match is None:
            raise KeyError(name)
        return _embedding_encoder(
            Integers(
                features=self.features,
                sizes=(int(match[1]),),
                owner="the encoder's",
                xavier=False,
            )
        )


_MAX_TYPES = 999_999  #: largest number of types that an encoder embeds
_TYPES = re.compile(r"types([1-9]\d{0,5})")
