"""Whether a build has the counts of the published set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kmip_data.format.card import SplitEntry
from kmip_data.manifest import Manifest

ROUNDED = 1e-3  #: published averages are rounded; all else of another build differs by more


def differing_counts(
    manifest: Manifest,
    counts: Mapping[str, int],
    splits: Mapping[str, SplitEntry],
    classes: Sequence[int],
    *,
    usual: bool,
) -> Iterator[str]:
    """Say which of the counts that the manifest knows a build does not have.

    Parameters
    ----------
    counts, splits
        As the card has them.
    classes
        How often each class occurs.
    usual
        Whether the parameters of the records are the defaults: others give other nodes and edges.
    """
    expected = manifest.expected
    found: Any = counts["graphs"]
    if found != expected.graphs:
        yield f"{found:,} of the {expected.graphs:,} graphs"
    for what, mean in (("nodes", expected.avg_nodes), ("edges", expected.avg_edges)):
        found = counts[what] / max(counts["graphs"], 1)
        if usual and mean is not None and abs(found - mean) > ROUNDED * mean:
            yield f"{found:,.4f} {what} per graph, published are {mean:,.4f}"
    if len(classes) == len(manifest.class_names) and (missing := classes.count(0)):
        yield f"{len(classes) - missing} of the {len(classes)} classes"
    for name, sizes in expected.splits.items():
        for part, size in sizes.items() if name in splits else ():
            entry = splits[name].parts.get(part)
            found = 0 if entry is None else entry.nodes if expected.graphs == 1 else entry.graphs
            if found != size:
                yield f"{found:,} of {size:,} in {part} of the split {name}"
