"""Finished runs, read without trust, and grouped into tables.

A row is the seeds of one configuration, a table has rows on the same data. Rows that differ in k alone are
curves, next to those of the paper's experiment on the influence of k.
"""

from __future__ import annotations

import contextlib
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmip_data.errors import DamagedInput, KmipDataError, UsageError
from kmip_data.files.reading import json_digest
from kmip_data.format.card import remark
from kmip_data.manifest import dataset_names, load_manifest, read_shipped, unknown_name
from kmip_data.models.reports.ours import entry_for, row_of_result
from kmip_data.models.sweeps.cells import digest
from kmip_data.models.training.config.keys import RunConfig, SystemConfig
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.config.presets import load_preset, read_preset
from kmip_data.models.training.config.published import PaperResult
from kmip_data.models.training.metrics import all_metrics, is_share
from kmip_data.models.training.run.folder import RESULT_NAME, RunResult, read_result
from kmip_data.pipelines.find import record_parameters
from kmip_data.wording import natural

if TYPE_CHECKING:
    from kmip_data.models.training.run.evaluate import OpenedRun

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
    runs = []
    notices = []
    for folder in folders:
        try:
            runs.append(_read(folder))
        except KmipDataError as error:
            why = " ".join(f"{error.what} {error.parts['found'] or ''}".split())
            notices.append(f"{folder} is left out: {why.replace(f'{folder}/', '')}")
    return runs, notices


def _read(folder: Path) -> Run:
    result = read_result(folder)
    value = result.metrics.get("test", {}).get(result.metric)
    if value is None or abs(value) > MOST or abs(result.seconds.total) > MOST:
        raise DamagedInput(f"It has no {result.metric} on test.")
    config = config_from_mapping(result.config, RESULT_NAME)
    paper = None
    own = {"data": {"dataset": result.dataset}, "model": {"name": result.model}}
    base = config_from_mapping(own, "the defaults")
    with contextlib.suppress(UsageError):  # a preset of another version, or of somebody else
        dataset, _, model = config.preset.partition("/")
        base = load_preset(dataset, model, config.variant)
        preset = read_preset(dataset, model)
        same = (dataset, model) == (
            result.dataset,
            result.model,
        ) and config.variant not in preset.ours
        if same and result.complete and not result.sample and preset.paper:
            paper = preset.paper if preset.paper.metric == result.metric else None
    changes = tuple(_changes(config, base, result))
    exact = paper is not None and not changes and config.variant in {preset.default, "text"}
    return Run(folder, result, config, changes, paper, exact)


def _changes(config: RunConfig, base: RunConfig, result: RunResult) -> Iterator[str]:
    """Yield the differences from ``base``, except for keys that were filled in from the data."""
    usual = dict(_flat(base.model_dump()))
    found = dict(_flat(config.model_dump()))
    if config.plugins:
        found["plugins"] = ", ".join(
            f"{plugin.name} {plugin.sha256[:8]}" for plugin in config.plugins
        )
    if free := base.model.parameter_budget:
        width = found.pop("model.hidden_dim")
        count = result.num_parameters
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
        values = found.get(key), usual.get(key)
        if values[0] != values[1] and not _APART.fullmatch(key):
            yield "{}={} ({})".format(
                key, *("none" if value is None else value for value in values)
            )


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


Row = dict[str, Any]  #: keys as in docs/reports.md; shares, not percent
OVER_K = ("test", "test_std", "seconds", "seconds_std")  #: compared with the paper's


@dataclass(frozen=True)
class Table:
    """Comparable rows: one metric, one build, one split."""

    rows: Sequence[Row]
    runs: Sequence[Sequence[Run]]  #: runs of each row, by seed
    reference: str  #: what differences refer to; empty for a single row


def tables_of(runs: Sequence[Run], against: str | None = None) -> tuple[list[Table], list[str]]:
    """Return the tables of ``runs``, and a notice for each run that was left out.

    Differences refer to the best row of model ``against``, or of all, seed by seed. Raises ``UsageError`` if
    no run is of that model.
    """
    models = sorted({run.result.model for run in runs})
    if against is not None and against not in models:
        command = "kmip-data report --against MODEL"
        raise unknown_name("model among the runs", against, models, command=command)
    groups: dict[str, dict[str, dict[int, Run]]] = {}
    notices = []
    for run in sorted(runs, key=_order):
        same = groups.setdefault(_data(run), {}).setdefault(configuration_of(run), {})
        if other := same.get(run.result.seed):
            notices.append(
                f"{other.folder} is left out: {run.folder} has its configuration and seed, too."
            )
        same[run.result.seed] = run
    tables = [
        [[of[seed] for seed in sorted(of)] for of in rows.values()] for rows in groups.values()
    ]
    return [_table(rows, against) for rows in tables], notices


def _order(run: Run) -> tuple[Any, ...]:
    """Return the key that sorts runs: by dataset, model and changes, k = 3 before k = 10."""
    return run.result.dataset, run.result.model, [natural(change) for change in run.changes]


def _data(run: Run) -> str:
    """Return the digest of what the runs of a table have in common."""
    result = run.result
    split = run.result.split
    # If each seed draws its own split: how it is drawn.
    drawn = [split.rule, {**split.parameters, "split_seed": None}]
    own = drawn if run.config.data.split_seed_follows_run else split.digests
    return json_digest(
        [result.dataset, result.sample, result.complete, result.build_key, result.metric, own]
    )


def configuration_of(run: Run | OpenedRun) -> str:
    """Return the digest of a run's configuration without seed and machine; data have their own."""
    config = run.config.with_seed(0)
    several = {name: getattr(config.system, name) for name in ("devices", "nodes")}
    data = config.data.model_copy(update={"dataset": run.result.dataset})
    return digest(config.model_copy(update={"data": data, "system": SystemConfig(**several)}))


def _table(groups: Sequence[Sequence[Run]], against: str | None) -> Table:
    rows = [_row(runs) for runs in groups]
    if len(rows) == 1:
        return Table(rows, groups, "")
    higher = all_metrics()[rows[0]["metric"]].better == "higher"
    ranked = sorted(zip(rows, groups, strict=True), key=lambda one: one[0]["test"], reverse=higher)
    for place, (row, _) in enumerate(ranked[:2], start=1):
        row["place"] = place
    named = [one for one in ranked if against in {None, one[0]["model"]}]
    for row, runs in zip(rows, groups, strict=True):
        if named and row is not named[0][0]:
            theirs = {(run.result.seed, _digest(run)): run.test for run in named[0][1]}
            both = [(run.test, theirs.get((run.result.seed, _digest(run)))) for run in runs]
            if pairs := [ours - their for ours, their in both if their is not None]:
                row |= {"pairs": len(pairs), "to_reference": statistics.fmean(pairs)}
    return Table(rows, groups, (against or "the best") if named else "")


def _row(runs: Sequence[Run]) -> Row:
    run = runs[0]
    first = runs[0].result
    tests = [run.test for run in runs]
    scale = 0.01 if is_share(first.metric) else 1
    paper = run.paper
    board = entry_for(first.dataset, first.model, first.metric)
    std = None if paper is None or paper.std is None else scale * paper.std

    def each(of: Callable[[Run], str]) -> str:
        return ", ".join(dict.fromkeys(map(of, runs)))

    same = all(change.startswith("training.epochs=") for change in run.changes)
    ours = row_of_result(first) if same else None
    return {
        "dataset": first.dataset,
        "share": remark(first.sample, first.complete).strip(" ()")
        or ("all" if first.complete else ""),
        **{name: getattr(first, name) for name in ("model", "preset", "variant")},
        "changes": "; ".join(run.changes),
        "metric": first.metric,
        "runs": len(runs),
        "seeds": " ".join(str(run.result.seed) for run in runs),
        "test": statistics.fmean(tests),
        "test_std": statistics.pstdev(tests),
        "place": None,
        "paper": paper and scale * paper.mean,
        "paper_std": std,
        "paper_runs": paper and paper.runs,
        "leaderboard": board and board.mean,
        "leaderboard_std": board and board.std,
        "leaderboard_entry": board and board.name,
        "leaderboard_source": board and board.source,
        "ours": ours and ours.mean,
        "ours_std": ours and ours.std,
        "ours_runs": ours and len(ours.seeds),
        "to_paper": statistics.fmean(tests) - scale * paper.mean if paper and run.exact else None,
        "to_reference": None,
        "pairs": None,
        "hours": statistics.fmean(run.result.seconds.total for run in runs) / 3600,
        "paper_source": paper and paper.source,
        "paper_hours": paper and paper.hours,
        "paper_hardware": paper and paper.hardware,
        "device": each(lambda run: run.result.device),
        "memory": max(run.result.memory.device or run.result.memory.host for run in runs),
        "parameters": first.num_parameters,
        "version": each(lambda run: run.result.versions.get("kmip-data", "")),
        "build": first.build_key,
        "split": each(lambda run: run.result.split.name),
        "split_digest": each(_digest),
        "folders": " ".join(str(run.folder) for run in runs),
    }


def _digest(run: Run) -> str:
    return json_digest(run.result.split.digests)[:12]


def published_over_k(dataset: str, metric: str) -> list[Row]:
    """Return the paper's rows: ``k``, :data:`OVER_K` and ``runs``; none for other datasets."""
    paper = read_shipped("results", "influence-of-k")
    for curve in paper["dataset"]:
        if (curve["name"], curve["metric"]) == (dataset, metric):
            tests = (
                [value / 100 for value in curve[name]] for name in ("mean", "std")
            )  # all are shares
            columns = zip(paper["k"], *tests, curve["seconds"], curve["seconds_std"], strict=True)
            names = ("k", *OVER_K)
            return [
                dict(zip(names, each, strict=True)) | {"runs": paper["runs"]} for each in columns
            ]
    return []


def rows_over_k(table: Table) -> tuple[list[Row], list[Row]]:
    """Return the rows that differ in k alone, with the paper's figures, and all rows of the paper.

    ``curve`` names the curve of a row, by model and shared changes; ``seconds`` and ``seconds_std`` are of a
    training epoch. The paper's figures, ``paper_…``, are only given for complete published data.
    """
    first = table.rows[0]
    share = f" ({first['share']})" if first["share"] not in {"", "all"} else ""
    paper = [] if share else published_over_k(first["dataset"], first["metric"])
    published = {row["k"]: row for row in paper}
    curves: dict[str, list[Row]] = {}
    for row, runs in zip(table.rows, table.runs, strict=True):
        k = getattr(runs[0].config.model.attention, "k", None)
        if not isinstance(k, int):  # no k, or one a layer
            continue
        variant = [] if row["variant"] == "code" else [f"({row['variant']})"]
        others = [
            change for change in runs[0].changes if not change.startswith("model.attention.k=")
        ]
        name = " ".join([f"{row['dataset']}{share},", row["model"], *variant, *others])
        columns = ("dataset", "metric", "runs", "seeds", "device", "test", "test_std")
        of_k = {"curve": name, "k": k, **{column: row[column] for column in columns}}
        seconds = [run.result.seconds.train_epoch for run in runs]
        of_k |= {"seconds": statistics.fmean(seconds), "seconds_std": statistics.pstdev(seconds)}
        of_k |= {
            f"paper_{column}": published.get(k, {}).get(column) for column in ("runs", *OVER_K)
        }
        curves.setdefault(name, []).append(of_k)
    of_several = (
        sorted(rows, key=lambda row: row["k"]) for rows in curves.values() if len(rows) > 1
    )
    return [*chain(*of_several)], [
        {"curve": f"{first['dataset']}, the paper's", **row} for row in paper
    ]
