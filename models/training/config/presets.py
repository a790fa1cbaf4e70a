"""Presets: hyper-parameters from the paper's code and text, and the results in its tables."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from kmip_data.builds.home import Home, build_of_folder, list_builds, matching_builds
from kmip_data.errors import Command, Setting, UsageError, unknown_name_error
from kmip_data.format.card import Card
from kmip_data.graphs.city_columns import dataset_family
from kmip_data.manifest import dataset_names
from kmip_data.models.config import component_kinds, known_models, merge_tables
from kmip_data.models.positional_encodings import find_positional_encoding
from kmip_data.models.training.config.adapt_preset import fit_to_columns
from kmip_data.models.training.config.overrides import apply_overrides, config_from_mapping
from kmip_data.models.training.config.own_defaults import (
    default_settings,
    has_own_defaults,
    own_model,
)
from kmip_data.models.training.config.run_config import RunConfig, without_none
from kmip_data.pipelines.find_builds import find_build, shipped_schema
from kmip_data.strict_model import StrictModel, read_shipped, shipped_datasets, shipped_names
from kmip_data.text import count_with_noun

#: Model whose settings are used for models that upstream has no settings for.
BASE_MODEL = "gps-kmip"
_NON_PRESET_FILES = {"dataset", "digests"}  #: files in the folder of a dataset
NO_RESULT_MARKS = ("OOM", "–")  #: marks in a table instead of a result: out of memory, not run
_PRESET_K = 10  #: k of the presets whose result is in the table on the influence of k


class PaperResult(StrictModel):
    """Result reported by the paper, never a measurement of this package."""

    metric: str
    mean: float = Field(description="in percent")
    std: float | None = None
    runs: int
    hours: float | None = None
    hardware: str = ""
    source: str


class PaperTable(StrictModel):
    """One table of ``manifests/results/tables.toml``: models by datasets, as printed."""

    plan: str = Field(description="sweep that repeats the table")
    source: str
    runs: int = Field(description="number of runs of a result with a deviation")
    datasets: tuple[str, ...]
    metrics: tuple[str, ...] = Field(description="metric of each dataset")
    hardware: tuple[str, ...] = Field(description="hardware for each dataset")
    hardware_on: dict[str, str] = Field(default={}, description="exceptions, by dataset/model")
    results: dict[str, tuple[str, ...]] = Field(
        description="mean ± deviation or an empty cell, by model"
    )
    hours: dict[str, tuple[str, ...]] = Field(description="hours of one run, by model")
    taken_from: dict[str, str] = Field(
        default={}, description="publication of results that are not the paper's, by model"
    )

    def result(self, dataset: str, model: str) -> PaperResult | None:
        """Return the result in a cell; ``None`` if missing or empty."""
        if dataset not in self.datasets or model not in self.results:
            return None
        column = self.datasets.index(dataset)
        printed = self.results[model][column]
        if printed in NO_RESULT_MARKS:
            return None
        mean, _, std = printed.partition(" ± ")

        hardware = self.hardware_on.get(f"{dataset}/{model}", self.hardware[column])
        source = self.source
        if model in self.taken_from:  # the table's hardware does not apply
            hardware = ""
            source += f", which takes it from {self.taken_from[model]}"

        hours = None
        if model in self.hours and self.hours[model][column] not in NO_RESULT_MARKS:
            hours = float(self.hours[model][column])
        return PaperResult(
            metric=self.metrics[column],
            mean=float(mean),
            std=float(std) if std else None,
            runs=self.runs if std else 1,
            hours=hours,
            hardware=hardware,
            source=source,
        )


@functools.cache
def paper_tables() -> list[PaperTable]:
    """Return the paper's tables of results."""
    values = read_shipped("results", "tables")
    return [PaperTable.model_validate(table) for table in values["table"]]


def find_paper_result(dataset: str, model: str) -> PaperResult | None:
    """Return the paper's result for a model on a dataset; ``None`` without one.

    For a dataset that is only in the table of the influence of k, this is the row of its preset's
    k, 10.
    """
    for table in paper_tables():
        if result := table.result(dataset, model):
            return result
    return paper_result_at_k(dataset, "code", _PRESET_K) if model == "gps-kmip" else None


def paper_result_at_k(dataset: str, variant: str, k: int) -> PaperResult | None:
    """Return the result in the paper's experiment on the influence of k; ``None`` without one.

    ``variant`` is the variant of the GPS + k-MIP preset that the experiment uses.
    """
    table = read_influence_of_k()
    for row in table["row"]:
        if (row["dataset"], row["variant"], row["k"]) == (dataset, variant, k):
            return PaperResult(
                metric=row["metric"],
                mean=row["test"],
                std=row["test_std"],
                runs=table["runs"],
                hardware=table["hardware"],
                source=f"paper, table of the influence of k, row k = {k}",
            )
    return None


@functools.cache
def read_influence_of_k() -> dict[str, Any]:
    """Return the paper's experiment on the influence of k: ``runs``, ``hardware`` and ``row``, in percent."""
    return read_shipped("results", "influence-of-k")


class Difference(StrictModel):
    """Key on which the paper's text and code disagree."""

    value: Any = Field(description="value according to the text")
    paper: str = Field(description="statement in the text")
    code: str = Field(description="behaviour of the code")


class Preset(StrictModel):
    """Preset of a model on a dataset, read from ``manifests/datasets/NAME/MODEL.toml`` and its base."""

    dataset: str
    model: str
    source: str
    base: str = Field(default="", description="preset (folder.model) that this one modifies")
    without: tuple[str, ...] = Field(
        default=(),
        description="keys of ``text``, topics of ``note`` and variants not inherited from the base",
    )
    unset: tuple[str, ...] = Field(
        default=(), description="keys of ``code`` not inherited from the base"
    )
    default: str = Field(
        default="code",
        description="variant of the paper's result, the default of ``--variant``",
    )
    size: tuple[int, int, int] | None = Field(
        default=None, description="layers, channels and parameters of the published network"
    )
    code: dict[str, dict[str, Any]] = Field(default_factory=dict)
    text: dict[str, Difference] = Field(
        default={}, description="differences between the text and the code, by key"
    )
    variant: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="keys in which another variant differs from the code, by variant",
    )
    ours: tuple[str, ...] = Field(default=(), description="variants that are not upstream's")
    note: dict[str, str] = Field(
        default={}, description="reason for a choice shared by text and code, by topic"
    )
    paper: PaperResult | None = Field(
        default=None, description="set on reading; none: the paper has no result"
    )

    @property
    def name(self) -> str:
        """``dataset/model``."""
        return f"{self.dataset}/{self.model}"

    @property
    def variants(self) -> list[str]:
        """Values of ``--variant``."""
        return ["code", "text", *self.variant]

    def variant_changes(self, variant: str) -> dict[str, Any]:
        """Return the values in which a variant differs from the code, by key.

        Raises ``UsageError`` for an unknown variant.
        """
        if variant not in self.variants:
            raise unknown_name_error(
                f"variant of {self.name}",
                variant,
                self.variants,
                command=Setting(variant=None),
            )
        if variant == "text":
            return {key: difference.value for key, difference in self.text.items()}
        return self.variant.get(variant, {})

    @classmethod
    def read(cls, name: str) -> Preset:
        """Read ``dataset/model`` merged with its base presets.

        Code, differences, notes and variants are merged key by key. Attention and message passing
        are inherited from another model's base only if the kinds agree. The default variant is
        never inherited.
        """
        dataset, model = name.split("/")
        stored = read_shipped(f"datasets/{dataset}", model)
        if "base" in stored:
            base = cls.read(stored["base"].replace(".", "/"))

            # 1. Merge the code, without unset keys and components of the base's model.
            code = base.code
            if base.model != model:
                code = merge_tables(code, {"model": known_models()[model]})
            for key in stored.get("unset", ()):
                section, _, option = key.partition(".")
                del code[section][option]
            stored["code"] = merge_tables(code, stored.get("code", {}))

            # 2. Merge differences, notes and variants.
            for table in ("text", "note", "variant"):
                entries = getattr(base, table) | stored.get(table, {})
                excluded = {*stored.get("without", ())}
                stored[table] = {key: entries[key] for key in entries if key not in excluded}
            ours = {*base.ours, *stored.get("ours", ())}
            stored["ours"] = [variant for variant in stored["variant"] if variant in ours]
        identity = {"dataset": dataset, "model": model, "paper": find_paper_result(dataset, model)}
        return cls.model_validate(stored | identity)


@functools.cache
def preset_names() -> tuple[str, ...]:
    """Return the names ``dataset/model`` of all presets, sorted."""
    names = []
    for dataset in shipped_datasets():
        preset_models = set(shipped_names(f"datasets/{dataset}")) - _NON_PRESET_FILES
        names += [f"{dataset}/{model}" for model in preset_models]
    return tuple(sorted(names))


def models_with_preset(dataset: str) -> list[str]:
    """Return the models with a preset for ``dataset`` or its family."""
    owners = (f"{dataset}/", f"{dataset_family(dataset)}/")
    return sorted({name.split("/")[1] for name in preset_names() if name.startswith(owners)})


@functools.cache
def read_preset(dataset: str, model: str) -> Preset:
    """Read the preset of ``dataset`` and ``model``.

    Raises ``UsageError`` with the nearest name if there is none.
    """
    name = f"{dataset}/{model}"
    if name not in preset_names():
        family_name = f"{dataset_family(dataset)}/{model}"
        base_name = f"{preset_owner(dataset) or dataset}/{BASE_MODEL}"
        if family_name in preset_names():
            preset = read_preset(*family_name.split("/"))
            return preset.model_copy(
                update={"dataset": dataset, "paper": find_paper_result(dataset, model)}
            )
        if model in known_models() and base_name in preset_names():
            return _unpublished_preset(read_preset(dataset, BASE_MODEL), model)
        candidates = known_models() if base_name in preset_names() else models_with_preset(dataset)
        if candidates:
            command = Command("kmip-data info", dataset)
            raise unknown_name_error(
                f"preset of {dataset}", model, sorted(candidates), command=command
            )
        raise unknown_name_error("preset", name, preset_names())
    return Preset.read(name)


def _unpublished_preset(base: Preset, model: str) -> Preset:
    """Combine the settings of ``base`` with the components of a model that has no published preset."""
    components = known_models()[model]
    replaced = {*components, "name"}
    code = base.code["model"].items()
    settings = {key: value for key, value in code if key not in replaced}
    terms = settings.get("positional", "none").split("+")
    local = component_kinds("local")[components["local"]["kind"]].model_validate(
        components["local"]
    )
    if (
        any(find_positional_encoding(term).adds_distances for term in terms)
        and not local.reads_distances
    ):
        settings["positional"] = "none"
    source = f"ours, the settings of {base.name} with the components of {model}"
    is_sampled = base.code.get("training", {}).get("neighbors")
    if is_sampled and components["attention"]["kind"] == "exphormer":
        settings["attention"] = {"expander": 0}
        source += ", without an expander: neighborhoods are sampled"
    return Preset(
        dataset=base.dataset,
        model=model,
        source=source,
        code={**base.code, "model": {**settings, "name": model}},
    )


def load_preset(
    dataset: str,
    model: str | None = None,
    variant: str | None = None,
    *,
    data: str | None = None,
    home: str | os.PathLike[str] | Home | None = None,
) -> RunConfig:
    """Return the configuration of a preset.

    Parameters
    ----------
    dataset
        Dataset of the preset, or your own build, as a folder or by its name in ``home``. Without a
        preset, the configuration is the one that ``kmip-data train`` uses: the defaults for your own
        data.
    model
        Network. Default: ``gps-kmip``, or the default network for your own data.
    variant
        ``code``: upstream's file. ``text``: the same except for the keys in which the paper's text
        differs. Or another variant of the preset. Default: the variant of the paper's result,
        ``code`` except for two presets of London.
    data
        Dataset or build to train on, with the settings that fit it; default: ``dataset``.
    home
        Folder of builds; the default home if ``None``.

    Raises
    ------
    UsageError
        Unknown preset, variant or build.
    """
    home = Home.locate(home)
    if data is not None:
        preset = f"{dataset}/{model or BASE_MODEL}"
        config, _ = adapt_preset_to_data(data, preset, variant, home=home)
        return config
    if preset_owner(dataset) is not None:
        return _preset_config(dataset, model or BASE_MODEL, variant, dataset)
    if dataset not in dataset_names():
        find_build(dataset, home=home)  # raises for an unknown name
    return config_for_data(dataset, model, variant, home=home)


def _preset_config(dataset: str, model: str, variant: str | None, data: str) -> RunConfig:
    """Return a preset's configuration for the dataset ``data``, otherwise unchanged."""
    preset = read_preset(dataset, model)
    variant = variant or preset.default
    run_settings = {
        "preset": preset.name,
        "variant": variant,
        "data": {"dataset": data},
        "model": {"name": model},
    }
    values = merge_tables(preset.code, run_settings)
    config = config_from_mapping(values, f"the preset {preset.name!r}")
    # Apply changes like --set, which can set None, unlike TOML.
    overrides = []
    for key, value in preset.variant_changes(variant).items():
        text = str(value).lower() if isinstance(value, bool) else value
        overrides.append(f"{key}={text}")
    return apply_overrides(config, overrides)


def config_for_data(
    name: str,
    model: str | None = None,
    variant: str | None = None,
    *,
    home: Home | None = None,
) -> RunConfig:
    """Return the preset's configuration for the dataset or build ``name``; the defaults without one.

    Without a ``model``, the network is ``gps-kmip``, or the default network for your own data.

    A dataset may use the preset of its family. A build folder keeps its build parameters and
    default split for any seed. Names of your own builds are resolved in ``home``. Raises
    ``UsageError`` if the dataset has presets, but none for this model or variant.
    """
    # 1. Resolve the name: a build folder, its name below ``built/``, or a dataset.
    card = None
    changes = {}
    dataset = name
    build = build_of_folder(name, home)
    if build is not None:
        card = build.card
        dataset = card.dataset
        split: Mapping[str, Any] = {}
        if card.default_split and dataset in dataset_names():
            split = card.splits[card.default_split].parameters
        changes = {
            "dataset": str(build.path),
            "sample": card.sample,
            "parameters": without_none(card.parameters),
            "split": without_none(split),
            "split_seed_follows_run": False,
        }
    elif name not in dataset_names() and home is not None:
        builds = list_builds(home, name)
        builds = matching_builds(builds, {}) or builds
        card = builds[0].card if builds else None

    # 2. Use the preset of the dataset or its family, or the defaults.
    owner = preset_owner(dataset, card)
    if owner is not None:
        config = _preset_config(owner, model or BASE_MODEL, variant, dataset)
        return config.with_values("data", **changes)
    if model is None:
        model = BASE_MODEL
        if card is not None and has_own_defaults(card):
            model = own_model(card)
    if model not in known_models():
        step = "choose one of these, or load the plugin with a model of your own"
        raise unknown_name_error("model", model, list(known_models()), command=step)
    if variant not in {None, "code"}:
        raise unknown_name_error(
            f"variant of {dataset}",
            str(variant),
            ["code"],
            command=Setting(variant=None),
        )
    values = {"data": {"dataset": dataset}, "model": {"name": model}}
    config = config_from_mapping(values, "the defaults")
    if card is not None:
        config = apply_overrides(config, default_settings(card, config.model))
    return config.with_values("data", **changes)


def default_model(dataset: str, home: Home | None = None) -> str:
    """Return the network that ``kmip-data train DATASET`` trains."""
    return config_for_data(dataset, home=home).model.name


def adapt_preset_to_data(
    data: str, name: str, variant: str | None = None, *, home: Home | None = None
) -> tuple[RunConfig, list[str]]:
    """Adapt the preset ``name``, ``dataset/model``, to other data; see :func:`adapt_config_to_data`."""
    dataset, _, model = name.partition("/")
    if dataset == data and model in known_models() and not models_with_preset(dataset):
        raise UsageError(
            f"{dataset} has no preset; only published datasets have some.",
            steps=Command("kmip-data train {} --model", dataset, model),
        )
    return adapt_config_to_data(_preset_config(dataset, model, variant, dataset), data, home=home)


def adapt_config_to_data(
    config: RunConfig, data_name: str, *, home: Home | None = None
) -> tuple[RunConfig, list[str]]:
    """Adapt ``config`` to the data of ``data_name``; return it and a message for each changed setting.

    Build parameters, sample, split and fold come from ``data_name``, not from ``config``.
    """
    data = config_for_data(data_name, BASE_MODEL, home=home).data
    config = config.model_copy(update={"data": data})
    # A published dataset may not be built yet, but its schema is known.
    if data.dataset in dataset_names():
        return fit_to_columns(config, shipped_schema(data.dataset, data.parameters), data.dataset)
    card = find_build(data.dataset, data.parameters, home=home, sample=data.sample).card
    return fit_to_columns(config, card.schema_, card.dataset)


def preset_owner(dataset: str, card: Card | None = None) -> str | None:
    """Return the dataset or family whose presets ``dataset`` uses; ``None`` without presets.

    ``card`` is the card of its build, if any.
    """
    owners = {name.split("/")[0] for name in preset_names()}
    for name in (dataset, dataset_family(dataset, card)):
        if name in owners:
            return name
    return None


def preset_origin(config: RunConfig) -> str:
    """Describe a run's preset, its variant and the source of its settings; empty without a preset."""
    if not config.preset:
        return ""
    preset = read_preset(*config.preset.split("/"))
    preset.variant_changes(config.variant)  # raises for an unknown variant
    line = f"preset {preset.name}, variant {config.variant}"
    if config.variant in preset.ours:
        return f"{line}: our settings, not the paper's"
    if preset.source.startswith("ours: "):
        return f"{line}: our settings, {preset.source.removeprefix('ours: ')}"
    if not (preset.paper or preset.text):
        line += ", not the paper's"
    if not preset.text:
        return f"{line}: {preset.source}"
    keys = count_with_noun(len(preset.text), "key")
    command = f"kmip-data info {preset.dataset} --model {preset.model}"
    return f"{line}; the paper's text and code differ in {keys} ({command})"
