"""Results of the efficiency experiment, ours and the paper's, and their growth with n."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kmip_data.manifest import read_shipped
from kmip_data.models.kinds import Section

Setting = Literal["inference", "training"]
SETTINGS: tuple[Setting, Setting] = ("inference", "training")
Status = Literal["ok", "oom", "time", "unavailable", "failed"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method in one setting on n nodes: seconds of the counted runs, or why there are none."""

    method: str
    setting: Setting
    n: int
    #: ``oom``: memory ran out; ``time``: one run took longer than the limit; ``unavailable``: the method
    #: cannot run here or on these inputs; ``failed``: it ended with an error
    status: Status
    forward: tuple[float, ...] = ()  #: one number per run
    backward: tuple[float, ...] = ()  #: one number per run; empty in inference
    peak_bytes: int | None = None  #: peak memory with the inputs, beyond what was there before
    note: str = ""

    @property
    def totals(self) -> list[float]:
        """Forward and backward together, run by run."""
        if not self.backward:
            return list(self.forward)
        return [there + back for there, back in zip(self.forward, self.backward, strict=True)]

    @property
    def seconds(self) -> float | None:
        """Median of the totals."""
        return _median(self.totals)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON and CSV; ``least`` and ``most`` are over the runs."""
        totals = self.totals
        return {
            "method": self.method,
            "setting": self.setting,
            "n": self.n,
            "status": self.status,
            "seconds": self.seconds,
            "least": min(totals, default=None),
            "most": max(totals, default=None),
            "forward": _median(self.forward),
            "backward": _median(self.backward),
            "runs": len(totals),
            "peak_bytes": self.peak_bytes,
            "note": self.note,
        }


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def growth_exponent(points: Iterable[tuple[float, float]]) -> float | None:
    """Return the slope of log seconds over log n, by least squares over the last decade of n.

    Takes points (n, seconds); smaller n measure overhead, not growth. None for fewer than two points.

    >>> growth_exponent([(10, 5), (1000, 1), (10000, 100)])
    2.0
    """
    ordered = sorted(points)
    # ⌊10^(i/2)⌋ is a little less than a decade.
    logs = [(math.log10(n), math.log10(t)) for n, t in ordered if n >= ordered[-1][0] / 10 * 0.99]
    if len(logs) < 2:
        return None
    return round(statistics.linear_regression(*zip(*logs, strict=True)).slope, 6)


class PublishedCurve(Section):
    """One method of the paper in one setting."""

    method: str
    label: str
    setting: Setting
    n: tuple[int, ...]
    milliseconds: tuple[float, ...]
    megabytes: tuple[float, ...] = ()


class Published(Section):
    """Figures of the paper, measured on its A100."""

    source: str
    machine: str
    protocol: str
    curve: tuple[PublishedCurve, ...]


@functools.cache
def published() -> Published:
    """Read ``manifests/results/efficiency.toml``."""
    return Published.model_validate(read_shipped("results", "efficiency"))
