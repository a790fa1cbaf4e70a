"""Commands of ``kmip-data bench``, and their formats of figures and of the machine."""

from __future__ import annotations

from pathlib import Path


def quantity(value: float | None, unit: str) -> str:
    """Write a figure with a unit that suits its size.

    >>> quantity(0.00042, "s")
    '420 µs'
    """
    if value is None:
        return "–"
    if unit == "s" and value < 1:
        return f"{value * 1e6:.3g} µs" if value < 1e-3 else f"{value * 1e3:.3g} ms"
    space = " " if unit not in ("", "×") else ""
    return (f"{value:,.0f}" if value >= 1000 else f"{value:.3g}") + space + unit


def machine_line() -> str:
    """Return processor, cores this process may use, memory, system and versions."""
    import importlib.metadata
    import os
    import platform
    import re

    import psutil

    from kmip_data.runtime.threads import available_cores

    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file() and (
        found := re.search(r"^model name\s*:\s*(.*)$", cpuinfo.read_text(), re.MULTILINE)
    ):
        name = found[1].strip()
    facts = [
        name,
        f"{available_cores()} cores",
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        f"{platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}",
        *(f"{package} {importlib.metadata.version(package)}" for package in ("numpy", "torch")),
        *([f"load {os.getloadavg()[0]:.1f}"] if hasattr(os, "getloadavg") else []),
    ]
    return ", ".join(facts)
