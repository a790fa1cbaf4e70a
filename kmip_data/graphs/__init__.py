"""Graph construction: neighbours, eccentricity, splits and statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kmip_data.graphs.eccentricity import local_eccentricity

__all__ = ["local_eccentricity"]


def __getattr__(name: str) -> Any:
    # On use, so that what needs another module of this package does not load this one.
    if name == "local_eccentricity":
        from kmip_data.graphs.eccentricity import local_eccentricity

        return local_eccentricity
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
