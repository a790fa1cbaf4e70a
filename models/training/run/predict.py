"""What a finished run says about each node of one graph."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from kmip_data.builds.home import Build, Home
from kmip_data.errors import UsageError
from kmip_data.models.training.memory.machine import autocast
from kmip_data.models.training.objective.tasks import is_class
from kmip_data.models.training.run.evaluate import open_run
from kmip_data.models.training.run.result import RunResult


def predict_nodes(
    run: str | os.PathLike[str], build: Build, *, home: Home | None = None, device: str | None = None
) -> tuple[NDArray[np.int64], RunResult, Path]:
    """Return the class that the best weights of ``run`` give each node of ``build``.

    Parameters
    ----------
    run
        A run folder, or its path below ``runs/``.
    build
        A build of one graph with the run's features and classes: its own, or another city's.
    device
        ``auto``, ``cpu`` or ``cuda``; the run's own setting if ``None``.

    Returns
    -------
    classes
        (N,) int64.
    result
        What the run wrote about itself.
    folder
        The run folder.

    Raises
    ------
    UsageError
        There is no such run, its weights do not fit, or it predicts no classes of nodes.
    DamagedInput
        The run is unfinished, or one of its files is damaged.
    OutOfResources
        The graph does not fit.
    """
    opened = open_run(run, target=str(build.path), home=home, device=device)
    data, config = opened.data, opened.config
    labels = build.card.schema_.labels
    if data.unit != "nodes" or labels is None or not is_class(labels):
        raise UsageError(
            f"{opened.folder} predicts no classes of the nodes of one graph.",
            expected="a run on a city",
            found=f"a run on {build.card.dataset}",
            left="nothing was changed",
            next="kmip-data preview without --run",
        )
    kind = opened.device.kind
    with opened.working() as module, torch.inference_mode(), autocast(config.training.precision, kind):
        module.doing = "predicting"
        logits, _ = module.eval()(data.example.to(kind))
    classes: NDArray[np.int64] = logits.argmax(dim=-1).cpu().numpy()
    return classes, opened.result, opened.folder
