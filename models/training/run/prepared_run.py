"""A run that is ready to train, and the lines printed at its start."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kmip_data.models.network import count_parameters
from kmip_data.models.scaling import scaling_of
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.devices import Device
from kmip_data.models.training.memory_estimate import StepMemory
from kmip_data.models.training.run.training_module import TrainingModule
from kmip_data.models.training.schedules import all_schedules
from kmip_data.runtime.extras import GPU_EXTRAS, install_command
from kmip_data.text import count_with_noun


@dataclass(frozen=True)
class PreparedRun:
    """Everything needed to train one run."""

    #: configuration, including the settings that depend on the data
    config: RunConfig
    data: RunData
    #: run folder; ``None`` in all processes but the first of a distributed run
    folder: Path | None
    device: Device
    memory: StepMemory
    log: Callable[[str], None]
    quiet: bool
    #: True to announce only the run folder, as the first run of the command announced the rest
    announce_folder_only: bool = False


def announcement(
    run: PreparedRun, module: TrainingModule, why_not_captured: str | None, *, resumed: bool
) -> Iterator[str]:
    """Yield the lines to print at the start of a run, from its data to its folder and GPU.

    ``why_not_captured`` is the reason why steps are not captured, if any.
    """
    config = run.config
    model = config.model
    depth = count_with_noun(model.layers, "layer")
    parameters = count_parameters(module.model)
    yield f"data: {run.data.description}"
    line = f"model: {model.name}, {depth}, hidden_dim {model.hidden_dim}, {parameters:,} parameters"
    has_edge_attr = "edge_attr" in run.data.build.card.schema_.attributes
    if has_edge_attr and not model.reads_edges:
        line += "; edge_attr is not read"
    elif has_edge_attr and model.edge_encoder in {"dummy", "none"}:
        line += "; edge_attr is not read without --set model.edge_encoder=linear"
    yield line
    scaling = scaling_of(module.model)
    if scaling is not None:
        scaled = [*scaling.features, *(["targets"] if scaling.targets is not None else [])]
        if scaled:
            names = ", ".join(scaled)
            yield f"scale: numbers of {names} by the train part (data.scale = {config.data.scale})"

    schedule = config.schedule
    epochs = config.training.epochs
    last = config.training.last_epoch
    line = f"schedule: {schedule.kind} per {schedule.per}, {count_with_noun(epochs, 'epoch')}"
    warm_up = 0
    if "warmup_epochs" in all_schedules()[schedule.kind].options:
        warm_up = min(schedule.warmup_epochs, epochs)
        line += f", {warm_up} of them warm-up"
    if last < epochs:
        line += f"; the run stops after {count_with_noun(last, 'epoch')}"
    yield line
    if warm_up == epochs:
        yield "warning: warm-up takes every epoch; --set schedule.warmup_epochs=0 skips it"

    precision = config.training.precision
    device = f"device: {run.device.name} ({run.device.reason})"
    memory_line = f"memory: {run.memory}"
    if config.processes > 1:
        device += f", {config.processes} processes share each batch"
        memory_line += " each"
    if run.memory.recompute:
        memory_line += "; layers are recomputed in the backward pass"
    yield f"{device}, precision {precision}"
    yield memory_line
    yield f"run: {shlex.quote(str(run.folder))}{', from its last checkpoint' if resumed else ''}"

    if run.device.type != "cuda":
        return
    if why_not_captured is not None:
        yield f"steps: not captured: {why_not_captured}"
    else:
        yield "steps: captured as CUDA graphs"
    for extra, package in {"cuda": "cuda", "gpu": "triton"}.items():
        if importlib.util.find_spec(package) is None:
            yield f"slower: {GPU_EXTRAS[extra]}; {install_command(extra)}"
