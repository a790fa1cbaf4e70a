"""Checks of the data against the network's encoders, before a run folder is created."""

from __future__ import annotations

import torch

from kmip_data.builds.verify import feature_problems
from kmip_data.errors import UsageError
from kmip_data.models.encoders import check_integers
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.network import GPSNetwork, build_model
from kmip_data.models.registries import edge_encoders, node_encoders
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.run_data import RunData


def check_features(config: RunConfig, data: RunData) -> None:
    """Raise ``UsageError`` for features that the encoders cannot read, such as NaN.

    All records are checked for integers without an embedding, as early batches may have none.
    """
    encoders = {
        "x": node_encoders()[config.model.node_encoder],
        "edge_attr": edge_encoders()[config.model.edge_encoder],
    }
    stored = {column.attribute for column in data.build.card.schema_.columns}
    for attribute, encoder in encoders.items():
        if encoder.integers is not None and attribute in stored:
            check_integers(encoder.integers, data.read_rows(attribute))

    # A plugin's encoder may accept NaN.
    if not config.plugins:
        for problem in feature_problems(data.build, data.attributes_read(config)):
            raise UsageError(
                f"{data.build.path}: {problem}.",
                next="repair the graphs and build them under another name",
            )


def check_encoders(config: RunConfig, data: RunData) -> None:
    """Apply the network's encoders, or a plugin's entire network, to one record on the CPU.

    This reveals features whose dtype or number does not match the configuration. The state of the
    random generators is preserved.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model = build_model(config.model, **data.network_sizes).eval()
        if not isinstance(model, GPSNetwork):
            model(data.example_batch)
            return
        batch = read_batch(data.example_batch, model.added_attributes)
        model.node_encoder(batch)
        if model.reads_edges:
            model.edge_encoder(batch)
