"""What a sweep will cost, told before it begins: runs, disk, and hours where these were measured."""

from __future__ import annotations

import contextlib
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput
from kmip_data.files.changes import make_folder, write_json
from kmip_data.files.digests import json_digest
from kmip_data.files.small import read_model
from kmip_data.models.kinds import Section
from kmip_data.models.sweeps.cells import Cell
from kmip_data.models.sweeps.state import is_done
from kmip_data.models.training.memory.machine import choose_device
from kmip_data.models.training.run.folders import RESULT_NAME
from kmip_data.models.training.run.result import RunResult, read_result
from kmip_data.wording import counted, rough_time

#: Of a run folder, measured: weights, two moments of Adam and the best weights to resume from, those twice
#: more; and pictures, tables and settings, which grow little with epochs.
BYTES_PARAMETER, BYTES_RUN = 24, 300_000
USUAL_PARAMETERS = 500_000  #: the paper's budget, where neither a finished run nor the configuration tells


class Benched(Section):
    """The pace of one preset on this machine, as ``bench train`` measured it."""

    device: str  #: as results of runs name it
    machine: str  #: for people: processor, cores, versions, load
    seconds_epoch: float  #: without evaluations
    parameters: int
    preset: str
    measured: str  #: when


def keep_benched(home: Home, label: str, model: str, found: Benched) -> Path:
    """Keep it beside the runs, instead of what was measured before; ``label`` is that of the data."""
    path = _benched_path(home.runs / label / model, found.device)
    make_folder(path.parent, root=home.root)
    write_json(path, found.model_dump(), root=home.root)
    return path


def _benched_path(folder: Path, device: str) -> Path:
    """One a machine, for several may share a home."""
    return folder / f"bench-{json_digest([platform.node(), device])[:8]}.json"


@dataclass(frozen=True)
class Cost:
    """Of the runs that are not done."""

    runs: int
    bytes: int
    seconds: float  #: of those whose pace is known, ``jobs`` at a time
    unknown: Sequence[tuple[str, str]]  #: datasets and models of the others
    ran: int  #: runs whose pace is that of finished ones
    benched: int  #: runs whose pace ``bench train`` measured

    def __str__(self) -> str:
        sources = ["finished runs of this device"] * bool(self.ran)
        if self.benched:
            which = f" ({self.benched} of them)" if self.ran else ""
            sources.append(f"bench train on this machine{which}, without evaluations")
        time = f"about {rough_time(self.seconds)} by {' and '.join(sources)}" if sources else ""
        rest = "; ".join(f"kmip-data bench train {data} --model {model}" for data, model in self.unknown[:3])
        more = f", and {len(self.unknown) - 3} more" if len(self.unknown) > 3 else ""
        unknown = f"{'the others' if time else 'hours'} unknown; to measure: {rest}{more}" if rest else ""
        parts = [
            counted(self.runs, "run") + " to go",
            f"about {self.bytes / 1e9:.2g} GB of disk",
            time,
            unknown,
        ]
        return "; ".join(filter(None, parts)) + "."


def cost_of(cells: Sequence[Cell], jobs: int) -> Cost:
    """Estimate the cost of the cells that are not done.

    Seconds of an epoch, its evaluations counted, are the mean over finished runs of the same dataset and
    model on this device, whatever their settings; where there is none, what ``bench train`` measured of the
    preset. Disk is :data:`BYTES_PARAMETER` a parameter and :data:`BYTES_RUN` a run.
    """
    size, seconds, ran, benched, unknown = 0, 0.0, 0, 0, dict[tuple[str, str], None]()
    known: dict[object, _Pace | None] = {}
    left = [cell for cell in cells if not is_done(cell)]
    for cell in left:
        parent, config = cell.folder.parent, cell.config
        if parent not in known:
            known[parent] = _pace(cell)
        pace = known[parent]
        parameters = config.model.parameter_budget or USUAL_PARAMETERS
        if pace is None:
            unknown[cell.dataset, cell.model] = None
        else:
            parameters, seconds = pace.parameters, seconds + pace.epoch * config.training.epochs
            ran, benched = ran + pace.ran, benched + (not pace.ran)
        size += BYTES_RUN + BYTES_PARAMETER * parameters
    return Cost(len(left), size, seconds / jobs, [*unknown], ran, benched)


class _Pace(NamedTuple):
    epoch: float  #: seconds
    parameters: int
    ran: bool  #: by finished runs


def _pace(cell: Cell) -> _Pace | None:
    """How fast the cell's dataset and model train on its device."""
    device = choose_device(cell.config.system.device).name
    if results := [one for one in _finished(cell) if one.device == device]:
        epoch = statistics.fmean(result.seconds.total / result.epochs for result in results)
        return _Pace(epoch, max(result.num_parameters for result in results), True)
    path = _benched_path(cell.folder.parent, device)
    with contextlib.suppress(FileNotFoundError, DamagedInput):
        benched = read_model(path, Benched, "cannot be read", expected="a pace", next="bench train")
        return _Pace(benched.seconds_epoch, benched.parameters, False)
    return None


def _finished(cell: Cell) -> list[RunResult]:
    """Every result of the cell's dataset and model that can be read."""
    found = []
    for path in sorted(cell.folder.parent.glob(f"*/{RESULT_NAME}")):
        try:
            found.append(read_result(path.parent))
        except DamagedInput:
            continue
    return [result for result in found if result.epochs]
