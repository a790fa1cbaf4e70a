"""Checkpoints that are complete or not there, and weights without pickle."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor, nn

from kmip_data.errors import DamagedInput
from kmip_data.files.changes import remove_files
from kmip_data.files.small import first_fault, open_regular
from kmip_data.format.writer import write_file

LAST = "checkpoints/last.ckpt"  #: everything that resuming needs
BEST = "checkpoints/best.safetensors"  #: weights of the best epoch so far
KEPT = "checkpoints/epoch-{}.safetensors"  #: weights of one of several best epochs, counted from 0
INITIAL = "initial.safetensors"  #: what a run took from another one to begin with
WEIGHTS = "model.safetensors"  #: weights of the best epoch of a finished run


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint beside its place, flush it, and rename it in; read it without running code.

    A process killed while it saves leaves the checkpoint before intact. Checkpoints hold tensors and
    plain values only, so they are read with ``weights_only=True``: nothing in one is executed.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Replace ``path`` in one step."""
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, buffer.getvalue())

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = True
    ) -> dict[str, Any]:
        """Read ``path`` with ``weights_only=True``; raise DamagedInput where it is not such a checkpoint."""
        try:
            loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            missing = {"state_dict", "optimizer_states", "schedule", "callbacks", "loops"} - loaded.keys()
            if missing:
                raise KeyError(f"no {', '.join(sorted(missing))} in it")  # noqa: TRY301 -- named below
        except Exception as error:
            raise DamagedInput(
                f"{path} cannot be read as a checkpoint.",
                expected="tensors and plain values, as kmip-data train writes them",
                found=first_fault(error),
                next="start a new run",
            ) from error
        return loaded


def random_state() -> dict[str, Any]:
    """State of every global generator a layer may draw from, as tensors and plain values."""
    numpy_state: Any = np.random.get_state(legacy=True)  # noqa: NPY002 -- the global one, whoever drew from it
    _, keys, position, has_gauss, gauss = numpy_state
    version, internal, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [torch.from_numpy(keys.astype(np.int64)), int(position), int(has_gauss), float(gauss)],
        "python": [version, list(internal), gauss_next],
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restore what :func:`random_state` gave; generators of GPUs that are not here are left out."""
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


def write_kept(folder: Path, kept: Mapping[int, Mapping[str, Tensor]]) -> None:
    """Write the weights of each epoch to a file of its own, and remove those of other epochs."""
    names = {KEPT.format(epoch): weights for epoch, weights in kept.items()}
    for name, weights in names.items():
        write_weights(folder / name, weights)
    there = {path.relative_to(folder).as_posix() for path in folder.glob(KEPT.format("*"))}
    others = there - names.keys()
    remove_files(folder, [name for name in others if re.fullmatch(KEPT.format(r"\d+"), name)])


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file, which holds tensors alone; raise DamagedInput where it is none."""
    from safetensors.torch import load

    try:
        with open_regular(path) as file:
            found: dict[str, Tensor] = load(file.readall())
    except Exception as error:
        raise DamagedInput(
            f"{path} cannot be read as weights.",
            expected="a safetensors file, as kmip-data train writes it",
            found=first_fault(error),
            next="kmip-data train --resume RUN writes it anew from the last checkpoint, or name another run",
        ) from error
    return found


def put_weights(module: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Give ``module`` weights that ``path`` had; raise DamagedInput where they are another model's."""
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise DamagedInput(
            f"{path} does not hold the weights of this model.",
            expected="those of the run's config.toml",
            found=first_fault(error),
            next="kmip-data train --resume RUN, or a new run",
        ) from error
