"""Read graphs in Graphviz's DOT language, as programs write them.

Our own reader, because pydot is slow, and networkx makes nodes of ports and leaves out nodes that
only a subgraph has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

import networkx as nx

from kmip_data.errors import DamagedInput

_TOKEN = re.compile(
    r"""(?P<blank> (?: \s+ | //[^\n]* | /\*.*?\*/ | ^\#[^\n]* )+ )
    | (?P<name> [^\W\d]\w* | -?(?: \.\d+ | \d+(?:\.\d*)? )(?![\w.]) )
    | "(?P<quoted> [^"\\]*(?:\\.[^"\\]*)* )"
    | <(?P<html> [^<>]*(?:<[^<>]*>[^<>]*)* )>
    | (?P<mark> -> | -- | [][{}=;,:] )""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_KEYWORDS = {"strict", "graph", "digraph", "node", "edge", "subgraph"}
_MAX_DEPTH = 64  #: subgraphs inside each other
_NODE_NAME = r"\N"  #: label that stands for the name of the node

Attributes = dict[str, object]


@dataclass
class _Scope:
    """Graph or subgraph that is being read."""

    #: Attributes of the graph, and of later nodes and edges.
    defaults: dict[str, Attributes] = field(
        default_factory=lambda: {"graph": {}, "node": {}, "edge": {}}
    )
    cluster: str = ""  #: innermost subgraph with such a name
    nodes: dict[str, None] = field(default_factory=dict)  #: names, in order


def parse_dot(text: str, name: str, check_size: Callable[[int], None]) -> list[Any]:
    """Return the networkx graphs of a file.

    ``check_size`` takes the number of nodes and edges as it grows, before any edges between two
    subgraphs are created. Raises ``DamagedInput`` with the line of the first thing that cannot be read.
    """
    reader = _Reader(text, name, check_size)
    graphs = []
    while reader.kind != "end":
        graphs.append(reader.read_graph())
    return graphs


class _Reader:
    """Parser that knows the next token: its kind is ``id``, ``end``, or the mark or keyword itself."""

    def __init__(self, text: str, name: str, check_size: Callable[[int], None]) -> None:
        self._text = text
        self._name = name
        self._check_size = check_size
        self._tokens = self._tokenize()
        self._num_edges = 0
        self._advance()

    def _tokenize(self) -> Iterator[tuple[str, str, int]]:
        """Yield kind, text and position of each token."""
        end = 0
        while end < len(self._text):
            match = _TOKEN.match(self._text, end)
            if match is None:
                self._position = end
                raise self._error("this is no word, text or mark of DOT")
            group = match.lastgroup or ""
            text = match[group]
            if group == "quoted":
                text = text.replace("\\\n", "").replace('\\"', '"')
            if group == "mark" or (group == "name" and text.lower() in _KEYWORDS):
                yield text.lower(), text, end
            elif group != "blank":
                yield "id", text, end
            end = match.end()
        yield "end", "", end

    def _advance(self) -> None:
        self.kind, self._token, self._position = next(self._tokens)

    def _accept(self, *kinds: str) -> str:
        """Skip the next token if it is one of these kinds; return its kind, or nothing."""
        kind = self.kind
        if kind not in kinds:
            return ""
        self._advance()
        return kind

    def _expect(self, kind: str, context: str) -> None:
        if not self._accept(kind):
            raise self._error(f"{kind} is missing {context}")

    def _read_id(self, context: str = "") -> str:
        """Read a name, a number or a text."""
        text = self._token
        if not self._accept("id"):
            raise self._error(f"a name is missing {context}")
        return text

    def read_graph(self) -> Any:
        """Read a graph; one that is ``strict`` has no repeated edges."""
        is_strict = bool(self._accept("strict"))
        kind = self._accept("graph", "digraph")
        if not kind:
            raise self._error("graph or digraph is missing")
        self._arrow = "->" if kind == "digraph" else "--"
        self._graph = nx.Graph() if is_strict else nx.MultiGraph()
        if kind == "digraph":
            self._graph = self._graph.to_directed()
        attributes: Attributes = {}
        if self.kind == "id":
            attributes["name"] = self._read_id()
        scope = _Scope()
        self._read_statements(scope, depth=0)
        attributes |= scope.defaults["graph"]
        if attributes.get("label") == attributes.get("name"):  # LLVM repeats the name as a title
            attributes.pop("label", None)
        self._graph.graph.update(attributes)
        return self._graph

    def _read_statements(self, scope: _Scope, depth: int) -> None:
        self._expect("{", "before the statements of a graph")
        while not self._accept("}"):
            if not self._accept(";", ","):
                self._read_statement(scope, depth)

    def _read_statement(self, scope: _Scope, depth: int) -> None:
        """Read attributes of what follows, or nodes and the edges between them."""
        # 1. Attributes: label="…" is short for graph [label="…"].
        if level := self._accept("graph", "node", "edge"):
            scope.defaults[level] |= self._read_attributes()
            return
        name = self._read_id() if self.kind == "id" else None
        if name is not None and self._accept("="):
            scope.defaults["graph"][name] = self._read_id("after =")
            return

        # 2. A chain of nodes and subgraphs: the nodes of each, and their ports.
        chain = [self._read_end(scope, depth, name)]
        while self._accept(self._arrow):
            chain.append(self._read_end(scope, depth))

        # 3. The attributes of its edges, or of a single node.
        attributes = self._read_attributes()
        if len(chain) == 1:
            for node in chain[0] if name is not None else ():
                self._graph.nodes[node].update(attributes)
        for tails, heads in pairwise(chain):
            self._add_edges(tails, heads, scope.defaults["edge"] | attributes)

    def _read_end(self, scope: _Scope, depth: int, name: str | None = None) -> dict[str, str]:
        """Read a node, whose ``name`` may be known, or a subgraph; return the port of each node."""
        if name is None and self.kind == "id":
            name = self._read_id()
        if name is None:
            if self.kind not in {"subgraph", "{"}:
                raise self._error(f"no statement of a graph with {self._arrow} begins so")
            return dict.fromkeys(self._read_subgraph(scope, depth), "")
        port = ""
        while self._accept(":"):
            port += f":{self._read_id('after :')}"
        self._add_node(name, scope)
        return {name: port.removeprefix(":")}

    def _read_subgraph(self, outer: _Scope, depth: int) -> dict[str, None]:
        """Read a subgraph; return its nodes."""
        if depth == _MAX_DEPTH:
            raise self._error(f"more than {_MAX_DEPTH} subgraphs are inside each other")
        scope = _Scope(cluster=outer.cluster)
        for level in ("node", "edge"):
            scope.defaults[level] |= outer.defaults[level]
        if self._accept("subgraph") and self.kind == "id":
            name = self._read_id()
            scope.cluster = name if name.startswith("cluster") else outer.cluster
        self._read_statements(scope, depth + 1)
        outer.nodes |= scope.nodes
        return scope.nodes

    def _read_attributes(self) -> Attributes:
        """Read any number of lists in brackets."""
        attributes: Attributes = {}
        while self._accept("["):
            while not self._accept("]"):
                key = self._read_id("in a list of attributes")
                self._expect("=", f"after {key}")
                attributes[key] = self._read_id("after =")
                self._accept(",", ";")
        if attributes.get("label") == _NODE_NAME:
            del attributes["label"]
        return attributes

    def _add_node(self, name: str, scope: _Scope) -> None:
        """Add a node unless it exists; earlier nodes keep their attributes."""
        if name not in self._graph:
            self._check_size(self._num_edges + len(self._graph))
            self._graph.add_nodes_from([(name, scope.defaults["node"])])
        if scope.cluster:
            self._graph.nodes[name].setdefault("cluster", scope.cluster)
        scope.nodes[name] = None

    def _add_edges(
        self, tails: dict[str, str], heads: dict[str, str], attributes: Attributes
    ) -> None:
        """Add an edge from each tail to each head; ports become attributes, as in Graphviz."""
        self._num_edges += len(tails) * len(heads)
        self._check_size(self._num_edges + len(self._graph))
        for (tail, tail_port), (head, head_port) in product(tails.items(), heads.items()):
            ports = {"tailport": tail_port, "headport": head_port}
            data = attributes | {key: port for key, port in ports.items() if port}
            self._graph.add_edges_from([(tail, head, data)])

    def _error(self, problem: str) -> DamagedInput:
        line = self._text.count("\n", 0, self._position) + 1
        found = self._text[self._position : self._position + 40]
        return DamagedInput(
            f"{self._name}, line {line}: {problem}.",
            expected="nodes, edges, subgraphs and attributes of Graphviz's language DOT",
            found=repr(found) if found else "the end of the file",
            steps="correct the line",
        )
