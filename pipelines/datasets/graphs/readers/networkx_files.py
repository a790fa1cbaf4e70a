"""GraphML, GEXF, GML and JSON, read by networkx, and Pajek; attributes become columns of nodes, edges and graphs.

XML document types are refused, as they serve entities that expand to gigabytes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ElementTree, ParseError, parse, tostring

from kmip_data.columns.column_uses import Level
from kmip_data.errors import DamagedInput
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.graph_format import GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import roles
from kmip_data.pipelines.datasets.graphs.tables.graphs_of_tables import graphs_of_tables
from kmip_data.pipelines.datasets.graphs.tables.table import attribute_tables
from kmip_data.pipelines.formats.file_heads import decompressed_head, is_gzip
from kmip_data.pipelines.formats.pajek import parse_pajek
from kmip_data.pipelines.formats.text import decode_text

_EXPECTED = "GraphML, GEXF, GML, Pajek's .net or JSON of networkx"
_NEXT = "write it with networkx: write_graphml, write_gexf, write_gml, or node_link_data as JSON"
_BYTES_PER_FILE_BYTE = 60  #: memory per byte of a file: networkx takes 55 for edges
_HEAD = 1 << 16  #: bytes searched for a document type
#: Lines such as ``Creator "…"``, comments, and then the graph.
_GML = re.compile(rb"((#|[a-z_]+[ \t])[^\n]*\n\s*)*graph\s*\[", re.IGNORECASE)
#: Attribute of an edge in GraphML and GEXF -> True if it goes one way.
_DIRECTED = {"true": True, "false": False, "directed": True, "undirected": False, "mutual": False}
_GRAPH = re.compile(r"\bgraph\s*\[", re.IGNORECASE)
_PAJEK = re.compile(rb"(%[^\n]*\n\s*)*\*(vertices|network)\b", re.IGNORECASE)
#: Suffix of a file of Pajek with a value for each vertex -> its content.
_PAJEK_VALUES = {".clu": "the clusters", ".vec": "numbers", ".per": "the order"}
#: Beginning of a file of Graphviz.
_DOT = re.compile(rb"(//[^\n]*\n\s*)*(strict\s+)?(di)?graph\b[^\[{\n]*\{", re.IGNORECASE)
#: Key of a JSON object -> networkx function that reads it.
_JSON = {
    "adjacency": "adjacency_graph",
    "elements": "cytoscape_graph",
    "nodes": "node_link_graph",
}


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True if a file is XML, GML or Pajek's, or if all are JSON, which also lies next to tables."""
    forms = set(map(_format_of, heads.values()))
    return bool(forms - {"", "JSON"}) or forms == {"JSON"}


def _format_of(head: bytes) -> str:
    """Return the name of a file's format by its beginning; empty for other files."""
    text = head.lstrip(b"\xef\xbb\xbf \r\n\t")
    if text.startswith(b"<"):
        return "GEXF" if b"<gexf" in text else "GraphML"
    if text.startswith((b"{", b"[")):
        return "JSON"
    if _DOT.match(text):
        return "DOT"
    if _PAJEK.match(text):
        return "Pajek"
    return "GML" if _GML.match(text) else ""


def read(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graphs of all files, in memory; undirected edges appear in both directions."""
    import networkx as nx

    size = sum((folder / file).stat().st_size for file in files)
    shown = ", ".join(files)[:200]
    options.claim(_BYTES_PER_FILE_BYTE * size, shown)
    rows: dict[Level, list[dict[str, object]]] = {"graph": [], "node": [], "edge": []}
    for file in files:
        path = folder / file
        form = _format_of(decompressed_head(path, _HEAD))
        if not form:
            findings.notices.ignored[file] = "not GraphML, GEXF, GML, Pajek or JSON"
            continue
        if form == "Pajek" and path.suffix.lower() in _PAJEK_VALUES:
            raise _pajek_values_error(path)
        if is_gzip(path):
            raise DamagedInput(f"{file} is {form}, gzipped.", next=f"gunzip {shlex.quote(file)}")
        if form == "DOT":
            new = str(Path(file).with_suffix(".graphml"))
            raise DamagedInput(
                f"{file} is a graph of Graphviz.",
                next=f"networkx.write_graphml(networkx.nx_pydot.read_dot({file!r}), {new!r})",
            )
        try:
            graphs = _parse_graphs(path, form, options.params.encoding)
        except (
            ParseError,
            nx.NetworkXError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            problem = f"{file} cannot be read as {form}: {error or type(error).__name__}"
            raise DamagedInput(problem, next=_NEXT) from error
        for number, graph in enumerate(graphs):
            name = str(Path(file).with_suffix(""))
            location = file
            if number:
                name += f"/{number}"
                location += f", graph {number} (from 0)"
            add_graph(graph, name, location, rows)
    yield from graphs_of_tables(attribute_tables(rows, shown, findings.notices), options, findings)


def _pajek_values_error(path: Path) -> DamagedInput:
    """Return the error for values of the vertices of a network, which are in a file of their own."""
    name = path.stem.replace("-", "_")
    return DamagedInput(
        f"{path.name} has {_PAJEK_VALUES[path.suffix.lower()]} of the vertices of a network, which is not read.",
        next="write the network with them as GraphML, and pass that file alone: graph = "
        "networkx.read_pajek('NETWORK.net', encoding='utf-8'); values = "
        f"open({path.name!r}).read().split()[2:]; networkx.set_node_attributes(graph, dict(zip(graph, values, "
        f"strict=True)), {name!r}); networkx.write_graphml(graph, 'NETWORK.graphml')",
    )


def add_graph(
    graph: Any, name: str, location: str, rows: Mapping[Level, list[dict[str, object]]]
) -> None:
    """Append rows for a networkx graph, its nodes and its edges, with the defaults of its file.

    ``location`` is the file or graph that errors name.
    """
    data = dict(graph.graph)
    node_defaults = data.pop("node_default", {})
    edge_defaults = data.pop("edge_default", {})
    if data.get("mode") == "static":  # an attribute of GEXF
        del data["mode"]
    rows["graph"].append({**data, roles.GRAPH: name, roles.LOCATION: location})
    for node, data in graph.nodes(data=True):
        node_row = {**node_defaults, **data, roles.GRAPH: name, roles.NODE: str(node)}
        node_row[roles.LOCATION] = f"{location}, node {node}"
        rows["node"].append(node_row)
    edges = graph.edges(data=True)
    if graph.is_multigraph():
        # Integer keys are numbers that networkx gives, not data.
        keyed = graph.edges(keys=True, data=True)
        edges = (
            (source, target, data if isinstance(key, int) else {"key": key, **data})
            for source, target, key, data in keyed
        )
    undirected = not graph.is_directed()
    for source, target, data in edges:
        ends = {roles.SOURCE: str(source), roles.TARGET: str(target)}
        edge_row = {**edge_defaults, **data, **ends}
        edge_row |= {roles.GRAPH: name, roles.UNDIRECTED: undirected}
        edge_row[roles.LOCATION] = f"{location}, edge from {source} to {target}"
        rows["edge"].append(edge_row)


def _parse_graphs(path: Path, form: str, encoding: str) -> list[Any]:
    """Return the graphs of a file."""
    import networkx as nx

    if form == "JSON":
        return _parse_json(path)
    if form == "GML":
        return [_parse_gml(decode_text(path.read_bytes(), path.name, encoding))]
    if form == "Pajek":
        return [parse_pajek(decode_text(path.read_bytes(), path.name, encoding), path.name)]
    if b"<!DOCTYPE" in decompressed_head(path, _HEAD):
        raise DamagedInput(f"{path.name} declares a document type.", next=_NEXT)
    if form == "GEXF":
        reader = nx.readwrite.gexf.GEXFReader(version="1.2draft")
        root = _in_one_namespace(path, reader.NS_GEXF, reader.NS_VIZ)
        for graph in root.iter(f"{{{reader.NS_GEXF}}}graph"):
            # The format's default, which networkx does not know.
            graph.attrib.setdefault("timeformat", "double")
            _make_mixed_directions_directed(graph, "defaultedgetype", "type")
        return [reader(BytesIO(tostring(root)))]
    reader = nx.readwrite.GraphMLReader()
    reader.xml = ElementTree(_in_one_namespace(path, reader.NS_GRAPHML, ""))
    keys, defaults = reader.find_graphml_keys(reader.xml)
    graphs = reader.xml.findall(f"{{{reader.NS_GRAPHML}}}graph")
    if not graphs:
        raise ValueError("no element <graph>")
    for graph in graphs:
        if graph.find(f"*//{{{reader.NS_GRAPHML}}}graph") is not None:
            raise DamagedInput(
                f"{path.name} has a graph inside of a node, which networkx leaves out.",
                next="move its nodes and edges into the outer graph",
            )
        _make_mixed_directions_directed(graph, "edgedefault", "directed")
    return [reader.make_graph(graph, keys, defaults) for graph in graphs]


def _make_mixed_directions_directed(graph: Element, default: str, own: str) -> None:
    """Make a graph directed if its edges differ in direction, with two edges for each undirected one.

    networkx refuses such graphs, and takes GEXF's ``mutual`` for one direction. ``default`` and
    ``own`` are the attributes of the graph and of an edge that tell the direction.
    """
    is_directed = graph.get(default) == "directed"
    edges = []
    for parent in graph.iter():
        edges += [(parent, edge) for edge in parent if edge.tag.endswith("}edge")]
    directions = [_DIRECTED.get(edge.get(own, ""), is_directed) for _, edge in edges]
    if set(directions) <= {is_directed}:
        return
    graph.set(default, "directed")
    for (parent, edge), one_way in zip(edges, directions, strict=True):
        edge.attrib.pop(own, None)
        edge.attrib.pop("id", None)  # else two edges would have the same id
        if one_way or edge.get("source") == edge.get("target"):
            continue
        reverse = deepcopy(edge)
        reverse.set("source", edge.attrib["target"])
        reverse.set("target", edge.attrib["source"])
        parent.append(reverse)


def _parse_gml(text: str) -> Any:
    """Return the graph of GML; repeated edges are allowed without its line ``multigraph 1``."""
    import networkx as nx

    try:
        return nx.parse_gml(text, label="id")
    except nx.NetworkXError as error:
        if "duplicated" not in str(error):
            raise
    return nx.parse_gml(_GRAPH.sub(r"\g<0> multigraph 1 ", text, count=1), label="id")


def _in_one_namespace(path: Path, namespace: str, viz: str) -> Element:
    """Return the root of an XML file in one namespace, whatever its version, without blanks around values."""
    root = parse(path).getroot()  # noqa: S314 -- document types are refused
    root_namespace = root.tag.rpartition("}")[0]
    for element in root.iter():
        prefix, _, name = element.tag.rpartition("}")
        if prefix in {"", root_namespace}:
            element.tag = f"{{{namespace}}}{name}"
        elif prefix.endswith("/viz") and viz:
            element.tag = f"{{{viz}}}{name}"
        if element.text and name in {"data", "default"}:
            element.text = element.text.strip()
        if "value" in element.attrib:
            element.attrib["value"] = element.attrib["value"].strip()
    return root


def _parse_json(path: Path) -> list[Any]:
    """Return the graphs of a file: one object of networkx, or a list of them."""
    import networkx as nx

    graphs = []
    values = json.loads(path.read_bytes().decode("utf-8-sig"))
    for value in values if isinstance(values, list) else [values]:
        keys = list(value) if isinstance(value, dict) else []
        known = next((key for key in _JSON if key in keys), None)
        if known is None:
            raise ValueError(f"no {', '.join(_JSON)} among {keys[:10]}")
        options = {}
        if known == "nodes":  # networkx before 3.4 wrote links
            options["edges"] = "links" if "links" in value else "edges"
            _match_ends(value, options["edges"])
        graph = getattr(nx, _JSON[known])(value, **options)
        if known == "elements":  # Cytoscape's copies of ids
            for _, data in graph.nodes(data=True):
                data.pop("value", None)
                data.pop("name", None)
            for *_, data in graph.edges(data=True):
                data.pop("source", None)
                data.pop("target", None)
        graphs.append(graph)
    return graphs


def _match_ends(value: dict[str, Any], edges: str) -> None:
    """Give the ends of links the ids of nodes that have the same text: 7 and "7" are one node, as in tables.

    networkx would add a second node. Ids that are the same as texts stay as they are.
    """
    ids = [node["id"] for node in value["nodes"] if "id" in node]
    by_text = {str(node): node for node in ids}
    if len(by_text) < len(ids):
        return
    for link in value[edges]:
        for end in ("source", "target"):
            if end in link:
                link[end] = by_text.get(str(link[end]), link[end])


FORMAT = GraphFormat(_EXPECTED, recognises, read)
