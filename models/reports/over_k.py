"""The rows of a table in which k alone differs, and the paper's experiment on the influence of k."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from kmip_data.models.reports.tables import Row, Table

K = "model.attention.k="  #: how a change of k begins
AMONG = ("test", "test_std", "seconds", "seconds_std")  #: what is set beside the paper's


def curves_over_k(table: Table) -> dict[str, dict[int, Row]]:
    """Return the rows that differ in k alone, by k, under the model and the changes that they share.

    Each has ``seconds`` and ``seconds_std``, of a training epoch over its seeds, too.
    """
    found: dict[str, dict[int, Row]] = {}
    for row, runs in zip(table.rows, table.runs, strict=True):
        k = getattr(runs[0].config.model.attention, "k", None)
        if not isinstance(k, int):  # no k, or one a layer
            continue
        others = [change for change in runs[0].changes if not change.startswith(K)]
        variant = [] if row["variant"] == "code" else [f"({row['variant']})"]
        seconds = [run.result.seconds.train_epoch for run in runs]
        spent = {"seconds": statistics.fmean(seconds), "seconds_std": statistics.pstdev(seconds)}
        found.setdefault(" ".join([row["model"], *variant, *others]), {})[k] = {**row, **spent}
    return {name: {k: rows[k] for k in sorted(rows)} for name, rows in found.items()}


def published_over_k(dataset: str, metric: str) -> dict[int, Row]:
    """Return what the paper measured for each k: ``test`` and ``seconds`` with their deviations, as above.

    Empty where its experiment was not on this dataset, or in another metric.
    """
    file = resources.files("kmip_data.manifests.results") / "influence_of_k.toml"
    paper = tomllib.loads(file.read_text("utf-8"))
    for curve in paper["curve"]:
        if (curve["dataset"], curve["metric"]) == (dataset, metric):
            tests = [[value / 100 for value in curve[name]] for name in ("mean", "std")]  # all are shares
            columns = zip(*tests, curve["seconds"], curve["seconds_std"], strict=True)
            about = {"runs": paper["runs"], "device": paper["machine"], "metric": metric}
            each = zip(paper["k"], columns, strict=True)
            return {k: {**about, **dict(zip(AMONG, values, strict=True))} for k, values in each}
    return {}


def frontier(rows: Sequence[Row], *, higher: bool) -> list[Row]:
    """Return the rows that no other beats in both the metric and the seconds, the fastest first."""
    found: list[Row] = []
    for row in sorted(rows, key=lambda row: (row["seconds"], -row["test"] if higher else row["test"])):
        if not found or (row["test"] > found[-1]["test"] if higher else row["test"] < found[-1]["test"]):
            found.append(row)
    return found


def beside(rows: dict[int, Row], paper: dict[int, Row]) -> list[dict[str, Any]]:
    """Return ours and the paper's, ``paper_…``, for each k that we have."""
    ours = ("dataset", "share", "model", "variant", "changes", "metric", "runs", "seeds", "device", *AMONG)
    return [
        {"k": k}
        | {name: row[name] for name in ours}
        | {f"paper_{name}": paper.get(k, {}).get(name) for name in ("runs", *AMONG)}
        for k, row in rows.items()
    ]
