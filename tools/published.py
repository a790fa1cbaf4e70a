"""Write published data: ``digests.toml`` of datasets, ``manifests/results/measured``, tables of docs.

``python tools/published.py digests HOME [DATASET…]`` writes the digests of the builds in a home;
``… results HOME NAME SWEEP-OR-RUN…`` writes the rows of finished runs as ``NAME.toml``, in a clean
checkout of the commit that trained them. ``make docs-tables`` writes the tables
of results.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from kmip_data.builds.home import Home, list_builds
from kmip_data.files.small_files import json_digest, sha256_file
from kmip_data.format.card import Card
from kmip_data.format.split_files import PARTS
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.models.reports.result_tables import Run, read_finished_runs, tables_of_runs
from kmip_data.models.reports.shipped_results import (
    ShippedResult,
    read_shipped_results,
)
from kmip_data.models.sweeps.runs_by_name import select_runs
from kmip_data.models.training.config.overrides import value_of_key
from kmip_data.models.training.config.presets import (
    load_preset,
    preset_owner,
)
from kmip_data.models.training.metric_text import format_metric, metric_title
from kmip_data.models.training.metrics import all_metrics, is_percent
from kmip_data.models.training.run.checkpoint import WEIGHTS_NAME
from kmip_data.models.training.run.result import RunResult
from kmip_data.models.training.run.run_folder import metrics_columns
from kmip_data.text import format_duration

NOTE = "Other work ran on the machine: seconds are too long."
MANIFESTS = Path(__file__).resolve().parents[1] / "manifests"


def write_digests(home: Home, names: Sequence[str] = ()) -> None:
    """Add the digests of the builds in a home, of all datasets or of ``names``, to each one's file.

    Builds of a user's own files, by a recipe or ``kmip_data.save``, are private and skipped.
    """
    import tomllib

    for build in list_builds(home):
        card = build.card
        if names and card.dataset not in names:
            continue
        if card.dataset not in dataset_names() or load_manifest(card.dataset).recipe:
            print(f"{card.key} of {card.dataset_label}: left out, not a registered dataset")  # noqa: T201
            continue
        file = MANIFESTS / "datasets" / card.manifest / "digests.toml"
        tables = tomllib.loads(file.read_text("utf-8")) if file.exists() else {}
        parameters = ", ".join(
            f"{name}={value}" for name, value in card.parameters.items() if value is not None
        )
        about = f"{card.dataset_label}, pipeline {card.pipeline_version}" + (
            f": {parameters}" if parameters else ""
        )
        tables[card.key] = {"about": about, **card.digests}
        file.write_text(
            tomli_w.dumps(dict(sorted(tables.items(), key=lambda item: item[1]["about"]))), "utf-8"
        )
        print(f"{card.key} of {card.dataset_label}: {file}")  # noqa: T201


def write_results(home: Home, name: str, names: list[str]) -> None:
    """Write the rows of finished runs as one file, with common values in one table."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout
    cards = {build.card.key: build.card for build in list_builds(home)}
    tables, _ = tables_of_runs(read_finished_runs(select_runs(names, home))[0])
    rows: list[dict[str, Any]] = []
    for runs in (runs for table in tables for runs in table.runs):
        first = runs[0].result
        has_folds = len({run.result.split.name for run in runs}) > 1
        fields = ("dataset", "model", "variant", "metric", "epochs", "hardware")
        rows.append(
            {
                "name": first.model,
                "build": first.build_key,
                **{name: getattr(first, name) for name in fields},
                "parameters": first.num_parameters,
                "nodes": nodes_of(cards[first.build_key]),
                "torch": first.versions["torch"],
                "commit": commit[:10],
                "set": settings_of(runs[0]),
                **planned_epochs(first),
                **run_table(runs, has_folds=has_folds),
            }
        )
    shared = {
        key: value
        for key, value in rows[0].items()
        if key not in {"name", "runs"} and all(row[key] == value for row in rows)
    }
    shared = {key: value for key, value in shared.items() if value != []}
    measured_rows = [
        {key: value for key, value in row.items() if key not in shared and value != []}
        for row in rows
    ]
    text = results_text(shared | {"note": NOTE}, measured_rows)
    (MANIFESTS / "results/measured" / f"{name}.toml").write_text(text, "utf-8")


def run_table(runs: list[Run], *, has_folds: bool) -> dict[str, list[Any]]:
    """Return the names of columns, and the values of each run; with folds if there are several."""
    lines = []
    for run in runs:
        result = run.result
        values = {
            "seed": result.seed,
            "split": json_digest(result.split.digests)[:12],
            "val": result.metrics["val"][result.metric],
            "test": result.metrics["test"][result.metric],
            "seconds": round(result.seconds.total, 1),
            "weights": sha256_file(run.folder / WEIGHTS_NAME)[0],
            **first_epochs(run.folder),
        }
        if has_folds:
            values["fold"] = result.split.parameters["fold"]
        lines.append(values)
    return {"columns": list(lines[0]), "runs": [list(values.values()) for values in lines]}


def results_text(common: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return rows as TOML, with one line per run."""
    tables = []
    for name, table in (("[common]", common), *(("[[row]]", row) for row in rows)):
        lines = [name]
        for key, value in table.items():
            # JSON strings, finite numbers and lists are valid TOML.
            text = json.dumps(value)
            if key == "runs":
                text = "\n".join(["[", *(f"    {json.dumps(run)}," for run in value), "]"])
            lines.append(f"{key} = {text}")
        tables.append("\n".join(lines))
    return "\n\n".join(tables) + "\n"


def nodes_of(card: Card) -> int:
    """Return the mean number of nodes of a graph."""
    return round(card.counts["nodes"] / card.counts["graphs"])


def first_epochs(run: Path, count: int = 2) -> dict[str, list[float]]:
    """Return loss and metrics of every part in the first epochs, by column of ``metrics.csv``."""
    return {
        name: [value for epoch, value in values if epoch <= count]
        for name, values in metrics_columns(run).items()
        if name.startswith(tuple(f"{part}_" for part in PARTS))
    }


def settings_of(run: Run) -> list[str]:
    """Return the ``--set`` values that the preset lacks: changed keys, and keys of a drawn split."""
    settings = []
    for change in run.changes:
        setting, _, _ = change.partition(" instead of ")
        # A change may name a key of a component that only the preset has.
        if value_of_key(run.config, setting.partition("=")[0]) is not None:
            settings.append(setting)
    for key, value in run.config.data.split.items():
        if key != "fold" and value != "upstream":
            settings.append(f"data.split.{key}={value}")
    return settings


def planned_epochs(result: RunResult) -> dict[str, int]:
    """Return the epochs of the schedule if the run stopped before its end."""
    planned = int(result.config["training"]["epochs"])
    return {"planned": planned} if planned > result.epochs else {}


def results_table(file: str) -> str:
    """Return the rows of one file as Markdown."""
    rows = [row for name, row in read_shipped_results().items() if name.startswith(f"{file}/")]
    unit = "[%]" if is_percent(rows[0].metric) else metric_title(rows[0].metric)
    lines = [
        f"|model|val {unit}|test {unit}|seeds|epochs|time per run|parameters|",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        seconds = format_duration(sum(row.seconds) / len(row.seconds))
        cells = [
            row.name,
            row.format_mean("val"),
            row.format_mean("test"),
            len(row.folds_or_seeds),
            str(row.epochs) if row.planned is None else f"{row.epochs} of {row.planned}",
            seconds,
            f"{row.parameters:,}",
        ]
        lines.append(f"|{'|'.join(map(str, cells))}|")
    return "\n".join(lines)


def published_table() -> str:
    """Return our results next to those of the source of their settings, as Markdown."""
    lines = [
        "|data|model|ours|published|difference|command|minutes|",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in read_shipped_results().items():
        if row.published is None:
            continue
        mean, std = row.published
        difference = f"{(row.mean - mean) / std:+.1f}".replace("-", "−")
        cells = [
            row.dataset,
            row.model,
            row.format_mean(),
            format_metric(row.metric, mean, std),
            difference,
            f"`train --reproduce {name}`",
            f"{sum(row.seconds) / 60:.0f}",
        ]
        lines.append(f"|{'|'.join(cells)}|")
    return "\n".join(lines)


def attention_table() -> str:
    """Return k-MIP next to full attention and no attention on all real data, as Markdown.

    Differences of means are in units of the root mean square of both standard deviations.
    """
    lines = [
        "|data|nodes of a graph|runs of each|k-MIP|full attention|none|k-MIP − full|k-MIP − none|",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = read_shipped_results()
    for name, kmip in rows.items():
        if kmip.nodes is None or kmip.name != "gps-kmip":
            continue
        file = name.partition("/")[0]
        others = [rows.get(f"{file}/{model}") for model in ("gps-transformer", "gps-none")]
        texts = [row.format_mean() if row else "–" for row in (kmip, *others)]
        counts = [str(len(row.folds_or_seeds)) for row in (kmip, *others) if row]
        runs = counts[0] if len(set(counts)) == 1 else ", ".join(counts)
        differences = [difference(kmip, row) if row else "–" for row in others]
        preset = preset_owner(kmip.dataset) or "city"  # for cities built from tensors
        preset_epochs = load_preset(preset, kmip.model, kmip.variant).training.epochs
        planned = max(kmip.schedule_epochs, preset_epochs)
        data = file if kmip.epochs == planned else f"{file}, {kmip.epochs} of {planned} epochs"
        lines.append(f"|{'|'.join([data, f'{kmip.nodes:,}', runs, *texts, *differences])}|")
    return "\n".join(lines)


def difference(first: ShippedResult, second: ShippedResult) -> str:
    """Return the difference of two means in standard deviations, positive if the first is better."""
    if first.std is None or second.std is None:
        return "–"
    deviation = math.sqrt((first.std**2 + second.std**2) / 2)
    sign = 1 if all_metrics()[first.metric].higher_is_better else -1
    text = f"{sign * (first.mean - second.mean) / deviation:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")


if __name__ == "__main__":
    action, folder, *rest = sys.argv[1:]
    if action == "digests":
        write_digests(Home(Path(folder)), rest)
    else:
        write_results(Home(Path(folder)), rest[0], rest[1:])
