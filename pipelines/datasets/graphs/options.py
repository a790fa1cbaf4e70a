"""Options for reading your own graphs: parameters, column description and memory limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kmip_data.columns.column_roles import ColumnRoles
from kmip_data.errors import OutOfResources, Setting, UsageError
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.known_names import NO_LABEL
from kmip_data.text import human_bytes, list_names, nearest_name


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading the files."""

    params: GraphParams
    described: ColumnRoles | None = None  #: column roles that the files must match
    memory: int | None = None  #: memory limit in bytes; ``None``: no limit
    workdir: Path | None = None  #: folder for columns that can be paged out

    def with_params(self, **changes: Any) -> ReadOptions:
        """Return a copy with changed parameters, such as ``header="no"``."""
        return replace(self, params=self.params.model_copy(update=changes))

    def refuse_unread(self, reasons: Mapping[str, str]) -> None:
        """Refuse given parameters that nothing reads, unless the description has them."""
        described = {} if self.described is None else self.described.parameters()
        self.params.refuse_unread(reasons, **described)

    def check_memory(self, needed: int, purpose: str) -> None:
        """Raise ``OutOfResources`` if reading would exceed the memory limit."""
        if self.memory is not None and needed > self.memory:
            raise OutOfResources(
                f"{purpose} needs at least {human_bytes(needed)} of memory,"
                f" and {human_bytes(self.memory)} are allowed.",
                steps=Setting(memory=f"{-(-needed // 2**30)}GiB"),
            )

    def find_label(self, names: Iterable[str], common_names: Sequence[str], where: str) -> str:
        """Return the name of the target array, given or common; empty if there is none."""
        given_names = self.params.label
        if given_names == (NO_LABEL,) and NO_LABEL not in names:
            return ""
        if len(given_names) > 1:
            raise UsageError(
                f"{where}: at most one array is the label, and all others are kept.",
                steps=Setting(label=given_names[0]),
            )
        for name in given_names or common_names:
            if name in names:
                return name
        if given_names and self.described is None:
            names = list(names)
            likely = [*(name for name in names if name in common_names), *names, "none"]
            close = nearest_name(given_names[0], names) or likely[0]
            raise UsageError(
                f"{where} has no {given_names[0]!r}.",
                found=list_names(names, 500),
                steps=Setting(label=close),
            )
        return ""
