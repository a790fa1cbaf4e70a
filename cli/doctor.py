"""``kmip-data doctor``: what this machine has, and why something is not usable."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

import kmip_data
from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import home_option, json_option
from kmip_data.cli.shared.output import print_json
from kmip_data.errors import CheckFailed
from kmip_data.files.disk import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kmip_data.builds.home import Home

#: A requirement as installed metadata have it.
REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+?)(\[.*\])?[>=]=(?P<least>[\d.]+)\s*(;(.*extra == [\"'](?P<extra>\w+)[\"'])?.*)?"
)
LOW_DISK = 10 * 10**9  #: bytes; the largest raw archive and its build need less


@dataclass(frozen=True)
class Finding:
    """One line: ``ok`` is usable, ``no`` is not (and is not needed), ``problem`` must be mended."""

    section: str
    name: str
    status: str
    detail: str


@click.command(
    cls=Command, examples=["kmip-data doctor", "kmip-data doctor --json", "kmip-data doctor --sources"]
)
@click.option(
    "--sources", is_flag=True, help="Ask every mirror of every dataset instead: status, size, ranges."
)
@home_option
@json_option
def command(sources: bool, home: Home, as_json: bool) -> None:
    """What this machine has, and what works on it.

    Versions, devices, search backends and why each is or is not usable, HDF5 filters, disk, home
    and licences. Ends with exit code 1 where something that is needed is missing.

    With --sources one byte is asked of every mirror, nothing is downloaded, and the exit code is 1
    where a source has no mirror that answers, as all have offline.
    """
    if sources:
        findings = list(_sources())
    else:
        findings = [*_program(), *_packages(), *_devices(), *_backends(), *_filters(), *_home(home)]
    problems = [finding for finding in findings if finding.status == "problem"]
    if as_json:
        print_json({"ok": not problems, "findings": [asdict(finding) for finding in findings]})
    else:
        width = max(len(finding.name) for finding in findings)
        section = ""
        for finding in findings:
            if finding.section != section:
                section = finding.section
                click.echo(f"{section}")
            mark = {"ok": "ok", "no": "--", "problem": "!!"}[finding.status]
            click.echo(f"  {mark}  {finding.name.ljust(width)}  {finding.detail}".rstrip())
    if problems:
        raise CheckFailed(
            f"{len(problems)} of the mirrors are all that their sources have, and do not answer."
            if sources
            else f"{len(problems)} of what is needed does not work here.",
            found="; ".join(f"{finding.name}: {finding.detail}" for finding in problems),
            left="nothing was changed",
            next="kmip-data build NAME --archive PATH (a local copy), or the same command later"
            if sources
            else "python -m pip install --upgrade kmip-data, or mend what is named above",
        )


def _sources() -> Iterator[Finding]:
    """One line a mirror: a problem only where no other mirror of its source can be used."""
    from kmip_data.manifest import dataset_names, load_manifest
    from kmip_data.pipelines.download.source_probes import probe_sources

    probes = probe_sources(map(load_manifest, dataset_names()))
    reached = {(probe.dataset, probe.source) for probe in probes if probe.usable}
    for probe in probes:
        lacking = "no" if (probe.dataset, probe.source) in reached else "problem"
        code = f"{probe.status}, " if probe.usable else ""
        yield Finding(
            probe.dataset, probe.address, "ok" if probe.usable else lacking, f"{code}{probe.detail}"
        )


def _program() -> Iterator[Finding]:
    yield Finding(
        "Program", "kmip-data", "ok", f"{kmip_data.__version__} at {Path(kmip_data.__file__).parent}"
    )
    old = sys.version_info < (3, 11)
    yield Finding(
        "Program", "Python", "problem" if old else "ok", f"{platform.python_version()} at {sys.executable}"
    )
    yield Finding("Program", "system", "ok", f"{platform.system()} {platform.release()} {platform.machine()}")


def _packages() -> Iterator[Finding]:
    """Packages against the least version that the metadata ask for; those of extras may be missing."""
    try:
        needed = importlib.metadata.requires("kmip-data") or []
    except importlib.metadata.PackageNotFoundError:
        yield Finding("Packages", "kmip-data", "no", "runs from a checkout without being installed")
        needed = ["torch>=0", "torch-geometric>=0", "numpy>=0", "h5py>=0", "numba>=0", "lightning>=0"]
    found = [match for text in needed if (match := REQUIREMENT.fullmatch(text))]
    for match in sorted(found, key=lambda match: match["extra"] is not None):
        name, least, extra = match["name"], match["least"], match["extra"]
        if extra in {"dev", "all"}:
            continue
        section, status = ("Packages", "problem") if extra is None else ("Extras", "no")
        wanted = f"at least {least} is needed" if extra is None else f"pip install 'kmip-data[{extra}]'"
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding(section, name, status, f"not installed, {wanted}")
            continue
        old = _numbers(version) < _numbers(least)
        yield Finding(section, name, status if old else "ok", f"{version}, {wanted}" if old else version)


def _numbers(version: str) -> tuple[int, ...]:
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()


def _devices() -> Iterator[Finding]:
    import psutil
    import torch

    from kmip_data.runtime.threads import available_cores

    memory = psutil.virtual_memory()
    yield Finding(
        "Devices",
        "cpu",
        "ok",
        f"{available_cores()} cores for this process, "
        f"{human_bytes(memory.available)} of {human_bytes(memory.total)} memory free",
    )
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            yield Finding(
                "Devices",
                f"cuda:{index}",
                "ok",
                f"{properties.name}, {human_bytes(properties.total_memory)}, "
                f"compute capability {properties.major}.{properties.minor}",
            )
    else:
        why = (
            "this torch has no CUDA" if torch.version.cuda is None else "torch finds no CUDA device or driver"
        )
        yield Finding("Devices", "cuda", "no", why)


def _backends() -> Iterator[Finding]:
    from kmip_data.models.search.registry import backend_status

    for status in backend_status():
        yield Finding(
            "Search backends",
            f"{status.name} ({status.device})",
            "ok" if status.usable else "no",
            status.reason,
        )
    compilers = [name for name in ("g++", "clang++", "c++", "nvcc") if shutil.which(name)]
    yield Finding(
        "Search backends",
        "C++ compiler",
        "ok" if compilers else "no",
        ", ".join(compilers) or "none found; only keops needs one",
    )


def _filters() -> Iterator[Finding]:
    import h5py

    yield Finding("HDF5", "library", "ok", f"{h5py.version.hdf5_version} (h5py {h5py.__version__})")
    yield Finding("HDF5", "gzip", "ok" if h5py.h5z.filter_avail(h5py.h5z.FILTER_DEFLATE) else "problem", "")
    import hdf5plugin

    usable = h5py.h5z.filter_avail(hdf5plugin.Zstd.filter_id)
    yield Finding("HDF5", "zstd", "ok" if usable else "no", f"hdf5plugin {hdf5plugin.version}")


def _home(home: Home) -> Iterator[Finding]:
    from kmip_data.builds.home import list_builds
    from kmip_data.pipelines.raw.license import accepted_licenses

    existing = home.root
    while not existing.exists():
        existing = existing.parent
    writable = os.access(existing, os.W_OK | os.X_OK)
    where = str(home.root) + ("" if home.root.exists() else " (made when first written to)")
    yield Finding(
        "Home", "folder", "ok" if writable else "problem", where if writable else f"{where}: not writable"
    )
    free = shutil.disk_usage(existing).free
    few = free < LOW_DISK
    yield Finding(
        "Home", "disk", "ok", f"{human_bytes(free)} free{' (little for a full dataset)' if few else ''}"
    )
    accepted = accepted_licenses(home)
    names = ", ".join(f"{name} ({entry.get('how')}, {entry.get('time')})" for name, entry in accepted.items())
    yield Finding(
        "Home", "licences", "ok" if names else "no", f"agreed to: {names}" if names else "none agreed to"
    )
    builds = list_builds(home)
    yield Finding("Home", "builds", "ok", f"{len(builds)}: kmip-data list" if builds else "none yet")
