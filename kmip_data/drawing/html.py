"""The same pictures as one interactive HTML file that needs no network."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from kmip_data.drawing.pictures import (
    FEW,
    NO_CLASS,
    PLAIN,
    Drawing,
    _short,
    broken_line,
    class_count,
    class_name,
)
from kmip_data.drawing.style import class_colors, look, plotly_template
from kmip_data.files.changes import write_output

PICTURE: Final = 160  #: pixels of the longer side of a picture below the nodes
LONGEST: Final = 1.3  #: length of a scene's longest axis, in plotly's units, that fills the view
#: Where a scene is seen from: with one axis up, or, in the plane, along its normal.
CAMERAS: Final = {
    "y": {"up": {"x": 0, "y": 1, "z": 0}, "eye": {"x": 1.2, "y": 0.9, "z": 1.2}},
    "z": {"up": {"x": 0, "y": 0, "z": 1}, "eye": {"x": 1.2, "y": -1.2, "z": 0.8}},
    "plane": {"up": {"x": 0, "y": 1, "z": 0}, "eye": {"x": 0, "y": 0, "z": 1.4}},
}


def draw_html(
    drawings: Sequence[Drawing],
    path: Path,
    *,
    title: str,
    footer: str,
    class_names: Sequence[str] = (),
    up: Literal["y", "z"] = "z",
) -> None:
    """Draw each record as a scene to turn, with its degree and class histograms beside it.

    Clicking a class in the legend hides its points. The file holds the drawing library, about 5 MB. Graphs
    in the plane lie flat in their scene, over their picture if they have one. Arguments are those of
    :func:`kmip_data.drawing.pictures.draw_png`.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    shown, colors = look(), class_colors(class_count(drawings, class_names))
    figure = make_subplots(
        rows=len(drawings),
        cols=3,
        column_widths=[0.6, 0.18, 0.22],
        specs=[[{"type": "scene"}, {"type": "xy"}, {"type": "xy"}] for _ in drawings],
        subplot_titles=[text for d in drawings for text in (escape(_short(d.key)), "degrees", d.answer)],
        horizontal_spacing=0.06,
        vertical_spacing=0.25 / max(2, len(drawings)),
    )
    for row, flat in enumerate(drawings, start=1):
        dimensions = flat.pos.shape[1]
        drawing = replace(flat, pos=np.pad(flat.pos, ((0, 0), (0, 3 - dimensions))))
        if drawing.picture is not None and drawing.y is not None:
            figure.add_trace(_picture(go, drawing.picture), row=row, col=1)
        for trace in _traces(go, drawing, colors, class_names):
            figure.add_trace(trace, row=row, col=1)
        figure.add_traces(_degree_bars(go, drawing), rows=row, cols=2)
        _draw_answer(go, figure, row, drawing, colors, class_names)
        camera = CAMERAS[up if dimensions == 3 else "plane"]
        figure.update_scenes(aspectratio=_aspect(drawing.pos), camera=camera, row=row, col=1)
    figure.update_xaxes(title_text="edges of a node", col=2)
    figure.update_yaxes(title_text="nodes", col=2)
    in_legend: set[str] = {""}
    for trace in figure.data:
        trace.showlegend = (trace.name or "") not in in_legend
        in_legend.add(trace.name)
    figure.update_scenes(aspectmode="manual", xaxis_visible=False, yaxis_visible=False, zaxis_visible=False)
    lines = [part for line in title.split("\n") for part in textwrap.wrap(line, 110)]
    figure.update_layout(
        title={"text": f"<b>{'<br>'.join(map(escape, lines))}</b>"},
        height=180 + 480 * len(drawings),
        template=plotly_template(shown),
        bargap=0.02,
        legend={"groupclick": "togglegroup", "itemsizing": "constant"},
        margin={"t": 70 + 25 * len(lines), "b": 110},
    )
    figure.add_annotation(
        text=escape(footer), xref="paper", yref="paper", x=0.5, y=0, yshift=-90, showarrow=False
    )
    page = figure.to_html(
        include_plotlyjs=True, full_html=True, div_id="preview", config={"displaylogo": False}
    )
    ground = f"<style>body {{ margin: 0; background: {shown.ground} }}</style>"
    page = page.replace("<head>", f"<head><title>{escape(lines[0])}</title>{ground}", 1)
    write_output(path, page.encode())


def _draw_answer(
    go: Any, figure: Any, row: int, drawing: Drawing, colors: Sequence[str], names: Sequence[str]
) -> None:
    """Draw how many nodes each class has, or write the label of the graph."""
    place = {"row": row, "col": 3}
    if drawing.y is not None:
        present, counts = np.unique(drawing.y, return_counts=True)
        shown = [escape(class_name(number, names)) for number in present.tolist()]
        figure.add_trace(go.Bar(x=shown, y=counts, marker_color=np.array(colors)[present]), **place)
        figure.update_xaxes(tickangle=40, **place)
        return
    text = escape(drawing.label or NO_CLASS).replace("\n", "<br>")
    cell = figure.get_subplot(**place)
    # Of the page: axes without a trace are none.
    middle = {"x": sum(cell.xaxis.domain) / 2, "y": sum(cell.yaxis.domain) / 2, "showarrow": False}
    figure.add_annotation(text=text, xref="paper", yref="paper", xanchor="center", **middle)


def _traces(go: Any, drawing: Drawing, colors: Sequence[str], names: Sequence[str]) -> list[Any]:
    """Return the points of each class, the edges within classes, and those between them."""

    def trace(name: str, pos: NDArray[Any], **style: Any) -> Any:
        x, y, z = pos
        return go.Scatter3d(x=x, y=y, z=z, name=name, legendgroup=name, **style)

    traces = []
    for number in np.unique(drawing.labels).tolist():
        name, color = "nodes", PLAIN
        if drawing.y is not None:
            name, color = escape(class_name(number, names)), colors[number]
        marker = {"size": 2 if len(drawing.pos) > FEW else 4, "color": color}
        chosen = drawing.labels == number
        traces.append(trace(name, drawing.pos[chosen].T, mode="markers", marker=marker, hoverinfo="name"))
    shown = drawing.some_edges()
    crossing = drawing.labels[shown[0]] != drawing.labels[shown[1]]
    kinds = [
        ("edges" if drawing.y is None else "edges within a class", look().faint, ~crossing),
        ("edges between classes", look().ink, crossing),
    ]
    for name, color, chosen in kinds:
        if chosen.any():
            lines = broken_line(drawing.pos.astype(np.float32), shown[:, chosen])
            style = {"color": color, "width": 1}
            traces.append(trace(name, lines, mode="lines", line=style, hoverinfo="skip"))
    return traces


def _picture(go: Any, picture: NDArray[np.uint8]) -> Any:
    """Return the picture as a coloured net below the nodes, coarser than it is."""
    height, width = picture.shape[:2]
    step = -(-max(height, width) // PICTURE)
    rows, columns = np.arange(0, height, step), np.arange(0, width, step)
    across, down = np.meshgrid(columns, rows)
    corner = (np.arange(len(rows) - 1)[:, None] * len(columns) + np.arange(len(columns) - 1)).ravel()
    right, below, beyond = corner + 1, corner + len(columns), corner + len(columns) + 1
    triangles = np.concatenate([np.stack([corner, right, below]), np.stack([right, beyond, below])], axis=1)
    return go.Mesh3d(
        x=across.ravel(),
        y=-down.ravel(),
        z=np.full(across.size, -0.01 * max(height, width)),
        **dict(zip("ijk", triangles, strict=True)),
        vertexcolor=[f"rgb({r},{g},{b})" for r, g, b in picture[down, across].reshape(-1, 3).tolist()],
        lighting={"ambient": 1, "diffuse": 0, "specular": 0},
        hoverinfo="skip",
    )


def _aspect(pos: NDArray[Any]) -> dict[str, float]:
    """Equal scale on all axes, the longest as the view takes it: plotly's own rule may lose its ends."""
    extent = np.ptp(pos, axis=0) if len(pos) else np.ones(3)
    shares = LONGEST * np.maximum(extent / max(float(extent.max()), 1e-9), 0.02)
    return dict(zip("xyz", shares.tolist(), strict=True))


def _degree_bars(go: Any, drawing: Drawing) -> list[Any]:
    bars = []
    for name, degrees, color in zip(("in", "out"), drawing.degrees(), (look().ink, PLAIN), strict=True):
        values, counts = np.unique(degrees, return_counts=True)
        if name == "in" and len(values) == 1:
            continue  # one bar as high as the graph would hide the other histogram
        bars.append(go.Bar(x=values, y=counts, marker_color=color, name=f"{name}-degree", legendgroup=name))
    return bars
