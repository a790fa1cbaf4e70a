"""GraphML and GEXF, read by networkx, and GML, DOT, JSON and Pajek; attributes become columns.

XML document types are refused, because they can define entities that expand to gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ElementTree, ParseError, fromstring, tostring

from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import InflateError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.graph_format import COMMON_PARAMETERS, GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.formats.file_heads import decompressed_head, is_gzip, read_checked
from kmip_data.pipelines.formats.graph_texts.dot import parse_dot
from kmip_data.pipelines.formats.graph_texts.gml import parse_gml
from kmip_data.pipelines.formats.graph_texts.json_graphs import (
    is_json_table,
    may_be_graph,
    parse_json_graphs,
)
from kmip_data.pipelines.formats.graph_texts.pajek import parse_pajek
from kmip_data.pipelines.formats.text import decode_text
from kmip_data.pipelines.own.files import is_typed, read_tables
from kmip_data.pipelines.own.format import check_named_columns
from kmip_data.pipelines.own.graphs import graphs_of_tables
from kmip_data.pipelines.own.networks import Networks
from kmip_data.pipelines.own.roles import with_tables
from kmip_data.text import list_names

_EXPECTED = "GraphML, GEXF, GML, DOT, Pajek's .net or JSON of node_link_data"
_REMEDY = "write it with networkx: write_graphml, write_gexf, write_gml, or node_link_data as JSON"
_BYTES_PER_FILE_BYTE = 60  #: memory per byte of a file: networkx takes 55 for edges
#: Memory of a vertex that Pajek declares by number, and of a node or an edge of DOT: a build takes 940
#: and 1,200.
_BYTES_PER_ROW = 1_200
#: Formats whose ids only connect nodes and edges; a node is called by its label.
_FORMATS_WITH_INTERNAL_IDS = {"GML", "GEXF", "Pajek"}
_FORMATS_WITHOUT_ENCODING = {"GML", "Pajek", "DOT"}
_HEAD_BYTES = 1 << 16  #: bytes searched for a document type
#: Beginning of a GML file: lines such as ``Creator "…"``, comments, and then the graph.
_GML = re.compile(rb"((#|[a-z_]+[ \t])[^\n]*\n\s*)*graph\s*\[", re.IGNORECASE)
#: Direction of an edge in GraphML and GEXF -> True if it is directed.
_DIRECTED = {"true": True, "false": False, "directed": True, "undirected": False, "mutual": False}
_PAJEK = re.compile(rb"(%[^\n]*\n\s*)*\*(vertices|network)\b", re.IGNORECASE)
#: Suffix of a Pajek file with a value for each vertex -> its content.
_PAJEK_VALUES = {".clu": "the clusters", ".vec": "numbers", ".per": "the order"}
#: Beginning of a Graphviz file: comments, and then a graph with or without a name.
_DOT = re.compile(
    rb"(?:(?://|#)[^\n]*\n\s*|/\*.*?\*/\s*)*(?:strict\s+)?(?:di)?graph\b"
    rb'\s*(?:"[^"]*"|[^\s\[{"]*)\s*\{',
    re.IGNORECASE | re.DOTALL,
)


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True if a file is XML, GML, DOT, Pajek or a graph in JSON, or if all are JSON.

    Other JSON also lies next to tables of edges.
    """
    formats = {name: _format_of(name, head) for name, head in heads.items()}
    if {*formats.values()} - {"", "JSON"} or {*formats.values()} == {"JSON"}:
        return True
    return any(formats[name] == "JSON" and may_be_graph(head) for name, head in heads.items())


def _format_of(name: str, head: bytes) -> str:
    """Return the format of a file by its name and first bytes; empty for tables and other files."""
    return "" if is_typed(name) or is_json_table(head) else _detect_format(head)


def _detect_format(head: bytes) -> str:
    """Return the format of a file by its first bytes; empty if it is none of these."""
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
    """Yield the graphs of all files, in memory; undirected edges get their reverse.

    The columns of tables next to them are those of the graphs or nodes that a key of theirs names.
    """
    import networkx as nx

    notices = findings.notices
    formats = {
        file: _format_of(file, decompressed_head(folder / file, _HEAD_BYTES)) for file in files
    }
    graph_files = [file for file in files if formats[file]]
    other_files = [file for file in files if not formats[file]]
    networks = Networks()
    size = 0

    def check_size(size_of_file: int) -> None:
        options.check_memory(_BYTES_PER_FILE_BYTE * (size + size_of_file), Path(file).name)

    for file in graph_files:
        if is_gzip(folder / file) and file.removesuffix(".gz") in files:
            notices.ignored[file] = "its unpacked file is read"
            continue
        if formats[file] == "Pajek" and Path(file).suffix.lower() in _PAJEK_VALUES:
            raise _pajek_values_error(Path(file))
        try:
            data = read_checked(folder / file, check_size)
            size += len(data)
            graphs = _parse_graphs(data, file, formats[file], options)
        except (
            EOFError,
            InflateError,
            ParseError,
            nx.NetworkXError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            problem = f"{file} cannot be read as {formats[file]}: {error or type(error).__name__}"
            raise DamagedInput(problem, steps=_REMEDY) from error
        for number, graph in enumerate(graphs):
            labels = _labels(graph) if formats[file] in _FORMATS_WITH_INTERNAL_IDS else {}
            networks.add(graph, file, number, labels)
    roles = networks.roles(list_names(graph_files, 60), options, notices.ignored)

    if _FORMATS_WITHOUT_ENCODING.isdisjoint(formats.values()):
        options.refuse_unread({"encoding": "only GML, DOT and Pajek files do not state theirs"})
    if other_files:
        tables = read_tables(folder, other_files, options, notices, [*roles.tables.values()])
        roles = with_tables(roles, tables, options, findings)
    else:
        options.refuse_unread({"header": "only tables next to the graph files are read with it"})
    check_named_columns([*roles.tables.values()], options, findings)
    yield from graphs_of_tables(roles, options, findings)


def _pajek_values_error(path: Path) -> DamagedInput:
    """Return the error for a file of vertex values, with the code that adds them to the network."""
    return DamagedInput(
        f"{path.name} has {_PAJEK_VALUES[path.suffix.lower()]} of a network's vertices, which is not read.",
        steps="write the network with them as GraphML, and pass only that file: graph = "
        "networkx.read_pajek('NETWORK.net', encoding='utf-8'); values = "
        f"open({path.name!r}).read().split()[2:]; networkx.set_node_attributes(graph, "
        f"dict(zip(graph, values, strict=True)), {path.stem.replace('-', '_')!r}); "
        "networkx.write_graphml(graph, 'NETWORK.graphml')",
    )


def _labels(graph: Any) -> dict[Any, str]:
    """Return the label of each node if they are distinct; empty otherwise."""
    names = {node: str(data.get("label", "")).strip() for node, data in graph.nodes(data=True)}
    distinct = set(names.values())
    return names if len(distinct) == len(names) and "" not in distinct else {}


def _parse_graphs(data: bytes, file: str, file_format: str, options: ReadOptions) -> list[Any]:
    """Return the networkx graphs of a file."""
    name = Path(file).name
    if file_format == "JSON":
        return parse_json_graphs(data, name)
    if file_format in _FORMATS_WITHOUT_ENCODING:
        text = decode_text(data, name, options.params.encoding)
        if file_format == "GML":
            return parse_gml(text, name)

        def check_size(count: int) -> None:
            options.check_memory(_BYTES_PER_ROW * count, name)

        if file_format == "DOT":
            return parse_dot(text, name, check_size)
        return [parse_pajek(text, name, check_size)]
    if b"<!DOCTYPE" in data[:_HEAD_BYTES]:
        raise DamagedInput(f"{name} declares a document type.", steps=_REMEDY)
    return _parse_gexf(data) if file_format == "GEXF" else _parse_graphml(data, name)


def _parse_gexf(data: bytes) -> list[Any]:
    """Return the graph of a GEXF file of any version; edges without a weight have weight 1."""
    import networkx as nx

    reader = nx.readwrite.gexf.GEXFReader(version="1.2draft")
    root = _parse_xml(data, reader.NS_GEXF, reader.NS_VIZ)
    for graph in root.iter(f"{{{reader.NS_GEXF}}}graph"):
        # networkx does not know the default of the format.
        graph.attrib.setdefault("timeformat", "double")
        _direct_mixed_edges(graph, "defaultedgetype", "type")
    graph = reader(BytesIO(tostring(root)))
    # Gephi leaves out weights of 1, the default of the schema. A graph without weights gets none.
    if any("weight" in edge.attrib for edge in root.iter(f"{{{reader.NS_GEXF}}}edge")):
        for *_, attributes in graph.edges(data=True):
            attributes.setdefault("weight", 1.0)
    return [graph]


def _parse_graphml(data: bytes, name: str) -> list[Any]:
    """Return the graphs of a GraphML file; refuse nested graphs."""
    import networkx as nx

    reader = nx.readwrite.GraphMLReader()
    reader.xml = ElementTree(_parse_xml(data, reader.NS_GRAPHML, ""))
    keys, defaults = reader.find_graphml_keys(reader.xml)
    graphs = reader.xml.findall(f"{{{reader.NS_GRAPHML}}}graph")
    if not graphs:
        raise ValueError("no element <graph>")
    for graph in graphs:
        if graph.find(f"*//{{{reader.NS_GRAPHML}}}graph") is not None:
            raise DamagedInput(
                f"{name} has a graph inside a node, which networkx leaves out.",
                steps="move its nodes and edges into the outer graph",
            )
        _direct_mixed_edges(graph, "edgedefault", "directed")
    return [reader.make_graph(graph, keys, defaults) for graph in graphs]


def _direct_mixed_edges(graph: Element, graph_attribute: str, edge_attribute: str) -> None:
    """Turn undirected edges of a mixed graph into two directed edges each.

    networkx refuses mixed graphs, and reads GEXF's ``mutual`` as one direction. The attributes are
    those with the direction of all edges, and of one edge.
    """
    is_directed = graph.get(graph_attribute) == "directed"
    edges = []
    for parent in graph.iter():
        edges += [(parent, edge) for edge in parent if edge.tag.endswith("}edge")]
    directions = [_DIRECTED.get(edge.get(edge_attribute, ""), is_directed) for _, edge in edges]
    if set(directions) <= {is_directed}:
        return
    graph.set(graph_attribute, "directed")
    for (parent, edge), is_one_way in zip(edges, directions, strict=True):
        edge.attrib.pop(edge_attribute, None)
        edge.attrib.pop("id", None)  # ids of the two edges must not be equal
        if is_one_way or edge.get("source") == edge.get("target"):
            continue
        reverse = deepcopy(edge)
        reverse.set("source", edge.attrib["target"])
        reverse.set("target", edge.attrib["source"])
        parent.append(reverse)


def _parse_xml(data: bytes, namespace: str, viz: str) -> Element:
    """Return the root of an XML file of any version, in these namespaces, with stripped values."""
    root = fromstring(data)  # noqa: S314 -- document types are refused
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


FORMAT = GraphFormat(
    name="GraphML, GEXF, GML, DOT, Pajek and JSON files",
    expected=_EXPECTED,
    recognises=recognises,
    read=read,
    parameters=COMMON_PARAMETERS
    | {
        "categories",
        "decimal",
        "encoding",
        "feature",
        "group",
        "header",
        "ignore",
        "missing",
        "rounded",
        "undirected",
    },
)
