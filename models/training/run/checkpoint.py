"""Checkpoints and weights of a run.

A file is written completely or not at all, and reading one executes no code.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import safetensors.torch as safetensors
import torch
from torch import Tensor, nn

from kmip_data.errors import Command, DamagedInput, Step, UsageError
from kmip_data.files.atomic_writes import rename_into_place, write_file
from kmip_data.files.small_files import (
    first_problem,
    open_regular_file,
    read_small_file,
    sha256_file,
)
from kmip_data.models.scaling import SCALING
from kmip_data.models.training.run.run_folder import (
    CHECKPOINT_DIGESTS,
    CONFIG_NAME,
    INITIAL_WEIGHTS,
    LAST_CHECKPOINT,
    PREVIOUS_CHECKPOINT,
    WEIGHTS_NAME,
    resume_command,
)

T = TypeVar("T")

#: Digests to keep: last and previous checkpoint, and one that may not have been written.
_NUM_DIGESTS = 3


class RandomState(TypedDict):
    """State of PyTorch's random generators."""

    torch: Tensor
    cuda: list[Tensor]  #: state of each GPU


def random_state() -> RandomState:
    """Return the state of PyTorch's generators on all devices; a run uses no other global ones."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"torch": torch.get_rng_state(), "cuda": cuda}


def set_random_state(state: RandomState) -> None:
    """Restore the result of :func:`random_state`, except for missing GPUs."""
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available():
        existing = state["cuda"][: torch.cuda.device_count()]
        for device, cuda_state in enumerate(existing):
            torch.cuda.set_rng_state(cuda_state, device)


@contextmanager
def keep_random_state() -> Iterator[None]:
    """Restore the global random generators and the setting for deterministic kernels afterwards."""
    random = random_state()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        yield
    finally:
        set_random_state(random)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


def write_checkpoint(run: Path, state: Mapping[str, object]) -> None:
    """Write the last checkpoint of the run folder ``run``, and keep the previous one.

    The digest is written first, so a killed process never leaves an unlisted checkpoint.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getvalue()

    last = run / LAST_CHECKPOINT
    last.parent.mkdir(parents=True, exist_ok=True)
    digests = [hashlib.sha256(data).hexdigest(), *_read_digests(run)]
    write_file(run / CHECKPOINT_DIGESTS, "\n".join(digests[:_NUM_DIGESTS]).encode())
    if last.is_file():
        rename_into_place(last, run / PREVIOUS_CHECKPOINT)
    write_file(last, data)


def latest_checkpoint(run: Path) -> Path | None:
    """Return a run's last checkpoint, or the previous one if the process was killed while writing."""
    for name in (LAST_CHECKPOINT, PREVIOUS_CHECKPOINT):
        if (run / name).is_file():
            return run / name
    return None


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint with ``weights_only=True``, so nothing in it is executed.

    Raises ``DamagedInput`` if the file is not a checkpoint or its digest is not listed next to it;
    the error names the previous checkpoint if that is valid.
    """
    run = path.parents[1]
    digests = _read_digests(run)
    steps: list[Step] = ["start another run"]
    previous = run / PREVIOUS_CHECKPOINT
    if path != previous and previous.is_file() and sha256_file(previous)[0] in digests:
        steps = [
            Command("mv", path, f"{path}.damaged"),
            "then the same command again, which continues from the previous checkpoint",
        ]
    state: dict[str, Any] = _read_checked(path, _parse_checkpoint, "a checkpoint", steps, digests)
    return state


def _parse_checkpoint(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _read_digests(run: Path) -> list[str]:
    try:
        return read_small_file(run / CHECKPOINT_DIGESTS).decode(errors="replace").split()
    except FileNotFoundError:
        return []


def _read_checked(
    path: Path,
    parse: Callable[[bytes], T],
    content: str,
    steps: Sequence[Step],
    digests: Sequence[str] | None,
) -> T:
    """Parse a file whose SHA-256 must be in ``digests``, unless that is ``None``."""
    try:
        with open_regular_file(path) as file:
            data = file.readall()
        if digests is not None and hashlib.sha256(data).hexdigest() not in digests:
            raise ValueError("its SHA-256 is not in the run's list")  # noqa: TRY301
        return parse(data)
    except Exception as error:
        raise DamagedInput(
            f"{path} cannot be read as {content}: {first_problem(error)}",
            steps=steps,
        ) from error


def copy_weights(module: nn.Module) -> dict[str, Tensor]:
    """Copy the parameters and buffers of ``module`` to the CPU, detached."""
    return {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}


def write_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write ``weights``, of any shape, as safetensors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, weights_bytes(weights))


def weights_bytes(weights: Mapping[str, Tensor]) -> bytes:
    """Serialise tensors of any shape as safetensors; equal weights give equal bytes."""
    return safetensors.save({name: tensor.contiguous() for name, tensor in weights.items()})


def read_weights(path: Path, expected: str | None = None) -> dict[str, Tensor]:
    """Read a safetensors file, which contains only tensors.

    Raises ``DamagedInput`` for any other file, or if the SHA-256 is not ``expected``, the digest in
    the run's result.
    """
    return _read_checked(
        path,
        safetensors.load,
        "weights",
        [
            "resuming rewrites it from the last checkpoint; if the run was pulled, repeat the pull",
            resume_command(path.parent),
        ],
        None if expected is None else [expected],
    )


def write_initial_weights(run: Path, weights: Mapping[str, Tensor]) -> None:
    """Write a run's initial weights, of any shape, and list their digest."""
    data = weights_bytes(weights)
    (run / CHECKPOINT_DIGESTS).parent.mkdir(exist_ok=True)
    write_file(run / CHECKPOINT_DIGESTS, hashlib.sha256(data).hexdigest().encode())
    write_file(run / INITIAL_WEIGHTS, data)


def load_initial_weights(module: nn.Module, run: Path) -> None:
    """Load a run's initial weights into ``module``; they may cover only part of it.

    Raises ``DamagedInput`` if their digest is not listed.
    """
    steps = ["start another run from the same weights"]
    weights = _read_checked(
        run / INITIAL_WEIGHTS, safetensors.load, "weights", steps, _read_digests(run)
    )
    module.load_state_dict(weights, strict=False)


def load_weights(module: nn.Module, path: Path, expected: str | None = None) -> None:
    """Load the weights in ``path`` into ``module``.

    Raises ``DamagedInput`` for weights of another model, or like :func:`read_weights`.
    """
    weights = read_weights(path, expected)
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise DamagedInput(
            f"The weights in {path} do not fit the model in the run's config.toml: {first_problem(error)}",
            steps=[resume_command(path.parent), "use another run"],
        ) from error


def compatible_weights(
    model: nn.Module, source: Path, expected: str | None, log: Callable[[str], None]
) -> dict[str, Tensor]:
    """Return the weights of the run ``source`` that match ``model`` by name and shape, for fine-tuning.

    Raises like :func:`read_weights`, or ``UsageError`` if no matrix matches.
    """
    weights = read_weights(source / WEIGHTS_NAME, expected)
    compatible = {}
    incompatible = []
    for name, tensor in model.state_dict().items():
        if name in weights and weights[name].shape == tensor.shape:
            compatible[name] = weights[name]
        else:
            incompatible.append(name)
    if all(tensor.ndim < 2 for tensor in compatible.values()):
        raise UsageError(
            f"No weights of {source} fit the model.",
            steps=f"use the model and the settings of {source / CONFIG_NAME}",
        )
    total = len(compatible) + len(incompatible)
    message = f"weights: {len(compatible)} of {total} tensors from {source}"
    if incompatible:
        modules = dict.fromkeys(name.rpartition(".")[0] for name in incompatible)
        drawn = [name for name in modules if not name.startswith(f"{SCALING}.")]
        if drawn:
            message += f"; initialised at random, as they do not fit: {', '.join(drawn)}"
        if len(drawn) < len(modules):
            message += "; the scale of features or targets is measured on the new data"
    log(message)
    return compatible
