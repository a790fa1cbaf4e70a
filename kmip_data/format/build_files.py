"""The last files of every build: splits, page, Croissant metadata and finally the card."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from kmip_data.arrays import I64, U8
from kmip_data.files.changes import build_content, mark, write_file
from kmip_data.files.reading import readable_json
from kmip_data.format.card import CARD_NAME, Card, ShardEntry, SplitEntry, SplitPart
from kmip_data.format.schema import EDGE_INDEX, FORMAT_VERSION, NEIGHBOR, Schema
from kmip_data.format.splits import NODE_PARTS, encode_node_split, encode_split, in_order
from kmip_data.manifest import Responsible, dataset_names, load_manifest, read_shipped
from kmip_data.wording import without_controls

PAGE_NAME = "README.md"
#: Key in the statistics of a card and its caption.
SPREADS = {
    "nodes_per_graph": "nodes per graph",
    "edges_per_graph": "edges per graph",
    "in_degree": "in-degree",
    "out_degree": "out-degree",
}
_BAR = 24  #: characters of the longest bar of a histogram
_ROWS = 16  #: most rows of a histogram on the page
_WEB = re.compile(r"https?://[\w.~:/?#@!$&*+,;=%-]+")  #: permitted target of a link
#: Markup characters of Markdown; an underline between letters is none.
_MARKS = re.compile(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def render_card(card: Card) -> str:
    """Return the card as Markdown; equal cards give equal pages."""
    sections = {
        "Columns": _columns(card.schema_),
        "Splits": _splits(card),
        "Classes": _classes(card),
        "Sizes and degrees": _statistics(card.statistics),
        "How it was built": _origin(card),
        "Reading a shard with plain h5py": _reading(card),
        "Licence and citation": _license(card),
    }
    blocks = [_head(card), *(f"## {title}\n\n{body}" for title, body in sections.items() if body)]
    return "\n\n".join(blocks) + "\n"


def _head(card: Card) -> str:
    extent = "not the complete published set" if card.complete is False else card.origin
    size = ", ".join(f"{card.counts[name]:,} {name}" for name in ("graphs", "nodes", "edges"))
    shards = "1 shard" if len(card.shards) == 1 else f"{len(card.shards)} shards"
    sizes = "; ".join(filter(None, [f"{size} in {shards}", extent]))
    key = f"Dataset {_code(card.dataset)}, build key {_code(card.key)}."
    notes = "\n".join(f"- {_text(note)}" for note in card.notes)
    return "\n\n".join(filter(None, [f"# {_text(card.heading)}", f"{sizes}.", key, notes]))


def _text(value: object) -> str:
    """Return foreign text with all markup of Markdown escaped."""
    return _MARKS.sub(r"\\\g<0>", escape(_line(value), quote=False))


def _code(value: object) -> str:
    """Return text as inline code, with backticks replaced."""
    return "`" + _line(value).replace("`", "'").replace("|", "\\|") + "`"


def _line(value: object) -> str:
    return " ".join(without_controls(str(value)).split())


def code_block(kind: str, text: str) -> str:
    """Return text as a code block, with a fence that does not occur in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{without_controls(text)}\n{fence}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join(lines)


def _columns(schema: Schema) -> str:
    rows = []
    for column in schema.columns:
        kind = column.stored
        if column.shape:
            kind += f" {list(column.shape)}"
        if column.presented != column.stored:
            kind += f", presented as {column.presented}"

        meaning = column.doc
        if column.unit:
            meaning += f" [{column.unit}]"
        if column.fields:
            fields = ", ".join(column.fields)
            meaning = f"{meaning}: {fields}" if meaning else fields
        rows.append((_code(column.key), _code(column.attribute), kind, _text(meaning)))
    # Views and edges follow the columns: they are attributes of an item as well.
    for view in schema.views:
        text = f"columns {view.start} to {view.stop - 1}"
        rows.append((_code(view.source), _code(view.attribute), "", text))
    if schema.edges == "neighbor":
        text = f"row i holds the {schema.k} sources of node i, nearest first"
        rows.append(
            (f"`{NEIGHBOR}`", "`edge_index`", f"{schema.index_dtype} (k = {schema.k})", text)
        )
    elif schema.edges == "index":
        text = "row 0 sources, row 1 targets, as indices inside the graph"
        rows.append((f"`{EDGE_INDEX}`", "`edge_index`", schema.index_dtype, text))
    return _table(("stored as", "item attribute", "type", "meaning"), rows)


def _splits(card: Card) -> str:
    parts = []
    # The default split first, then the others by name.
    for name in sorted(card.splits, key=lambda name: (name != card.default_split, name)):
        split = card.splits[name]
        parameters = []
        for key, value in sorted(split.parameters.items()):
            if value is not None:
                parameters.append(f"{key} = {value}")
        head = f"**{_text(name)}**"
        if name == card.default_split:
            head += " (default)"
        head += f": {_text(', '.join(parameters) or split.rule)}"
        if split.note:
            head += f"\n\n{_text(split.note)}"

        rows = []
        for part, entry in split.in_order():
            counts = (f"{count:,}" for count in (entry.graphs, entry.nodes, entry.edges))
            rows.append((_text(part), *counts, _code(f"{entry.digest[:16]}…")))
        table = _table(("part", "graphs", "nodes", "edges", "SHA-256 of its keys"), rows)
        parts.append(f"{head}\n\n{table}")
    return "\n\n".join(parts)


def _classes(card: Card) -> str:
    counts: Mapping[str, Any] = card.statistics.get("classes", {})
    total = counts.get("total", [])
    if not total:
        return ""
    # Without names, or with other ones than there are classes, numbers stand for them.
    names = card.class_names
    if len(names) != len(total):
        names = list(map(str, range(len(total))))
    parts = counts.get("splits", {}).get(card.default_split, {})
    order = in_order(parts)
    labels = sum(total) or 1
    rows = []
    for i, name in enumerate(names):
        share = f"{total[i] / labels:.2%}"
        counts_by_part = (f"{parts[part][i]:,}" for part in order)
        rows.append((str(i), _text(name), f"{total[i]:,}", share, *counts_by_part))
    return _table(("", "class", "all", "share", *map(_text, order)), rows)


def _statistics(statistics: Mapping[str, Any]) -> str:
    blocks = []
    for key, title in SPREADS.items():
        spread = statistics.get(key)
        if not spread:
            continue
        low = spread["min"]
        high = spread["max"]
        blocks.append(f"{title.capitalize()}: {low:,} to {high:,}, mean {spread['mean']:,.2f}")
        if low != high:
            bars = _bars(spread["histogram"])
            blocks.append(code_block("text", bars))
    return "\n\n".join(blocks)


def _bars(histogram: Mapping[str, Sequence[int]]) -> str:
    # Neighbouring bins are merged until at most ``_ROWS`` are left.
    bins = list(zip(histogram["low"], histogram["high"], histogram["count"], strict=True))
    step = -(-len(bins) // _ROWS)
    labels = []
    counts = []
    for start in range(0, len(bins), step):
        merged = bins[start : start + step]
        low = merged[0][0]
        high = merged[-1][1]
        labels.append(f"{low:,}" if low == high else f"{low:,}–{high:,}")
        counts.append(sum(count for _, _, count in merged))

    largest = max(counts)
    width = max(map(len, labels))
    rows = []
    for label, count in zip(labels, counts, strict=True):
        bar = "█" * max(1, round(_BAR * count / largest))
        rows.append(f"{label:>{width}}  {bar:<{_BAR}}  {count:,}")
    return "\n".join(rows)


def _origin(card: Card) -> str:
    values = [(_text(key), _code(value)) for key, value in sorted(card.parameters.items())]
    blocks = [_table(("parameter", "value"), values)]

    files = []
    for receipt in card.receipts:
        origin = _text(receipt.origin)
        files.append((_text(receipt.name), origin, f"{receipt.bytes:,}", _code(receipt.sha256)))
    if files:
        blocks.append(_table(("source", "from", "bytes", "SHA-256"), files))

    libraries = ", ".join(f"{name} {version}" for name, version in sorted(card.versions.items()))
    blocks.append(
        f"Pipeline version {card.pipeline_version}, shard format version {card.format_version}; "
        f"{_text(libraries)}. Content of the raw files: {_code(card.content_digest)}."
    )
    return "\n\n".join(blocks)


def _reading(card: Card) -> str:
    schema = card.schema_
    # The first column of nodes and the first graph: an example that runs as it stands.
    node = next((column.key for column in schema.columns if column.level == "node"), None)
    first = card.shards[0]
    file = first.file
    options = ""
    if first.members:  # HDF5 joins the members itself, by a pattern of their names
        file = re.sub(r"-0+\.h5$", "-%05d.h5", next(iter(first.files)))
        options = f', driver="family", memb_size={first.members[0].bytes}'
    lines = [
        "import h5py",
        f"with h5py.File({json.dumps(file)}{options}) as shard:",
        '    start, stop = shard["graph/node_ptr"][:2]',
    ]
    if node is not None:
        lines.append(f"    rows = shard[{json.dumps(node)}][start:stop]")
    if schema.edges == "neighbor":
        lines.append(f'    neighbours = shard["{NEIGHBOR}"][start:stop]')
    elif schema.edges == "index":
        lines.append('    edges = shard["edge/index"][:, slice(*shard["graph/edge_ptr"][:2])]')
    return code_block("python", "\n".join(lines))


def _license(card: Card) -> str:
    terms = card.license
    named = _text(terms.get("name", ""))
    url = str(terms.get("url", ""))
    if _WEB.fullmatch(url):
        named = f"[{named}]({url})"
    blocks = [named, _text(terms.get("notice", ""))]
    citation = card.citation.strip()
    if citation:
        blocks.append(code_block("bibtex", citation))
    return "\n\n".join(filter(None, blocks))


CROISSANT_NAME = "croissant.json"


def build_croissant(card: Card) -> dict[str, Any]:
    """Return the metadata of a build, its files relative to the build folder.

    There are no record sets: they describe how to extract fields, and Croissant cannot read HDF5.
    The metadata depend on the card and its manifest alone; without a day of publication there, on
    today's date.
    """
    # A saved dataset has no manifest: fields that it does not state are marked unknown.
    manifest = load_manifest(card.manifest) if card.manifest in dataset_names() else None
    constants = read_shipped("tables", "croissant")
    known = Responsible() if manifest is None else manifest.responsible
    about = {
        "name": card.dataset,
        "description": card.heading + (f". {manifest.summary}" if manifest else ""),
        "license": str(card.license.get("url") or card.license.get("name") or "Not stated."),
        "citeAs": card.citation.strip() or card.title or card.dataset,
        "url": manifest.homepage if manifest else None,
        "version": f"{card.pipeline_version}.0.0",
        "datePublished": (manifest.published if manifest else "")
        or time.strftime("%Y-%m-%d", time.gmtime()),
        "keywords": ["graph", "kmip-data"],
    }
    kind = {"@type": "cr:FileObject", "encodingFormat": "application/x-hdf5"}
    sizes = {file: {"contentSize": f"{member.bytes} B"} for file, member in card.files.items()}
    files = [
        {
            **kind,
            "@id": file,
            "name": file,
            "contentUrl": file,
            "sha256": sha256,
            **sizes.get(file, {}),
        }
        for file, sha256 in card.digests.items()
    ]
    rai = Responsible(**constants["generated"]) if card.sample else known
    return {
        "@context": constants["context"],
        "@type": "sc:Dataset",
        "conformsTo": [
            "http://mlcommons.org/croissant/1.1",
            "http://mlcommons.org/croissant/RAI/1.0",
        ],
        **{name: value for name, value in about.items() if value is not None},
        "rai:dataCollection": rai.collection,
        "rai:dataBiases": rai.biases,
        "rai:dataUseCases": rai.uses,
        "rai:personalSensitiveInformation": rai.personal,
        "distribution": files,
    }


def write_split_file(
    folder: Path,
    name: str,
    chosen: Mapping[str, I64] | U8,
    keys: Sequence[str],
    sizes: I64,
    *,
    rule: str,
    parameters: Mapping[str, Any],
    note: str = "",
) -> SplitEntry:
    """Write ``splits/<name>.h5`` and describe it for the card.

    ``chosen`` are the positions of each part among the records, or codes of the nodes of a single
    graph. ``keys`` are those of all records, ``sizes`` (G, 2) their numbers of nodes and edges.
    """
    if isinstance(chosen, np.ndarray):
        data, digests = encode_node_split(chosen, rule=rule, parameters=parameters)
        # Nodes of all parts lie in the same graph and see all of its edges.
        edges = int(sizes[:, 1].sum())
        counts = {
            part: (1, int((chosen == code).sum()), edges) for part, code in NODE_PARTS.items()
        }
    else:
        data, digests = encode_split(
            chosen,
            rule=rule,
            parameters=parameters,
            keys=keys,
        )
        counts = {
            part: (len(rows), *sizes[rows].sum(axis=0).tolist()) for part, rows in chosen.items()
        }
    file = f"splits/{name}.h5"
    write_file(folder / file, data, root=folder)
    parts = {
        part: SplitPart(graphs=graphs, nodes=nodes, edges=edges, digest=digests[part])
        for part, (graphs, nodes, edges) in counts.items()
    }
    digest = hashlib.sha256(data).hexdigest()
    return SplitEntry(
        file=file,
        sha256=digest,
        rule=rule,
        parameters=dict(parameters),
        parts=parts,
        note=note,
    )


def protect(path: Path) -> None:
    """Make a finished shard read-only: readers map it and rely on its bytes."""
    with contextlib.suppress(OSError):  # some network file systems have no permissions
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if status.st_nlink == 1:  # else the mode of a file elsewhere would change, too
                os.fchmod(descriptor, status.st_mode & ~0o222)
        finally:
            os.close(descriptor)


def card_files(card: Card) -> dict[str, bytes]:
    """Return README and Croissant, then the card, by name."""
    croissant = readable_json(build_croissant(card))
    texts = {PAGE_NAME: render_card(card), CROISSANT_NAME: croissant, CARD_NAME: card.to_json()}
    return {name: text.encode() for name, text in texts.items()}


def write_card(folder: Path, card: Card) -> None:
    """Write :func:`card_files`; the card, which is the last, finishes the build.

    They replace those that are there.
    """
    # The card is the last of them: until then the folder is an unfinished build.
    for name, data in card_files(card).items():
        write_file(folder / name, data, root=folder)


def finish(
    folder: Path,
    schema: Schema,
    shards: Iterable[ShardEntry],
    splits: Mapping[str, SplitEntry],
    statistics: Mapping[str, Any],
    classes: Mapping[str, Mapping[str, list[int]]],
    **about: Any,
) -> Card:
    """Protect the shards and write page and card.

    The first of ``splits`` is the default; ``statistics`` and ``classes`` (counts by split and
    part) are those of :func:`kmip_data.graphs.statistics.summarise`; ``about`` has the other fields
    of the card.
    """
    # Counts of graphs, nodes and edges are fields of their own on the card.
    rest = {**statistics, "classes": {"total": statistics["classes"], "splits": classes}}
    shards = list(shards)
    card = Card(
        format_version=FORMAT_VERSION,
        data_schema=json.loads(schema.to_json()),
        default_split=next(iter(splits), ""),
        shards=shards,
        splits=dict(splits),
        counts={name: rest.pop(name) for name in ("graphs", "nodes", "edges")},
        statistics=rest,
        **about,
    )
    for file in card.files:
        protect(folder / file)
    mark(folder, build_content(card.key))
    write_card(folder, card)
    return card
