"""Figures of the paper's tables, by dataset and model."""

from __future__ import annotations

import functools
from typing import Any

from pydantic import Field

from kmip_data.manifest import Strict, read_shipped

EMPTY = ("OOM", "–")  #: cells without a figure: out of memory, not run
_PRESET_K = 10  #: k of the presets whose figure stands in the table of the influence of k


class PaperResult(Strict):
    """The result that the paper reports. Never one of ours."""

    metric: str
    mean: float = Field(description="in percent")
    std: float | None = None
    runs: int
    hours: float | None = None
    hardware: str = ""
    source: str


class PaperTable(Strict):
    """One table of ``manifests/results/tables.toml``: models by datasets, as printed."""

    plan: str = Field(description="sweep that repeats the table")
    source: str
    runs: int = Field(description="runs of a figure with a deviation")
    datasets: tuple[str, ...]
    metrics: tuple[str, ...] = Field(description="of each dataset")
    hardware: tuple[str, ...] = Field(description="of each dataset")
    hardware_on: dict[str, str] = Field(default={}, description="exceptions, by dataset/model")
    results: dict[str, tuple[str, ...]] = Field(description="model -> mean ± deviation, or EMPTY")
    hours: dict[str, tuple[str, ...]] = Field(description="model -> hours of one run")
    taken_from: dict[str, str] = Field(default={}, description="model -> whose figures they are")

    def printed(self, dataset: str, model: str) -> str:
        """Return a cell as the paper prints it; empty if the table does not have it."""
        if dataset not in self.datasets or model not in self.results:
            return ""
        return self.results[model][self.datasets.index(dataset)]

    def result(self, dataset: str, model: str) -> PaperResult | None:
        """Return a cell's figure; None if the table does not have it or leaves it empty."""
        printed = self.printed(dataset, model)
        if printed in {"", *EMPTY}:
            return None
        column = self.datasets.index(dataset)
        mean, _, std = printed.partition(" ± ")

        hardware = self.hardware_on.get(f"{dataset}/{model}", self.hardware[column])
        source = self.source
        if model in self.taken_from:  # nobody says where those ran
            hardware = ""
            source += f", which takes it from {self.taken_from[model]}"

        hours = None
        if model in self.hours and self.hours[model][column] not in EMPTY:
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


def published(dataset: str, model: str) -> PaperResult | None:
    """Return the paper's figure for a model on a dataset; None where it has none.

    A dataset that only the table of the influence of k has enters it at its preset's k, 10.
    """
    for table in paper_tables():
        if result := table.result(dataset, model):
            return result
    return published_at_k(dataset, "code", _PRESET_K) if model == "gps-kmip" else None


def published_at_k(dataset: str, variant: str, k: int) -> PaperResult | None:
    """Return the figure of the paper's experiment on the influence of k; None where it has none.

    ``variant`` is that of the preset of GPS + k-MIP that the experiment took on the dataset.
    """
    table = _over_k()
    for curve in table["dataset"]:
        if (curve["name"], curve["variant"]) == (dataset, variant) and k in table["k"]:
            row = table["k"].index(k)
            return PaperResult(
                metric=curve["metric"],
                mean=curve["mean"][row],
                std=curve["std"][row],
                runs=table["runs"],
                hardware=table["hardware"],
                source=f"paper, table of the influence of k, row k = {k}",
            )
    return None


@functools.cache
def _over_k() -> dict[str, Any]:
    return read_shipped("results", "influence-of-k")
