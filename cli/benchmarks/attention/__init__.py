"""Attention: the rows of the speed table, and the paper's efficiency experiment on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmip_data.cli.benchmarks.attention.command import command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kmip_data.cli.benchmarks import Row

__all__ = ["command", "rows"]


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Measure the rows of search and attention; KeOps alone takes minutes, or seconds when quick."""
    from kmip_data.cli.benchmarks.attention.table import measure

    return measure(quick=quick)
