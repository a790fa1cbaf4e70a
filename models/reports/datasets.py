"""The paper's table of datasets, with the counts of builds, or of the manifests if there is no build."""

from __future__ import annotations

from typing import Any

from kmip_data.builds.home import Home, list_builds
from kmip_data.format.card import Card
from kmip_data.manifest import Manifest, load_manifest, read_shipped
from kmip_data.models.reports.writer import Sheet
from kmip_data.wording import as_values

COUNTS = ("graphs", "nodes", "edges", "classes")  #: nodes and edges are means over graphs


def dataset_facts(home: Home) -> list[dict[str, Any]]:
    """Return a row for each dataset, or each complete build of it: both counts, and why they differ."""
    whole = [build for build in list_builds(home) if build.card.complete and not build.card.sample]
    rows = []
    for paper in read_shipped("results", "datasets")["dataset"]:
        manifest, streets = load_manifest(paper["name"]), paper.pop("streets", False)
        why, usual = paper.pop("why", ""), _of_manifest(manifest)
        found = [(usual, "manifest", [why])]
        for build in [build for build in whole if build.card.dataset == paper["name"]]:
            counts = _of_card(build.card)
            other = [f"Built with {as_values(build.card.parameters)}."] if counts != usual else []
            found.append((counts, build.path.name, [why, *other]))
        for ours, source, reasons in found[1:] or found:
            # The paper counts each street once, and gives cities in thousands.
            ours["edges"] /= 1 + streets
            digits = dict(zip(COUNTS, (0, -3, -3, 0) if streets else (0, 1, 1, 0), strict=True))
            differs = [name for name in COUNTS if round(ours[name], digits[name]) != paper[name]]
            said = {"differs": " ".join(differs), "why": " ".join(reasons).strip() if differs else ""}
            rows.append({**paper, **{f"our_{name}": ours[name] for name in COUNTS}, "from": source, **said})
    return rows


def dataset_sheet(rows: list[dict[str, Any]]) -> Sheet:
    """Return those rows for people: the paper's count, and ours if it differs."""
    shown = []
    for row in rows:
        counts = {name: f"{row[name]:,}" for name in COUNTS}
        for name in row["differs"].split():
            counts[name] += f" → {row[f'our_{name}']:,.10g}"
        others = {name: row[name] for name in ("task", "metric", "from", "why")}
        shown.append(
            {"dataset": row["name"], **counts, "directed": "yes" if row["directed"] else "no", **others}
        )
    title = "Datasets as in the paper's table; → the count here, if it differs"
    narrow = [{name: row[name] for name in ("dataset", "graphs", "nodes", "edges")} for row in shown]
    return Sheet.of(title, shown, narrow=[Sheet.of(title, narrow)])


def _of_manifest(manifest: Manifest) -> dict[str, Any]:
    expected = manifest.expected
    means = [round(mean or 0, 1) for mean in (expected.avg_nodes, expected.avg_edges)]
    return dict(zip(COUNTS, (expected.graphs, *means, expected.classes), strict=True))


def _of_card(card: Card) -> dict[str, Any]:
    graphs, labels = card.counts["graphs"], card.schema_.labels
    means = [round(card.counts[name] / max(graphs, 1), 1) for name in ("nodes", "edges")]
    classes = 0 if labels is None else labels.shape[-1] if labels.shape else labels.num_classes or 0
    return dict(zip(COUNTS, (graphs, *means, classes), strict=True))
