"""Read Pajek's ``.net`` format.

Our own reader, because networkx merges vertices with equal labels, and treats edges after arcs as
arcs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kmip_data.errors import DamagedInput

_TOKEN = re.compile(r'"([^"]*)"|(\S+)')
_EDGE_SECTIONS = {"*arcs", "*edges", "*arcslist", "*edgeslist"}


def parse_pajek(text: str, name: str, check_vertices: Callable[[int], None]) -> Any:
    """Parse a ``networkx.MultiDiGraph`` with vertices numbered from 1.

    Edges are added in both directions, arcs in one. Attributes are labels, coordinates, the mode in
    a two-mode network, weights, and relations (``*Arcs :1 "likes"``). Calls ``check_vertices`` with
    the declared number of vertices before it creates them. Raises ``DamagedInput`` naming the line.
    """
    import networkx as nx

    graph = nx.MultiDiGraph()
    section = ""
    relation = ""
    for line_number, line in enumerate(text.splitlines(), 1):
        cells = [quoted or bare for quoted, bare in _TOKEN.findall(line)]
        if not cells or line.lstrip().startswith("%"):
            continue
        try:
            if cells[0].startswith("*"):
                section = _begin_section(graph, cells, check_vertices)
                relation = cells[-1].removeprefix(":") if ":" in line else ""
            else:
                _add_line(graph, section, cells, relation)
        except (ValueError, IndexError) as error:
            raise DamagedInput(
                f"{name}, line {line_number}: {error}.", next="correct the line, or remove it"
            ) from error
    return graph


def _begin_section(graph: Any, cells: list[str], check_vertices: Callable[[int], None]) -> str:
    """Begin a section; return its name."""
    section = cells[0].lower().split(":")[0]
    if section == "*vertices":
        count = int(cells[1])
        check_vertices(count)
        graph.add_nodes_from(range(1, count + 1))
        if len(cells) > 2:
            for vertex in graph:
                graph.nodes[vertex]["mode"] = 1 + (vertex > int(cells[2]))
    elif section == "*network":
        graph.graph["name"] = " ".join(cells[1:])
    elif section == "*matrix":
        graph.graph["rows of the matrix"] = 0
    elif section not in _EDGE_SECTIONS:
        raise ValueError(f"{cells[0]} is not a section of a graph")
    return section


def _add_line(graph: Any, section: str, cells: list[str], relation: str) -> None:
    """Add the vertex, edges or matrix row of a line."""
    if section == "*vertices":
        _add_vertex(graph, cells)
    elif section in _EDGE_SECTIONS:
        _add_edges(graph, section, cells, {"relation": relation} if relation else {})
    elif section == "*matrix":
        graph.graph["rows of the matrix"] += 1
        source = graph.graph["rows of the matrix"]
        for target, weight in enumerate(map(float, cells), 1):
            if weight:
                graph.add_edge(source, _existing_vertex(graph, str(target)), weight=weight)
    else:
        raise ValueError(f"{' '.join(cells)[:80]!r} is in no section")


def _add_vertex(graph: Any, cells: list[str]) -> None:
    """Add a vertex: number, label, up to three coordinates, shape, and name-value pairs."""
    vertex = _existing_vertex(graph, cells[0])
    data: dict[str, object] = {"label": cells[1] if len(cells) > 1 else ""}
    rest = cells[2:]
    for axis in "xyz":
        if rest and re.fullmatch(r"[-+.\deE]+", rest[0]):
            data[f"position {axis}"] = float(rest.pop(0))
    if len(rest) % 2:
        data["shape"] = rest.pop(0)
    data |= dict(zip(rest[::2], rest[1::2], strict=True))
    graph.add_node(vertex, **data)


def _add_edges(graph: Any, section: str, cells: list[str], data: dict[str, object]) -> None:
    """Add the edge of a line, or all edges of a line in a list section."""
    source = _existing_vertex(graph, cells[0])
    if section.endswith("list"):
        targets = [_existing_vertex(graph, cell) for cell in cells[1:]]
    else:
        targets = [_existing_vertex(graph, cells[1])]
        rest = cells[2:]
        if len(rest) % 2:
            data["weight"] = float(rest.pop(0))
        data |= dict(zip(rest[::2], rest[1::2], strict=True))
    for target in targets:
        graph.add_edge(source, target, **data)
        if section.startswith("*edges") and source != target:
            graph.add_edge(target, source, **data)


def _existing_vertex(graph: Any, cell: str) -> int:
    vertex = abs(int(cell))  # negative numbers mark dotted lines
    if vertex not in graph:
        raise ValueError(f"there is no vertex {cell}")
    return vertex
