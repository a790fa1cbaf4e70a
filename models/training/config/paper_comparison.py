"""The paper's result next to a run: its value, and the settings that differ."""

from __future__ import annotations

from typing import NamedTuple

from kmip_data.builds.home import path_or_none
from kmip_data.format.card import CARD_NAME, read_card
from kmip_data.models.training.config.overrides import documented_keys, value_of_key
from kmip_data.models.training.config.presets import (
    PaperResult,
    load_preset,
    paper_result_at_k,
    read_preset,
)
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.metric_text import format_metric_with_unit
from kmip_data.models.training.metrics import all_metrics, is_percent
from kmip_data.text import count_with_noun

_K_KEY = "model.attention.k"
#: Sections whose keys affect a result.
_RESULT_SECTIONS = ("data.", "model.", "optimizer.", "schedule.", "training.")
#: Keys in these sections that are not compared: they do not affect a result, or are in a run's path.
_IGNORED_KEYS = {"data.dataset", "data.sample", "training.seed"}


class PaperComparison(NamedTuple):
    """A result of the paper, and how a run's settings differ from the paper's."""

    paper_result: PaperResult
    differing_keys: list[str]  #: keys whose values differ
    sample: bool  #: True if the run uses a sample

    @property
    def paper_value(self) -> str:
        """Format the paper's result, such as ``accuracy 61.72 ± 0.35 %, 4 runs``."""
        result = self.paper_result
        scale = 0.01 if is_percent(result.metric) else 1
        std = None if result.std is None else scale * result.std
        value = format_metric_with_unit(result.metric, scale * result.mean, std)
        title = all_metrics()[result.metric].title
        return f"{title} {value}, {count_with_noun(result.runs, 'run')}"

    @property
    def line(self) -> str:
        """Line to log: the paper's result, its source, and the run's differences."""
        line = f"the paper's result: {self.paper_value} ({self.paper_result.source})"
        if self.sample:
            line += "; of the complete data, not of a sample"
        if self.differing_keys:
            line += f"; this run has other values of {', '.join(self.differing_keys)}"
        return line


def compare_with_paper(config: RunConfig) -> PaperComparison | None:
    """Compare a run with the paper's result for its dataset, model and metric; ``None`` without one.

    A run with the settings of the paper's experiment on the influence of k is compared with the
    result for its k, any other run with the result for its preset's k.
    """
    if not config.preset:
        return None
    preset = read_preset(*config.preset.split("/"))
    dataset = config.data.dataset
    folder = path_or_none(dataset)
    if folder is not None and (folder / CARD_NAME).is_file():
        dataset = read_card(folder).dataset
    if dataset != preset.dataset:  # a preset of another dataset
        return None

    k = getattr(config.model.attention, "k", None)
    if isinstance(k, int) and preset.model == "gps-kmip":
        paper_result = paper_result_at_k(preset.dataset, config.variant, k)
        if paper_result is not None and set(_differing_keys(config, config.variant)) <= {_K_KEY}:
            return PaperComparison(paper_result, [], config.data.sample)

    if preset.paper is None or preset.paper.metric != config.training.metric:
        return None
    variant = "text" if config.variant == "text" else preset.default
    return PaperComparison(preset.paper, _differing_keys(config, variant), config.data.sample)


def _differing_keys(config: RunConfig, variant: str) -> list[str]:
    """Return the keys in which ``config`` differs from the ``variant`` of its preset."""
    dataset, model = config.preset.split("/")
    seed = config.training.seed  # also the split's seed if it follows the run's
    config = config.with_seed(seed)
    preset = load_preset(dataset, model, variant).with_seed(seed)
    names = dict.fromkeys(key.name for key in documented_keys())
    return [
        name
        for name in names
        if name.startswith(_RESULT_SECTIONS)
        and name not in _IGNORED_KEYS
        and value_of_key(config, name) != value_of_key(preset, name)
    ]
