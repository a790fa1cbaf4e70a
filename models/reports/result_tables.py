"""Finished runs, read as untrusted data, and grouped into tables.

A row has the seeds of one configuration, a table the rows on the same data. Rows that differ in k
alone form curves, next to the curves of the paper's experiment on the influence of k.
"""

from __future__ import annotations

import contextlib
import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmip_data.errors import DamagedInput, KmipDataError, UsageError, unknown_name_error
from kmip_data.files.reading import json_digest
from kmip_data.format.card import coverage_suffix
from kmip_data.graphs.molecule_fields import ATOM_FIELDS
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.models.config import dotted_keys
from kmip_data.models.reports.shipped_results import find_shipped_result, leaderboard_entry
from kmip_data.models.sweeps.cells import changed_keys_digest
from kmip_data.models.training.config.keys import RunConfig, SystemConfig, is_compared
from kmip_data.models.training.config.overrides import config_from_mapping, with_epochs
from kmip_data.models.training.config.presets import (
    PaperResult,
    experiment_on_k,
    load_preset,
    read_preset,
)
from kmip_data.models.training.metrics import all_metrics, is_percent
from kmip_data.models.training.run.result import RunResult, is_edited, read_result, sample_std
from kmip_data.models.training.run.run_folder import MAX_METRIC, RESULT_NAME
from kmip_data.pipelines.find import parameters_on_card
from kmip_data.text import natural_sort_key

if TYPE_CHECKING:
    from kmip_data.models.training.run.evaluate import OpenedRun


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, configuration and result."""

    folder: Path
    result: RunResult
    config: RunConfig
    changes: tuple[str, ...]  #: ``key=value (value of the preset, or else the default)``
    paper: PaperResult | None  #: paper's result for its preset; None on other data
    exact: bool  #: True if that result belongs to this configuration, of code or text
    edited: bool  #: True if ``result.json`` was edited after it was written

    @property
    def test(self) -> float:
        """The metric that chose the epoch, on test."""
        return self.result.metrics["test"][self.result.metric]


def read_finished_runs(folders: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Return the finished runs in ``folders``, and a notice for each edited or omitted one."""
    runs = []
    notices = []
    for folder in folders:
        try:
            run = _read_run(folder)
            runs.append(run)
            if run.edited:
                notices.append(f"{folder / RESULT_NAME} was edited after it was written.")
        except KmipDataError as error:
            # On one line, naming the folder once.
            why = " ".join(f"{error.message} {error.found or ''}".split())
            why = why.replace(f"{folder}/", "")
            notices.append(f"{folder} is left out: {why}")
    return runs, notices


def _read_run(folder: Path) -> Run:
    """Read a finished run; raise KmipDataError if its files or results are damaged."""
    # 1. A metric that can be summed over seeds.
    result = read_result(folder)
    value = result.metrics.get("test", {}).get(result.metric)
    if value is None or abs(value) > MAX_METRIC or abs(result.seconds.total) > MAX_METRIC:
        raise DamagedInput(f"It has no {result.metric} on test.")

    # 2. Base of the changes: the preset of the run, or else the defaults.
    config = config_from_mapping(result.config, RESULT_NAME)
    paper = None
    defaults = {"data": {"dataset": result.dataset}, "model": {"name": result.model}}
    base = config_from_mapping(defaults, "the defaults")
    exact = False
    with contextlib.suppress(UsageError):  # unknown preset, of another version or installation
        dataset, _, model = config.preset.partition("/")
        base = load_preset(dataset, model, config.variant)
        preset = read_preset(dataset, model)
        exact = config.variant in {preset.default, "text"}

        # 3. The paper's result applies to the complete data and the metric of the preset.
        same = config.preset == f"{result.dataset}/{result.model}"
        complete = result.complete and not result.sample
        published = preset.paper
        if same and complete and published and config.variant not in preset.ours:
            paper = published if published.metric == result.metric else None

    # 4. It belongs to this configuration if nothing differs from the published variant.
    changes = tuple(_changed_settings(config, base, result))
    exact = exact and paper is not None and not changes
    return Run(folder, result, config, changes, paper, exact, is_edited(folder))


def _changed_settings(config: RunConfig, base: RunConfig, result: RunResult) -> Iterator[str]:
    """Yield the settings that differ from ``base``, except keys filled in from the data."""
    usual = dict(dotted_keys(base.model_dump()))
    chosen = dict(dotted_keys(config.model_dump()))
    # A warm-up shortened to fit a shorter run is not a choice.
    shorter = with_epochs(base, config.training.epochs).schedule.warmup_epochs
    if config.schedule.warmup_epochs == shorter:
        usual["schedule.warmup_epochs"] = shorter
    if config.plugins:
        # Another plugin of the same name is a change, detected by its digest.
        plugins = [f"{plugin.name} {plugin.sha256[:8]}" for plugin in config.plugins]
        chosen["plugins"] = ", ".join(plugins)

    budget = base.model.parameter_budget
    if budget:
        chosen["model.parameter_budget"] = budget
        width = config.model.hidden_dim
        count = result.num_parameters
        # Parameters grow at most quadratically with the width: one more step exceeds the budget.
        step = math.lcm(config.model.attention.dim_multiple, config.model.local.dim_multiple)
        if count <= budget < count * ((width + step) / width) ** 2:
            del usual["model.hidden_dim"], chosen["model.hidden_dim"]
    for key in ("model.head", "training.loss", "training.metric"):
        if not usual[key]:  # filled in by the task
            chosen[key] = None

    if result.dataset in dataset_names():
        # Skip parameters that this version does not know.
        with contextlib.suppress(UsageError):
            usual |= parameters_on_card(result.dataset, base.data.parameters)
            chosen |= result.build_parameters
        # If the split follows the run, each seed has its published split.
        ending = r"-seed\d+$" if config.data.split_seed_follows_run else r"$^"
        name = result.split.name
        splits = load_manifest(result.dataset).expected.splits
        alike = {re.sub(ending, "", published) for published in splits}
        chosen["split"] = name
        usual["split"] = name
        if splits and re.sub(ending, "", name) not in alike:
            usual["split"] = ", ".join(splits)

    # Encoders of atoms and bonds are filled in where the columns are their indices.
    if not config.preset and result.columns == ATOM_FIELDS:
        usual["model.node_encoder"] = "atom"
        if chosen["model.edge_encoder"] == "bond":
            usual["model.edge_encoder"] = "bond"

    # Compare both ways: a key may belong to one kind of attention alone, which the kind says.
    for key in {**usual, **chosen}:
        value = chosen.get(key)
        before = usual.get(key)
        kind = f"{key.rpartition('.')[0]}.kind"
        if not (key in usual and key in chosen) and chosen.get(kind) != usual.get(kind):
            continue
        if value != before and is_compared(key):
            yield f"{key}={_format_setting(value)} instead of {_format_setting(before)}"


def _format_setting(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


Row = dict[str, Any]  #: keys as in docs/reports.md; shares, not percent
K_COLUMNS = ("test", "test_std", "seconds", "seconds_std")  #: compared with the paper's


@dataclass(frozen=True)
class Table:
    """Comparable rows: one metric, one build, one split."""

    rows: Sequence[Row]
    runs: Sequence[Sequence[Run]]  #: runs of each row, by seed
    reference: str  #: reference of the differences; empty for a single row


def tables_of_runs(
    runs: Sequence[Run], against: str | None = None
) -> tuple[list[Table], list[str]]:
    """Return the tables of ``runs``, and a notice for each omitted run.

    Differences are taken seed by seed from the best row of model ``against``, or of all. Raises
    ``UsageError`` if there is no run of that model.
    """
    models = sorted({run.result.model for run in runs})
    if against is not None and against not in models:
        raise unknown_name_error(
            "model", against, models, command=f"--against {models[0]}", where="among the runs"
        )
    # Table -> row -> fold and seed -> run.
    groups: dict[str, dict[str, dict[tuple[int, int], Run]]] = {}
    notices = []
    for run in sorted(runs, key=_sort_key):
        by_seed = groups.setdefault(_data_digest(run), {}).setdefault(configuration_digest(run), {})
        number = (_fold_of_run(run) or 0, run.result.seed)
        other = by_seed.get(number)
        if other is not None:
            notices.append(
                f"{other.folder} is left out: {run.folder} has the same configuration and seed."
            )
        by_seed[number] = run

    tables = []
    for rows in groups.values():
        # Seeds and folders of a row are listed in the order of seeds.
        in_order = [[by_seed[number] for number in sorted(by_seed)] for by_seed in rows.values()]
        tables.append(_compare_rows(in_order, against))
    return tables, notices


def _fold_of_run(run: Run) -> int | None:
    """Return the index of a run's published split, if there are several."""
    fold: int | None = run.result.split.parameters.get("fold")
    return fold


def _sort_key(run: Run) -> tuple[object, ...]:
    """Return the key that sorts runs: by dataset, model and changes, k = 3 before k = 10."""
    return (
        run.result.dataset,
        run.result.model,
        [natural_sort_key(change) for change in run.changes],
    )


def _data_digest(run: Run) -> str:
    """Return the digest of the data shared by the runs of a table."""
    result = run.result
    split: object = result.split.digests
    if run.config.data.split_seed_follows_run:  # rule by which each seed draws its own split
        split = [result.split.rule, {**result.split.parameters, "split_seed": None}]
    if _fold_of_run(run) is not None:  # folds are one row, as papers average over them
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
    """Return the digest of a run's configuration without seed, machine and data."""
    config = run.config.with_seed(0)
    # Only the numbers of devices and nodes of the machine matter.
    system = SystemConfig(devices=config.system.devices, nodes=config.system.nodes)
    split = {key: value for key, value in config.data.split.items() if key != "fold"}
    data = config.data.model_copy(update={"dataset": run.result.dataset, "split": split})
    return changed_keys_digest(config.model_copy(update={"data": data, "system": system}))


def _compare_rows(groups: Sequence[Sequence[Run]], against: str | None) -> Table:
    rows = [_summarise_runs(runs) for runs in groups]
    if len(rows) == 1:
        return Table(rows, groups, "")

    # 1. Mark the best and the second row.
    higher = all_metrics()[rows[0]["metric"]].higher_is_better
    both = zip(rows, groups, strict=True)
    ranked = sorted(both, key=lambda ranked: float(ranked[0]["test"]), reverse=higher)
    for number, (row, _) in enumerate(ranked[:2], start=1):
        row["rank"] = number

    # 2. Reference row: the best of the named model, or of all.
    named = [(row, runs) for row, runs in ranked if against in {None, row["model"]}]
    if not named:
        return Table(rows, groups, "")
    reference, reference_runs = named[0]
    theirs = {(run.result.seed, _split_digest(run)): run.test for run in reference_runs}

    for row, runs in zip(rows, groups, strict=True):
        # 3. Pairs: seeds that both rows have, on the same split.
        differences = []
        for run in runs:
            their = theirs.get((run.result.seed, _split_digest(run)))
            if their is not None:
                differences.append(run.test - their)
        if differences and row is not reference:
            row["pairs"] = len(differences)
            row["to_reference"] = statistics.fmean(differences)
    return Table(rows, groups, against or "the best")


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

    # Seeds of a row may have run on several devices and versions: list each once.
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
        "edited": any(run.edited for run in runs),
        "rank": None,
        **_published_columns(run, mean),
        "to_reference": None,
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


def _published_columns(run: Run, mean: float) -> Row:
    """Return the columns with results of the paper, of a leaderboard and of ours."""
    result = run.result
    paper = run.paper
    board = leaderboard_entry(result.dataset, result.model, result.metric)
    ours = None
    if all(change.startswith("training.epochs=") for change in run.changes):
        ours = find_shipped_result(result)
    scale = 0.01 if is_percent(result.metric) else 1  # the paper states percent
    published = None
    deviation = None
    if paper is not None:
        published = scale * paper.mean
        deviation = paper.std and scale * paper.std
    return {
        "paper": published,
        "paper_std": deviation,
        "paper_runs": paper and paper.runs,
        "leaderboard": board and board.mean,
        "leaderboard_std": board and board.std,
        "leaderboard_entry": board and board.name,
        "leaderboard_source": board and board.source,
        "ours": ours and ours.mean,
        "ours_std": ours and ours.std,
        "ours_runs": ours and len(ours.runs),
        "to_paper": mean - published if published is not None and run.exact else None,
    }


def _split_digest(run: Run) -> str:
    return json_digest(run.result.split.digests)[:12]


def published_over_k(dataset: str, metric: str) -> list[Row]:
    """Return the paper's rows: ``k``, :data:`K_COLUMNS` and ``runs``; none for other datasets."""
    paper = experiment_on_k()
    rows = []
    for row in paper["row"]:
        if (row["dataset"], row["metric"]) == (dataset, metric):
            shares = {name: row[name] / 100 for name in ("test", "test_std")}  # all are shares
            rows.append({**row, **shares, "runs": paper["runs"]})
    return rows


def rows_over_k(table: Table) -> tuple[list[Row], list[Row]]:
    """Return the rows that differ in k alone with the paper's results, and all rows of the paper.

    ``curve`` names the curve of a row, by model and shared changes; ``seconds`` and ``seconds_std``
    are of a training epoch. The paper's results, ``paper_…``, are present only for complete
    published data.
    """
    first = table.rows[0]
    share = ""
    paper = []
    if first["share"] in {"", "all"}:
        paper = published_over_k(first["dataset"], first["metric"])
    else:
        share = f" ({first['share']})"
    published = {row["k"]: row for row in paper}
    curves: dict[str, list[Row]] = {}
    for row, runs in zip(table.rows, table.runs, strict=True):
        k = getattr(runs[0].config.model.attention, "k", None)
        if not isinstance(k, int):  # no k, or one per layer
            continue
        words = [f"{row['dataset']}{share},", row["model"]]
        if row["variant"] != "code":
            words.append(f"({row['variant']})")
        prefix = "model.attention.k="
        words += [change for change in runs[0].changes if not change.startswith(prefix)]
        name = " ".join(words)

        columns = ("dataset", "metric", "runs", "seeds", "device", "test", "test_std")
        seconds = [run.result.seconds.train_epoch for run in runs]
        row_of_k = {
            "curve": name,
            "k": k,
            **{column: row[column] for column in columns},
            "seconds": statistics.fmean(seconds),
            "seconds_std": sample_std(seconds),
        }
        their = published.get(k, {})
        for column in ("runs", *K_COLUMNS):
            row_of_k[f"paper_{column}"] = their.get(column)
        curves.setdefault(name, []).append(row_of_k)

    # A single k is not a curve.
    ours = []
    for rows in curves.values():
        if len(rows) > 1:
            ours += sorted(rows, key=itemgetter("k"))
    return ours, [{"curve": f"{first['dataset']}, the paper's", **row} for row in paper]
