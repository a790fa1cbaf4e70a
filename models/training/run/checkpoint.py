"""Files of a run's state: optimizer, schedule, random generators.

Files are complete or absent, and reading them executes no code.
"""

from __future__ import annotations

import hashlib
import io
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import safetensors.torch as safetensors
import torch
from torch import Tensor, nn

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.atomic_writes import rename_into_place, write_file
from kmip_data.files.reading import first_problem, open_regular_file, read_small_file, sha256_file
from kmip_data.models.training.run.run_folder import DIGESTS, INITIAL, LAST, PREVIOUS, WEIGHTS

T = TypeVar("T")

#: Lines of :data:`DIGESTS`: last and previous checkpoint, and one whose write was killed.
_LISTED = 3


class RandomState(TypedDict):
    """State of PyTorch's generators."""

    torch: Tensor
    cuda: list[Tensor]  #: state of each GPU


def random_state() -> RandomState:
    """Return the state of PyTorch's generators on all devices, the only global ones a run uses."""
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
    """Restore the global random generators and the choice of deterministic kernels afterwards."""
    random = random_state()
    chosen = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        yield
    finally:
        set_random_state(random)
        torch.use_deterministic_algorithms(chosen, warn_only=warn)


def write_checkpoint(run: Path, state: Mapping[str, object]) -> None:
    """Write the last checkpoint of the run folder ``run``, and keep the previous one.

    The digest is written first, so that a kill leaves no unlisted checkpoint.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getvalue()

    last = run / LAST
    last.parent.mkdir(parents=True, exist_ok=True)
    digests = [hashlib.sha256(data).hexdigest(), *_listed_digests(run)]
    write_file(run / DIGESTS, "\n".join(digests[:_LISTED]).encode())
    if last.is_file():
        rename_into_place(last, run / PREVIOUS)
    write_file(last, data)


def latest_checkpoint(run: Path) -> Path | None:
    """Return the last checkpoint of a run; the previous one if a kill prevented the last one."""
    for name in (LAST, PREVIOUS):
        if (run / name).is_file():
            return run / name
    return None


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint with ``weights_only=True``, so nothing in it is executed.

    Raise DamagedInput, which names the previous checkpoint if that is sound, for a file whose
    digest is not in the list next to it, or that is not a checkpoint.
    """
    run = path.parents[1]
    digests = _listed_digests(run)
    step = "start another run"
    previous = run / PREVIOUS
    if path != previous and previous.is_file() and sha256_file(previous)[0] in digests:
        step = (
            f"mv {shlex.quote(str(previous))} {shlex.quote(str(path))}, then the same command: "
            "the run continues from the checkpoint before"
        )
    state: dict[str, Any] = _read_checked(path, _parse_checkpoint, "a checkpoint", step, digests)
    return state


def _parse_checkpoint(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _listed_digests(run: Path) -> list[str]:
    try:
        return read_small_file(run / DIGESTS).decode(errors="replace").split()
    except FileNotFoundError:
        return []


def _read_checked(
    path: Path, parse: Callable[[bytes], T], content: str, step: str, digests: Sequence[str] | None
) -> T:
    """Parse a file whose SHA-256 is one of ``digests``; None: any file."""
    try:
        return parse(_checked_content(path, digests))
    except Exception as error:
        raise DamagedInput(
            f"{path} cannot be read as {content}: {first_problem(error)}",
            next=step,
        ) from error


def _checked_content(path: Path, digests: Sequence[str] | None) -> bytes:
    with open_regular_file(path) as file:
        data = file.readall()
    if digests is not None and hashlib.sha256(data).hexdigest() not in digests:
        raise ValueError("its SHA-256 is not in the run's list")
    return data


def copy_weights(module: nn.Module) -> dict[str, Tensor]:
    """Copy the parameters and buffers of ``module`` to the CPU, detached."""
    return {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}


def write_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write ``weights``, of any shape, as safetensors, complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, weights_bytes(weights))


def weights_bytes(weights: Mapping[str, Tensor]) -> bytes:
    """Serialise tensors of any shape as safetensors; equal weights give equal bytes."""
    return safetensors.save({name: tensor.contiguous() for name, tensor in weights.items()})


def read_weights(path: Path, expected: str | None = None) -> dict[str, Tensor]:
    """Read a safetensors file, which has nothing but tensors.

    Raise DamagedInput for anything else, and for another SHA-256 than ``expected``, the one that
    the run's result has.
    """
    return _read_checked(
        path,
        safetensors.load,
        "weights",
        "kmip-data train --resume RUN writes it again from the last checkpoint; "
        "a run that was pulled: the same pull again",
        None if expected is None else [expected],
    )


def write_initial_weights(run: Path, weights: Mapping[str, Tensor]) -> None:
    """Write a run's initial weights, of any shape, and the list of digests with their digest."""
    data = weights_bytes(weights)
    (run / DIGESTS).parent.mkdir(exist_ok=True)
    write_file(run / DIGESTS, hashlib.sha256(data).hexdigest().encode())
    write_file(run / INITIAL, data)


def load_initial_weights(module: nn.Module, run: Path) -> None:
    """Load a run's initial weights, possibly for part of the module, into ``module``.

    Raises ``DamagedInput`` where their digest is not in the list of checkpoints.
    """
    step = "start another run with --init-from"
    weights = _read_checked(run / INITIAL, safetensors.load, "weights", step, _listed_digests(run))
    module.load_state_dict(weights, strict=False)


def load_weights(module: nn.Module, path: Path, expected: str | None = None) -> None:
    """Load the weights in ``path`` into ``module``.

    Raises ``DamagedInput`` for weights of another model, and as :func:`read_weights`.
    """
    weights = read_weights(path, expected)
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise DamagedInput(
            f"{path} does not hold the weights of the run's config.toml: {first_problem(error)}",
            next="kmip-data train --resume RUN, or another run",
        ) from error


def fitting_weights(
    model: nn.Module, source: Path, expected: str | None, log: Callable[[str], None]
) -> dict[str, Tensor]:
    """Return the weights of the run ``source`` that fit ``model`` by name and shape, for fine-tuning.

    Raises like :func:`read_weights`, and ``UsageError`` if no matrix fits.
    """
    weights = read_weights(source / WEIGHTS, expected)
    taken = {}
    drawn = []
    for name, tensor in model.state_dict().items():
        if name in weights and weights[name].shape == tensor.shape:
            taken[name] = weights[name]
        else:
            drawn.append(name)
    if all(tensor.ndim < 2 for tensor in taken.values()):
        raise UsageError(
            f"No weights of {source} fit the model.",
            next="--model and --set model.… as in the run's config.toml, such as --set model.hidden_dim=N",
        )
    line = f"weights: {len(taken)} of {len(taken) + len(drawn)} tensors from {source}"
    if drawn:
        modules = dict.fromkeys(name.rpartition(".")[0] for name in drawn)
        line += f"; drawn anew, as they do not fit: {', '.join(modules)}"
    log(line)
    return taken
