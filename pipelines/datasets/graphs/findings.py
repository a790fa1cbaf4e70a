"""Findings of a reader about the columns of all graphs, and questions to the user."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kmip_data.arrays import U8, Array
from kmip_data.columns.description import DescribedColumn, Description, Level
from kmip_data.columns.levels import row_form_and_shape
from kmip_data.columns.parts import MASKS, codes_of_parts, masks_by_part
from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.format.schema import ItemForm
from kmip_data.format.split_files import NO_PART
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.text import human_bytes, nearest


@dataclass
class Findings:
    """Parameters, and findings of a reader about the columns of all graphs."""

    params: GraphParams
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)  #: attribute -> its columns
    level: str = "graph"  #: level of the targets
    values: int = 0  #: values of a graph's target, where rows of an array alone tell its level
    parts: list[str] = field(default_factory=list)  #: keys of columns of parts
    masks: U8 | None = None  #: part of each node of a single graph, (N,) or (N, folds)
    #: Key of a column of graphs -> its form, where it is not a row with a leading axis of one.
    forms: dict[str, ItemForm] = field(default_factory=dict)
    several: bool = False  #: True if there are several graphs, whose masks divide nothing
    masks_divide: bool = True  #: False if masks are attributes, next to a given split
    exact: bool = False  #: True if targets keep their shape and dtype
    #: Unread array, column or file -> why it is not read, in order.
    ignored: dict[str, str] = field(default_factory=dict)
    edges_have_targets: bool = False  #: True if rows of edges have the target of their graph
    key: str = ""  #: column with the names of the graphs; empty if their rows count them
    alone: bool = False  #: True if the files are one table
    missing: dict[str, int] = field(default_factory=dict)  #: column -> missing values
    #: Decision that the user has to make -> the parameters that make it.
    questions: dict[str, str] = field(default_factory=dict)
    memory: int | None = None  #: memory limit of reading in bytes; ``None``: no limit
    described: Description | None = None  #: uses that the files must have
    files: dict[str, Level] = field(default_factory=dict)  #: table -> level of its rows
    columns: list[DescribedColumn] = field(default_factory=list)  #: columns of the tables, as found

    @property
    def target(self) -> str:
        """Key of the targets; empty if there are none."""
        return f"{self.level}/y" if "y" in self.names else ""

    def claim(self, needed: int, purpose: str) -> None:
        """Raise ``OutOfResources`` if reading would exceed the memory limit."""
        if self.memory is not None and needed > self.memory:
            raise OutOfResources(
                f"{purpose} needs at least {human_bytes(needed)} of memory,"
                f" and {human_bytes(self.memory)} are allowed.",
                next=f"--memory {-(-needed // 2**30)}GiB or more, if the machine has as much",
            )

    def ask(self) -> None:
        """Raise one error with all questions and the answers to type, if there are any."""
        if not self.questions:
            return
        what = next(iter(self.questions))
        if len(self.questions) > 1:
            what = f"{len(self.questions)} columns need a decision."
        raise DamagedInput(
            what,
            found="; ".join(self.questions)[:2_000] if len(self.questions) > 1 else None,
            next=" ".join(dict.fromkeys(self.questions.values())),
        )

    def label_of(self, names: Iterable[str], usual: Sequence[str], where: str) -> str:
        """Return the name of the target array; empty if there is none."""
        given = self.params.label
        if len(given) > 1 or self.params.feature:
            raise UsageError(
                f"{where}: one array is the label, and all others are kept.",
                next="at most one --set label=, and no --set feature=",
            )
        for name in given or usual:
            if name in names:
                return name
        if given and self.described is None:
            names = list(names)
            likely = [*(name for name in names if name in usual), *names, "none"]
            close = nearest(given[0], names) or likely[0]
            raise UsageError(
                f"{where} has no {given[0]!r}.",
                found=", ".join(names)[:500],
                next=f"one of these: --set label={shlex.quote(close)}",
            )
        return ""

    def labels(self, name: str, y: Array, level: str) -> dict[str, Array]:
        """Return an array of targets (n,) or (n, C), a row for each graph or node, by its key."""
        y = y.copy()  # a view of a file until the next graph
        if self.params.task == "multilabel" or y.shape[1:] not in {(), () if self.exact else (1,)}:
            y = y.reshape(len(y), -1)
            self.names["y"] = tuple(f"{name} {column}" for column in range(y.shape[1]))
        else:
            y = y.reshape(-1)
            self.names["y"] = (name,)
        self.level = level
        self.values = y.size if level == "graph" else 0
        return {f"{level}/y": y}

    def divide(self, arrays: Mapping[str, Array], nodes: int, where: str) -> dict[str, Array]:
        """Keep the parts of the nodes of a single graph, by its masks of any shape.

        Masks of several graphs are returned as their attributes, as a split divides graphs.
        """
        if not arrays:
            return {}
        self.claim(8 * nodes, where)
        by_part = masks_by_part(arrays, nodes, where)
        codes = codes_of_parts(by_part, nodes, where)
        if self.several:
            return {f"node/{part}_mask": mask.astype(bool) for part, mask in by_part.items()}
        if (codes == NO_PART).all():
            self.ignored |= dict.fromkeys(arrays, "no node is in it")
        else:
            self.masks = codes
        return {}


def keyed_by_level(
    graph: GraphRecord, levels: Mapping[str, str], where: str, findings: Findings
) -> GraphRecord:
    """Return a graph whose columns are called by their attributes with columns by key.

    ``levels`` has the level of each attribute; a text or a Python number has its form in
    ``findings.forms`` already. Masks of a single graph become its split.
    """
    columns: dict[str, Array] = {}
    masks = {}
    for attribute, array in graph.columns.items():
        if attribute in MASKS and findings.masks_divide:
            masks[attribute] = array
            continue
        if findings.described is not None and attribute not in levels:
            continue  # not in the description
        level = levels[attribute]
        key = f"{level}/{attribute}"
        if attribute == "y" and level != "edge" and array.ndim <= 2:
            columns |= _targets(array, level, findings)
            continue
        rows = array
        if level == "graph" and key not in findings.forms:
            findings.forms[key], _ = row_form_and_shape(level, array.shape)
        if level == "graph" and findings.forms[key] != "axis":
            rows = array[None]
        columns[key] = rows
    columns |= findings.divide(masks, graph.num_nodes, where)
    return replace(graph, columns=columns)


def _targets(y: Array, level: str, findings: Findings) -> dict[str, Array]:
    """Return the targets ``y`` of nodes, or of a graph in any shape of at most two axes."""
    name = (*findings.params.label, "y")[0]
    if level == "node" or (y.ndim == 2 and len(y) == 1):
        return findings.labels(name, y, level)
    if findings.exact and y.shape != (1,):
        findings.forms.setdefault("graph/y", "row")
        return findings.labels(name, y[None], level)
    # A number, or a row of them.
    return findings.labels(name, y.reshape(1) if y.size == 1 else y[None], level)
