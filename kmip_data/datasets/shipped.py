"""Classes of the shipped datasets, made on first use from the parameters of their pipelines.

``shipped.pyi``, which type checkers and editors read, is written from them:
``make docs-tables``.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import Parameter
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kmip_data.datasets import city, readers
from kmip_data.datasets.base import Arguments, BuiltDataset, PartArguments
from kmip_data.datasets.pyg_calls import MEANINGS, ORDER, translated
from kmip_data.manifest import Manifest, load_manifest, shipped_datasets
from kmip_data.pipelines.base import PublishedSplitParams, load_pipeline
from kmip_data.reading.dataset import ShardedDataset

_READERS: Mapping[str, type[BuiltDataset]] = {
    "S3DIS": readers.S3DIS,
    "ShapeNetPart": readers.ShapeNetPart,
    "PCQMContact": readers.PCQMContact,
    "PascalVOCSP": readers.Superpixels,
    "COCOSP": readers.Superpixels,
    "MalNetTiny": readers.MalNetTiny,
    "ECHO": readers.ECHO,
    "ZINC": readers.ZINC,
    "GeomGCN": readers.GeomGCN,
    "HeterophilousGraphDataset": readers.HeterophilousGraphDataset,
    "Planetoid": readers.Planetoid,
    "CityNetwork": city.CityNetwork,
    "GraphLandDataset": city.GraphLandDataset,
}
_KEYWORD = Parameter.KEYWORD_ONLY
_POSITIONAL = Parameter.POSITIONAL_OR_KEYWORD
_WIDTH = 92  #: columns of a docstring


def class_names() -> list[str]:
    """Return the names of the classes of all shipped datasets, sorted."""
    names = {load_manifest(name).dataset_class for name in shipped_datasets()}
    return sorted(names - {ShardedDataset.__name__})  # recipes have no class


def __getattr__(title: str) -> type[BuiltDataset]:
    manifests = []
    if not title.startswith("_"):
        manifests = [load_manifest(name) for name in shipped_datasets()]
    datasets = [manifest for manifest in manifests if manifest.dataset_class == title]
    if not datasets or title == ShardedDataset.__name__:
        raise AttributeError(f"module {__name__!r} has no attribute {title!r}")

    reader = _READERS.get(title, BuiltDataset)
    # The reader of several datasets names the one whose parameters all of them have.
    name = getattr(reader, "_name", datasets[0].name)
    made = _make(title, reader, load_manifest(name))
    globals()[title] = made  # pickles look here, and the next use finds it
    return made


def _make(title: str, reader: type[BuiltDataset], manifest: Manifest) -> type[BuiltDataset]:
    """Return the class: the reader with the parameters of the build and of its splits as arguments."""
    # Arguments of the reader; those of the build and of the split, which the reader may replace.
    _, *given = inspect.signature(reader._reading).parameters.values()
    options = [option for option in given if option.kind in {_POSITIONAL, _KEYWORD}]
    names = [option.name for option in options]
    pipeline = load_pipeline(manifest)
    build = _fields(pipeline.Params, {"limit", *reader._replaced})
    rule = _fields(pipeline.SplitParams, names)

    # Keys of ``**arguments``: they have the rules of a published split, but no others.
    kinds = reader._arguments
    if pipeline.SplitParams is PublishedSplitParams and "split_rule" not in names:
        rule = {}
    elif kinds is BuiltDataset._arguments:
        kinds = PartArguments
    pyg_words = MEANINGS.get(title, {})
    shared = kinds.__annotations__.keys() - pyg_words

    # BuiltDataset.__init__ sorts a call by these.
    made = type(title, (reader,), {"__module__": __name__})
    made._name = manifest.name
    made._arguments = kinds
    made._parameters = {name: field.default for name, field in build.items()}
    made._rule = {name: field.default for name, field in rule.items()}
    made._shared = {key: value for key, value in BuiltDataset._shared.items() if key in shared}
    made._options = names

    # The constructor, and what ``help`` shows of it.
    own = _own_arguments(title, options, build | rule)
    by_position = [argument.name for argument in own if argument.kind is _POSITIONAL]
    made.own_arguments = inspect.Signature(own)
    made.__init__ = _constructor(made, by_position[1:])
    made.__init__.__signature__ = _shown(own, kinds, pyg_words)
    made.__doc__ = _docstring(title, reader, manifest, build | rule)
    return made


def _fields(model: type[BaseModel], left_out: Collection[str]) -> dict[str, FieldInfo]:
    """Return the fields of parameters by the names that arguments have."""
    named = {}
    for name, field in model.model_fields.items():
        argument = "split_rule" if name == "split" else name
        if argument not in left_out:
            named[argument] = field
    return named


def _constructor(made: type[BuiltDataset], names: Sequence[str]) -> Callable[..., None]:
    """Return the ``__init__`` of a class: calls of PyTorch Geometric's are translated first."""

    def constructor(self: BuiltDataset, *positional: Any, **keywords: Any) -> None:
        super(made, self).__init__(**translated(made.__name__, names, positional, keywords))

    return constructor


def _own_arguments(
    title: str, options: Sequence[Parameter], fields: Mapping[str, FieldInfo]
) -> list[Parameter]:
    """Return all arguments but the keys of ``**arguments``, in the order of a signature."""
    first = [option for option in options if option.kind is _POSITIONAL]
    root_kind = _POSITIONAL
    if first and title in ORDER:
        root_kind = _KEYWORD  # two arguments by position are PyTorch Geometric's
    root = Parameter("root", root_kind, default=None, annotation="Folder | None")

    arguments = [Parameter("self", _POSITIONAL), *first, root]
    if title in ORDER:
        arguments.append(Parameter("pyg", Parameter.VAR_POSITIONAL, annotation="Any"))
    arguments += [option for option in options if option.kind is _KEYWORD]
    arguments += [_argument(name, field) for name, field in fields.items()]
    return sorted(arguments, key=lambda argument: argument.kind)


def _argument(name: str, field: FieldInfo) -> Parameter:
    annotation = inspect.formatannotation(field.annotation)
    return Parameter(name, _KEYWORD, default=field.default, annotation=annotation)


def _shown(
    own: Sequence[Parameter], kinds: type[Arguments], pyg_words: Collection[str]
) -> inspect.Signature:
    """Return the signature that ``help`` shows: the keys of ``**arguments`` one by one."""
    shared = [key for key in BuiltDataset._shared if key not in pyg_words]
    keys = [key for key in [*shared, *pyg_words] if key in kinds.__annotations__]
    arguments = [*own]
    arguments += [
        Parameter(
            key,
            _KEYWORD,
            default=BuiltDataset._shared.get(key),
            annotation=kinds.__annotations__[key].__forward_arg__,
        )
        for key in keys
    ]
    return inspect.Signature(arguments, return_annotation=None)


def _docstring(
    title: str, reader: type[BuiltDataset], manifest: Manifest, fields: Mapping[str, FieldInfo]
) -> str:
    """Return title, summary and items from manifest and schema, the reader's notes, and all arguments."""
    text = "" if reader is BuiltDataset else inspect.getdoc(reader) or ""
    notes, _, options = text.partition("Parameters\n----------\n")
    if "_name" not in reader.__dict__:  # of one dataset: the reader's first line is not about it
        _, _, notes = notes.partition("\n\n")
        head = f"{manifest.title}.\n\n{_filled(manifest.summary)}\n\n"
        if "Items are" not in notes:
            head += _filled(f"Items are ``Data({_items(manifest)})``.") + "\n\n"
        notes = head + notes

    lines = [notes.strip(), "", "Parameters", "----------"]
    if options:
        lines.append(options.strip())
    for name, field in fields.items():
        lines += [name, _filled(_sentence(field), "    ")]
    if title in ORDER and "*pyg" not in options:
        order = ", ".join(ORDER[title][:4])
        text = f"More positional arguments have the order of PyTorch Geometric's class: {order}, …"
        lines += ["*pyg", _filled(text, "    ")]
    lines.append("root, home, transform, columns, build, sample, limit, **arguments")
    lines.append("    See :class:`~kmip_data.datasets.base.BuiltDataset`.")
    return "\n".join(lines)


def _sentence(field: FieldInfo) -> str:
    """Return the description of a field, which begins in lower case, as a sentence."""
    text = f"{field.description}."
    first_word = text.partition(" ")[0].rstrip(":,")
    if first_word in map(str, get_args(field.annotation)):
        return text  # a value
    return text[0].upper() + text[1:]


def _items(manifest: Manifest) -> str:
    """Return the attributes of an item with their shapes."""
    pipeline = load_pipeline(manifest)
    schema = pipeline.schema(pipeline.Params())
    attributes = []
    for column in schema.columns:
        sizes = [str(size) for size in column.shape]
        if column.level == "node":
            sizes.insert(0, "N")
        elif column.level == "edge":
            sizes.insert(0, "E")
        elif column.form == "axis":
            sizes.insert(0, "1")
        attributes.append(f"{column.attribute}=[{', '.join(sizes)}]")
    attributes += [f"{view.attribute}=[N, {view.stop - view.start}]" for view in schema.views]
    if schema.edges != "none":
        attributes.insert(1, "edge_index=[2, E]")
    return ", ".join(attributes)


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
