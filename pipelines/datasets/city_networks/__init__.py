"""City-Networks: Paris, Shanghai, Los Angeles and London from the published tensors.

Raw layout of ``NAME.tar.gz``: one folder with ``node_features_augmented.pt`` float32 [N, 37],
``edge_indices.pt`` int64 [2, E], ``edge_features.pt`` float32 [E, 25] (its first columns are length
and speed), ``10-chunk_16-hop_node_labels.pt`` int64 [N], ``16-hop_eccentricities.pt`` float32 [N]
and ``{train,valid,test}_mask.pt`` bool [N]. Facts and deviations:
``docs/datasets/city-networks.md``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kmip_data.arrays import F32, I64
from kmip_data.builds.home import Home, unused_name
from kmip_data.errors import Command, DamagedInput
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import Prepared, RawCopy
from kmip_data.pipelines.domains.cities import (
    FEATURE_NAMES,
    NODE_FEATURES,
    CityArrays,
    CityParams,
    CityPipeline,
    check_city,
    store_city,
    symmetrise_streets,
)
from kmip_data.pipelines.formats.tensors import read_tensor
from kmip_data.pipelines.graph_arrays.graph_checks import check_raw_edges

LABEL_FILE = "10-chunk_16-hop_node_labels.pt"
#: Labels of the earlier, directed graphs.
DIRECTED_LABEL_FILE = "10-chunk_node_labels.pt"
ECCENTRICITY_FILE = "16-hop_eccentricities.pt"
NUM_CLASSES = 10
DIRECTED_WARNING = (
    "The archive has an earlier, directed graph: it was made undirected and split by the authors' rules, "
    "but its eccentricities and labels are of the directed graph."
)


class CityNetworksPipeline(CityPipeline[CityParams]):
    """Pipeline of ``{paris,shanghai,la,london}``."""

    def prepare(self, raw: RawCopy, params: CityParams, workdir: Path) -> Prepared:
        """Read the tensors and check them against the published counts."""
        city = read_city_archive(raw.path)
        if not raw.sample:
            home = Home(raw.path.parents[2])
            check_published_counts(city, self.manifest, unused_name(self.manifest.name, home))
        return store_city(city, workdir)


PIPELINE = CityNetworksPipeline


def read_city_archive(folder: Path) -> CityArrays:
    """Read the tensors of one city, from the current layout or the earlier one of directed graphs.

    A directed graph is made undirected by the authors' rule. Masks are not read, because the
    default split is the authors' rule. The fact ``layout`` is ``undirected`` or ``directed``, as
    stored. Raises ``DamagedInput`` if a file is missing, damaged, or does not fit the others.
    """
    for name in ("node_features_augmented.pt", "edge_indices.pt", "edge_features.pt"):
        if not (folder / name).is_file():
            raise DamagedInput(f"{name} is missing.")
    features = read_tensor(
        folder / "node_features_augmented.pt", "float32", (None, len(FEATURE_NAMES))
    )
    n = len(features)
    index = read_tensor(folder / "edge_indices.pt", "int64", (2, None))
    shape = (index.shape[1], len(FEATURE_NAMES) - NODE_FEATURES)
    edge_features = read_tensor(folder / "edge_features.pt", "float32", shape)
    check_raw_edges(index, n, "edge_indices.pt")
    # The current files are already symmetric.
    symmetric_index, street = symmetrise_streets(index, edge_features[:, :2], n)
    is_undirected = np.array_equal(symmetric_index, index)
    eccentricity, labels = _published_labels(folder, n)
    city = CityArrays(
        features=features,
        edge_index=symmetric_index,
        edge_length=street[:, 0],
        edge_speed=street[:, 1],
        eccentricity=eccentricity,
        labels=labels,
        card_statistics={"layout": "undirected" if is_undirected else "directed"},
        warnings=() if is_undirected else (DIRECTED_WARNING,),
    )
    check_city(city, folder.name)
    return city


def check_published_counts(city: CityArrays, manifest: Manifest, other_name: str) -> None:
    """Raise ``DamagedInput`` if the counts of a city differ from the published ones.

    The error suggests ``other_name`` for a build of the same tensors as your own data.
    """
    n = len(city.features)
    expected = manifest.expected
    labels = np.zeros(0, np.int64) if city.labels is None else city.labels
    chunk_size = n // NUM_CLASSES + 1
    counts = {
        "intersections": (n, expected.avg_nodes),
        "edges": (city.edge_index.shape[1], expected.avg_edges),
    }
    # All classes but the last have equal sizes.
    for c, count in enumerate(np.bincount(labels, minlength=NUM_CLASSES)):
        counts[f"class {c}"] = (int(count), min(chunk_size, n - c * chunk_size))
    differences = []
    for name, (count, published) in counts.items():
        if count != published:
            differences.append(f"{name} {count:,}, not {published:,.0f}")
    if differences:
        raise DamagedInput(
            f"These are not the published tensors of {manifest.title}: {', '.join(differences)}; the edges are "
            f"{city.card_statistics['layout']} (the authors changed their files on 2025-03-05).",
            steps=[
                Command("kmip-data build", manifest.name),
                Command("kmip-data build city --name {} --archive PATH", other_name),
            ],
        )


def _published_labels(folder: Path, n: int) -> tuple[F32 | None, I64 | None]:
    """Return eccentricities and labels if the archive has both."""
    names = [name for name in (LABEL_FILE, DIRECTED_LABEL_FILE) if (folder / name).is_file()]
    if not names or not (folder / ECCENTRICITY_FILE).is_file():
        return None, None
    eccentricity = read_tensor(folder / ECCENTRICITY_FILE, "float32", (n,))
    labels = read_tensor(folder / names[0], "int64", (n,))
    # Labels are chunks of sorted eccentricities, which must rise with the label.
    order = np.lexsort((eccentricity, labels))
    is_sorted = (np.diff(eccentricity[order]) >= 0).all()  # also False for NaN
    low = labels.min(initial=0)
    high = labels.max(initial=0)
    if low < 0 or high >= NUM_CLASSES or not is_sorted:
        problem = f"labels {low} to {high}"
        if not is_sorted:
            problem += ", in another order"
        raise DamagedInput(f"{names[0]} does not fit {ECCENTRICITY_FILE}: {problem}.")
    return eccentricity, labels
