"""What the paper's tables leave empty, and whether a step of it fits here, by the estimate of its memory."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from kmip_data.builds.home import Home
from kmip_data.errors import KmipDataError, OutOfResources
from kmip_data.models.reports.sheets import Sheet
from kmip_data.models.training.config.presets import config_for
from kmip_data.models.training.data.obtain import open_data
from kmip_data.models.training.memory.estimate import plan_memory
from kmip_data.models.training.memory.machine import choose_device


def empty_facts(home: Home) -> list[dict[str, Any]]:
    """Return a row for each cell: what the paper says, whether the preset fits here now, and by what.

    Nothing is built and nothing trained: of a dataset that is not built, or lacks a column that the model
    reads, it is unknown.
    """
    file = resources.files("kmip_data.manifests.results") / "empty.toml"
    device, rows = choose_device(), []
    for cell in tomllib.loads(file.read_text("utf-8"))["cell"]:
        for dataset in cell["datasets"]:
            row = {"dataset": dataset, "model": cell["model"], "paper": cell["paper"], "device": device.name}
            try:
                config = config_for(dataset, cell["model"])
                found = plan_memory(config, open_data(config, home=home, build=False), device)
                fits, why = "yes, layers recomputed" if found.recompute else "yes", str(found)
            except OutOfResources as error:
                fits, why = "no", f"{error.parts['expected']}; {error.parts['found']}"
            except KmipDataError as error:
                fits, why = "unknown", error.what
            rows.append({**row, "fits": fits, "why": why})
    return rows


def empty_sheet(rows: list[dict[str, Any]]) -> Sheet:
    """Return those rows as they are read."""
    return Sheet.of("Cells that the paper leaves empty, and whether a step fits here now, by estimate", rows)
