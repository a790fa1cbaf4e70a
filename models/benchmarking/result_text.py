"""Formatting of benchmark results and of the machine they were measured on."""

from __future__ import annotations

import functools
import importlib.metadata
import platform


def format_quantity(value: float | None, unit: str) -> str:
    """Format a value with a suitable unit.

    >>> format_quantity(0.00042, "s")
    '420 µs'
    """
    if value is None:
        return "–"
    if unit == "s" and value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    if unit == "s" and value < 1:
        return f"{value * 1e3:.3g} ms"
    if value >= 1000:
        return f"{value:,.0f} {unit}"
    return f"{value:.3g} {unit}".rstrip()


@functools.cache
def describe_machine() -> str:
    """Describe the machine: processor, usable cores, memory, system, versions and load."""
    import psutil

    from kmip_data.models.training.devices import processor_model
    from kmip_data.runtime.parallel import available_cores

    facts = [
        processor_model(),
        f"{available_cores()} cores",
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        f"{platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}",
        f"numpy {importlib.metadata.version('numpy')}",
        f"torch {importlib.metadata.version('torch')}",
        f"load {psutil.getloadavg()[0]:.1f}",
    ]
    return ", ".join(facts)
