"""Read Pajek's ``.net`` format.

Our own reader, because networkx merges vertices with equal labels, and treats edges after arcs as
arcs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import first_problem

_TOKEN = re.compile(r'"([^"]*)"|(\S+)')
_EDGE_SECTIONS = {"*arcs", "*edges", "*arcslist", "*edgeslist"}
#: Section of a project with a value for each vertex -> suffix of the same as a file.
_VALUE_SECTIONS = {"*partition": ".clu", "*vector": ".vec", "*permutation": ".per"}
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_SHAPES = {"ellipse", "box", "diamond", "triangle", "cross", "house", "man", "woman", "empty"}
#: Names of Pajek's parameters of a vertex, each followed by its value.
_PARAMETERS = {
    *("ic", "bc", "bw", "lc", "la", "lr", "lphi", "fos", "font"),
    *("x_fact", "y_fact", "phi", "r", "q", "s_size"),
}


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
    row = 0  # of the section
    for line_number, line in enumerate(text.splitlines(), 1):
        cells = [quoted or bare for quoted, bare in _TOKEN.findall(line)]
        if not cells or line.lstrip().startswith("%"):
            continue
        try:
            if cells[0].startswith("*"):
                section = _begin_section(graph, cells, check_vertices)
                relation = cells[-1].removeprefix(":") if ":" in line else ""
                row = 0
            else:
                row += 1
                _add_line(graph, section, row, cells, relation)
        except (ValueError, IndexError) as error:
            remedy = "correct the line"
            if suffix := _VALUE_SECTIONS.get(cells[0].lower()):
                remedy = f"remove the line, and move those below it into a {suffix} file"
            raise DamagedInput(
                f"{name}, line {line_number}: {first_problem(error)}.", steps=remedy
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
    elif section not in _EDGE_SECTIONS | {"*matrix"}:
        raise ValueError(f"{cells[0]} is not a section of a graph")
    return section


def _add_line(graph: Any, section: str, row: int, cells: list[str], relation: str) -> None:
    """Add the vertex, edges or matrix row of a line."""
    data: dict[str, object] = {"relation": relation} if relation else {}
    if section == "*vertices":
        _add_vertex(graph, cells)
    elif section in _EDGE_SECTIONS:
        _add_edges(graph, section, cells, data)
    elif section == "*matrix":
        _add_matrix_row(graph, row, cells, data)
    else:
        raise ValueError(f"{' '.join(cells)[:80]!r} is in no section")


def _add_vertex(graph: Any, cells: list[str]) -> None:
    """Add a vertex: number, label, up to three coordinates, shape, and name-value pairs."""
    vertex = _existing_vertex(graph, cells[0])
    data: dict[str, object] = {"label": cells[1] if len(cells) > 1 else ""}
    rest = cells[2:]
    for axis in "xyz":
        if rest and _NUMBER.fullmatch(rest[0]):
            data[f"position {axis}"] = float(rest.pop(0))
    if rest and (rest[0].lower() in _SHAPES or (len(rest) % 2 and rest[0] not in _PARAMETERS)):
        data["shape"] = rest.pop(0)
    data |= _named_values(rest, "number, label, coordinates, shape, and names with values")
    graph.add_node(vertex, **data)


def _named_values(cells: list[str], order: str) -> dict[str, str]:
    """Return the values that follow their names; a number or an interval of time is no name."""
    names = cells[::2]
    if len(cells) % 2 or any(
        _NUMBER.fullmatch(name) or name.startswith(("[", "<")) for name in names
    ):
        raise ValueError(f"{' '.join(cells)[:80]!r} is not in the order {order}")
    return dict(zip(names, cells[1::2], strict=True))


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
        data |= _named_values(rest, "source, target, weight, and names with values")
    for target in targets:
        graph.add_edge(source, target, **data)
        if section.startswith("*edges") and source != target:
            graph.add_edge(target, source, **data)


def _add_matrix_row(graph: Any, row: int, cells: list[str], data: dict[str, object]) -> None:
    """Add the edges of a row; without the columns of the first mode, targets are the second mode."""
    source = _existing_vertex(graph, str(row))
    targets = list(graph)
    if len(cells) != len(targets):
        targets = [vertex for vertex, mode in graph.nodes(data="mode") if mode == 2]
    if len(cells) != len(targets):
        raise ValueError(f"a row of {len(cells)} weights does not fit {len(graph)} vertices")
    for target, weight in zip(targets, map(float, cells), strict=True):
        if weight:
            graph.add_edge(source, target, **data, weight=weight)


def _existing_vertex(graph: Any, cell: str) -> int:
    vertex = abs(int(cell))  # negative numbers mark dotted lines
    if vertex not in graph:
        raise ValueError(f"there is no vertex {cell}")
    return vertex
