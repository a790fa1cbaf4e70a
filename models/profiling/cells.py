"""The result of one cell of the experiment: a method, a setting and a number of nodes."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kmip_data.models.profiling.published import Setting

Status = Literal["ok", "oom", "time", "unavailable", "failed"]
COLUMNS = (
    "method", "setting", "n", "status", "seconds", "least", "most", "forward", "backward", "runs",
    "peak_bytes", "recall", "note",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Times of the counted runs in seconds, or why there are none.

    Attributes
    ----------
    status
        ``ok``; ``oom``: memory ran out; ``time``: one run took longer than the limit;
        ``unavailable``: the method cannot run here or on this; ``failed``: it broke.
    forward, backward
        One number a run; ``backward`` is empty in inference.
    peak_bytes
        Most memory while it ran, inputs counted, beyond what was there before.
    recall
        Share of the exact k best keys that an approximate search found.
    published
        By the published protocol: figures are means, not medians.
    """

    method: str
    setting: Setting
    n: int
    status: Status
    forward: tuple[float, ...] = ()
    backward: tuple[float, ...] = ()
    peak_bytes: int | None = None
    recall: float | None = None
    note: str = ""
    published: bool = False

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

    def _centre(self, values: Iterable[float]) -> float | None:
        values = list(values)
        if not values:
            return None
        return statistics.mean(values) if self.published else statistics.median(values)

    def text(self) -> str:
        """For a table: ``12.3 ms``, or the status."""
        return duration(self.seconds) if self.seconds is not None else self.status

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and CSV; ``least`` and ``most`` are mean ∓ deviation if published."""
        totals = self.totals
        least = most = None
        if totals:
            least, most = min(totals), max(totals)
            if self.published:
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

    def to_json(self) -> dict[str, Any]:
        """All fields, to travel between processes."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Cell:
        """The inverse of :meth:`to_json`."""
        return cls(**{**value, "forward": tuple(value["forward"]), "backward": tuple(value["backward"])})


def to_csv(cells: Iterable[Cell]) -> str:
    """One line a cell; seconds and bytes."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(cell.as_dict() for cell in cells)
    return text.getvalue()


def duration(seconds: float | None) -> str:
    """Seconds with a unit that suits.

    >>> duration(0.0123)
    '12.3 ms'
    """
    if seconds is None:
        return "–"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def growth_exponent(points: Iterable[tuple[float, float]], *, decades: float = 1.0) -> float | None:
    """Slope of log seconds over log n by least squares, over the largest sizes.

    Parameters
    ----------
    points
        (n, seconds).
    decades
        How far below the largest n points count. Small n measure overhead, not growth.

    Returns
    -------
    float or None
        ``None`` with fewer than two points there.

    >>> growth_exponent([(10, 5), (1000, 1), (10000, 100)])
    2.0
    """
    ordered = sorted(points)
    if not ordered:
        return None
    least = ordered[-1][0] / 10**decades * 0.99  # ⌊10^(i/2)⌋ is a little less
    logs = [(math.log10(n), math.log10(seconds)) for n, seconds in ordered if n >= least]
    if len(logs) < 2:
        return None
    return round(statistics.linear_regression(*zip(*logs, strict=True)).slope, 6)
