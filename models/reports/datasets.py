"""The paper's table of datasets beside what is built, or, where it is not, what the manifests expect."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from typing import Any

from kmip_data.builds.home import Home, list_builds
from kmip_data.format.card import Card
from kmip_data.manifest import Manifest, load_manifest
from kmip_data.models.reports.sheets import Sheet
from kmip_data.wording import as_options

COUNTS = ("graphs", "nodes", "edges", "classes")  #: nodes and edges are means over graphs


def dataset_facts(home: Home) -> list[dict[str, Any]]:
    """Return a row for each dataset, or each whole build of it: the paper's counts, ours, why they differ."""
    file = resources.files("kmip_data.manifests.results") / "datasets.toml"
    builds = [build for build in list_builds(home) if build.card.complete and not build.card.sample]
    rows = []
    for paper in tomllib.loads(file.read_text("utf-8"))["dataset"]:
        manifest, streets = load_manifest(paper["name"]), paper.pop("streets", False)
        own = [(build.path.name, build.card) for build in builds if build.card.dataset == paper["name"]]
        for source, card in own or [("manifest", None)]:
            ours = _of(manifest) if card is None else _of_card(card)
            why = [note for note in manifest.notes if "table" in note]
            if card is not None and _of_card(card)["edges"] != _of(manifest)["edges"]:
                why.append(f"Built with {as_options(card.parameters)}.")
            digits = {"graphs": 0, "nodes": 1, "edges": 1, "classes": 0}
            if streets:  # counted once, and in thousands
                ours["edges"] /= 2
                digits |= {"nodes": -3, "edges": -3}
            differs = [name for name in COUNTS if round(ours[name], digits[name]) != paper[name]]
            said = {"differs": " ".join(differs), "why": " ".join(why) if differs else ""}
            rows.append({**paper, **{f"our_{name}": ours[name] for name in COUNTS}, "from": source, **said})
    return rows


def dataset_sheet(rows: list[dict[str, Any]]) -> Sheet:
    """Return those rows as they are read: the paper's count, and ours where it differs."""
    shown = []
    for row in rows:
        counts = {name: f"{row[name]:,}" for name in COUNTS}
        for name in row["differs"].split():
            counts[name] += f" → {row[f'our_{name}']:,.10g}"
        others = {name: row[name] for name in ("task", "metric", "from", "why")}
        shown.append(
            {"dataset": row["name"], **counts, "directed": "yes" if row["directed"] else "no", **others}
        )
    return Sheet(
        "Datasets: as in the paper's table, → what is here where that differs", shown, [None] * len(rows)
    )


def _of(manifest: Manifest) -> dict[str, Any]:
    expected, classes = manifest.expected, re.findall(r"(\d+) (?:classes|labels|targets)", manifest.task)
    counts = (expected.graphs, expected.avg_nodes, expected.avg_edges, int(classes[0]))
    return dict(zip(COUNTS, counts, strict=True))


def _of_card(card: Card) -> dict[str, Any]:
    graphs, labels = card.counts["graphs"], card.schema_.labels
    means = [round(card.counts[name] / max(graphs, 1), 4) for name in ("nodes", "edges")]
    classes = 0 if labels is None else labels.shape[-1] if labels.shape else labels.num_classes or 0
    return dict(zip(COUNTS, (graphs, *means, classes), strict=True))
