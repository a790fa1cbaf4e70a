"""The paper's hyper-parameters, as its code ran them and as its text gives them."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from kmip_data.builds.home import Home, build_in, list_builds
from kmip_data.errors import DamagedInput, located
from kmip_data.format.card import CARD_NAME, Card, read_card
from kmip_data.graphs.city_columns import family
from kmip_data.manifest import (
    Strict,
    dataset_names,
    read_shipped,
    shipped_datasets,
    shipped_names,
    unknown_name,
)
from kmip_data.models.config import kinds_of, merged, models
from kmip_data.models.tables import positional
from kmip_data.models.training.config.keys import RunConfig, without_none
from kmip_data.models.training.config.overrides import apply_overrides, config_from_mapping
from kmip_data.models.training.config.published import PaperResult, published
from kmip_data.wording import counted

USUAL = "gps-kmip"  #: the model whose settings others take where upstream has none
_PARTS = ("name", "attention", "local")
_NO_PRESETS = {"dataset", "digests"}  #: the other files in a dataset's folder


class Difference(Strict):
    """One key in which the paper's text and code disagree."""

    key: str
    value: Any = Field(description="what the text asks for")
    paper: str = Field(description="what the text says")
    code: str = Field(description="what the code does")


class Note(Strict):
    """Something that text and code treat alike, and why."""

    topic: str
    text: str


class Preset(Strict):
    """Preset of a model in a dataset's folder, ``manifests/datasets/NAME/MODEL.toml``, with its base."""

    dataset: str
    model: str
    source: str
    base: str = Field(
        default="", description="preset (dataset.model) that this one is given as changes of"
    )
    without: tuple[str, ...] = Field(
        default=(),
        description="keys of ``text``, topics of ``note`` and variants that the base alone has",
    )
    default: str = Field(
        default="code", description="variant of the published figure, which runs without ``--as``"
    )
    code: dict[str, dict[str, Any]] = Field(default_factory=dict)
    text: tuple[Difference, ...] = ()
    variant: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="name -> keys in which a further variant differs from the code",
    )
    ours: tuple[str, ...] = Field(default=(), description="variants that are not upstream's")
    note: tuple[Note, ...] = ()
    paper: PaperResult | None = Field(
        default=None, description="set when it is read; none: the paper has no figure"
    )

    @property
    def name(self) -> str:
        """``dataset/model``."""
        return f"{self.dataset}/{self.model}"

    @property
    def variants(self) -> list[str]:
        """Values of ``--as``."""
        return ["code", "text", *self.variant]

    def changes(self, variant: str) -> dict[str, Any]:
        """Return the keys in which a variant differs from the code, and their values.

        Raises ``UsageError`` where there is no such variant.
        """
        if variant not in self.variants:
            raise unknown_name(
                f"variant of {self.name}",
                variant,
                self.variants,
                command="kmip-data train --as code …",
            )
        if variant == "text":
            return {difference.key: difference.value for difference in self.text}
        return self.variant.get(variant, {})

    @classmethod
    def read(cls, name: str) -> Preset:
        """Read ``dataset/model`` with the presets that it is based on.

        Code, differences, notes and variants are merged key by key. A base of another model keeps its
        attention and message passing only where the model's own file has the same kinds, also in variants.
        The default variant is never taken over.
        """
        dataset, model = name.split("/")
        own = read_shipped(f"datasets/{dataset}", model)
        base = cls.read(own["base"].replace(".", "/")) if "base" in own else None
        code = own.get("code", {})
        text = own.get("text", {})
        note = own.get("note", {})
        variant = own.get("variant", {})
        ours = [*own.get("ours", ())]
        if base is not None:
            code = merged(base.code_for(model, code), code)
            text = {row.key: row.model_dump(exclude={"key"}) for row in base.text} | text
            note = {row.topic: row.text for row in base.note} | note
            variant = base.variants_for(code) | variant
            ours += [name for name in base.ours if name not in ours]
        gone = own.get("without", ())
        return cls.model_validate(
            own
            | {
                "dataset": dataset,
                "model": model,
                "code": code,
                "text": [{"key": key, **row} for key, row in text.items() if key not in gone],
                "note": [
                    {"topic": topic, "text": row}
                    for topic, row in note.items()
                    if topic not in gone
                ],
                "variant": {key: row for key, row in variant.items() if key not in gone},
                "ours": [key for key in ours if key not in gone],
                "paper": published(dataset, model),
            }
        )

    def variants_for(self, code: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the variants for a preset with ``code``: keys of another kind of attention are left out."""
        kinds = {
            each.get("model", {}).get("attention", {}).get("kind") for each in (self.code, code)
        }
        gone = "model.attention." if len(kinds) > 1 else "\0"
        return {
            name: {key: value for key, value in keys.items() if not key.startswith(gone)}
            for name, keys in self.variant.items()
        }

    def code_for(self, model: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the code of this preset as a base of ``model``, without what ``changes`` replaces as one.

        A width and a budget replace each other; parameters of a build or a split are those of one dataset.
        """
        code = merged(self.code, {} if model == self.model else {"model": models()[model]})
        gone = {
            "data": {"parameters", "split"} & changes.get("data", {}).keys(),
            "model": set[str](),
        }
        for given, replaced in (
            ("hidden_dim", "parameter_budget"),
            ("parameter_budget", "hidden_dim"),
        ):
            gone["model"] |= {replaced} if given in changes.get("model", {}) else set()
        return {
            section: {key: value for key, value in keys.items() if key not in gone.get(section, ())}
            for section, keys in code.items()
        }


def preset_names() -> list[str]:
    """``dataset/model`` of every preset, sorted."""
    names = []
    for dataset in shipped_datasets():
        preset_models = set(shipped_names(f"datasets/{dataset}")) - _NO_PRESETS
        names += [f"{dataset}/{model}" for model in preset_models]
    return sorted(names)


def presets_of(dataset: str) -> list[str]:
    """Models that have a preset on ``dataset``, that of its family included."""
    of = {dataset, family(dataset)}
    return sorted({name.split("/")[1] for name in preset_names() if name.split("/")[0] in of})


@functools.cache
def read_preset(dataset: str, model: str) -> Preset:
    """Read the preset of ``dataset`` and ``model``.

    Raises ``UsageError``, which names the nearest, where there is none; ``DamagedInput`` where its file
    breaks the model.
    """
    name = f"{dataset}/{model}"
    if name not in preset_names():
        shared = f"{family(dataset)}/{model}"
        usual = f"{family_of(dataset)}/{USUAL}"
        if shared in preset_names():
            preset = read_preset(*shared.split("/"))
            return preset.model_copy(
                update={"dataset": dataset, "paper": published(dataset, model)}
            )
        if model in models() and usual in preset_names():
            return _ours(read_preset(dataset, USUAL), model)
        known = {*presets_of(dataset), *(models() if usual in preset_names() else ())}
        own = [f"{dataset}/{each}" for each in sorted(known)] or preset_names()
        raise unknown_name("preset", name, own, command=f"kmip-data info {dataset}")
    try:
        return Preset.read(name)
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise DamagedInput(f"The preset {name!r} is not valid.", found=str(error)) from error


def _ours(base: Preset, model: str) -> Preset:
    """The settings of ``base`` with the parts of another model: no one's published choice."""
    parts = models()[model]
    kept = {key: value for key, value in base.code["model"].items() if key not in {*parts, *_PARTS}}
    position = positional(kept.get("positional", "none"))
    if position.distances and not kinds_of("local")[parts["local"]["kind"]].reads_distances:
        kept["positional"] = "none"
    return Preset(
        dataset=base.dataset,
        model=model,
        source=f"ours, the settings of {base.name} with the parts of {model}",
        code={**base.code, "model": {**kept, "name": model}},
    )


def load_preset(
    dataset: str, model: str = "gps-kmip", as_: str | None = None, *, target: str | None = None
) -> RunConfig:
    """Return the configuration of a preset.

    Parameters
    ----------
    as_
        Default: the variant of the published figure, which is ``code`` but for two presets of London.
        ``code``: upstream's file. ``text``: the same with every key changed in which the paper's text
        says otherwise; where the text is silent, both follow the code. Or another variant that the
        preset names.
    target
        What to train on; default: the preset's dataset.

    Raises
    ------
    UsageError
        There is no such preset or variant.
    """
    preset = read_preset(dataset, model)
    variant = as_ or preset.default
    own = {
        "preset": preset.name,
        "variant": variant,
        "data": {"dataset": target or dataset},
        "model": {"name": model},
    }
    config = config_from_mapping(merged(preset.code, own), f"the preset {preset.name!r}")
    # As the command line's --set, which has a word for no value (TOML has none).
    changes = preset.changes(variant).items()
    texts = [
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in changes
    ]
    return apply_overrides(config, texts)


def folder_of(target: str) -> Path | None:
    """Return the absolute path of TARGET where that is a build folder, None where it is a name."""
    folder = located(target, "build folder")
    return folder if (folder / CARD_NAME).is_file() else None


def config_for(
    target: str, model: str = "gps-kmip", as_: str | None = None, *, home: Home | None = None
) -> RunConfig:
    """Return the preset of TARGET's dataset, or the defaults for a dataset that the paper did not have.

    A dataset may take the preset of its family. A build folder keeps the parameters it was built with
    and its default split, whatever the seed. The user's own builds are looked for by name in ``home``. Raises
    ``UsageError`` where the dataset has presets, but none of that model or variant.
    """
    card = None
    own = dict[str, Any]()
    if (
        home is not None
        and (home.built / target / CARD_NAME).is_file()
        and (named := build_in(target, home))
    ):
        target = str(named.path)  # the name of a folder below ``built/``
    dataset = target
    if folder := folder_of(target):
        card = read_card(folder)
        dataset = card.dataset
        split = card.splits[card.default_split].parameters if card.default_split else {}
        own = {
            "dataset": target,
            "sample": card.sample,
            "parameters": without_none(card.parameters),
            "split": without_none(split) if dataset in dataset_names() else {},
            "split_seed_follows_run": False,
        }
    elif target not in dataset_names() and home is not None:
        card = next(
            (build.card for build in list_builds(home) if build.card.dataset == target), None
        )
    preset = family_of(dataset, card)
    if preset is not None:
        config = load_preset(preset, model, as_, target=dataset)
    else:
        values = {"data": {"dataset": target}, "model": {"name": model}, "variant": as_ or "code"}
        config = config_from_mapping(values, "the defaults")
    return config.model_copy(update={"data": config.data.model_copy(update=own)})


def family_of(dataset: str, card: Card | None = None) -> str | None:
    """Return the dataset whose presets ``dataset`` takes: itself, or its family (``card``: a build's)."""
    named = {name.split("/")[0] for name in preset_names()}
    return next((name for name in (dataset, family(dataset, card)) if name in named), None)


def origin(config: RunConfig) -> str:
    """Return a line on the preset of a run, empty without one: its variant, or whose settings they are."""
    if not config.preset:
        return ""
    preset = read_preset(*config.preset.split("/"))
    preset.changes(config.variant)  # refuses an unknown variant
    if not preset.text:
        whose = "" if preset.paper else ", not the paper's"
        return f"preset {preset.name}{whose}: {preset.source}"
    how = f" as the paper's {config.variant} has it"
    if config.variant in preset.ours:
        how = f", variant {config.variant}, ours and not the paper's"
    elif config.variant == preset.default and preset.default != "code":
        how = f", variant {config.variant}, which produced the published figure"
    keys = counted(len(preset.text), "key")
    shown = f"kmip-data info {preset.dataset} --model {preset.model}"
    differs = {"code": "its text differs", "text": "its code differs"}
    usual = "its text differs from its code"
    return f"preset {preset.name}{how}; {differs.get(config.variant, usual)} in {keys} ({shown})"
