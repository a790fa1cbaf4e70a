"""``papers100M-bin.zip`` of any size: ``python -m support.builds.papers PATH NODES [--stored]``.

Generated in the upstream layout, an archive in an archive, both written as streams: it proves memory
and speed, not accuracy.
"""

from __future__ import annotations

import argparse
import sys
import time
import zipfile
import zlib
from pathlib import Path

from kmip_data.pipelines.datasets.ogb.sample import Papers, write_papers

PUBLISHED = 111_059_956  #: nodes
CLASSES = 172
ROOT = "papers100M-bin"


def write_zip(
    path: Path,
    nodes: int,
    *,
    labelled: float = 0.0139,
    inside: int = zipfile.ZIP_DEFLATED,
    outside: int = zipfile.ZIP_STORED,
    of_features: int | None = None,
) -> Papers:
    """Write the archive and return what is in it; OGB's own arrays are deflated."""
    papers = Papers(nodes, CLASSES, labelled=labelled)
    with zipfile.ZipFile(path, "w", outside, compresslevel=1) as archive:
        write_papers(
            papers,
            lambda name: archive.open(f"{ROOT}/{name}", "w", force_zip64=True),
            inside,
            of_features,
        )
    return papers


def deflate_quickly() -> None:
    """Deflate by run lengths and Huffman codes alone: random floats take a third of the time."""
    vars(zipfile)["_get_compressor"] = lambda method, _: (
        zlib.compressobj(1, zlib.DEFLATED, -15, 9, zlib.Z_RLE) if method else None
    )


if __name__ == "__main__":
    deflate_quickly()
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("nodes", type=int)
    parser.add_argument("--stored", action="store_true", help="features are not deflated")
    given = parser.parse_args()
    began = time.perf_counter()
    of_features = zipfile.ZIP_STORED if given.stored else None
    written = write_zip(given.path, given.nodes, of_features=of_features)
    size = given.path.stat().st_size / 1e9
    seconds = time.perf_counter() - began
    sys.stdout.write(
        f"{written.nodes:,} nodes, {written.edges:,} edges: {size:.2f} GB, {seconds / size:.1f} s a GB\n"
    )
