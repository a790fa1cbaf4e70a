"""Builds, encodings and functions as an older CPU computes them: a child with four switches.

NumPy's loops for AVX2 and AVX-512, OpenBLAS's kernels, the target of numba and the C library's
versions for FMA are chosen by the CPU when a process starts. :func:`variables` turns all four back
to an x86-64 of 2008; ``python tests/support/other_cpu.py NAME…`` builds and computes there, and
prints digests as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

#: Built without a sample.
OFFLINE = {"helsinki", "long-range", "lrim-generated", "tree-neighbors-match"}
_GLIBC = "AVX2,-FMA,-FMA4,-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-AVX512CD"


def variables() -> dict[str, str]:
    """Return the environment of an older CPU."""
    return {
        "GLIBC_TUNABLES": f"glibc.cpu.hwcaps=-{_GLIBC}",
        # Their names depend on NumPy's version: AVX2 and FMA3 before 2.4, X86_V3 since.
        "NPY_DISABLE_CPU_FEATURES": " ".join(dispatched()),
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "OPENBLAS_CORETYPE": "Prescott",
    }


def dispatched() -> list[str]:
    """Return NumPy's optional CPU features that are on in this process."""
    module = getattr(np, "_core", None) or np.core
    umath = module._multiarray_umath
    return [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name)]


def machine() -> dict[str, Any]:
    """Return which versions of NumPy, BLAS and numba are in use, and a digest of the C library's exp."""
    import math

    import scipy.linalg  # noqa: F401 -- SciPy has an OpenBLAS of its own
    from numba.core import config
    from threadpoolctl import threadpool_info

    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return {
        "numpy": dispatched(),
        "blas": sorted({library["architecture"] for library in libraries}),
        "numba": config.CPU_NAME,
        "exp": _digest(np.array([math.exp(x) for x in np.linspace(-20, 20, 20_000)])),
    }


def functions() -> dict[str, str]:
    """Return a digest of what each function that builds and encodings rest on gives."""
    from kmip_data.graphs import (
        expander_targets,
        knn_edges,
        local_degree_profile,
        local_eccentricity,
        random_walk_encoding,
    )
    from kmip_data.graphs.elementary_functions import (
        arcsine,
        logarithm,
        normal_quantile,
        sine_cosine,
    )

    rng = np.random.Generator(np.random.PCG64(7))
    angles = rng.uniform(-500, 500, 100_000)
    shares = rng.random(100_000)
    # Streets of a random map: about three at each of 300 crossings, both ways.
    one_way = rng.integers(0, 300, (2, 450))
    edges = np.concatenate([one_way, one_way[::-1]], axis=1)
    length = np.tile(rng.uniform(1, 200, 450).astype(np.float32), 2)
    values = {
        "sine, cosine": np.stack(sine_cosine(angles)),
        "arcsine": arcsine(shares),
        "logarithm": logarithm(shares),
        "normal quantile": normal_quantile(shares),
        "k-NN": knn_edges(rng.normal(size=(2_000, 3)).astype(np.float32), 12),
        "eccentricity": local_eccentricity(edges, length, 300, quiet=True),
        "random walks": random_walk_encoding(edges, 300, 20),
        "degree profile": local_degree_profile(edges, 300, "2.8"),
        "expander": expander_targets(300, 3, rng),
    }
    return {name: _digest(array) for name, array in values.items()}


def builds(names: list[str]) -> dict[str, dict[str, str]]:
    """Return the digests of the builds of datasets, by key: samples, unless there is more offline."""
    from kmip_data.builds.home import Home
    from kmip_data.pipelines.build import build_dataset

    digests = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            sample = name not in OFFLINE
            build = build_dataset(name, home=Home(Path(folder)), sample=sample, jobs=1, quiet=True)
            digests[build.card.key] = build.card.digests
    return digests


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    report = {"machine": machine(), "functions": functions(), "builds": builds(sys.argv[1:])}
    sys.stdout.write(json.dumps(report))
