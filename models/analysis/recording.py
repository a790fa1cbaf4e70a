"""Record the queries, keys and values of a trained run's k-MIP layers."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.models.analysis.projections import Projections
from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.layers.batch import pointers

if TYPE_CHECKING:
    from kmip_data.models.training.data.run_data import RunData
    from kmip_data.models.training.run.evaluate import OpenedRun

Layer = tuple[Tensor, Tensor, Tensor]


class ProjectionRecorder:
    """Projections recorded so far, on the CPU."""

    def __init__(self, layers: int, sizes: tuple[int, int | None]) -> None:
        self._calls: list[list[Layer]] = [[] for _ in range(layers)]
        self._least, self._most = sizes
        self.sizes: list[int] = []  #: nodes of each graph recorded

    def hook(self, layer: int, module: KMIPAttention, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Record the graphs of the right size from the input of a layer; layer 0 counts them."""
        given = {**dict(zip(("x", "ptr"), args, strict=False)), **options}
        x, ptr = given["x"], given.get("ptr")
        starts = pointers(ptr, len(x))
        most = len(x) if self._most is None else self._most
        graphs = [(start, stop) for start, stop in pairwise(starts) if self._least <= stop - start <= most]
        if graphs:
            rows = torch.cat([torch.arange(start, stop) for start, stop in graphs])
            queries, keys, values = (tensor.detach().cpu()[:, rows] for tensor in module.project(x))
            self._calls[layer].append((queries, keys, values))
        if layer == 0:
            self.sizes += [stop - start for start, stop in graphs]

    def projections(self, graphs: int | None = None, **about: Any) -> Projections:
        """Return the first ``graphs`` graphs (default: all) of all forward passes, joined.

        Raises ``UsageError`` if none was recorded.
        """
        if not self.sizes:
            raise UsageError(
                "There is no graph to record.",
                expected=f"graphs of {self._least} to {self._most or 'any number of'} nodes",
                found="none of that size",
                next="another part, or other sizes",
            )
        ptr = (0, *itertools.accumulate(self.sizes[:graphs]))
        layers = []
        for calls in self._calls:
            queries, keys, values = (torch.cat(parts, 1)[:, : ptr[-1]] for parts in zip(*calls, strict=True))
            layers.append((queries, keys, values))
        return Projections(tuple(layers), ptr, about)


@contextlib.contextmanager
def recording(model: nn.Module, *, sizes: tuple[int, int | None] = (1, None)) -> Iterator[ProjectionRecorder]:
    """Record within the block the projections of every :class:`KMIPAttention` of ``model``.

    Padding (``legacy_padding``), whose keys and values are the biases, is left out, and so are graphs outside
    the range ``sizes``. Raises ``UsageError`` if the model has no k-MIP attention.
    """
    attentions = kmip_layers(model)
    recorder = ProjectionRecorder(len(attentions), sizes)
    hooks = [
        module.register_forward_pre_hook(partial(recorder.hook, layer), with_kwargs=True)
        for layer, module in enumerate(attentions)
    ]
    try:
        yield recorder
    finally:
        for hook in hooks:
            hook.remove()


def kmip_layers(model: nn.Module) -> list[KMIPAttention]:
    """Return every :class:`KMIPAttention` of ``model``, in order; raise ``UsageError`` without any."""
    found = [module for module in model.modules() if isinstance(module, KMIPAttention)]
    if not found:
        raise UsageError(
            "The model has no k-MIP attention to record.",
            expected="a network with KMIPAttention layers",
            found=type(model).__name__,
            next="take a run of the model gps-kmip",
        )
    return found


def check_part(data: RunData, part: str) -> None:
    """Raise ``UsageError`` if ``data`` have no such part."""
    if part not in data.parts:
        raise UsageError(
            f"There is nothing to record in the part {part!r}.",
            expected=" or ".join(data.parts),
            found=part,
            next="name another part",
        )


def first_batches(opened: OpenedRun, part: str, graphs: int) -> Iterator[tuple[Any, int]]:
    """Batches of a part on the run's device until there are so many graphs, and how many of each count."""
    check_part(opened.data, part)
    for _, batches in opened.data.passes((part,)):
        for batch in batches:
            count = min(graphs, getattr(batch, "num_graphs", 1))
            yield batch.to(opened.device.kind), count
            graphs -= count
            if not graphs:
                return


def record_run(
    run: str | os.PathLike[str],
    *,
    part: str = "test",
    graphs: int = 10,
    sizes: tuple[int, int | None] = (1, None),
    target: str | None = None,
    sample: bool = False,
    home: Home | None = None,
    device: str | None = None,
) -> Projections:
    """Record the first ``graphs`` graphs of a part by the best weights of ``run``, in eval mode.

    Only graphs with a number of nodes in the range ``sizes`` count; a transductive run has one graph,
    whatever the part. The other arguments are those of
    :func:`kmip_data.models.training.run.evaluate.evaluate`. Raises ``UsageError`` if there is no such run,
    part or build, or the model has no k-MIP attention; ``DamagedInput`` if the run is unfinished, or one of
    its files is damaged.
    """
    from kmip_data.models.training.machine import autocast
    from kmip_data.models.training.run.evaluate import open_run

    opened = open_run(run, target=target, sample=sample, home=home, device=device)
    data, config, where = opened.data, opened.config, torch.device(opened.device.kind)
    check_part(data, part)
    with (
        opened.working() as module,
        recording(module.eval().model, sizes=sizes) as recorder,
        torch.compiler.set_stance("force_eager"),  # compiled code skips the hooks
        torch.inference_mode(),
        autocast(config.training.precision, where.type),
    ):
        module.doing = "recording"
        for _, batches in data.passes((part,)):
            for batch in batches:
                module.model(batch.to(where))
                if len(recorder.sizes) >= graphs:
                    break
    card, attentions = data.build.card, kmip_layers(module.model)
    return recorder.projections(
        graphs,
        run=str(opened.folder),
        model=opened.result.model,
        k=max(attention.k for attention in attentions),
        **card.identity,
        split=data.split_name,
        part=part,
        legacy_padding=attentions[0].legacy_padding,
    )
