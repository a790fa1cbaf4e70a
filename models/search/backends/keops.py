"""Search with KeOps' symbolic ``argKmin``, the paper's method, graph by graph.

KeOps ranks float32 sums instead of following the rule, so it is used as a filter with a proof. It
compiles a kernel for each (d, k) on first use, which takes seconds, and caches it in
``$KEOPS_CACHE_FOLDER``, by default ``~/.cache/keops…``.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kmip_data.errors import UsageError
from kmip_data.models.search import rule
from kmip_data.models.search.problem import SearchProblem

NAME = "keops"
AUTO_NOTE = "only by name"
AUTO_PRIORITY: dict[str, int] = {}  # on some machines with a GPU, importing it kills the process

_MAX_KEYS = 2**24  # KeOps passes indices as float32


def why_unusable(device_type: str) -> str | None:
    """Return the reason why it cannot run on this device type, or None."""
    if device_type not in {"cpu", "cuda"}:
        return f"KeOps does not know {device_type}"
    if importlib.util.find_spec("pykeops") is None:
        return "pykeops is not installed"
    if not any(shutil.which(name) for name in (os.environ.get("CXX") or "g++", "g++", "clang++")):
        return "no C++ compiler: install g++ or set CXX"
    return None


def why_refused(problem: SearchProblem) -> str | None:
    """Return the reason why it does not support this problem, or None."""
    if problem.dtype != torch.float32:
        return f"takes float32, not {problem.dtype}"
    if problem.keys.shape[1] > _MAX_KEYS:
        return f"counts to {_MAX_KEYS} keys, not to {problem.keys.shape[1]}"
    return None


def search(problem: SearchProblem) -> tuple[Tensor, Tensor]:
    """Return scores and indices (H, N, k) by the rule."""
    result = problem.new_result()
    graphs = range(len(problem.key_ptr) - 1)
    max_pairs = rule.MAX_FILTERED_PAIRS if problem.device.type == "cpu" else None
    rule.search_by_graph(
        problem, rule.Filter(_arg_k_max), graphs, result, max_filtered_pairs=max_pairs
    )
    return result


def _arg_k_max(queries: Tensor, keys: Tensor, count: int) -> Tensor:
    """Return the rows of ``keys`` with the largest float32 inner products: (H, N, count)."""
    kernel = (queries.device.type, queries.shape[2], count)
    try:
        # KeOps prints warnings to standard output, which is reserved for results.
        with contextlib.redirect_stdout(sys.stderr), _one_compiler_at_a_time(kernel):
            lazy = lazy_tensor()
            products = (lazy(queries[:, :, None, :]) * lazy(keys[:, None, :, :])).sum(-1)
            indices: Tensor = (-products).argKmin(count, dim=2)
    except (ImportError, OSError) as error:
        raise UsageError(
            f"KeOps could not compile its search: {error}",
            steps="install g++ or set CXX, make KeOps' cache folder writable, or use another search backend",
        ) from error
    _compiled.add(kernel)
    return indices


_compiled: set[tuple[str, int, int]] = set()


@contextlib.contextmanager
def _one_compiler_at_a_time(kernel: tuple[str, int, int]) -> Iterator[None]:
    """Lock out this user's other processes during a kernel's first use, as KeOps has a race."""
    if kernel in _compiled:
        yield
        return
    path = Path(tempfile.gettempdir()) / f"kmip-data-keops-{os.getuid()}.lock"
    # Do not follow links, as all users may write to this folder.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # releases the lock


@functools.cache
def lazy_tensor() -> Any:
    """Return KeOps' class of symbolic tensors, with its output silenced."""
    import pykeops.torch

    pykeops.set_verbose(False)
    return pykeops.torch.LazyTensor
