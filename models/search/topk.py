"""Exact k-maximum-inner-product search, and the choice of its backend.

A backend is one module in ``kmip_data.models.search.backends``, discovered automatically, with

- ``NAME``, and ``AUTO_NOTE``, which tells ``kmip-data doctor`` when ``auto`` chooses it,
- ``AUTO_PRIORITY``: priority for ``auto`` by device type; without one, the backend runs only by
  name (priorities are fixed, as measured speeds lie far apart, see ADR 0280),
- ``why_unusable(device_type) -> str | None``: why it cannot run on a device type (cheap, without
  heavy imports),
- ``why_refused(problem) -> str | None``: why it does not support this problem,
- ``search(problem) -> (scores, indices)``: search by the rule of
  :mod:`kmip_data.models.search.rule`,
- ``CHECKS_FINITE = True`` if it detects NaN and infinity itself; else they are checked before.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from kmip_data.errors import Command, Setting, UsageError, unknown_name_error
from kmip_data.models.search import backends
from kmip_data.models.search.problem import (
    NotFinite,
    SearchProblem,
    check_finite,
    make_problem,
    search_memory_error,
)
from kmip_data.registry import import_modules_in
from kmip_data.runtime.memory import is_out_of_memory

log = logging.getLogger(__name__)
_DOCTOR = Command("kmip-data doctor")


@torch.no_grad()
def topk_inner_product(
    queries: Tensor,
    keys: Tensor,
    k: int,
    *,
    query_ptr: Tensor | Sequence[int] | None = None,
    key_ptr: Tensor | Sequence[int] | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Find, for each query, the k keys of its graph with the largest inner product.

    The result is exact, and bitwise equal on all backends and devices: the score of a pair is the
    float64 sum, in index order, of its exact products, rounded once to float32. Scores descend, and
    equal ones are ordered by index. The search is not differentiable;
    :func:`kmip_data.models.attention.kmip.kmip_attention` differentiates through the chosen pairs.

    Parameters
    ----------
    queries
        (H, N, d) float16 or bfloat16 (widened to float32, which is exact), float32, or float64, for
        gradient checks: only ``dense`` supports it, with rounded products and float64 scores.
    keys
        (H, M, d), with the same dtype and device.
    k
        At least 1; may exceed the number of keys.
    query_ptr, key_ptr
        (G + 1) integers: graph g has the rows ``ptr[g]:ptr[g + 1]``, and its queries are compared
        with its keys. ``key_ptr`` defaults to ``query_ptr`` if N = M; without both there is one
        graph. Graphs may be empty.
    backend
        ``auto`` or a name from :func:`kmip_data.models.search.topk.backend_status`.

    Returns
    -------
    tuple of Tensor
        Scores (H, N, k) float32 (float64 for float64 input), and indices (H, N, k) int64, which
        count the rows of ``keys`` over all graphs. If a graph has fewer than k keys, the remaining
        slots hold −inf and −1.

    Raises
    ------
    UsageError
        A ``ValueError``, if an argument does not fit. The backend ``cuda`` does not wait for the
        device: it reports NaN and infinity in the next search.
    OutOfResources
        Out of memory; the message states the amount needed.
    """
    if not torch.compiler.is_compiling():
        return search_checked(make_problem(queries, keys, k, query_ptr, key_ptr), backend)

    pointers = [None if ptr is None else torch.as_tensor(ptr) for ptr in (query_ptr, key_ptr)]
    scores, indices = search_op(queries, keys, k, *pointers, backend)
    return scores, indices.long()


@torch.library.custom_op("kmip_data::search", mutates_args=())
def search_op(
    queries: Tensor,
    keys: Tensor,
    k: int,
    query_ptr: Tensor | None,
    key_ptr: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """Like :func:`topk_inner_product`, as an operator; indices (H, N, k) are int32 if M < 2³¹."""
    fits_int32 = keys.shape[1] < 2**31
    problem = make_problem(queries, keys, k, query_ptr, key_ptr, has_int32_indices=fits_int32)
    return search_checked(problem, backend)


@search_op.register_fake
def _(
    queries: Tensor,
    keys: Tensor,
    k: int,
    *_: object,
) -> tuple[Tensor, Tensor]:
    # Loaded only under torch.compile.
    from torch.fx.experimental.symbolic_shapes import guard_or_true

    shape = (*queries.shape[:2], k)
    scores = queries.new_empty(shape, dtype=torch.promote_types(queries.dtype, torch.float32))
    # Assume that a data-dependent number of rows fits; the compiled graph checks it in each run.
    fits_int32 = guard_or_true(keys.shape[1] < 2**31)
    if fits_int32:
        torch._check(keys.shape[1] < 2**31)  # type: ignore[no-untyped-call] # noqa: SLF001 -- documented
    return scores, queries.new_empty(shape, dtype=torch.int32 if fits_int32 else torch.int64)


@torch.no_grad()
def search_checked(problem: SearchProblem, backend: str) -> tuple[Tensor, Tensor]:
    """Search a checked problem, as :func:`topk_inner_product` does."""
    # The filters' error bounds do not hold for autocast's products in half precision.
    device_type = problem.device.type
    with (
        torch.autocast(device_type, enabled=False)
        if torch.is_autocast_enabled(device_type)
        else nullcontext()
    ):
        # Try backends until one succeeds: `choose_backend` skips failed ones.
        while True:
            module = choose_backend(problem, backend)
            try:
                if device_type == "cuda" and not getattr(module, "CHECKS_FINITE", False):
                    check_finite(problem.queries, problem.keys)
                scores, indices = module.search(problem)
                return scores, indices.int() if problem.has_int32_indices else indices
            except Exception as error:
                if is_out_of_memory(error):
                    raise search_memory_error(problem, error) from error
                if backend != "auto" or isinstance(error, NotFinite) or _is_lost(problem.device):
                    raise
                # If a kernel fails to compile, load or launch, fall back to a slower backend.
                log.debug("search backend %s failed", module.NAME, exc_info=True)
                summary = f"{type(error).__name__}: {error}".splitlines()[0]
                _disabled[module.NAME, device_type] = f"it failed, please report this: {summary}"


def _is_lost(device: torch.device) -> bool:
    """True if a CUDA device accepts no more work, for example after an illegal address, or is capturing."""
    if device.type != "cuda":
        return False
    # Errors of earlier kernels are raised here, in the first call that waits.
    try:
        if not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize(device)
            return False
    except RuntimeError:
        log.debug("the device has failed", exc_info=True)
    return True


class BackendStatus(NamedTuple):
    """Status of a backend on a device type, for ``kmip-data doctor``."""

    name: str
    device: str
    usable: bool
    reason: str  #: why it is not usable, or when ``auto`` chooses it


#: (name, device type) of backends that failed in this process -> reason.
_disabled: dict[tuple[str, str], str] = {}


def _why_skipped(module: ModuleType, device_type: str) -> str | None:
    """Return why ``auto`` skips a backend on a device type, or None."""
    return _disabled.get((module.NAME, device_type)) or module.why_unusable(device_type)


@functools.cache
def all_backends() -> dict[str, ModuleType]:
    """Return the modules of all backends by name."""
    return {module.NAME: module for module in import_modules_in(backends)}


def backend_names() -> tuple[str, ...]:
    """Return ``auto`` and the names of all backends."""
    return ("auto", *sorted(all_backends()))


def backend_status(device_types: tuple[str, ...] | None = None) -> list[BackendStatus]:
    """Return the status of every backend on every available device type."""
    if device_types is None:
        device_types = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    rows = []
    for device in device_types:
        for name, module in sorted(all_backends().items()):
            reason = _why_skipped(module, device)
            rows.append(BackendStatus(name, device, reason is None, reason or module.AUTO_NOTE))
    return rows


def get_backend(name: str) -> ModuleType:
    """Return a backend by name; raise ``UsageError``, with the most similar name, if it does not exist."""
    if not isinstance(name, str) or name not in all_backends():
        raise unknown_name_error(
            "search backend", str(name), list(backend_names()), command=_DOCTOR
        )
    return all_backends()[name]


def usable_backend(name: str, device_type: str, problem: SearchProblem | None = None) -> ModuleType:
    """Return a backend by name; raise ``UsageError`` if it does not support the device or the problem."""
    module = get_backend(name)
    reason = module.why_unusable(device_type) or (module.why_refused(problem) if problem else None)
    if reason:
        raise UsageError(
            f"Search backend {name!r} cannot search on {device_type}: {reason}.",
            steps=[Setting({"model.attention.search": "auto"}), _DOCTOR],
        )
    return module


@functools.cache
def _warn_once(name: str, reasons: str) -> None:
    """Warn once that a slower backend is used, with the reasons."""
    log.warning("search backend %s%s", name, reasons)


def choose_backend(problem: SearchProblem, name: str = "auto") -> ModuleType:
    """Return the backend for this problem: the requested one, else the best that supports it.

    Raises ``UsageError`` if the requested backend does not exist or does not support this problem.
    """
    device = problem.device.type
    if name != "auto":
        return usable_backend(name, device, problem)
    ranked = [module for module in all_backends().values() if device in module.AUTO_PRIORITY]
    reasons: list[str] = []
    for module in sorted(ranked, key=lambda module: -module.AUTO_PRIORITY[device]):
        reason = _why_skipped(module, device) or module.why_refused(problem)
        if reason is None:
            description = f"{module.NAME} on {device}"
            log.debug("search backend %s%s", description, "".join(reasons))
            if reasons and (device == "cuda" or _disabled):
                _warn_once(description, "".join(reasons))
            return module
        reasons.append(f"; not {module.NAME}: {reason}")
    raise UsageError(f"No search backend can search on {device}{''.join(reasons)}.", steps=_DOCTOR)
