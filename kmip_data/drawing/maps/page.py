"""A city as one interactive page that needs no network: its arrays, and the scripts that draw them."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.drawing.maps.city_map import ATTRIBUTION, CityMap
from kmip_data.drawing.maps.layers import Layer, Scale, ramp
from kmip_data.drawing.style import PALETTE, STYLES, Style
from kmip_data.files.changes import write_output
from kmip_data.wording import counted

#: In the order in which they are read.
SCRIPTS: Final = ("elements.js", "data.js", "drawing.js", "view.js", "page.js")
KINDS: Final = {"uint8": "u8", "uint16": "u16", "uint32": "u32", "float32": "f32", "float64": "f64"}


class Packer:
    """Arrays one after another, and where each begins."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._bytes = 0

    def add(self, values: NDArray[Any]) -> dict[str, Any]:
        """Append an array; return what the page needs to find it."""
        data = np.ascontiguousarray(values).tobytes()
        found = {"kind": KINDS[values.dtype.name], "at": self._bytes, "count": values.size}
        padded = data + bytes(-len(data) % 8)  # typed arrays begin at a multiple of their width
        self._pieces.append(padded)
        self._bytes += len(padded)
        return found

    def add_column(self, values: NDArray[Any]) -> dict[str, Any]:
        """Append a column without loss; one of few distinct values as codes into a table of them."""
        # Identifiers are whole numbers below 2**53, which float64 holds exactly.
        numbers = values if values.dtype == np.float32 else values.astype(np.float64)
        distinct, codes = np.unique(numbers, return_inverse=True)
        if len(distinct) > min(65_536, len(numbers) // 2):
            return {"values": self.add(numbers)}
        narrow = np.uint8 if len(distinct) <= 256 else np.uint16
        return {"values": self.add(distinct), "codes": self.add(codes.astype(narrow))}

    def text(self) -> str:
        """All of it, compressed, as base64; equal arrays give equal text."""
        return base64.b64encode(gzip.compress(b"".join(self._pieces), compresslevel=6, mtime=0)).decode()


def draw_page(city: CityMap, layers: Sequence[Layer], path: Path) -> None:
    """Write the page.

    It can be moved and zoomed by mouse, fingers and keys, coloured by each of ``layers`` (the first when it
    opens) and by every column, and shows all columns, without loss, of the intersection that is pointed at.
    """
    packer = Packer()
    write_page(map_header(city, layers, packer), packer, path, title=city.title, credit=ATTRIBUTION)


def map_header(city: CityMap, layers: Sequence[Layer], packer: Packer) -> dict[str, Any]:
    """Append the arrays of a city to ``packer``; return what its page says and where it finds them."""
    facts = f"{counted(len(city.position), 'intersection')}, {counted(city.streets.shape[1], 'street')}"
    header = page_header(city.position, city.streets, city.columns, layers, packer)
    sinusoids = {"bounds": city.bounds.tolist(), "bands": city.bands, "axes": list(city.columns)[:2]}
    return {"facts": f"{facts}; {city.options}", "metres": True, "sinusoids": sinusoids, **header}


def page_header(
    position: NDArray[Any],
    pairs: NDArray[np.int64],
    columns: Mapping[str, NDArray[Any]],
    layers: Sequence[Layer],
    packer: Packer,
) -> dict[str, Any]:
    """Return what any graph's page has: (N, 2 or 3) places, (2, S) lines, numbers of nodes, colours."""
    scales = {layer.name: layer.values for layer in layers if isinstance(layer, Scale)}
    axes = dict(zip("xyz", position.T.astype(np.float32), strict=False))
    return {
        **{axis: packer.add(values) for axis, values in axes.items()},
        "streets": packer.add(pairs.T.astype(np.uint32)),
        "layers": [_layer(layer, packer) for layer in layers],
        "columns": [
            {"name": name, **packer.add_column(values)} for name, values in {**scales, **columns}.items()
        ],
        "ramp": ramp("viridis", 32),
    }


def write_page(
    header: Mapping[str, Any],
    packer: Packer,
    path: Path,
    *,
    title: str,
    credit: str,
    thing: str = "intersection",
    added: Mapping[str, str] | None = None,
) -> None:
    """Write a page; ``thing`` is what a node is called.

    ``added`` has more ``style``, ``panel`` (HTML) and ``script``, all of the package itself.
    """
    more = added or {}
    fields = {
        "title": escape(title),
        "credit": escape(credit),
        "thing": thing,
        "style": page_style() + more.get("style", ""),
        "panel": more.get("panel", ""),
        "header": embedded({**header, "thing": thing}),
        "data": packer.text(),
        "script": "\n".join([*map(asset, SCRIPTS[:-1]), more.get("script", ""), asset(SCRIPTS[-1])]),
    }
    write_filled(asset("page.html"), fields, path)


def write_filled(template: str, fields: Mapping[str, str], path: Path) -> None:
    """Write a page, each ``{{name}}`` of its template replaced by a field."""
    write_output(path, re.sub(r"\{\{(\w+)\}\}", lambda found: fields[found[1]], template).encode())


def embedded(value: Any) -> str:
    """Return JSON that may stand in an element of a page: no "</script>" in a name ends it."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def page_style() -> str:
    """Return the style sheet of every page, with the colours and letters of pictures, light and dark."""

    def root(style: Style, link: str) -> str:
        colors = {"ground": style.ground, "ink": style.ink, "pale": style.quiet, "line": style.faint}
        variables = {**colors, "link": link, "font": f'"{style.font}"', "palette": " ".join(PALETTE)}
        return f":root {{ {' '.join(f'--{name}: {value};' for name, value in variables.items())} }}"

    light, dark = root(STYLES["light"], PALETTE[0]), root(STYLES["dark"], PALETTE[5])
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n{asset('page.css')}"


def _layer(layer: Layer, packer: Packer) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": layer.name, "note": layer.note}
    if isinstance(layer, Scale):
        return {**shown, "unit": layer.unit}
    labels = {"labels": layer.labels, "colors": layer.colors, "counts": layer.counts}
    return {**shown, **labels, "codes": packer.add(layer.codes)}


def asset(name: str) -> str:
    """Return the text of a script, style sheet or template of pages."""
    return (files("kmip_data.drawing.maps") / "assets" / name).read_text("utf-8").rstrip()
