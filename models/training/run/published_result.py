"""Published result that a run aims to reproduce."""

from __future__ import annotations

from typing import NamedTuple

from kmip_data.format.card import read_card
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.overrides import documented_keys, key_value
from kmip_data.models.training.config.presets import (
    PaperResult,
    build_folder_or_none,
    load_preset,
    published_at_k,
    read_preset,
)
from kmip_data.models.training.metrics import is_percent
from kmip_data.models.training.run.result import metric_with_unit
from kmip_data.text import count_with_noun

_K = "model.attention.k"
_SECTIONS = ("data.", "model.", "optimizer.", "schedule.", "training.")
#: Sections and keys that do not affect a result, or appear in a run's path.
_IRRELEVANT = {"data.dataset", "data.sample", "training.seed"}


class PublishedResult(NamedTuple):
    """A result of the paper, and the differences between a run and its settings."""

    figure: PaperResult
    other_keys: list[str]  #: keys with another value
    sample: bool  #: True if the run is on a sample

    @property
    def value(self) -> str:
        """Format the figure, such as ``accuracy 61.72 ± 0.35 %, 4 runs``."""
        figure = self.figure
        scale = 0.01 if is_percent(figure.metric) else 1
        std = None if figure.std is None else scale * figure.std
        value = metric_with_unit(figure.metric, scale * figure.mean, std)
        return f"{figure.metric} {value}, {count_with_noun(figure.runs, 'run')}"

    @property
    def line(self) -> str:
        """Log line: the figure, its source, and the run's differences."""
        line = f"published: {self.value} ({self.figure.source})"
        if self.sample:
            line += "; of the complete data, not of a sample"
        if self.other_keys:
            line += f"; this run has other values of {', '.join(self.other_keys)}"
        return line


def published_result_of(config: RunConfig) -> PublishedResult | None:
    """Return the published result of a run's dataset, model and metric; None without one.

    Runs with the settings of the paper's experiment on the influence of k are compared with the
    figure for their k, other runs with the figure for their preset's k.
    """
    if not config.preset:
        return None
    preset = read_preset(*config.preset.split("/"))
    folder = build_folder_or_none(config.data.dataset)
    dataset = config.data.dataset if folder is None else read_card(folder).dataset
    if dataset != preset.dataset:  # the settings of another one
        return None

    k = getattr(config.model.attention, "k", None)
    if isinstance(k, int) and preset.model == "gps-kmip":
        figure = published_at_k(preset.dataset, config.variant, k)
        if figure is not None and set(_other_keys(config, config.variant)) <= {_K}:
            return PublishedResult(figure, [], config.data.sample)

    if preset.paper is None or preset.paper.metric != config.training.metric:
        return None
    variant = "text" if config.variant == "text" else preset.default
    return PublishedResult(preset.paper, _other_keys(config, variant), config.data.sample)


def _other_keys(config: RunConfig, variant: str) -> list[str]:
    """Return the keys in which ``config`` is not its preset's ``variant``."""
    dataset, model = config.preset.split("/")
    seed = config.training.seed  # also the seed of a split that follows the run
    config = config.with_seed(seed)
    preset = load_preset(dataset, model, variant).with_seed(seed)
    names = dict.fromkeys(key.name for key in documented_keys())
    return [
        name
        for name in names
        if name.startswith(_SECTIONS)
        and name not in _IRRELEVANT
        and key_value(config, name) != key_value(preset, name)
    ]
