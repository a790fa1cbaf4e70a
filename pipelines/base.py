"""Interface of a dataset's pipeline, from raw files to records.

A build calls ``resolve`` (parameters), ``prepare`` (raw files to what workers read), ``units``
(one a shard), ``records`` (of each unit, in workers), ``about`` (for the card) and ``split``. A
subclass must have ``schema``, ``units`` and ``records``. The other steps have a default, as have
the methods that only choose names, defaults and hints.
"""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, cast, get_origin

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticUndefined

from kmip_data.arrays import I64, U8, Array
from kmip_data.errors import UsageError
from kmip_data.files.reading import json_digest, reword_pydantic_problem
from kmip_data.format.card import Card, Receipt
from kmip_data.format.schema import Column, Schema
from kmip_data.format.split_files import PARTS
from kmip_data.format.writer import GraphRecord, Skipped
from kmip_data.manifest import Manifest, load_manifest, with_build_name
from kmip_data.registry import ADDED
from kmip_data.strict_model import Strict
from kmip_data.text import PARAMETER_OPTIONS, count_with_noun, is_likely_typo, nearest_name


class BuildParams(Strict):
    """Parameters that change records. Field descriptions are the command line's help.

    All of them are in the build key: a new parameter, even at its default, changes the key of every
    build of the dataset, so previous builds are no longer found.
    """

    limit: int | None = Field(
        default=None,
        ge=1,
        description="build only N records, spread evenly over all",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _one_or_several(cls, value: object, field: ValidationInfo) -> object:
        """Accept one text where several are possible: ``label="cancer"`` is ``("cancer",)``."""
        several = get_origin(cls.model_fields[field.field_name or ""].annotation) is tuple
        return (value,) if several and isinstance(value, str) else value

    def choose(self, total: int) -> Sequence[int]:
        """Return the positions, in source order, of the records to build out of ``total``."""
        # A limit does not take the first records: sources are ordered by area or part, and no part
        # of a trial's split should be empty.
        if self.limit is None or self.limit >= total:
            return range(total)
        return [i * total // self.limit for i in range(self.limit)]


class BaseSplitParams(Strict):
    """Parameters that choose a split; a split never touches the shards.

    A subclass lists its rules in ``split_rule``; ``stratified`` is any dataset's
    (:func:`~kmip_data.pipelines.record_assignment.apply_split`).
    """

    random_rules: ClassVar[tuple[str, ...]] = ("stratified",)  #: rules that draw at random
    rule_of_parameter: ClassVar[Mapping[str, str]] = {}  #: parameter -> the only rule that reads it
    #: Rule whose records and sizes of parts the stratified one keeps; ``None``: the default.
    rule_of_part_sizes: ClassVar[str | None] = None

    split_rule: str = Field(default="upstream", description="rule")
    split_seed: int = Field(
        default=0,
        ge=0,
        le=2**32 - 1,
        description="seed of a random split rule",
    )

    @model_validator(mode="after")
    def _seed_is_used(self) -> Self:
        if self.split_seed and self.split_rule not in self.random_rules:
            raise ValueError(f"the rule {self.split_rule!r} draws nothing: a seed changes nothing")
        return self

    def identity(self) -> dict[str, object]:
        """Return the parameters that identify a split: those its rule reads."""
        unread = {name for name, rule in self.rule_of_parameter.items() if rule != self.split_rule}
        if self.split_rule not in self.random_rules:
            unread.add("split_seed")
        return self.model_dump(mode="json", exclude=unread)


class PublishedSplitParams(BaseSplitParams):
    """Split parameters of a dataset published in parts."""

    split_rule: Literal["upstream", "stratified"] = Field(
        default="upstream",
        description="upstream: the published train, val and test parts; stratified: drawn anew, equal "
        "shares of the classes",
    )


@dataclass(frozen=True)
class RawFolder:
    """Verified raw members on disk, whatever archive, mirror or generator they came from."""

    path: Path  #: folder that holds the members under their paths below the data's root
    members: Mapping[str, str]  #: path of each member (``/`` separated, sorted) to its SHA-256
    receipts: tuple[Receipt, ...]
    sample: bool = False  #: True if generated by ``--sample``
    settings: Mapping[str, object] | None = None  #: settings of a generated sample
    #: True if all bytes match the digests in the manifest, False if some differ
    pinned: bool | None = None
    downloaded: bool = False  #: True if every source was downloaded

    @property
    def content_digest(self) -> str:
        """Digest of the members, which names their folder."""
        return json_digest(self.members)

    @property
    def origin(self) -> str:
        """Origin of its sources, for messages."""
        return ", ".join(receipt.origin for receipt in self.receipts)


Facts = Mapping[str, Any]  #: JSON-serialisable values by name


@dataclass(frozen=True)
class Prepared:
    """Input of the workers: a folder and a small plan, picklable and JSON-serialisable."""

    path: Path
    plan: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class Unit:
    """A deterministic slice of the work, which becomes one shard."""

    index: int
    name: str
    items: Facts  #: JSON-serialisable selection of records

    @property
    def listed_graphs(self) -> int:
        """Number of graphs for the progress bar: the length of the longest list in ``items``, or 1."""
        lists = [value for value in self.items.values() if isinstance(value, Sized)]
        return max((len(value) for value in lists if not isinstance(value, str)), default=1)


@dataclass(frozen=True)
class About:
    """Additions of a pipeline to the card: JSON-serialisable statistics and notes."""

    statistics: Facts = field(default_factory=dict)
    notes: Sequence[str] = ()
    #: Name -> part of each node of a single graph, (N,) or (N, folds), as its files give it
    given: Mapping[str, U8] = field(default_factory=dict)


def _no_column(key: str) -> Array:
    """Raise ``KeyError``: records without stored columns."""
    raise KeyError(key)


@dataclass(frozen=True)
class Records:
    """Facts about all G records of a build in source order, for split rules."""

    keys: list[str]
    nodes: I64  #: (G,)
    edges: I64  #: (G,)
    #: (G, C) how often each class occurs in each graph; C is 0 without labels.
    classes: I64
    #: Labels of all nodes and their column, for a single graph, whose split may divide nodes.
    node_labels: tuple[Array, Column] | None
    #: Reads a stored column of all records by its key (``node/x``), one row per node, edge or
    #: graph.
    column: Callable[[str], Array] = _no_column
    label: Column | None = None  #: the column that ``classes`` counts
    columns: tuple[Column, ...] = ()  #: all columns that ``column`` may read
    given: Mapping[str, U8] = field(default_factory=dict)  #: as in :class:`About`


@dataclass(frozen=True)
class Split:
    """A named rule applied to a build: positions of the records of each part, in order."""

    name: str  #: stem of the file, key in the card: rule and parameters, e.g. ``upstream-area6-seed0``
    rule: str
    parameters: Mapping[str, object]
    #: ``train``, ``val`` and ``test`` to positions, in the order of a reader that does not shuffle
    parts: Mapping[str, Sequence[int]] = field(default_factory=dict)
    note: str = ""
    #: For a dataset of one graph, instead of ``parts``: 0 train, 1 val, 2 test, 255 none for each
    #: node.
    node_code: U8 | None = None


class RawNeededError(UsageError):
    """A split rule needs the raw files, which are missing; ``build`` fetches them."""


_FAMILIES = "kmip_data.pipelines.datasets"
#: largest raw files of a plugin, in bytes, that are built without worker processes
PLUGIN_BYTES = 2**18
P = TypeVar("P", bound=BuildParams)
S = TypeVar("S", bound=BaseSplitParams)


class Pipeline(ABC, Generic[P, S]):
    """One dataset family. Stateless: an instance is picklable and equal for equal manifests."""

    version: ClassVar[int]  #: increase it whenever the bytes of the shards change
    #: True if every build is one unit, so that further processes would be useless.
    one_unit: ClassVar[bool] = False
    in_process: ClassVar[bool] = False  #: True if records are made of objects in this process
    #: Methods ``(prepared, params, workdir) -> Prepared`` that follow ``prepare``, each reading the
    #: files of the previous one, which are then removed. A killed build repeats at most one of
    #: them.
    passes: ClassVar[tuple[str, ...]] = ()
    #: Largest raw files of a single unit, in bytes, that are built without worker processes.
    small_bytes: ClassVar[int] = 4 * 2**20
    #: Extra of the package that a build requires.
    extra: ClassVar[str | None] = None
    #: Parameter -> template of its part of the build folder's name, used unless it has its default.
    folder_name_templates: ClassVar[Sequence[tuple[str, str]]] = ()
    #: Background class of nodes.
    background_class: ClassVar[int | None] = None
    #: Manifest fields of a plugin's dataset (:mod:`kmip_data.plugins`); shipped ones are TOML
    #: files.
    manifest_fields: ClassVar[Mapping[str, object]]
    #: Parts that the stratified rule divides again; others stay.
    stratified_parts: tuple[str, ...] = PARTS
    Params: ClassVar[type[BuildParams]] = BuildParams
    SplitParams: ClassVar[type[BaseSplitParams]] = PublishedSplitParams

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    # What a subclass must have.

    @abstractmethod
    def schema(self, params: P) -> Schema:
        """Return columns and edge layout, as a function of parameters and manifest alone."""

    @abstractmethod
    def units(self, prepared: Prepared, params: P) -> list[Unit]:
        """Assign the records of ``params.choose`` to shards: cheap, deterministic, in source order."""

    @abstractmethod
    def records(
        self,
        prepared: Prepared,
        unit: Unit,
        params: P,
    ) -> Iterator[GraphRecord | Skipped]:
        """Yield the records of ``unit`` in order. Pure: no state but the arguments.

        A :class:`~kmip_data.format.writer.Skipped` in place of a record is counted and listed on
        the card.
        """

    # Other steps of a build.

    def resolve(self, params: P, raw: RawFolder) -> P:
        """Return the parameters completed from the files, if a recipe reads some."""
        return params

    def prepare(self, raw: RawFolder, params: P, workdir: Path) -> Prepared:
        """Cut a monolithic source into seekable pieces, once, in a worker.

        Does nothing by default.
        """
        return Prepared(raw.path)

    def split(self, records: Records, params: S, raw: Path | None) -> Split:
        """Apply a split rule to the records of a build; by default, keys begin with their part.

        ``raw`` is ``None`` when a split is added to a finished build; a rule that reads raw files
        then raises :class:`RawNeededError`.
        """
        parts: dict[str, list[int]] = {part: [] for part in PARTS}
        for position, key in enumerate(records.keys):
            parts[key.partition("/")[0]].append(position)
        return Split("upstream", "upstream", {}, parts, self.manifest.layout.split_note)

    def order_for_stratified(self, parts: Sequence[Sequence[int]], labels: I64) -> list[int]:
        """Return the records of ``parts`` in the order that the stratified rule draws from.

        ``labels`` (G,) are the stratification labels of all records. By default, source order.
        """
        return sorted(position for part in parts for position in part)

    def about(self, prepared: Prepared, params: P) -> About:
        """Return additions to the card; empty by default."""
        return About()

    def sample(self, folder: Path, *, limit: int | None, seed: int = 0) -> None:
        """Write a miniature of the raw data in the exact upstream layout into ``folder``.

        The module ``sample`` in the family's folder does it, by ``write_sample``.
        """
        if self.manifest.is_from_plugin:
            raise UsageError(
                f"{self.manifest.name} has no sample: its class has no method `sample`."
            )
        generator = importlib.import_module(f"{_FAMILIES}.{self.manifest.pipeline}.sample")
        generator.write_sample(folder, self.manifest, limit, seed)

    # Names, defaults and hints.

    def folder_name_pieces(self, params: P) -> list[str]:
        """Return parts of the build folder's name, e.g. ``["k32"]``: values other than the defaults."""
        unusual = params.model_dump(exclude_defaults=True)
        return [
            template.format(unusual[name])
            for name, template in self.folder_name_templates
            if name in unusual
        ]

    def class_names(self, params: P) -> Sequence[str]:
        """Return the class names by label: the manifest's, unless a parameter changes their order."""
        return self.manifest.class_names

    def names_of_classes(self, params: P, records: Records) -> Sequence[str]:
        """Return the class names of a finished build: :meth:`class_names`, unless its values name them."""
        return self.class_names(params)

    def default_splits(self, params: P) -> list[S]:
        """Splits that every build has; the first is the build's default."""
        chosen = self.manifest.layout.default_splits or ({},)
        return [cast("S", self.SplitParams(**values)) for values in chosen]

    def advice_on_damage(self) -> str | None:
        """Return the next step for damaged raw files, for errors without one."""
        return f"use an undamaged copy: kmip-data build {self.manifest.name} --archive PATH"


AnyPipeline = Pipeline[Any, Any]  #: parameters of any pipeline


def needs_no_worker(pipeline: AnyPipeline, raw: RawFolder) -> bool:
    """True if the work takes less time than starting a worker process.

    That is a small single unit, or small files of a plugin, which every worker imports again, often
    with PyTorch (5 s of CPU).
    """
    if pipeline.in_process:
        return True
    # Judge by sizes on disk, without reading.
    size = sum((raw.path / member).stat().st_size for member in raw.members)
    if pipeline.manifest.is_from_plugin:
        return 0 < size <= PLUGIN_BYTES
    return pipeline.one_unit and size <= pipeline.small_bytes


def require_raw(manifest: Manifest, raw: Path | None) -> Path:
    """Return the raw folder with the lists of a published split.

    Raises :class:`RawNeededError` if there is none; ``build`` fetches it.
    """
    if raw is None:
        raise RawNeededError(
            "The published split is read from the raw lists, which a finished build does not have.",
            next=f"kmip-data build {manifest.name}, with the same --split-rule",
        )
    return raw


def load_pipeline(manifest: Manifest) -> AnyPipeline:
    """Return the pipeline of ``manifest``: ``PIPELINE`` of its module, or a loaded plugin's."""
    if manifest.is_from_plugin:
        added: AnyPipeline = type(ADDED["datasets"][manifest.registered_name].value)(manifest)
        return added
    module = importlib.import_module(f"{_FAMILIES}.{manifest.pipeline}")
    pipeline: AnyPipeline = module.PIPELINE(manifest)
    return pipeline


def pipeline_of(card: Card) -> AnyPipeline | None:
    """Return the pipeline that made a build, under the build's name.

    ``None`` for a saved dataset, and for one of a plugin that is not loaded, as cards import
    nothing.
    """
    if not card.manifest:
        return None
    try:
        manifest = load_manifest(card.manifest)
    except UsageError:
        return None
    return load_pipeline(with_build_name(manifest, card.dataset))


M = TypeVar("M", bound=BaseModel)


def check_fold(dataset: str, fold: int, folds: int, *, drawn: bool = False) -> None:
    """Refuse a fold that is none of the given splits; one that is ``drawn`` has seeds instead."""
    if fold < folds:
        return
    if drawn:
        raise UsageError(
            f"{dataset} has no folds: its split is drawn with a seed.",
            next=f"another seed: --split-rule random --split-seed {fold}",
        )
    error = UsageError(
        f"{dataset} has {count_with_noun(folds, 'fold')}: there is no fold {fold}.",
        next="--folds 0" if folds == 1 else f"--folds 0..{folds - 1}",
    )
    error.correction = (f"fold={fold}", "fold=0")
    raise error


def check_params(model: type[M], values: Mapping[str, object], dataset: str) -> M:
    """Validate ``values`` with the model; raise ``UsageError`` with all problems and the nearest names."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        problems = []
        unknown = False
        meant = None
        step = f"kmip-data info {dataset}"
        for problem in error.errors():
            field = ".".join(map(str, problem["loc"]))
            why = reword_pydantic_problem(problem["msg"])
            # List the names for an unknown name, not for a bad value.
            if problem["type"] == "extra_forbidden":
                unknown = True
                close = nearest_name(field, model.model_fields)
                hint = f" (did you mean {close!r}?)" if close else ""
                if field in BaseSplitParams.model_fields and not issubclass(model, BaseSplitParams):
                    hint = " here: the split has parameters of its own (split_parameters=, split_rule=)"
                if field == "k" and not issubclass(model, BaseSplitParams):
                    hint = " here: it has no k-NN graph (keys per query: model.attention.k of a training)"
                    step = f"keys per query of a training: --set model.attention.k={values['k']}"
                    meant = (f"data.parameters.k={values['k']}", f"model.attention.k={values['k']}")
                if close and is_likely_typo(field, close):
                    meant = (field, close)
                problems.append(f"{field!r} is unknown{hint}")
            elif not field:  # a problem of several values together
                problems.append(why)
            else:
                problems.append(f"{field} = {problem['input']!r}: {why}")
                meant = _nearest_value(problem, model) or meant
        refusal = UsageError(
            f"Parameters of {dataset!r} are not valid.",
            expected=", ".join(model.model_fields) if unknown else None,
            found="; ".join(problems),
            next=step,
        )
        refusal.correction = meant
        raise refusal from error


def _nearest_value(problem: ErrorDetails, model: type[BaseModel]) -> tuple[str, str] | None:
    """Return a wrong value of a parameter as typed, and the nearest one; None if none is near."""
    name = str(problem["loc"][0])
    if len(problem["loc"]) > 1 or name not in model.model_fields:
        return None
    typed = problem["input"]
    default = model.model_fields[name].default
    bounds = problem.get("ctx", {})
    nearest: object = None
    match problem["type"]:
        case "literal_error":
            nearest = nearest_name(str(typed), re.findall("'([^']+)'", bounds["expected"]))
        case "bool_parsing":
            nearest = not default  # the default needs not be typed
        case "greater_than_equal":
            nearest = bounds["ge"]
        case "less_than_equal":
            nearest = bounds["le"]
        case "less_than" | "greater_than" | "float_parsing" | "int_parsing":
            nearest = default
    if nearest is None or nearest is PydanticUndefined:
        return None
    text = str(nearest).lower() if isinstance(nearest, bool) else str(nearest)
    if name in PARAMETER_OPTIONS:
        return str(typed), text
    return f"{name}={typed}", f"{name}={text}"


def parse_split_parameters(
    pipeline: AnyPipeline, recorded: Mapping[str, object], name: str
) -> BaseSplitParams:
    """Return the parameters of a split, out of all that a file or a card records for it."""
    fields = pipeline.SplitParams.model_fields
    parameters = {key: value for key, value in recorded.items() if key in fields}
    return check_params(pipeline.SplitParams, parameters, name)
