"""Finished runs of a report, read without trust, and how each differs from its preset."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmip_data.errors import DamagedInput, KmipDataError, UsageError
from kmip_data.manifest import dataset_names, load_manifest, read_shipped
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.config.presets import USUAL, PaperResult, load_preset, read_preset
from kmip_data.models.training.run.folder import RESULT_NAME, RunResult, read_result
from kmip_data.pipelines.find import record_parameters

K = "model.attention.k="  #: prefix of a change of k
MOST = 1e100  #: largest metric; sums of larger ones could overflow
#: Keys that change nothing that is learned, or that have columns of their own.
_APART = re.compile(
    r"version|preset|variant|training\.seed|data\.(dataset|sample|parameters|split)\b.*"
    r"|system\.(?!devices|nodes).*|model\.attention\.warm_start"
)


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    result: RunResult
    config: RunConfig
    changes: tuple[str, ...]  #: ``key=value (value of the preset, or else the default)``
    paper: PaperResult | None  #: published for its preset; None on other data
    exact: bool  #: True if the figure is of this configuration, as in the code or the text

    @property
    def test(self) -> float:
        """The metric that chose the epoch, on test."""
        return self.result.metrics["test"][self.result.metric]


def read_runs(folders: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Return the finished runs in ``folders``, and a notice for each that was left out."""
    runs, notices = [], []
    for folder in folders:
        try:
            runs.append(_read(folder))
        except KmipDataError as error:
            why = f"{error.what} {error.parts['found'] or ''}"
            why = " ".join(why.split()).replace(f"{folder}/", "").replace(f"{folder} ", "it ")
            notices.append(f"{folder} is left out: {why}")
    return runs, notices


def _read(folder: Path) -> Run:
    result = read_result(folder)
    value = result.metrics.get("test", {}).get(result.metric)
    if value is None or abs(value) > MOST or abs(result.seconds.total) > MOST:
        raise DamagedInput(f"It has no {result.metric} on test.")
    config, paper = config_from_mapping(result.config, RESULT_NAME), None
    own = {"data": {"dataset": result.dataset}, "model": {"name": result.model}}
    base = config_from_mapping(own, "the defaults")
    with contextlib.suppress(UsageError):  # a preset of another version, or of somebody else
        dataset, _, model = config.preset.partition("/")
        base = load_preset(dataset, model, config.variant)
        preset, whole = read_preset(dataset, model), result.complete and not result.sample
        if (dataset, model) == (result.dataset, result.model) and whole and config.variant not in preset.ours:
            paper = preset.paper
    paper = paper if paper and paper.metric == result.metric else None
    changes = tuple(_changes(config, base, result))
    exact = paper is not None and not changes and config.variant in {paper.variant, "text"}
    if not exact and paper and (other := _of_another_k(config, changes)):
        paper, exact = other, True
    return Run(folder, result, config, changes, paper, exact)


def _of_another_k(config: RunConfig, changes: Sequence[str]) -> PaperResult | None:
    """Return the paper's figure for the run's k, if only k was changed, in its experiment on k."""
    table = read_shipped("results", "influence-of-k")
    k = getattr(config.model.attention, "k", None)
    for of in table["dataset"] if all(change.startswith(K) for change in changes) and k in table["k"] else ():
        if (config.preset, config.variant) == (f"{of['name']}/{USUAL}", of["variant"]):
            at, named = table["k"].index(k), {name: table[name] for name in ("runs", "hardware")}
            source = f"{table['source']}, row k = {k}"
            return PaperResult(
                metric=of["metric"], mean=of["mean"][at], std=of["std"][at], source=source, **named
            )
    return None


def _changes(config: RunConfig, base: RunConfig, result: RunResult) -> Iterator[str]:
    """Yield the differences from ``base``, except for keys that were filled in from the data."""
    usual, found = dict(_flat(base.model_dump())), dict(_flat(config.model_dump()))
    if free := base.model.parameter_budget:
        width, count = found.pop("model.hidden_dim"), result.num_parameters
        found["model.parameter_budget"] = free
        # Parameters grow at most with the square of the width: one more step exceeds the budget.
        step = math.lcm(config.model.attention.multiple, config.model.local.multiple)
        if count <= free < count * ((width + step) / width) ** 2:
            usual.pop("model.hidden_dim")
        else:
            found["model.hidden_dim"] = width
    for key in ("model.head", "training.loss", "training.metric"):
        found[key] = found[key] if usual[key] else None
    if result.dataset in dataset_names():
        with contextlib.suppress(UsageError):
            usual |= record_parameters(result.dataset, base.data.parameters)
            found |= result.build_parameters
        # Where the split follows the run, each seed has the published one of that seed.
        ending = r"-seed\d+$" if config.data.split_seed_follows_run else r"$^"
        found["split"], published = result.split.name, load_manifest(result.dataset).expected.splits
        names = [re.sub(ending, "", name) for name in published]
        alike = not names or re.sub(ending, "", result.split.name) in names
        usual["split"] = result.split.name if alike else ", ".join(published)
    for key in dict.fromkeys([*usual, *found]):
        one, other = found.get(key), usual.get(key)
        if one != other and not _APART.fullmatch(key):
            yield f"{key}={'none' if one is None else one} ({'none' if other is None else other})"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
