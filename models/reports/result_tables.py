"""Read finished runs as untrusted data, and group them into tables.

A row holds the seeds of one configuration, a table holds the rows on the same data.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmip_data.errors import DamagedInput, KmipDataError, Setting, UsageError, unknown_name_error
from kmip_data.files.small_files import json_digest
from kmip_data.format.card import coverage_suffix, label_of_dataset
from kmip_data.graphs.molecule_fields import ATOM_FIELDS
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.models.config import dotted_keys
from kmip_data.models.sweeps.plans import changed_keys_digest
from kmip_data.models.training.config.overrides import (
    apply_overrides,
    config_from_mapping,
    with_epochs,
)
from kmip_data.models.training.config.own_defaults import OWN_SETTINGS, own_scale
from kmip_data.models.training.config.presets import (
    PaperResult,
    load_preset,
    read_preset,
)
from kmip_data.models.training.config.run_config import RunConfig, SystemConfig, is_compared
from kmip_data.models.training.metrics import all_metrics, is_percent
from kmip_data.models.training.references.reference import References, mean_references, short_title
from kmip_data.models.training.run.result import RunResult, is_edited, read_result
from kmip_data.models.training.run.run_folder import MAX_METRIC, RESULT_NAME
from kmip_data.models.training.run.summary import sample_std
from kmip_data.pipelines.find_builds import parameters_with_defaults

if TYPE_CHECKING:
    from kmip_data.models.training.run.finished_run import OpenedRun


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    result: RunResult
    config: RunConfig
    changes: tuple[str, ...]  #: ``key=value instead of the value in the preset or the default``
    paper: PaperResult | None  #: paper's result for its preset; ``None`` on other data
    has_paper_settings: bool  #: True if the paper's result is for exactly this configuration
    edited: bool  #: True if ``result.json`` was edited after it was written

    @property
    def dataset_label(self) -> str:
        """Dataset name, followed by ``-sample`` for a sample."""
        return label_of_dataset(self.result.dataset, sample=self.result.sample)

    @property
    def test(self) -> float:
        """Value on test of the metric that selects the best epoch."""
        return self.result.metrics["test"][self.result.metric]


def read_finished_runs(folders: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Read the finished runs in ``folders``; also return a notice for each edited or skipped one."""
    runs = []
    notices = []
    for folder in folders:
        try:
            run = _read_run(folder)
            runs.append(run)
            if run.edited:
                notices.append(f"{folder / RESULT_NAME} was edited after it was written.")
        except KmipDataError as error:
            reason = ", ".join(filter(None, [error.message, error.found]))
            notices.append(f"{folder} is skipped: {reason}")
    return runs, notices


def _read_run(folder: Path) -> Run:
    """Read a finished run; raise ``KmipDataError`` if its files or results are damaged."""
    # 1. Require a metric that can be summed over seeds.
    result = read_result(folder)
    value = result.metrics.get("test", {}).get(result.metric)
    if value is None or abs(value) > MAX_METRIC or abs(result.seconds.total) > MAX_METRIC:
        raise DamagedInput(f"It has no {result.metric} on test.")

    # 2. Compare with the preset of the run, or else with the defaults.
    config = config_from_mapping(result.config, RESULT_NAME)
    paper = None
    defaults = {"data": {"dataset": result.dataset}, "model": {"name": result.model}}
    base = config_from_mapping(defaults, "the defaults")
    # Your own data have no preset, but defaults for nodes and graphs.
    is_published = result.dataset in dataset_names()
    if not is_published and not config.preset and result.targets.level != "link":
        scale = own_scale(result.targets.target_type)
        base = apply_overrides(base, [f"data.scale={scale}", *OWN_SETTINGS])
    is_paper_variant = False
    with contextlib.suppress(UsageError):  # a preset of another version or installation
        dataset, _, model = config.preset.partition("/")
        base = load_preset(dataset, model, config.variant)
        preset = read_preset(dataset, model)
        is_paper_variant = config.variant in {preset.default, "text"}

        # 3. The paper's result applies to the complete data and the preset's metric.
        is_own_preset = config.preset == f"{result.dataset}/{result.model}"
        is_complete = result.complete and not result.sample
        preset_paper = preset.paper
        if is_own_preset and is_complete and preset_paper and config.variant not in preset.ours:
            paper = preset_paper if preset_paper.metric == result.metric else None

    # 4. It is for exactly this configuration if nothing differs from the paper's variant.
    changes = tuple(_changed_settings(config, base, result))
    has_paper_settings = is_paper_variant and paper is not None and not changes
    return Run(folder, result, config, changes, paper, has_paper_settings, is_edited(folder))


def _changed_settings(config: RunConfig, base: RunConfig, result: RunResult) -> Iterator[str]:
    """Yield the settings that differ from ``base``, except those determined by the data."""
    base_values = dict(dotted_keys(base.model_dump()))
    values = dict(dotted_keys(config.model_dump()))
    # A warm-up shortened to fit a shorter run is not a change.
    shortened = with_epochs(base, config.training.epochs).schedule.warmup_epochs
    if config.schedule.warmup_epochs == shortened:
        base_values["schedule.warmup_epochs"] = shortened
    if config.plugins:
        # Another plugin of the same name is a change, detected by its digest.
        plugins = [f"{plugin.name} {plugin.sha256[:8]}" for plugin in config.plugins]
        values["plugins"] = ", ".join(plugins)

    budget = base.model.parameter_budget
    if budget:
        values["model.parameter_budget"] = budget
        width = config.model.hidden_dim
        count = result.num_parameters
        # The width follows from the budget if the next larger width would exceed it; the number of
        # parameters grows at most quadratically.
        step = math.lcm(config.model.attention.dim_multiple, config.model.local.dim_multiple)
        if count <= budget < count * ((width + step) / width) ** 2:
            del base_values["model.hidden_dim"], values["model.hidden_dim"]
    for key in ("model.head", "training.loss", "training.metric"):
        if not base_values[key]:  # determined by the task
            values[key] = None

    if result.dataset in dataset_names():
        # Runs record what "auto" stands for.
        base_values["data.scale"] = base.data.scale.replace("auto", "none")
        values["data.scale"] = config.data.scale.replace("auto", "none")
        # Skip parameters that this version does not know.
        with contextlib.suppress(UsageError):
            base_values |= parameters_with_defaults(result.dataset, base.data.parameters)
            values |= result.build_parameters
        # If the split's seed follows the run's, each seed has its own published split.
        suffix = r"-seed\d+$" if config.data.split_seed_follows_run else r"$^"
        name = result.split.name
        splits = load_manifest(result.dataset).expected.splits
        published_names = {re.sub(suffix, "", published) for published in splits}
        values["split"] = name
        base_values["split"] = name
        if splits and re.sub(suffix, "", name) not in published_names:
            base_values["split"] = ", ".join(splits)

    # Without a preset, the features determine their encoders.
    if not config.preset:
        base_values |= _encoders_of_features(config, result)

    # Compare, except keys that exist only because the kind of their section differs.
    for key in {**base_values, **values}:
        value = values.get(key)
        base_value = base_values.get(key)
        kind = f"{key.rpartition('.')[0]}.kind"
        in_both = key in base_values and key in values
        if not in_both and values.get(kind) != base_values.get(kind):
            continue
        if value != base_value and is_compared(key):
            yield f"{key}={_format_setting(value)} instead of {_format_setting(base_value)}"


def _encoders_of_features(config: RunConfig, result: RunResult) -> dict[str, str]:
    """Return the encoders that the features of nodes and edges determine."""
    encoders = {}
    if result.columns == ATOM_FIELDS:
        encoders["model.node_encoder"] = "atom"
    if config.model.edge_encoder in {"bond", "linear"}:
        encoders["model.edge_encoder"] = config.model.edge_encoder
    return encoders


def _format_setting(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


REFERENCE = "reference"  #: variant of the row of a reference answer
Row = dict[str, Any]  #: keys as in docs/reports.md; fractions, not percent


@dataclass(frozen=True)
class Table:
    """Comparable rows with the same metric, build and split."""

    rows: Sequence[Row]
    runs: Sequence[Sequence[Run]]  #: runs of each row, by seed
    #: model, or "the best", whose row others are compared with; empty for a single row
    baseline: str
    #: rows of reference answers, which have no rank
    answer_rows: Sequence[Row] = ()

    @property
    def all_rows(self) -> list[Row]:
        """Rows of runs and of reference answers."""
        return [*self.rows, *self.answer_rows]


def tables_of_runs(
    runs: Sequence[Run], against: str | None = None
) -> tuple[list[Table], list[str]]:
    """Group ``runs`` into tables; also return a notice for each skipped run.

    Rows are compared seed by seed with the best row of the model ``against``, or of all models.
    Raises ``UsageError`` if no run has that model.
    """
    models = sorted({run.result.model for run in runs})
    if against is not None and against not in models:
        raise unknown_name_error(
            "model",
            against,
            models,
            command=Setting(against=models[0]),
            where="among the runs",
        )
    # Runs by table, row, and fold and seed.
    groups: dict[str, dict[str, dict[tuple[int, int], Run]]] = {}
    notices = []
    for run in sorted(runs, key=_sort_key):
        by_seed = groups.setdefault(_data_digest(run), {}).setdefault(configuration_digest(run), {})
        number = (_fold_of_run(run) or 0, run.result.seed)
        other = by_seed.get(number)
        if other is not None:
            notices.append(
                f"{other.folder} is skipped: {run.folder} has the same configuration and seed."
            )
        by_seed[number] = run

    tables = []
    for rows in groups.values():
        sorted_rows = [[by_seed[number] for number in sorted(by_seed)] for by_seed in rows.values()]
        tables.append(_make_table(sorted_rows, against))
    return tables, notices


def _fold_of_run(run: Run) -> int | None:
    """Return the number of a run's published split; ``None`` if there is only one."""
    fold: int | None = run.result.split.parameters.get("fold")
    return fold


def _sort_key(run: Run) -> tuple[object, ...]:
    """Return the sort key of a run: dataset, model and changes, with k = 3 before k = 10.

    Runs on a sample come after those on the real data, as the first table suggests the next step.
    """
    return (
        run.result.dataset,
        run.result.sample,
        run.result.model,
        [_natural_sort_key(change) for change in run.changes],
    )


def _natural_sort_key(text: str) -> list[str | float]:
    """Return a sort key that orders numbers within strings by value.

    >>> sorted(["k=10", "k=100", "k=3"], key=_natural_sort_key)
    ['k=3', 'k=10', 'k=100']
    """
    parts: list[str | float] = list(re.split(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", text))
    parts[1::2] = map(float, parts[1::2])
    return parts


def _data_digest(run: Run) -> str:
    """Return a digest of the data that the runs of a table share."""
    result = run.result
    split: object = result.split.digests
    if run.config.data.split_seed_follows_run:  # each seed has its own split by the same rule
        split = [result.split.rule, {**result.split.parameters, "split_seed": None}]
    if _fold_of_run(run) is not None:  # folds share a row, because papers average over them
        split = [result.split.rule, {**result.split.parameters, "fold": None}]
    return json_digest(
        [
            result.dataset,
            result.sample,
            result.complete,
            result.build_key,
            result.metric,
            split,
        ]
    )


def configuration_digest(run: Run | OpenedRun) -> str:
    """Return a digest of a run's configuration without seed, machine and data."""
    config = run.config.with_seed(0).with_values("training", references=None)
    # Of the system settings, only the numbers of devices and nodes matter.
    system = SystemConfig(devices=config.system.devices, nodes=config.system.nodes)
    split = {key: value for key, value in config.data.split.items() if key != "fold"}
    data = config.data.model_copy(update={"dataset": run.result.dataset, "split": split})
    return changed_keys_digest(config.model_copy(update={"data": data, "system": system}))


def _make_table(groups: Sequence[Sequence[Run]], against: str | None) -> Table:
    rows = [_summarise_runs(runs) for runs in groups]
    answer_rows = _answer_rows(rows[0], groups)
    if len(rows) == 1:
        return Table(rows, groups, "", answer_rows)

    # 1. Mark the best and the second-best row.
    higher_is_better = all_metrics()[rows[0]["metric"]].higher_is_better
    rows_and_runs = zip(rows, groups, strict=True)
    ranked = sorted(
        rows_and_runs, key=lambda pair: float(pair[0]["test"]), reverse=higher_is_better
    )
    for number, (row, _) in enumerate(ranked[:2], start=1):
        row["rank"] = number

    # 2. Find the baseline: the best of the model ``against``, or of all.
    candidates = [(row, runs) for row, runs in ranked if against in {None, row["model"]}]
    if not candidates:
        return Table(rows, groups, "", answer_rows)
    baseline, baseline_runs = candidates[0]
    baseline_tests = {(run.result.seed, _split_digest(run)): run.test for run in baseline_runs}

    for row, runs in zip(rows, groups, strict=True):
        # 3. Compare the seeds that both rows have on the same split.
        differences = []
        for run in runs:
            baseline_test = baseline_tests.get((run.result.seed, _split_digest(run)))
            if baseline_test is not None:
                differences.append(run.test - baseline_test)
        if differences and row is not baseline:
            row["pairs"] = len(differences)
            row["to_baseline"] = statistics.fmean(differences)
    return Table(rows, groups, against or "the best", answer_rows)


def _answer_rows(first: Row, groups: Sequence[Sequence[Run]]) -> list[Row]:
    """Return a row for each reference answer: its mean over the splits of the runs."""
    references_by_split: dict[str, References] = {}
    for run in itertools.chain(*groups):
        if run.result.references:
            references_by_split.setdefault(_split_digest(run), {}).update(run.result.references)
    rows = []
    for name, reference in mean_references([*references_by_split.values()]).items():
        if reference.test is None:
            continue
        same_data = ("dataset", "share", "metric", "build", "split", "split_digest")
        tests = [references[name].test for references in references_by_split.values()]
        known = [test for test in tests if test is not None]
        rows.append(
            dict.fromkeys(first)
            | {column: first[column] for column in same_data}
            | {"model": short_title(name), "variant": REFERENCE, "runs": len(known)}
            | {"test": reference.test, "test_std": sample_std(known), "edited": False}
        )
    return rows


def _summarise_runs(runs: Sequence[Run]) -> Row:
    run = runs[0]
    first = run.result
    tests = [run.test for run in runs]
    mean = statistics.fmean(tests)
    hours = statistics.fmean(run.result.seconds.total for run in runs) / 3600
    memory = [run.result.memory.device or run.result.memory.host for run in runs]
    share = coverage_suffix(first.sample, first.complete).strip(" ()")
    if first.complete and not share:
        share = "all"

    # The seeds of a row may have different devices and versions.
    def join_distinct(value: Callable[[Run], str]) -> str:
        return ", ".join(dict.fromkeys(map(value, runs)))

    paper = run.paper
    return {
        "dataset": first.dataset,
        "share": share,
        "model": first.model,
        "preset": first.preset,
        "variant": first.variant,
        "changes": "; ".join(run.changes),
        "metric": first.metric,
        "runs": len(runs),
        "seeds": " ".join(str(run.result.seed) for run in runs),
        "test": mean,
        "test_std": sample_std(tests),
        "test_error": _standard_error(runs),
        "edited": any(run.edited for run in runs),
        "rank": None,
        **_comparison_columns(run, mean),
        "to_baseline": None,
        "pairs": None,
        "hours": hours,
        "paper_source": paper and paper.source,
        "paper_hours": paper and paper.hours,
        "paper_hardware": paper and paper.hardware,
        "device": join_distinct(lambda run: run.result.device),
        "memory": max(memory),
        "parameters": first.num_parameters,
        "version": join_distinct(lambda run: run.result.versions.get("kmip-data", "")),
        "build": first.build_key,
        "split": join_distinct(lambda run: run.result.split.name),
        "split_digest": join_distinct(_split_digest),
        "folders": " ".join(str(run.folder) for run in runs),
    }


def _standard_error(runs: Sequence[Run]) -> float | None:
    """Return the standard error of a mean over runs, or of one run over its test items, if known."""
    if len(runs) == 1:
        return runs[0].result.standard_errors.get(runs[0].result.metric)
    return statistics.stdev(run.test for run in runs) / math.sqrt(len(runs))


def _comparison_columns(run: Run, mean: float) -> Row:
    """Return the columns with the result of the paper."""
    paper = run.paper
    scale = 0.01 if is_percent(run.result.metric) else 1  # the paper states percent
    paper_mean = None
    deviation = None
    if paper is not None:
        paper_mean = scale * paper.mean
        deviation = paper.std and scale * paper.std
    return {
        "paper": paper_mean,
        "paper_std": deviation,
        "paper_runs": paper and paper.runs,
        "to_paper": mean - paper_mean
        if paper_mean is not None and run.has_paper_settings
        else None,
    }


def _split_digest(run: Run) -> str:
    return json_digest(run.result.split.digests)[:12]
