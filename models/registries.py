"""Registries of norms, heads and encoders by name.

Plugins add entries. torch is imported when a component is built.
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

ModuleBuilder = Callable[..., "nn.Module"]


def import_on_call(reference: str, **options: object) -> Callable[..., Any]:
    """Return a function that imports ``module:name`` and calls it with additional ``options``."""

    def build(*arguments: object, **keywords: object) -> Any:
        return pkgutil.resolve_name(reference)(*arguments, **options, **keywords)

    return build


@dataclass(frozen=True)
class RegisteredName:
    """Annotation of a key whose value must be a name in a registry that plugins can extend."""

    group: str  #: entry-point group of plugins
    noun: str  #: description of an entry in error messages
    registry: Callable[[], Mapping[str, object]]  #: returns the names and their entries
    #: Names used by other libraries, in lower case without punctuation -> our names.
    aliases: Mapping[str, str] = field(default_factory=dict, hash=False)
    patterns: tuple[str, ...] = ()  #: placeholders for parametrised names, such as ``typesN``

    def __str__(self) -> str:
        """Return the names and patterns as the type of the key."""
        return " | ".join([*self.registry(), *self.patterns])

    def suggest(self, text: str) -> str | None:
        """Return the name that ``text`` is an alias or a misspelling of, if any."""
        alias = re.sub(r"[^a-z0-9]", "", text.lower())
        return self.aliases.get(alias) or nearest_name(text, self.registry())

    def check(self, name: str) -> str:
        """Return ``name``, or raise ``ValueError`` with a suggestion if it is not registered."""
        registry = self.registry()
        if name not in registry:
            close = self.suggest(name)
            hint = f" Did you mean {close!r}?" if close else ""
            message = f"There is no {self.noun} called {name!r}.{hint}"
            raise ValueError(f"{message} It must be {', '.join(registry)}.")
        return name

    def __get_pydantic_core_schema__(
        self, source: type[str], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Run :meth:`check` after the type has been validated."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))


#: Builders called with the number of channels. The norm is then called as ``norm(x, batch)``.
NORMS: dict[str, ModuleBuilder] = {
    "batch": import_on_call("kmip_data.models.layers.norms:BatchNorm"),  # point clouds
    # LRGB and cities.
    "graph-layer": import_on_call("kmip_data.models.layers.norms:GraphLayerNorm"),
    # One mean and variance per node, as the paper describes it.
    "layer": import_on_call("torch_geometric.nn.norm:LayerNorm", mode="node"),
    "graph": import_on_call("kmip_data.models.layers.norms:GraphNorm"),  # the thesis and Exphormer
    "none": import_on_call("torch.nn:Identity"),  # message-passing stacks
}
#: Norms that normalise each row independently of the others in evaluation.
ROW_WISE_NORMS = {"batch", "layer", "none"}


def all_norms() -> Mapping[str, ModuleBuilder]:
    """Return the norms by name, including entries of loaded plugins."""
    return with_plugin_entries("norms", NORMS)


@dataclass(frozen=True)
class Head:
    """Head that maps nodes (N, d) to predictions, called as ``head(x, batch)``."""

    #: Called with channels, outputs and the keywords ``layers``, ``l2norm``, ``dropout``,
    #: ``activation`` and ``pooling``.
    build: ModuleBuilder
    level: str  #: ``node``, ``graph`` or ``link``: what a prediction is made for

    def __post_init__(self) -> None:
        if self.level not in {"node", "graph", "link"}:
            raise ValueError(f"the level of a head is node, graph or link, not {self.level!r}")


HEADS: dict[str, Head] = {
    "node": Head(import_on_call("kmip_data.models.heads:NodeHead"), level="node"),
    "graph": Head(import_on_call("kmip_data.models.heads:GraphHead"), level="graph"),
    # Upstream ``san_graph``.
    "san": Head(import_on_call("kmip_data.models.heads:SANHead"), level="graph"),
    "link": Head(import_on_call("kmip_data.models.heads:LinkHead"), level="link"),
}


def all_heads() -> Mapping[str, Head]:
    """Return the heads by name, including entries of loaded plugins."""
    return with_plugin_entries("heads", HEADS)


@dataclass(frozen=True)
class EmbeddedIntegers:
    """Integer features with one embedding table per column, such as OGB's molecules (ogb 1.3.6)."""

    features: str  #: ``node features`` or ``edge features``
    sizes: tuple[int, ...]  #: number of embeddings per column
    owner: str = "OGB's"  #: origin of the numbering, for error messages
    remedies: tuple[str, ...] = ()  #: additional steps for error messages
    xavier_init: bool = True  #: draw embeddings by Xavier's uniform rule instead of a normal one

    @property
    def key(self) -> str:
        """Configuration key that selects the encoder."""
        return f"model.{self.features.removesuffix(' features')}_encoder"

    def encoder_for_columns(self, columns: int) -> str:
        """Return the name of an encoder for this many integer columns; values are checked later."""
        for name, integers in {"atom": ATOM, "bond": BOND}.items():
            if integers.features == self.features and len(integers.sizes) == columns:
                return name
        return "linear"

    def encoder_for_range(self, low: int, high: int) -> str:
        """Return the name of an encoder for integers from ``low`` to ``high``."""
        columns = len(self.sizes)
        if len(set(self.sizes)) == 1 and low >= 0 and high < _MAX_TYPES:
            return f"types{high + 1}" if columns == 1 else f"types{high + 1}x{columns}"
        return "linear"


_OGB_REMEDIES = (
    "use OGB's numbers (ogb.utils.smiles2graph) instead of PyTorch Geometric's from_smiles'",
)
ATOM = EmbeddedIntegers(
    features="node features",
    remedies=_OGB_REMEDIES,
    sizes=ATOM_SIZES,
)
BOND = EmbeddedIntegers(
    features="edge features",
    remedies=_OGB_REMEDIES,
    sizes=BOND_SIZES,
)


@dataclass(frozen=True)
class Encoder:
    """Encoder that maps node or edge features to ``dim`` channels, called as ``encoder(batch)``."""

    #: Called with the number of feature columns (None if there are no features) and of channels.
    build: ModuleBuilder
    encoding: Encoding | None = None  #: added column read from ``batch.added``
    integers: EmbeddedIntegers | None = None  #: embedded integers, checked before a run
    dataset: str = ""  #: dataset whose constants standardise the features


def encoding_attributes(encoding: Encoding | None) -> tuple[str, ...]:
    """Return the batch attributes that hold the columns of an encoding."""
    columns = () if encoding is None else encoding.columns()
    return tuple(column.attribute for column in columns)


def _linear_encoder(features: str, dataset: str = "", column: str = "") -> Encoder:
    """Return a linear encoder that first standardises by a dataset's constants for ``column``, if given."""
    published = (dataset, column) if dataset else None
    build = import_on_call(
        "kmip_data.models.encoders:LinearEncoder", features=features, published=published
    )
    return Encoder(build, dataset=dataset)


def _embedding_encoder(integers: EmbeddedIntegers) -> Encoder:
    build = import_on_call("kmip_data.models.encoders:IntegerEncoder", integers=integers)
    return Encoder(build, integers=integers)


NODE_ENCODERS: dict[str, Encoder] = {
    "linear": _linear_encoder("node features"),
    "atom": _embedding_encoder(ATOM),  # upstream ``Atom``
    "voc": _linear_encoder("node features", "pascalvoc-sp", "node/x"),  # upstream VOCNode
    "coco": _linear_encoder("node features", "coco-sp", "node/x"),  # upstream COCONode
    "block": Encoder(import_on_call("kmip_data.models.encoders:InputBlockEncoder")),
    "linear-norm": Encoder(import_on_call("kmip_data.models.encoders:LayerNormEncoder")),
    # The first layer maps raw features.
    "none": Encoder(import_on_call("kmip_data.models.encoders:RawNodeFeatures")),
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
        import_on_call("kmip_data.models.encoders:VOCEdgeEncoder", encoding=_VOC_WALKS),
        encoding=_VOC_WALKS,
        dataset="pascalvoc-sp",
    ),
}


def node_encoders() -> Mapping[str, Encoder]:
    """Return the node encoders by name, including entries of loaded plugins."""
    return _EncoderRegistry("node features", with_plugin_entries("node_encoders", NODE_ENCODERS))


def edge_encoders() -> Mapping[str, Encoder]:
    """Return the edge encoders by name, including entries of loaded plugins."""
    return _EncoderRegistry("edge features", with_plugin_entries("edge_encoders", EDGE_ENCODERS))


class _EncoderRegistry(dict[str, Encoder]):
    """Encoders by name; builds ``types28``, ``types9x2`` and ``types4+edge-rwse20`` on request."""

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
        # 1. An edge encoder plus an encoding of edges.
        first, _, added = name.partition("+")
        walks = EdgeRandomWalk.parse(added)
        if walks is not None and self.features == "edge features" and first != "none":
            encoder = self[first]
            if encoder.encoding is None:
                build = import_on_call(
                    "kmip_data.models.encoders:SummedEdgeEncoder",
                    encoder=first,
                    features=encoder.build,
                    encoding=walks,
                )
                return replace(encoder, build=build, encoding=walks)

        # 2. One embedding (upstream ``TypeDictNode``), or the sum of one for each column.
        match = _TYPES.fullmatch(name)
        if match is None:
            raise KeyError(name)
        return _embedding_encoder(
            EmbeddedIntegers(
                features=self.features,
                sizes=(int(match[1]),) * int(match[2] or 1),
                owner="the encoder's",
                xavier_init=False,
            )
        )


_MAX_TYPES = 999_999  #: largest number of embedded types
_TYPES = re.compile(r"types([1-9]\d{0,5})(?:x([2-9]))?")
