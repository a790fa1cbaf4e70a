"""Begin with the weights of another run, wherever name and shape fit: fine-tuning, or another head."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.models.network import build_model
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.run.checkpoint import WEIGHTS, read_weights
from kmip_data.models.training.run.folders import CONFIG_NAME, find_run

_NAMED = 4  #: parts of a network that are listed


def with_source(config: RunConfig, home: Home) -> RunConfig:
    """Return ``config`` with the folder of the run that it begins with; a UsageError where there is none."""
    if not config.training.init_from:
        return config
    folder = find_run(config.training.init_from, home)
    if not (folder / WEIGHTS).is_file():
        raise UsageError(
            f"{folder} has no weights to begin with.",
            expected=f"a finished run, with {WEIGHTS}",
            found="no such file in it",
            left="nothing was started",
            next=f"kmip-data train --resume {folder} finishes it",
        )
    training = config.training.model_copy(update={"init_from": str(folder)})
    return config.model_copy(update={"training": training})


def fitting_weights(config: RunConfig, data: RunData, tell: Callable[[str], None]) -> dict[str, Tensor]:
    """Return what the network of ``config`` can take of its source's weights; say what is drawn anew.

    Nothing of the source is executed: it is read as safetensors. Raises ``DamagedInput`` where it is not
    such a file; ``UsageError`` where no matrix of it fits.
    """
    if not config.training.init_from:
        return {}
    source = Path(config.training.init_from)
    found = read_weights(source / WEIGHTS)
    with torch.random.fork_rng(devices=[]):
        own = build_model(config.model, **data.channels).state_dict()
    taken = {name: found[name] for name, tensor in own.items() if _fits(found.get(name), tensor)}
    if all(tensor.ndim < 2 for tensor in taken.values()):
        raise UsageError(
            f"No weights of {source} fit the model.",
            expected="matrices of the same names and shapes",
            found=_examples(found, own),
            left="nothing was started",
            next=f"--model and --set model.… as in {source / CONFIG_NAME}, such as --set model.hidden_dim=N",
        )
    new = list(dict.fromkeys(name.rpartition(".")[0] for name in own if name not in taken))
    more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
    tell(
        f"weights: {len(taken)} of {len(own)} tensors from {source}"
        + (f"; drawn anew, as they do not fit: {', '.join(new[:_NAMED])}{more}" if new else "")
    )
    return taken


def take_weights(model: nn.Module, path: Path) -> None:
    """Put what :func:`fitting_weights` gave into ``model``; DamagedInput where that cannot be."""
    found, own = read_weights(path), model.state_dict()
    if wrong := [name for name, tensor in found.items() if name not in own or not _fits(tensor, own[name])]:
        raise DamagedInput(
            f"{path} does not hold weights of this model.",
            expected="what the run took from another one when it began",
            found=f"{wrong[0]!r}, which does not fit",
            next="begin another run",
        )
    model.load_state_dict(found, strict=False)


def _fits(given: Tensor | None, own: Tensor) -> bool:
    return given is not None and (given.shape, given.dtype) == (own.shape, own.dtype)


def _examples(found: dict[str, Tensor], own: dict[str, Tensor]) -> str:
    """Shapes of the first matrix that both have, or that they have no names in common."""
    for name, tensor in own.items():
        if name in found and tensor.ndim > 1:
            there, here = tuple(found[name].shape), tuple(tensor.shape)
            return f"{name} of shape {there}, where the model has {here}"
    return "none of the model's names"
