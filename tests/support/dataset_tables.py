"""Pages, tables and the stub of public classes that follow from manifests of datasets."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from urllib.parse import urlsplit

from support.shared import ROOT

from kmip_data.manifest import Manifest, Mirror, Publisher, Source, describe_digests, load_manifest
from kmip_data.strict_model import shipped_datasets

MARK = "<!-- datasets: written by `make docs-tables` -->\n"
DIGESTS = MARK.replace("datasets:", "digests:", 1)
MIRRORS = MARK.replace("datasets:", "mirrors:", 1)
PAPER = MARK.replace("datasets:", "paper:", 1)
FAMILIES = MARK.replace("datasets:", "families:", 1)
CLASSES = MARK.replace("datasets:", "classes:", 1)


def manifests() -> list[Manifest]:
    """The manifests of all shipped datasets, recipes last."""
    loaded = [load_manifest(name) for name in shipped_datasets()]
    return sorted(loaded, key=lambda manifest: (bool(manifest.recipe), manifest.name))


def mentions(text: str, name: str) -> int:
    """Count how often a page names a dataset, or the command that builds it."""
    return len(re.findall(rf"`{name}`|kmip-data build {name}\s", text))


def page_of(name: str) -> Path | None:
    """The page in docs/datasets that names a dataset most often, if any does."""
    pages = {
        page: mentions(page.read_text("utf-8"), name)
        for page in sorted((ROOT / "docs/datasets").glob("*.md"))
    }
    page = max(pages, key=pages.__getitem__)
    return page if pages[page] else None


def datasets_table() -> str:
    """Name, linked to its page, class, summary, graphs, pinned raw files and license of each dataset."""
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
        pinned = f"{len(manifest.pins)} of {number}" if number else "–"
        made = "–" if manifest.recipe else f"`{manifest.dataset_class}`"
        page = page_of(manifest.name)
        name = (
            f"`{manifest.name}`" if page is None else f"[`{manifest.name}`](datasets/{page.name})"
        )
        cells = (name, made, manifest.summary, graphs, pinned, terms)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


@functools.cache
def publishers() -> list[Publisher]:
    """The publishers in all manifests."""
    return [row for manifest in manifests() for row in manifest.publishers]


def publisher_of(mirror: Mirror) -> Publisher:
    """The publisher with the longest beginning of an address."""
    rows = [row for row in publishers() if mirror.url.startswith(row.begins)]
    assert rows, (
        f"{mirror.url}: say in [[publishers]] of its dataset.toml who published it, with the "
        "beginning of the address"
    )
    return max(rows, key=lambda row: len(row.begins))


def pins_of(manifest: Manifest, source: Source, mirror: Mirror) -> dict[str, str]:
    """Digests that a file from a mirror, or its members, must have, by kind."""
    pins = dict(mirror.pins)
    if mirror.members_sha256:
        pins["SHA-256 of the members"] = mirror.members_sha256
    content = source.content or manifest.content
    if source.container == "archive":
        for kind, known in (("SHA-256", content.known_sha256), ("MD5", content.known_md5)):
            if known:
                pins[f"{kind} of {len(known)} members"] = "in the manifest"
    return pins


def mirrors_table() -> str:
    """Raw files, their mirrors, digests, kinds of digests and publishers.

    Datasets with equal files share a row, as do datasets with one file each without a pin.
    """
    rows: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for manifest in manifests():
        alike: dict[tuple[str, ...], list[tuple[str, dict[str, str]]]] = {}
        for source in manifest.sources:
            for mirror in source.mirrors:
                pins = pins_of(manifest, source, mirror)
                host = urlsplit(mirror.url).netloc or mirror.url.partition("/")[0]
                key = host, publisher_of(mirror).by, ", ".join(pins) or "none"
                alike.setdefault(key, []).append((source.name, pins))
        for (host, publisher, kinds), files in alike.items():
            name, pins = files[0]
            file = f"`{name}`"
            digests = ", ".join(
                pin if " " in pin else f"{pin[:8]}…" for pin in dict.fromkeys(pins.values())
            )
            if len(files) > 1:
                file += f" and {len(files) - 1} more"
                digests = "of each file" if pins else ""
            row = f"{host} | {digests or '–'} | {kinds} | {publisher}"
            shared_file = file if pins or len(files) > 1 else ""
            names, row_files = rows.setdefault((row, shared_file), ([], []))
            names.append(f"`{manifest.name}`")
            if file not in row_files:
                row_files.append(file)
    lines = ["| dataset | file | mirror | pin | kind of pin | published by |", "|---" * 6 + "|"]
    lines += [
        f"| {', '.join(names)} | {', '.join(row_files)} | {row} |"
        for (row, _), (names, row_files) in rows.items()
    ]
    return "\n".join(lines) + "\n"


def paper_table() -> str:
    """Publishers of the addresses of the paper's datasets, and real files that were read here."""
    rows: dict[str, list[str]] = {}
    for manifest in manifests():
        if not manifest.tested_on:
            continue
        publishers = []
        for source in manifest.sources:
            for mirror in source.mirrors:
                row = publisher_of(mirror)
                since = f", since {row.since}" if row.since else ""
                publishers.append(f"{row.by} ({row.named}{since})")
        text = f"{'; '.join(dict.fromkeys(publishers))} | {manifest.tested_on}"
        rows.setdefault(text, []).append(f"`{manifest.name}`")
    lines = ["| dataset | addresses published by | read here from a real copy |", "|---" * 3 + "|"]
    lines += [f"| {', '.join(names)} | {row} |" for row, names in rows.items()]
    return "\n".join(lines) + "\n"


def families_table() -> str:
    """The page, datasets and tasks of each family."""
    datasets: dict[Path, list[Manifest]] = {}
    for manifest in manifests():
        page = page_of(manifest.name)
        if page is not None and not manifest.recipe:
            datasets.setdefault(page, []).append(manifest)
    lines = ["| page | datasets | tasks |", "|---|---|---|"]
    for page, members in sorted(datasets.items()):
        title = page.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        names = ", ".join(f"`{manifest.name}`" for manifest in members)
        tasks = dict.fromkeys(re.split(r",| \(", manifest.task)[0] for manifest in members)
        lines.append(f"| [{title}](docs/datasets/{page.name}) | {names} | {', '.join(tasks)} |")
    return "\n".join(lines) + "\n"


def dataset_classes() -> dict[str, str]:
    """The module in kmip_data/datasets of each public class of a dataset."""
    modules = {}
    for path in sorted((ROOT / "kmip_data/datasets").glob("*.py")):
        for name in re.findall(r"^class (\w+)\(", path.read_text("utf-8"), re.MULTILINE):
            modules[name] = path.stem
    classes = {}
    for manifest in manifests():
        title = manifest.dataset_class
        if title:
            assert title in modules, (
                f"add a class {title} to a module of kmip_data/datasets, or leave out `dataset_class` "
                f"in the manifest of {manifest.name}"
            )
            classes[title] = modules[title]
    return classes


def classes_table(page: str) -> str:
    """The mark of each class of a dataset that no other row of docs/api.md names."""
    before, _, after = page.partition(CLASSES)
    others = before + after.lstrip("\n").partition("\n\n")[2]
    names = [f"`{title}`" for title in sorted(dataset_classes()) if f"`{title}`" not in others]
    row = f"| `kmip_data` | provisional | {', '.join(names)} |"
    return f"| module | mark | classes of datasets |\n|---|---|---|\n{row}\n"


def public_stub(text: str) -> str:
    """The text of ``kmip_data/__init__.pyi`` with an import of the class of every dataset."""
    header, *lines = text.splitlines()
    imports, _, rest = "\n".join(lines).partition("\n\n")
    names = {line.split(" as ")[1].split()[0]: line for line in imports.splitlines()}
    for title, module in dataset_classes().items():
        names[title] = f"from .datasets.{module} import {title} as {title}"

    def order(name: str) -> tuple[str, bool, str]:
        return names[name].split()[1], not name.isupper(), name

    return "\n".join([header, *(names[name] for name in sorted(names, key=order)), "", rest, ""])


def with_table(text: str, mark: str, table: str) -> str:
    """A page with the table that follows a mark replaced."""
    before, found, after = text.partition(mark)
    assert found, mark
    _, end, rest = after.lstrip("\n").partition("\n\n")
    return f"{before}{mark}\n{table}{end[1:]}{rest}"


def with_digests(page: Path) -> str:
    """The text of a page in docs/datasets with the sentence on digests of its datasets at its end."""
    text = page.read_text("utf-8").partition(f"\n{DIGESTS}")[0]
    names: dict[str, list[str]] = {}
    for manifest in manifests():
        known = describe_digests(manifest)
        if known and mentions(text, manifest.name):
            names.setdefault(known, []).append(f"`{manifest.name}`")
    if not names:
        return text
    lines = [f"- {', '.join(group)}: {known}." for known, group in names.items()]
    return "\n".join([text, f"{DIGESTS}\n## Digests\n", *lines, ""])


def pages() -> dict[Path, str]:
    """The files that ``make docs-tables`` writes from manifests, as they should be."""
    pages = {page: with_digests(page) for page in (ROOT / "docs/datasets").glob("*.md")}
    page = ROOT / "docs/datasets.md"
    pages[page] = with_table(page.read_text("utf-8"), MARK, datasets_table())
    page = ROOT / "docs/sources.md"
    text = with_table(page.read_text("utf-8"), PAPER, paper_table())
    pages[page] = with_table(text, MIRRORS, mirrors_table())
    page = ROOT / "README.md"
    pages[page] = with_table(page.read_text("utf-8"), FAMILIES, families_table())
    page = ROOT / "docs/api.md"
    text = page.read_text("utf-8")
    pages[page] = with_table(text, CLASSES, classes_table(text))
    page = ROOT / "kmip_data/__init__.pyi"
    pages[page] = public_stub(page.read_text("utf-8"))
    return pages
