"""What the paper's tables leave empty, and whether a step of it fits here: estimated, then measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kmip_data.builds.home import Home
from kmip_data.errors import KmipDataError, OutOfResources
from kmip_data.manifest import load_manifest, read_shipped
from kmip_data.models.kinds import Size
from kmip_data.models.profiling.training import Contestant, one_step
from kmip_data.models.reports.sheets import Sheet
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for
from kmip_data.models.training.data.obtain import open_data
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.memory.estimate import plan_memory
from kmip_data.models.training.memory.machine import choose_device


def empty_facts(home: Home, *, step: bool, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return a row for each cell: what the paper says, whether the preset fits here now, and by what.

    With ``step`` one is measured where it fits by the estimate. Nothing is built: of a dataset that is not,
    or lacks a column that the model reads, its sample tells, and without one it is unknown.
    """
    device, rows, fitting = choose_device(), [], []
    for cell in read_shipped("results", "empty")["cell"]:
        for dataset in cell["datasets"]:
            row = {"dataset": dataset, "model": cell["model"], "paper": cell["paper"], "device": device.name}
            row |= {"fits": "unknown", "step": "", "why": ""}
            rows.append(row)
            try:
                config, data, size = _with_data(config_for(dataset, cell["model"]), home)
                found = plan_memory(config, data, device, size)
            except OutOfResources as error:
                row |= {"fits": "no", "why": f"{error.parts['expected']}; {error.parts['found']}"}
            except KmipDataError as error:
                row["why"] = error.what
            else:
                row |= {"fits": "yes, layers recomputed" if found.recompute else "yes", "why": str(found)}
                fitting.append((row, partial(Contestant, config=config, data=data, device=device), size))
    for row, make, size in fitting if step else ():  # after all estimates, which count this process's memory
        tell(f"{row['dataset']}, {row['model']}: a step …")
        pace = one_step(row["model"], make)
        row["step"] = pace.note or f"{pace.seconds:.3g} s{' on the sample' if size else ''}"
        if pace.note:
            row["fits"] = "no"
        elif pace.peak is not None:
            row["step"] += f", {pace.peak / 2**20:,.0f} MiB"
    return rows


def _with_data(config: RunConfig, home: Home) -> tuple[RunConfig, RunData, Size | None]:
    """Open the data, or their sample with the size of a batch of what was published."""
    try:
        return config, open_data(config, home=home, build=False), None
    except KmipDataError as error:
        sampled = apply_overrides(config, ["data.sample=true"])
        try:
            data = open_data(sampled, home=home, build=False)
        except KmipDataError:
            raise error from None
    expected, size = load_manifest(config.data.dataset).expected, data.largest_batch
    if data.unit == "nodes":  # blocks and shapes of samples are as large as real ones
        size = Size(1, int(expected.avg_nodes or 0), int(expected.avg_edges or 0))
    return sampled, data, size


def empty_sheet(rows: list[dict[str, Any]]) -> Sheet:
    """Return those rows as they are read."""
    return Sheet.of("Cells that the paper leaves empty, and whether a step fits here now", rows)
