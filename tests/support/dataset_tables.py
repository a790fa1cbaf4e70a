"""Table of datasets in docs/datasets.md, and digests on their pages, from manifests."""

from __future__ import annotations

import re
from pathlib import Path

from support.shared import ROOT

from kmip_data.manifest import Manifest, digests_of, load_manifest
from kmip_data.shipped import shipped_datasets

MARK = "<!-- datasets: written by `make docs-tables` -->\n"
DIGESTS = MARK.replace("datasets:", "digests:", 1)


def manifests() -> list[Manifest]:
    """The manifests of all shipped datasets, recipes last."""
    loaded = [load_manifest(name) for name in shipped_datasets()]
    return sorted(loaded, key=lambda manifest: (bool(manifest.recipe), manifest.name))


def datasets_table() -> str:
    """Name, class, summary, number of graphs, pinned raw files and license of each dataset."""
    lines = [
        "| name | class | what | graphs | pinned files | license |",
        "|---|---|---|---|---|---|",
    ]
    for manifest in manifests():
        count = manifest.expected.graphs
        graphs = "–" if count is None else f"{count:,}"
        terms = manifest.license.name
        if manifest.license.url:
            terms = f"[{terms}]({manifest.license.url})"
        number = len(manifest.sources)
        pinned = f"{len(manifest.pinned_sources)} of {number}" if number else "–"
        made = "–" if manifest.recipe else f"`{manifest.dataset_class}`"
        cells = (f"`{manifest.name}`", made, manifest.summary, graphs, pinned, terms)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_table(page: Path, table: str) -> str:
    """The text of a page with the table that follows the mark replaced."""
    before, mark, after = page.read_text("utf-8").partition(MARK)
    assert mark, page
    _, end, rest = after.lstrip("\n").partition("\n\n")
    return f"{before}{mark}\n{table}{end[1:]}{rest}"


def with_digests(page: Path) -> str:
    """The text of a page in docs/datasets with the sentence on digests of its datasets at its end."""
    text = page.read_text("utf-8").partition(f"\n{DIGESTS}")[0]
    names: dict[str, list[str]] = {}
    for manifest in manifests():
        known = digests_of(manifest)
        if known and re.search(rf"`{manifest.name}`|kmip-data build {manifest.name}\s", text):
            names.setdefault(known, []).append(f"`{manifest.name}`")
    if not names:
        return text
    lines = [f"- {', '.join(group)}: {known}." for known, group in names.items()]
    return "\n".join([text, f"{DIGESTS}\n## Digests\n", *lines, ""])


def pages() -> dict[Path, str]:
    """The page with the table of datasets, and those with digests, as they should be."""
    of_datasets = (ROOT / "docs/datasets").glob("*.md")
    return {
        **{page: with_digests(page) for page in of_datasets},
        ROOT / "docs/datasets.md": with_table(ROOT / "docs/datasets.md", datasets_table()),
    }
