"""MalNet-Tiny: function call graphs of Android apps, without features, in five types.

Raw layout: ``<type>/<family>/<SHA-256>.edgelist``, five comment lines and a directed edge a line; and
``type/{train,val,test}.txt`` with a path of a graph a line. Facts and deviations:
``docs/datasets/malnet-tiny.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from kmip_data.errors import DamagedInput
from kmip_data.format.record import GraphRecord
from kmip_data.format.schema import Column, Schema
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import (
    Params,
    Pipeline,
    Prepared,
    RawFolder,
    Records,
    Split,
    SplitParams,
    Unit,
    raw_lists,
)
from kmip_data.pipelines.clouds.graphs import advised
from kmip_data.pipelines.formats.edge_text import parse_edges
from kmip_data.pipelines.formats.text_lists import read_lines

PARTS = ("train", "val", "test")
LABEL_ORDERS = {
    "alphabetical": ("addisplay", "adware", "benign", "downloader", "trojan"),
    "first-seen": ("adware", "benign", "downloader", "trojan", "addisplay"),
}
TEXT_PER_UNIT = 8 * 2**20  #: bytes of edge lists that become one shard, about a third of them
KEY_LENGTH = 64  #: hex digits of the app's SHA-256


class MalNetTinyParams(Params):
    """Parameters that change the records."""

    isolated: Literal["drop", "keep"] = Field(
        default="drop",
        description="drop: only nodes with an edge to another node, as GraphGPS and the k-MIP code; keep: "
        "all node numbers up to the largest, as PyTorch Geometric since 2.1",
    )
    label_order: Literal["alphabetical", "first-seen"] = Field(
        default="alphabetical",
        description="alphabetical: addisplay 0 to trojan 4, as GraphGPS and the k-MIP code; first-seen: "
        "adware 0, benign 1, downloader 2, trojan 3, addisplay 4, as PyTorch Geometric since 2.1",
    )


class MalNetTinySplitParams(SplitParams):
    """Parameters of the split."""

    split: Literal["upstream", "stratified"] = Field(
        default="upstream",
        description="upstream: the published train, val and test lists; stratified: drawn anew, equal "
        "shares of the classes",
    )


class MalNetTinyPipeline(Pipeline[MalNetTinyParams, MalNetTinySplitParams]):
    """The pipeline of ``manifests/datasets/malnet-tiny.toml``."""

    version = 1
    Params: ClassVar[type[MalNetTinyParams]] = MalNetTinyParams
    SplitParams: ClassVar[type[MalNetTinySplitParams]] = MalNetTinySplitParams

    def schema(self, params: MalNetTinyParams) -> Schema:
        """Directed edges, and the type of the app."""
        names = LABEL_ORDERS[params.label_order]
        label = Column(
            key="graph/y",
            attribute="y",
            stored="uint8",
            presented="int64",
            low=0,
            high=len(names) - 1,
            num_classes=len(names),
            doc=f"type of the app: {', '.join(names)}",
        )
        return Schema(
            columns=(label,), edges="index", max_nodes=self.manifest.max_nodes, key_length=KEY_LENGTH
        )

    def class_names(self, params: MalNetTinyParams) -> Sequence[str]:
        """Types of apps in the chosen order."""
        return LABEL_ORDERS[params.label_order]

    def sample(self, folder: Path, *, limit: int | None, seed: int = 0) -> None:
        """Write generated call graphs in the upstream layout."""
        from kmip_data.pipelines.samples.malnet_tiny import write_sample

        write_sample(folder, graphs=limit, seed=seed)

    def prepare(self, raw: RawFolder, params: MalNetTinyParams, workdir: Path) -> Prepared:
        """Check that the lists partition the graphs."""
        with advised(self.manifest.name):
            lists = read_split_lists(raw.path)
            _check_lists(raw, lists, self.manifest)
        return Prepared(raw.path)

    def units(self, prepared: Prepared, params: MalNetTinyParams) -> list[Unit]:
        """Deal the listed graphs (train, val, test) by the size of their files."""
        names = [name for part in read_split_lists(prepared.path).values() for name in part]
        dealt: list[list[str]] = []
        used = 0
        for name in [names[position] for position in params.choose(len(names))]:
            size = (prepared.path / _file_name(name)).stat().st_size
            if not dealt or used + size > TEXT_PER_UNIT:
                dealt.append([])
                used = 0
            dealt[-1].append(name)
            used += size
        return [Unit(i, f"graphs {unit[0]} to {unit[-1]}", {"graphs": unit}) for i, unit in enumerate(dealt)]

    def records(self, prepared: Prepared, unit: Unit, params: MalNetTinyParams) -> Iterator[GraphRecord]:
        """Yield the graphs of one unit in the order of the lists."""
        label = {name: i for i, name in enumerate(LABEL_ORDERS[params.label_order])}
        with advised(self.manifest.name):
            for name in unit.items["graphs"]:
                file = _file_name(name)
                edges = read_graph((prepared.path / file).read_bytes(), file)
                if params.isolated == "drop":
                    nodes, edges = drop_isolated(edges)
                else:
                    nodes = int(edges.max(initial=-1)) + 1
                kind, _, key = name.split("/")
                columns = {"graph/y": np.array(label[kind], np.uint8)}
                yield GraphRecord(key=key, num_nodes=nodes, columns=columns, edge_index=edges)

    def split(self, records: Records, params: MalNetTinySplitParams, raw: Path | None) -> Split:
        """Apply the published lists, in their order."""
        raw = raw_lists(raw, f"kmip-data build {self.manifest.name}")
        position = {key: i for i, key in enumerate(records.keys)}
        parts = {
            part: [position[key] for name in names if (key := name.rpartition("/")[2]) in position]
            for part, names in read_split_lists(raw).items()
        }
        return Split("upstream", "upstream", {}, parts, "the lists of the raw data, in their order")

    def name_parts(self, params: MalNetTinyParams) -> list[str]:
        """What deviates from the defaults."""
        parts = ["keep-isolated"] if params.isolated == "keep" else []
        return parts + ([params.label_order] if params.label_order != "alphabetical" else [])


PIPELINE = MalNetTinyPipeline


def read_graph(data: bytes, name: str) -> NDArray[np.int32]:
    """Return the edges of one file, int32 (2, E), in the order of the lines.

    Raises
    ------
    DamagedInput
        A line is no edge, there is none, or their number or that of the nodes is not what the comment
        lines say.
    """
    header, edges = parse_edges(data, name=name)
    if not edges.size:
        raise DamagedInput(f"{name} has no edges.", expected="at least one", found="none")
    declared = next((match for line in header if (match := _COUNTS.fullmatch(line))), None)
    if declared is None:
        raise DamagedInput(
            f"{name} does not say how many nodes and edges it has.",
            expected="a line such as # Nodes: 3623, Edges: 6260",
            found=f"{len(header)} comment lines",
        )
    nodes = int(np.count_nonzero(np.bincount(edges.reshape(-1))))
    if (nodes, edges.shape[1]) != (int(declared[1]), int(declared[2])):
        raise DamagedInput(
            f"{name} is not whole.",
            expected=f"{declared[1]} nodes and {declared[2]} edges, as its comment lines say",
            found=f"{nodes} nodes and {edges.shape[1]} edges",
        )
    return edges


_COUNTS = re.compile(r"# Nodes: (\d{1,9}), Edges: (\d{1,9})\s*")


def drop_isolated(edges: NDArray[np.int32]) -> tuple[int, NDArray[np.int32]]:
    """Keep nodes with an edge to another node, and number them anew in their order.

    Self loops of nodes that are kept move to the end, in the order of the nodes: what PyTorch
    Geometric's ``remove_isolated_nodes`` does, with which GraphGPS reads these graphs.

    Returns
    -------
    nodes, edges
        Number of nodes kept; int32 (2, E').
    """
    loop = edges[0] == edges[1]
    between = edges[:, ~loop]
    kept = np.zeros(int(edges.max(initial=-1)) + 1, np.bool_)
    kept[between.reshape(-1)] = True
    number = np.cumsum(kept, dtype=np.int32) - 1
    looped = np.zeros_like(kept)
    looped[edges[0, loop]] = True
    loops = number[looped & kept]
    return int(kept.sum()), np.concatenate([number[between], np.stack([loops, loops])], axis=1)


def read_split_lists(folder: Path) -> dict[str, list[str]]:
    """Return ``{train, val, test: [<type>/<family>/<SHA-256>, …]}`` in the order of the lists.

    Raises
    ------
    DamagedInput
        A list is missing, a line is no path of a graph, or a graph is listed twice.
    """
    lists: dict[str, list[str]] = {}
    seen: set[str] = set()
    for part in PARTS:
        file = f"type/{part}.txt"
        path = folder / file
        # A part of the set may have no graph in a part of the split.
        lists[part] = [] if path.is_file() and not path.stat().st_size else read_lines(path)
        for number, line in enumerate(lists[part], 1):
            match = _GRAPH.fullmatch(line)
            if match is None or match[1] not in LABEL_ORDERS["alphabetical"]:
                raise DamagedInput(
                    f"{file}, line {number}: not a graph of one of the five types.",
                    expected="<type>/<family>/<SHA-256>",
                    found=repr(line[:160]),
                )
            if match[2] in seen:
                raise DamagedInput(
                    f"{file}, line {number}: a graph is listed twice.",
                    expected="each graph in one list, once",
                    found=match[2],
                )
            seen.add(match[2])
    return lists


_GRAPH = re.compile(r"([a-z]+)/[A-Za-z0-9_-]{1,64}/([0-9A-F]{64})")


def _file_name(name: str) -> str:
    return f"{name}.edgelist"


def _check_lists(raw: RawFolder, lists: dict[str, list[str]], manifest: Manifest) -> None:
    """The lists must name every graph that is there and no other; complete ones have known digests."""
    listed = {_file_name(name) for part in lists.values() for name in part}
    there = {path.relative_to(raw.path).as_posix() for path in raw.path.glob("*/*/*.edgelist")}
    if listed != there:
        example = min(listed ^ there)
        raise DamagedInput(
            "The lists do not partition the graphs.",
            expected="every graph in one of the lists type/train.txt, type/val.txt and type/test.txt",
            found=f"{len(listed - there)} listed graphs that are not there, "
            f"{len(there - listed)} graphs that are not listed, such as {example}",
        )
    if raw.sample or len(listed) != manifest.expected.graphs:
        return
    known = {
        name: digest for s in manifest.sources if s.content for name, digest in s.content.known_sha256.items()
    }
    for name, expected in known.items():
        found = hashlib.sha256((raw.path / name).read_bytes()).hexdigest()
        if found != expected:
            raise DamagedInput(
                f"{name} is not the published list.",
                expected=f"SHA-256 {expected}, as the complete set of {len(listed):,} graphs has",
                found=f"SHA-256 {found}",
            )
