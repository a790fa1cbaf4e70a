"""GraphML and GEXF, read by networkx, and GML, DOT, JSON and Pajek; attributes become columns.

XML document types are refused, because they can define entities that expand to gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ElementTree, ParseError, fromstring, tostring

from kmip_data.columns.column_roles import Level
from kmip_data.errors import DamagedInput, OpenQuestions
from kmip_data.files.small_files import InflateError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import Findings, Notices
from kmip_data.pipelines.datasets.graphs.graph_format import COMMON_PARAMETERS, GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.readers.table_files import (
    TABLE_SUFFIXES,
    is_text,
    note_no_table,
    tables_of_file,
)
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.graphs_from_tables import graphs_from_tables
from kmip_data.pipelines.datasets.graphs.tables.roles.graph_labels import add_columns_of_graphs
from kmip_data.pipelines.datasets.graphs.tables.roles.joined_files import forms_of_names
from kmip_data.pipelines.datasets.graphs.tables.table import Table, attribute_tables
from kmip_data.pipelines.formats.file_heads import decompressed_head, is_gzip, read_checked
from kmip_data.pipelines.formats.graph_texts.dot import parse_dot
from kmip_data.pipelines.formats.graph_texts.gml import parse_gml
from kmip_data.pipelines.formats.graph_texts.json_graphs import may_be_graph, parse_json_graphs
from kmip_data.pipelines.formats.graph_texts.pajek import parse_pajek
from kmip_data.pipelines.formats.text import decode_text
from kmip_data.pipelines.formats.typed_tables.frames import is_frame_file
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
    others = [head for name, head in heads.items() if not is_frame_file(name, head)]
    formats = [_detect_format(head) for head in others]
    if {*formats} - {"", "JSON"} or {*formats} == {"JSON"}:
        return True
    return any(
        name == "JSON" and may_be_graph(head) for name, head in zip(formats, others, strict=True)
    )


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


def _format_of_file(path: Path) -> str:
    """Return the format of a file; empty for tables and other files."""
    head = decompressed_head(path, _HEAD_BYTES)
    return "" if is_frame_file(path.name, head) else _detect_format(head)


def read(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graphs of all files, in memory; undirected edges get their reverse."""
    import networkx as nx

    size = 0
    formats = {file: _format_of_file(folder / file) for file in files}
    graph_files = [file for file in files if formats[file]]
    shown = list_names(graph_files, 60)
    rows: dict[Level, list[dict[str, object]]] = {"graph": [], "node": [], "edge": []}
    other_tables: list[Table] = []
    file_of_graph: list[str] = []

    def check_size(size_of_file: int) -> None:
        options.check_memory(_BYTES_PER_FILE_BYTE * (size + size_of_file), Path(file).name)

    for file in files:
        path = folder / file
        file_format = formats[file]
        if not file_format:
            other_tables += _tables_of_other_file(path, graph_files, options, findings.notices)
            continue
        if is_gzip(path) and file.removesuffix(".gz") in files:
            findings.notices.ignored[file] = "its unpacked file is read"
            continue
        if file_format == "Pajek" and path.suffix.lower() in _PAJEK_VALUES:
            raise _pajek_values_error(path)
        try:
            data = read_checked(path, check_size)
            size += len(data)
            graphs = _parse_graphs(data, file, file_format, options)
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
            problem = f"{file} cannot be read as {file_format}: {error or type(error).__name__}"
            raise DamagedInput(problem, steps=_REMEDY) from error
        for number, graph in enumerate(graphs):
            name = str(Path(re.sub(r"\.gz$", "", file)).with_suffix(""))
            location = file
            if number:
                name += f"/{number}"
                location += f", graph {number} (from 0)"
            names = _node_names(graph) if file_format in _FORMATS_WITH_INTERNAL_IDS else {}
            add_graph(graph, name, location, rows, names)
            file_of_graph.append(file)
    if _FORMATS_WITHOUT_ENCODING.isdisjoint(formats.values()):
        options.refuse_unread({"encoding": "only GML, DOT and Pajek files do not state theirs"})
    if not other_tables:
        options.refuse_unread({"header": "only tables next to the graph files are read with it"})
    tables = attribute_tables(rows, shown, findings.notices)
    tables["graph"] = add_columns_of_graphs(
        tables, file_of_graph, other_tables, options.params, findings.notices
    )
    yield from graphs_from_tables(tables, options, findings)


def _tables_of_other_file(
    path: Path, graph_files: Sequence[str], options: ReadOptions, notices: Notices
) -> list[Table]:
    """Return the tables of a file next to graphs; none, with a note, if it is another file.

    A first line that may be names of columns or data is data if it has the name of a graph file.
    """
    read_tables = partial(tables_of_file, path, "graph", notices=notices)
    try:
        if is_frame_file(path.name, decompressed_head(path)) or is_text(decompressed_head(path)):
            try:
                return read_tables(options)
            except OpenQuestions:
                tables = read_tables(options.with_params(header="yes"))
                names = {name for form in forms_of_names(graph_files) for name in form}
                if names.isdisjoint(tables[0].column_names):
                    return tables
                return read_tables(options.with_params(header="no"))
    except DamagedInput as error:
        if path.suffix.lower() in TABLE_SUFFIXES:
            raise
        note_no_table(notices, path.name, error)
        return []
    notices.ignored[path.name] = "not GraphML, GEXF, GML, DOT, Pajek or JSON"
    return []


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


def _node_names(graph: Any) -> dict[Any, str]:
    """Return the label of each node if they are distinct; empty otherwise."""
    names = {node: str(data.get("label", "")).strip() for node, data in graph.nodes(data=True)}
    distinct = set(names.values())
    return names if len(distinct) == len(names) and "" not in distinct else {}


def add_graph(
    graph: Any,
    name: str,
    location: str,
    rows: Mapping[Level, list[dict[str, object]]],
    node_names: Mapping[Any, str] | None = None,
) -> None:
    """Append rows for a networkx graph, its nodes and its edges, with the defaults of its file.

    ``location`` is the file or graph that errors name. ``node_names`` replace the ids of the graph.
    """
    names = node_names or {node: str(node) for node in graph}
    data = dict(graph.graph)
    node_defaults = data.pop("node_default", {})
    edge_defaults = data.pop("edge_default", {})
    if data.get("mode") == "static":  # an attribute of GEXF
        del data["mode"]
    rows["graph"].append(
        {**data, known_columns.GRAPH_KEY: name, known_columns.LOCATION_KEY: location}
    )
    for node, data in graph.nodes(data=True):
        node_row = {
            **node_defaults,
            **data,
            known_columns.GRAPH_KEY: name,
            known_columns.NODE_KEY: names[node],
        }
        node_row[known_columns.LOCATION_KEY] = f"{location}, node {node}"
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
        ends = {
            known_columns.SOURCE_KEY: names[source],
            known_columns.TARGET_KEY: names[target],
        }
        edge_row = {**edge_defaults, **data, **ends}
        edge_row |= {known_columns.GRAPH_KEY: name, known_columns.UNDIRECTED_KEY: undirected}
        edge_row[known_columns.LOCATION_KEY] = f"{location}, edge from {source} to {target}"
        rows["edge"].append(edge_row)


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
