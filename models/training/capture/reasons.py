"""Reasons not to record the steps of a run as CUDA graphs."""

from __future__ import annotations

from kmip_data.models.encodings import POSITIONAL
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.machine import Device

FUSED = ("adamw", "adam", "sgd")  #: optimisers whose fused step reads nothing on the host


def why_plain(config: RunConfig, data: RunData, device: Device, *, recompute: bool) -> str | None:
    """Return why the steps of a run cannot be recorded; None if nothing known beforehand forbids it."""
    training, system, optimiser = config.training, config.system, config.optimiser
    parts = (config.model.local.unrecordable(), config.model.attention.unrecordable())
    reasons = {
        "no GPU": device.kind != "cuda",
        "system.capture = off": system.capture == "off",
        "system.profile shows operations": system.profile,
        "several processes exchange gradients": config.processes > 1,
        "system.compile": system.compile,
        "16-mixed looks at the gradients before it steps": training.precision == "16-mixed",
        "recomputed layers": recompute,
        f"{optimiser.name} has no fused step": optimiser.name not in FUSED or optimiser.fused is False,
    }
    known = next((reason for reason, holds in reasons.items() if holds), parts[0] or parts[1])
    return known or (_why_unpadded(config, data) if data.ragged else None)


def _why_unpadded(config: RunConfig, data: RunData) -> str | None:
    """Return why batches that differ in size cannot be padded; None where they can."""
    model = config.model
    takes = {
        "a sampled neighbourhood": not config.training.neighbors,
        "a score of pairs": data.task.level != "link",
        model.local.kind: model.local.takes_padding,
        model.attention.kind: model.attention.takes_padding,
        model.positional: POSITIONAL[model.positional].takes_padding,
    }
    part = next((part for part, taken in takes.items() if not taken), None)
    return part and f"batches differ in size, and {part} takes no padding"
