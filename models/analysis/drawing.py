"""Pictures of a study: curves over k."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kmip_data.drawing.pictures import write_png
from kmip_data.models.analysis.study import Study

Line = tuple[str, str, str]  #: label, colour, style of a curve
APPROXIMATION_LINES: dict[str, Line] = {
    "k-MIP": ("k largest scores: k-MIP attention", "#4c72b0", "-"),
    "as published": ("k smallest scores: as the published code computed", "#c44e52", "--"),
    "random": ("standard normal outputs", "#888888", ":"),
}
WEIGHT_LINES: dict[str, Line] = {
    "k-MIP": ("these queries and keys", "#4c72b0", "-"),
    "Gaussian": ("Gaussian queries and keys of the same sizes", "#888888", "--"),
}


def draw_study(study: Study, path: Path, lines: Mapping[str, Line], *, title: str, ylabel: str) -> None:
    """Draw the mean of each curve over k into a PNG, with its deviation over graphs as a band."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    axes = figure.subplots()
    for name, (label, colour, style) in lines.items():
        mean, std = study.summary(name)
        axes.plot(study.ks, mean, label=label, color=colour, linestyle=style)
        if std.any():
            axes.fill_between(study.ks, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)
    axes.set(xscale="log", xlabel="k", ylabel=ylabel)
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    write_png(figure, path)
