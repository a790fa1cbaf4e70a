"""Trial of a configuration on the data, before its run has a folder and a name."""

from __future__ import annotations

from typing import Any

import torch

from kmip_data.models.encoders import check_integers
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.network import GPSNetwork, build_model
from kmip_data.models.tables import edge_encoders, node_encoders
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.machine import Device
from kmip_data.models.training.memory import StepMemory, cut_of, plan_memory


def try_out(config: RunConfig, data: RunData, device: Device) -> StepMemory:
    """Return the memory of a step; raise the error of a network that cannot learn from the data.

    Whole numbers without an embedding are looked for in all records, because the first batches may
    have none. On a CPU, the memory of a step is measured by steps on a cut of the data; for a GPU,
    where it is not, the network is built and its encoders read the same cut. Random generators stay
    as they are.
    """
    encoders = {
        "x": node_encoders()[config.model.node_encoder],
        "edge_attr": edge_encoders()[config.model.edge_encoder],
    }
    stored = {column.attribute for column in data.build.card.schema_.columns}
    for attribute, encoder in encoders.items():
        if encoder.integers is not None and attribute in stored:
            check_integers(encoder.integers, data.rows_of(attribute))

    if device.kind == "cuda":
        try_encoders(config, data)
    return plan_memory(config, data, device)


def try_encoders(config: RunConfig, data: RunData) -> None:
    """Build the network and let its encoders, or all of a plugin's, read a cut of the data, on the CPU.

    Disagreements of the data and a configuration show there: kinds and numbers of features.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model: Any = build_model(config.model, **data.channels).eval()
        cut = cut_of(config, data, data.largest_batch)
        if not isinstance(model, GPSNetwork):
            model(cut)
            return
        batch = read_batch(cut, model.reads)
        model.node_encoder(batch)
        if model.reads_edges:
            model.edge_encoder(batch)
