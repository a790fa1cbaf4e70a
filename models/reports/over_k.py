"""Rows of a table that differ in k alone, and the paper's experiment on the influence of k."""

from __future__ import annotations

import statistics

from kmip_data.manifest import read_shipped
from kmip_data.models.reports.runs import K
from kmip_data.models.reports.tables import Row, Table

AMONG = ("test", "test_std", "seconds", "seconds_std")  #: compared with the paper's


def curves_over_k(table: Table) -> dict[str, dict[int, Row]]:
    """Return the rows that differ in k alone: name of model and shared changes -> k -> row.

    Each row also has ``seconds`` and ``seconds_std`` of a training epoch, over its seeds.
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


def published_over_k(dataset: str, metric: str) -> list[Row]:
    """Return the paper's rows: ``k``, :data:`AMONG` and ``runs``; none for other datasets."""
    paper = read_shipped("results", "influence-of-k")
    for curve in paper["dataset"]:
        if (curve["name"], curve["metric"]) == (dataset, metric):
            tests = ([value / 100 for value in curve[name]] for name in ("mean", "std"))  # all are shares
            columns = zip(paper["k"], *tests, curve["seconds"], curve["seconds_std"], strict=True)
            return [dict(zip(("k", *AMONG), each, strict=True)) | {"runs": paper["runs"]} for each in columns]
    return []


def rows_over_k(table: Table) -> tuple[list[Row], list[Row]]:
    """Return the rows of curves with several k, with the paper's figures, and all rows of the paper.

    ``curve`` names the curve of a row. The paper's figures, ``paper_…``, are only given for complete
    published data.
    """
    first = table.rows[0]
    share = f" ({first['share']})" if first["share"] not in {"", "all"} else ""
    paper = [] if share else published_over_k(first["dataset"], first["metric"])
    published = {row["k"]: {f"paper_{name}": row[name] for name in ("runs", *AMONG)} for row in paper}
    none = dict.fromkeys(f"paper_{name}" for name in ("runs", *AMONG))
    ours = [
        {"curve": f"{row['dataset']}{share}, {name}", "k": k}
        | {column: row[column] for column in ("dataset", "metric", "runs", "seeds", "device", *AMONG)}
        | published.get(k, none)
        for name, of in curves_over_k(table).items()
        for k, row in of.items()
        if len(of) > 1
    ]
    return ours, [{"curve": f"{first['dataset']}, the paper's", **row} for row in paper]
