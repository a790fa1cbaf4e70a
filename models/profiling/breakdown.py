"""Time of each stage of an attention training step, as stacked bars next to the paper's.

The stages are the projections of the nodes' inputs, the search, scores, softmax, weighted sum and
the backward pass. A fused softmax and weighted sum is one stage.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kmip_data.drawing.style import NOTE, Axes, look, new_figure, save, styled

if TYPE_CHECKING:
    from kmip_data.models.profiling.measuring import Measurement

NODES = 10**4.5  #: of the paper's figure
#: time limit of a run in seconds: full attention on two busy cores takes more than a minute
PATIENCE = 120.0
METHODS = ("full", "naive", "auto")  #: full attention, the paper's k-MIP attention, and ours
#: Softmax and weighted sum in one kernel; of ``sdpa`` and ``flash`` the scores, too.
FUSED = "fused"
STAGES = ("projections", "search", "scores", "softmax", "weighted sum", FUSED, "backward")
FORWARD = "forward"  #: stages of the paper, whose table has the two passes
LABELS = {
    FORWARD: "forward pass (the paper's)",
    FUSED: "softmax and sum, fused",
    "backward": "backward pass",
}
WIDTH = 0.62  #: of a bar
ROOM = 0.05  #: height of a line of text, as a fraction of the panel
Bars = Mapping[str, Mapping[str, float]]  #: method -> stage -> seconds


class StageClock:
    """Clock of stages: CUDA events on a GPU, so that no stage waits for the host."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._marks: list[tuple[str, Any]] = []

    def __call__(self, stage: str) -> None:
        """End a stage; the times of a repeated stage are summed."""
        event = None
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
        self._marks.append((stage, event or time.perf_counter()))

    @property
    def latest(self) -> str:
        """Name of the last ended stage."""
        return self._marks[-1][0]

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage since the first mark, once the device is done."""
        if self._on_gpu:
            self._marks[-1][1].synchronize()
        total = dict[str, float]()
        for (_, begun), (stage, ended) in pairwise(self._marks):
            passed = begun.elapsed_time(ended) / 1000 if self._on_gpu else ended - begun
            total[stage] = total.get(stage, 0.0) + passed
        return total


def projections(inputs: Tensor) -> list[Tensor]:
    """Return three orthogonal matrices (H, d, d) for inputs (H, N, d), with gradients where these have.

    They preserve standard normal inputs and lengths, so queries, keys and values have the
    distribution of the efficiency experiment.
    """
    # The factor Q of a Gaussian matrix is a random rotation (or reflection): it keeps lengths.
    heads, _, width = inputs.shape
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(3, heads, width, width, generator=generator)
    matrices = torch.linalg.qr(drawn).Q.to(inputs)
    return [matrix.clone().requires_grad_(inputs.requires_grad) for matrix in matrices]


def median_stages(cell: Measurement) -> dict[str, float]:
    """Return the median over the runs of each stage, in the order of :data:`STAGES`."""
    stages = [stage for stage in STAGES if stage in cell.stages]
    return {stage: statistics.median(cell.stages[stage]) for stage in stages}


@styled()
def draw_breakdown(
    cells: Sequence[Measurement],
    path: Path,
    *,
    title: str,
    paper: Mapping[str, Any] | None,
) -> None:
    """Draw a stacked bar per method, and the fastest method again at its own scale.

    ``paper`` (``manifests/results/efficiency.toml``) adds a panel with the forward and the backward
    pass of the paper's table, which has no finer stages. The last line of ``title`` is the footer.
    """
    # Panels: all methods, the fastest at its own scale, and the paper's.
    here = {cell.method: median_stages(cell) for cell in cells if cell.stages}
    published = paper_passes(paper)
    panels = []
    if here:
        panels.append(("this machine", here))
    if len(here) > 1:
        fastest = min(here, key=lambda name: sum(here[name].values()))
        panels.append((f"{fastest} alone", {fastest: here[fastest]}))
    if published:
        panels.append((f"the paper's, {paper and paper['machine']}", published))

    widths = [len(bars) + 0.4 for _, bars in panels]
    heading, _, footer = title.rpartition("\n")
    figure = new_figure(5.5 + 1.3 * sum(widths), 5.6, title=heading, footer=footer)
    handles = dict[str, object]()
    if panels:
        grid = figure.subplots(1, len(panels), width_ratios=widths, squeeze=False)
        for axes, (name, bars) in zip(grid.flat, panels, strict=True):
            handles |= _stack(axes, bars)
            axes.set_title(name)
    # From top to bottom as in a bar.
    stages = [stage for stage in reversed((FORWARD, *STAGES)) if stage in handles]
    labels = [LABELS.get(stage, stage) for stage in stages]
    legend = {"loc": "outside right upper", "frameon": False}
    figure.legend([handles[stage] for stage in stages], labels, **legend)
    save(figure, path)


def paper_passes(paper: Mapping[str, Any] | None) -> dict[str, dict[str, float]]:
    """Return the seconds of the two passes of each method in the paper's table, which has ms."""
    passes = {}
    for row in (paper or {}).get("split", ()):
        passes[row["method"]] = {stage: row[stage] / 1e3 for stage in (FORWARD, "backward")}
    return passes


def _stack(axes: Axes, bars: Bars) -> dict[str, object]:
    """Draw stacked bars with the time of each large part and the total; return a handle a stage."""
    from matplotlib.ticker import EngFormatter

    duration = EngFormatter("s", places=1)
    colors = dict(zip(STAGES, look().palette[: len(STAGES)], strict=True))
    colors[FORWARD] = look().quiet
    highest = max(sum(parts.values()) for parts in bars.values())
    handles = {}
    for position, parts in enumerate(bars.values()):
        bottom = 0.0
        for stage, height in parts.items():
            bar = axes.bar(
                position,
                height,
                bottom=bottom,
                color=colors[stage],
                edgecolor=look().ground,
                linewidth=0.5,
                width=WIDTH,
            )
            if height > ROOM * highest:
                label = {"color": look().ground, "fontsize": NOTE}
                axes.bar_label(bar, [duration(height)], label_type="center", **label)
            handles[stage] = bar
            bottom += height

        above = {"ha": "center", "va": "bottom", "fontweight": "bold"}
        axes.text(position, bottom + 0.01 * highest, duration(bottom), **above)

    axes.set_xticks(range(len(bars)), list(bars), fontsize="medium")
    axes.set(xlim=(-0.55, len(bars) - 0.45), ylim=(0, 1.1 * highest))
    axes.set_ylabel("time of one step")
    axes.yaxis.set_major_formatter(EngFormatter("s"))
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    return handles
