"""Reading from afar: how much of a link an epoch in order takes, and what the first batch costs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.disk import write_generated
from benchmarks.table import Row

RATES = (12.5e6, 50e6)  #: bytes per second: 100 and 400 Mbit/s
LATENCY = 0.02  #: seconds


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Read generated S3DIS graphs from a server of this machine, over a link of a known rate."""
    from support.http_server import serving_folder
    from support.shares import share_folder

    import kmip_data
    from kmip_data.sharing.share import BLOCK

    graphs = 32 if quick else 400
    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as place:
        folder = Path(place)
        build = write_generated(folder / "build", graphs, name="s3dis", nodes=4096)
        share_folder(build.path, folder / "share")
        # Kernels are compiled before anything is timed.
        next(iter(kmip_data.GraphLoader(kmip_data.open(build.path), batch_size=8)))
        for rate in RATES:
            with serving_folder(folder / "share", rate=rate, latency=LATENCY) as server:
                home, start = folder / f"home-{rate}", time.perf_counter()
                far = kmip_data.open(server.address, home=home)
                opened, index = time.perf_counter() - start, server.sent
                next(iter(kmip_data.GraphLoader(far, batch_size=8, shuffle=True, prefetch=0)))
                first, blocks = time.perf_counter() - start, (server.sent - index) // BLOCK
                before, start = server.sent, time.perf_counter()
                for _ in kmip_data.GraphLoader(far, batch_size=8):
                    pass
                took = time.perf_counter() - start
                achieved = (server.sent - before) / took
                note = (
                    f"afar: {graphs} generated S3DIS graphs of 4,096 nodes; open in {opened:.2g} s and "
                    f"{index / 1e6:.1f} MB, 8 graphs at random after {first:.2g} s and {blocks} MiB more"
                )
                yield Row(
                    what="an epoch in order from afar",
                    against=f"the link of {rate / 1e6:g} MB/s, {LATENCY * 1e3:g} ms",
                    ours=achieved / 1e6, theirs=rate / 1e6, unit="MB/s", ratio=achieved / rate,
                    target="≥ 0.8×", met=achieved >= 0.8 * rate, note=note,
                )  # fmt: skip
