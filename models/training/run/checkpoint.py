"""Checkpoints and weights on disk: complete or absent, and read without running anything in them."""

from __future__ import annotations

import io
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kmip_data.errors import CheckFailed, DamagedInput, UsageError
from kmip_data.files.changes import write_file
from kmip_data.files.reading import first_fault, open_regular

LAST = "checkpoints/last.ckpt"  #: everything that resuming needs
BEST = "checkpoints/best.safetensors"  #: weights of the best epoch so far
INITIAL = "initial.safetensors"  #: weights that a run took from another one at its start
WEIGHTS = "model.safetensors"  #: weights of the best epoch of a finished run
LAYOUT = 2  #: of a checkpoint; the first one was PyTorch Lightning's
_NAMED = 4  #: parts of a network that are listed


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint under another name and rename it: a kill leaves the previous one intact."""
    buffer = io.BytesIO()
    torch.save({"layout": LAYOUT, **state}, buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, buffer.getvalue())


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint with ``weights_only=True``, so nothing in it is executed.

    Raises ``DamagedInput`` where it is not one, and ``UsageError`` for one of an older layout.
    """
    try:
        with open_regular(path) as file:
            loaded: dict[str, Any] = torch.load(
                io.BytesIO(file.readall()), map_location="cpu", weights_only=True
            )
        layout = 1 if "pytorch-lightning_version" in loaded else loaded["layout"]
    except Exception as error:
        raise DamagedInput(
            f"{path} cannot be read as a checkpoint: {first_fault(error)}", next="begin another run"
        ) from error
    if layout != LAYOUT:
        raise UsageError(
            f"{path} is a checkpoint of an older layout, which this version does not resume.",
            next="train again with --config and the run's config.toml; evaluate still reads finished runs",
        )
    return loaded


def check_state(
    state: Mapping[str, Any],
    data: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    metric: str,
    batches: int,
    processes: int,
) -> None:
    """Check that a run can continue from ``state``.

    Raises ``CheckFailed`` for other data, ``UsageError`` within an epoch of other processes, and
    ``ValueError`` for another network or an impossible history.
    """
    if state["data"] != data:
        raise CheckFailed(
            f"The data are not those that the run began with: {data}, not {state['data']}.",
            next="build the dataset as it was (the run's config.toml has the parameters), or a new run",
        )
    if state["batch"] and len(state["processes"]) != processes:
        raise UsageError(
            f"The checkpoint lies within an epoch that {len(state['processes'])} processes share.",
            next="resume with as many devices as it began with",
        )
    history, kept = state["history"], state["kept"]
    rows = all(
        row["epoch"] == epoch and min(row["seconds"], row["seconds_train"], math.inf) >= 0
        for epoch, row in enumerate(history)
    )
    best = all(epoch >= 0 and metric in history[epoch] for epoch in kept)
    if not (rows and best and len(history) == state["epoch"] and 0 <= state["batch"] < batches):
        raise ValueError("its history is not that of a run")
    shapes = {name: tensor.shape for name, tensor in weights.items()}
    if any({name: tensor.shape for name, tensor in each.items()} != shapes for each in kept.values()):
        raise ValueError("its best weights are of another model")


def scale_rates(state: dict[str, Any], factor: float) -> None:
    """Multiply every learning rate in a checkpoint, in place."""
    for values in (*state["optimiser"]["param_groups"], state["schedule"]):
        for name in {"lr", "initial_lr", "base_lrs", "_last_lr"} & values.keys():
            old = values[name]
            values[name] = [each * factor for each in old] if isinstance(old, list) else old * factor


def seed_all(seed: int) -> None:
    """Seed the global generators of Python, numpy and PyTorch, on every device."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 -- the global generator, which layers and libraries may use
    torch.manual_seed(seed)


def random_state() -> dict[str, Any]:
    """State of every global generator a layer may draw from, as tensors and built-in values."""
    numpy_state: Any = np.random.get_state(legacy=True)  # noqa: NPY002 -- as above
    _, keys, position, has_gauss, gauss = numpy_state
    version, internal, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [torch.from_numpy(keys.astype(np.int64)), int(position), int(has_gauss), float(gauss)],
        "python": [version, list(internal), gauss_next],
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restore the result of :func:`random_state`; generators of absent GPUs are left out."""
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available():
        for device, cuda_state in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(cuda_state, device)
    keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), position, has_gauss, gauss))  # noqa: NPY002
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))


def copy_weights(module: nn.Module) -> dict[str, Tensor]:
    """Detached copy of the parameters and buffers of ``module`` on the CPU."""
    return {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}


def write_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write ``weights`` as safetensors, complete or not at all."""
    from safetensors.torch import save

    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, save({name: tensor.contiguous() for name, tensor in weights.items()}))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file, which holds tensors alone; raise DamagedInput where it is none."""
    from safetensors.torch import load

    try:
        with open_regular(path) as file:
            found: dict[str, Tensor] = load(file.readall())
    except Exception as error:
        raise DamagedInput(
            f"{path} cannot be read as weights: {first_fault(error)}",
            next="kmip-data train --resume RUN writes it again from the last checkpoint, or name another run",
        ) from error
    return found


def put_weights(module: nn.Module, weights: Mapping[str, Tensor], path: Path, *, strict: bool = True) -> None:
    """Give ``module`` the weights in ``path``; raise DamagedInput where they are another model's.

    Not ``strict``: the file may have some of the weights only.
    """
    try:
        unexpected = module.load_state_dict(weights, strict=strict).unexpected_keys
        if unexpected:
            raise RuntimeError(f"unexpected {unexpected[0]!r}")  # noqa: TRY301 -- named below
    except RuntimeError as error:
        raise DamagedInput(
            f"{path} does not hold the weights of the run's config.toml: {first_fault(error)}",
            next="kmip-data train --resume RUN, or another run",
        ) from error


def fitting_weights(model: nn.Module, source: Path, log: Callable[[str], None]) -> dict[str, Tensor]:
    """Return the weights of the run ``source`` that fit ``model`` by name and shape, for fine-tuning.

    Raises ``DamagedInput`` where its file cannot be read; ``UsageError`` where no matrix of it fits.
    """
    found, own = read_weights(source / WEIGHTS), model.state_dict()
    taken = {
        name: found[name]
        for name, tensor in own.items()
        if name in found and (found[name].shape, found[name].dtype) == (tensor.shape, tensor.dtype)
    }
    if all(tensor.ndim < 2 for tensor in taken.values()):
        other = next((name for name, tensor in own.items() if name in found and tensor.ndim > 1), None)
        shapes = f": {other} is {tuple(found[other].shape)}, not {tuple(own[other].shape)}" if other else ""
        raise UsageError(
            f"No weights of {source} fit the model{shapes}.",
            next="--model and --set model.… as in the run's config.toml, such as --set model.hidden_dim=N",
        )
    new = list(dict.fromkeys(name.rpartition(".")[0] for name in own if name not in taken))
    more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
    log(
        f"weights: {len(taken)} of {len(own)} tensors from {source}"
        + (f"; drawn anew, as they do not fit: {', '.join(new[:_NAMED])}{more}" if new else "")
    )
    return taken
