"""The results of the experiment, ours cell by cell and the paper's curves, and how they grow with n."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kmip_data.manifest import read_shipped
from kmip_data.models.kinds import Section

Setting = Literal["inference", "training"]
SETTINGS: tuple[Setting, Setting] = ("inference", "training")
Status = Literal["ok", "oom", "time", "unavailable", "failed"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A method in a setting on n nodes: times of the counted runs in seconds, or why there are none."""

    method: str
    setting: Setting
    n: int
    #: ``ok``; ``oom``: memory ran out; ``time``: one run took longer than the limit; ``unavailable``: the
    #: method cannot run here or on this; ``failed``: it broke
    status: Status
    #: forward, backward: one number per run; ``backward`` is empty in inference
    forward: tuple[float, ...] = ()
    backward: tuple[float, ...] = ()
    peak_bytes: int | None = None  #: most memory while it ran, inputs counted, beyond what was there before
    recall: float | None = None  #: share of the exact k best keys that an approximate search found
    note: str = ""
    published: bool = False  #: by the published protocol: figures are means, not medians
    #: seconds of each stage, where these were asked for instead of the times
    stages: Mapping[str, float] = field(default_factory=dict)

    @property
    def totals(self) -> list[float]:
        """Forward and backward together, run by run."""
        if not self.backward:
            return list(self.forward)
        return [there + back for there, back in zip(self.forward, self.backward, strict=True)]

    @property
    def seconds(self) -> float | None:
        """Median of the totals (their mean by the published protocol)."""
        return self._centre(self.totals)

    def _centre(self, values: Sequence[float]) -> float | None:
        if not values:
            return None
        return statistics.mean(values) if self.published else statistics.median(values)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and CSV; ``least`` and ``most`` are mean ∓ deviation if published."""
        totals = self.totals
        least, most = min(totals, default=None), max(totals, default=None)
        if totals and self.published:
            mean, std = statistics.mean(totals), statistics.pstdev(totals)
            least, most = mean - std, mean + std
        return {
            "method": self.method,
            "setting": self.setting,
            "n": self.n,
            "status": self.status,
            "seconds": self.seconds,
            "least": least,
            "most": most,
            "forward": self._centre(self.forward),
            "backward": self._centre(self.backward),
            "runs": len(totals),
            "peak_bytes": self.peak_bytes,
            "recall": self.recall,
            "note": self.note,
        }


def growth_exponent(points: Iterable[tuple[float, float]]) -> float | None:
    """Slope of log seconds over log n by least squares, over the last decade of n; None of fewer than two.

    Takes points (n, seconds); smaller n measure overhead, not growth.

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
    """One method in one setting, at several numbers of nodes."""

    method: str
    label: str
    setting: Setting
    n: tuple[int, ...]
    milliseconds: tuple[float, ...]
    megabytes: tuple[float, ...] = ()


class Published(Section):
    """What the paper measured on its A100: never ours."""

    source: str
    machine: str
    protocol: str
    curve: tuple[PublishedCurve, ...]


@functools.cache
def published() -> Published:
    """Read ``manifests/results/efficiency.toml``."""
    return Published.model_validate(read_shipped("results", "efficiency"))
