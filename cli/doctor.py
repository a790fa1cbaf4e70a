"""``kmip-data doctor``: check what works on this machine, and why other parts do not."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

import kmip_data
from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.options import home_option, json_option
from kmip_data.cli.shared.output import print_result, wants_json
from kmip_data.errors import SAME_AGAIN, CheckFailed
from kmip_data.runtime.extras import GPU_EXTRAS, PACKAGES, install_command
from kmip_data.text import count_with_noun, human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kmip_data.builds.home import Home

#: A requirement in the metadata of an installed package.
REQUIREMENT_PATTERN = re.compile(
    r"(?P<name>[\w.-]+?)(\[.*\])?[>=]=(?P<minimum>[\d.]+)\s*(;(.*extra == [\"'](?P<extra>\w+)[\"'])?.*)?"
)
STATUS_MARKS = {"ok": "ok", "no": "--", "problem": "!!"}


@click.command(cls=ClickCommand)
@home_option
@json_option
def command(home: Home) -> None:
    """Check this machine: versions, devices, search backends.

    Also shows why a backend can or cannot be used, the self-check of a GPU, disk,
    home and licenses. Ends with exit code 1 if a requirement is missing, or a backend or a part of
    the self-check is broken.
    """
    #: Section -> checks: name, status and detail. ``ok`` is usable, ``no`` is missing but not
    #: required, ``problem`` must be fixed.
    sections = {
        "Program": _check_program(),
        "Devices": _check_devices(),
        "Search backends": _check_backends(),
        "GPU self-check": _check_gpu_kernels(),
        "Home": _check_home(home),
    }
    results = []
    problems = []
    for section, checks in sections.items():
        _print_line(section)
        for name, status, detail in checks:  # printed one by one, as some take seconds
            result = {"section": section, "name": name, "status": status, "detail": detail}
            results.append(result)
            _print_line(f"  {STATUS_MARKS[status]}  {name:17} {detail}".rstrip())
            if status == "problem":
                problems.append(f"{name}: {detail}")
    print_result({"ok": not problems, "checks": results})
    if problems:
        raise CheckFailed(
            f"{count_with_noun(len(problems), 'check')} failed.",
            found="; ".join(problems),
            steps=["fix these, then check again", SAME_AGAIN],
        )


def _print_line(line: str) -> None:
    """Print a line immediately, unless the command prints JSON."""
    if not wants_json():
        click.echo(line)


def _check_program() -> Iterator[tuple[str, str, str]]:
    yield "kmip-data", "ok", f"{kmip_data.__version__} at {Path(kmip_data.__file__).parent}"
    yield "Python", "ok", f"{platform.python_version()} at {sys.executable}"
    yield "system", "ok", f"{platform.system()} {platform.release()} {platform.machine()}"
    outdated = []
    extras = dict[str, bool]()
    requirements = []
    # A checkout may not be installed.
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        requirements = importlib.metadata.requires("kmip-data") or []
    for requirement in requirements:
        match = REQUIREMENT_PATTERN.fullmatch(requirement)
        if match is None:
            continue
        name = match["name"]
        minimum = match["minimum"]
        extra = match["extra"]
        version = _installed_version(name)
        is_satisfied = _version_numbers(version) >= _version_numbers(minimum)
        if extra is not None:
            extras[extra] = extras.get(extra, True) and is_satisfied
        elif not is_satisfied:
            outdated.append(f"{name} {version or 'is missing'}, at least {minimum} is needed")
    if outdated:
        yield "packages", "problem", "; ".join(outdated)
    else:
        names = ("torch", "torch-geometric", "numpy", "h5py")
        yield "packages", "ok", ", ".join(f"{name} {_installed_version(name)}" for name in names)
    # An extra is usable if all of its packages are.
    for extra, is_usable in extras.items():
        if extra not in PACKAGES:  # for all commands, or for development
            continue
        if is_usable:
            yield f"[{extra}]", "ok", ""
        else:
            detail = str(install_command(extra))
            if extra in GPU_EXTRAS:
                detail += f" (without it, on an NVIDIA GPU, {GPU_EXTRAS[extra]})"
            yield f"[{extra}]", "no", detail


def _installed_version(package: str) -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return ""


def _version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version for comparisons: 2.10 is above 2.9."""
    return tuple(map(int, re.findall(r"\d+", version)))


def _check_devices() -> Iterator[tuple[str, str, str]]:
    import psutil
    import torch

    from kmip_data.runtime.parallel import available_cores

    memory = psutil.virtual_memory()
    free = f"{human_bytes(memory.available)} of {human_bytes(memory.total)} memory free"
    yield "cpu", "ok", f"{available_cores()} cores for this process, {free}"
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        code = f"compute capability {device.major}.{device.minor}"
        yield f"cuda:{index}", "ok", f"{device.name}, {human_bytes(device.total_memory)}, {code}"
    if not torch.cuda.is_available():
        reason = "torch finds no CUDA device or driver"
        if torch.version.cuda is None:
            reason = "this torch has no CUDA"
        yield "cuda", "no", reason


def _check_backends() -> Iterator[tuple[str, str, str]]:
    from kmip_data.models.search.topk import backend_status
    from kmip_data.models.training.self_check import OK, TIMED_OUT, check_gpu_features

    rows = backend_status()
    # The checks run in other processes, so that a crash is reported as a failure.
    failures = {}
    for device in {row.device for row in rows}:
        names = [row.name for row in rows if row.usable and row.device == device]
        failures[device] = check_gpu_features(device, {}, names)
    for row in rows:
        status = "ok" if row.usable else "no"
        reason = row.reason
        failure = failures[row.device].get(row.name, OK)
        if failure != OK:
            status = "no" if failure.startswith(TIMED_OUT) else "problem"
            reason = failure
        yield f"{row.name} ({row.device})", status, reason
    compilers = ", ".join(filter(shutil.which, ("g++", "clang++", "c++", "nvcc")))
    if compilers:
        yield "C++ compiler", "ok", compilers
    else:
        yield "C++ compiler", "no", "none found; only keops needs one"


def _check_gpu_kernels() -> Iterator[tuple[str, str, str]]:
    import torch

    if not torch.cuda.is_available():
        yield "kernels", "no", "no GPU"
        return
    from kmip_data.models.config import ModelConfig
    from kmip_data.models.training.self_check import OK, check_all_gpu_features, kernel_sizes

    for feature, reason in check_all_gpu_features(kernel_sizes(ModelConfig())).items():
        if reason == OK:
            yield feature, "ok", ""
        else:
            yield feature, "problem", reason


def _check_home(home: Home) -> Iterator[tuple[str, str, str]]:
    from kmip_data.pipelines.raw.licenses import accepted_licenses

    if os.access(home.nearest_existing_folder, os.W_OK | os.X_OK):
        free = human_bytes(shutil.disk_usage(home.nearest_existing_folder).free)
        yield "folder", "ok", f"{home.path}: {free} free"
    else:
        yield "folder", "problem", f"{home.path}: not writable"
    licenses = []
    for name, entry in accepted_licenses(home).items():
        licenses.append(f"{name} ({entry.get('how')}, {entry.get('time')})")
    if licenses:
        yield "licenses", "ok", ", ".join(licenses)
    else:
        yield "licenses", "no", "none accepted"
