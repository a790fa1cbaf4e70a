"""The options of ``kmip-data bench attention``, checked and completed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmip_data.cli.bench import machine_line
from kmip_data.cli.shared.output import beside, check_prefix
from kmip_data.errors import UsageError
from kmip_data.models.profiling.measuring import Protocol
from kmip_data.models.profiling.methods import default_methods, method_names
from kmip_data.models.profiling.results import SETTINGS, Setting
from kmip_data.models.profiling.workload import Shape, Source, graph_sizes, sizes_up_to
from kmip_data.models.training.machine import choose_device
from kmip_data.runtime.peak_memory import free_host_memory
from kmip_data.runtime.threads import available_cores
from kmip_data.wording import counted

SHARE = 0.8  #: of the free memory that a process may take unless told


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is measured, how and where, and where it is saved."""

    methods: list[str]
    sizes: list[int]
    settings: list[Setting]
    shape: Shape
    protocol: Protocol
    save: Path | None
    machine: str

    @property
    def what(self) -> str:
        """One line that says what is measured."""
        shape = self.shape
        parts = [f"H = {shape.heads}, d = {shape.d}, v = {shape.value_dim}, k = {shape.k}", shape.data]
        if shape.graph_sizes is not None:
            sizes = shape.graph_sizes
            parts.append(f"{len(sizes):,} graphs of {min(sizes)} to {max(sizes)} nodes")
        return ", ".join([*parts, self.protocol.device, counted(self.protocol.threads, "thread")])

    @property
    def as_the_paper(self) -> bool:
        """Whether the paper's figures are of the same task."""
        return self.shape == Shape(value_dim=self.shape.value_dim)

    def file(self, suffix: str) -> Path:
        """Where a result is saved; ``save`` is set."""
        assert self.save is not None
        return beside(self.save, suffix)


def complete(options: Mapping[str, Any]) -> Asked:
    """Complete the options; raises :class:`UsageError` before anything is measured."""
    device, quick = choose_device(options["device"]).kind, options["quick"]
    graphs, limit = options["graphs"], options["memory_limit"]
    save = None if options["save"] is None else Path(options["save"]).expanduser()
    if save is not None:
        check_prefix(save)
    names = default_methods(device) if options["methods"] is None else options["methods"].split(",")
    names = method_names() if names == ["all"] else [name.strip() for name in names]
    source = Source(
        Shape(
            heads=options["heads"],
            d=options["d"],
            value_dim=options["value_dim"] or options["d"],
            k=options["k"],
            data=options["data"],
            graph_sizes=None if graphs is None else graph_sizes(graphs, seed=options["seed"]),
        )
    )
    return Asked(
        methods=list(dict.fromkeys(names)),
        sizes=_sizes(source, options["min_n"], options["max_n"] or (1000 if quick else 100_000)),
        settings=list(SETTINGS) if options["setting"] == "both" else [options["setting"]],
        shape=source.shape,
        protocol=Protocol(
            device=device,
            threads=options["threads"] or available_cores(),
            repeats=options["repeats"] or (1 if quick else 5),
            seed=options["seed"],
            time_limit=options["time_limit"] or (20.0 if quick else 60.0),
            memory_limit=int(SHARE * free_host_memory() if limit is None else limit * 2**30),
            published=options["protocol"] == "published",
        ),
        save=save,
        machine=machine_line(),
    )


def _sizes(source: Source, least: int, most: int) -> list[int]:
    if source.shape.graph_sizes is not None:
        return [sum(source.shape.graph_sizes)]
    sizes = sizes_up_to(min(most, source.largest or most), least)
    if source.largest is not None and source.largest <= most:
        sizes = sorted({*sizes, source.largest})
    if not sizes:
        raise UsageError(
            "There is no size between --min-n and --max-n.",
            expected="a number 10^(i/2) between them, such as 1000",
            found=f"{least:,} … {most:,}",
            left="nothing was measured",
            next="--min-n 100 --max-n 1e4",
        )
    return sizes
