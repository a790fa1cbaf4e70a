"""Queries, keys and values of attention layers: recorded from a run, drawn, and stored as safetensors."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.changes import write_output
from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.layers.batch import pointers

if TYPE_CHECKING:
    from kmip_data.models.training.data.run_data import RunData

FORMAT, VERSION = "kmip-data projections", 1
TENSORS = ("queries", "keys", "values")
Layer = tuple[Tensor, Tensor, Tensor]


class Sample(NamedTuple):
    """One layer on one graph of n nodes."""

    layer: int  #: counted from 0
    graph: int
    queries: Tensor  #: (H, n, d)
    keys: Tensor  #: (H, n, d)
    values: Tensor  #: (H, n, v)


@dataclass(frozen=True)
class Projections:
    """Queries, keys and values of attention layers, for the same graphs."""

    #: layer by layer (queries (H, N, d), keys (H, N, d), values (H, N, v)), nodes of all graphs one after
    #: another, one floating dtype, before the factor 1/√d
    layers: tuple[Layer, ...]
    ptr: tuple[int, ...]  #: G + 1 row numbers: graph g has the rows ``ptr[g]:ptr[g + 1]``
    #: plain values on their origin: ``sample`` (generated data), dataset, run, k …
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """Nodes of each graph."""
        return [stop - start for start, stop in pairwise(self.ptr)]

    def samples(self, layers: list[int], graphs: list[int]) -> Iterator[Sample]:
        """Yield every chosen layer on every chosen graph, graph by graph, in float32."""
        for graph in graphs:
            rows = slice(self.ptr[graph], self.ptr[graph + 1])
            for layer in layers:
                queries, keys, values = (tensor[:, rows].float() for tensor in self.layers[layer])
                yield Sample(layer, graph, queries, keys, values)


def gaussian_projections(n: int, d: int, *, heads: int = 1, graphs: int = 1, seed: int = 0) -> Projections:
    """Return standard normal queries, keys and values: ``graphs`` graphs of n nodes, one layer."""
    generator = torch.Generator().manual_seed(seed)
    queries, keys, values = torch.randn(3, heads, graphs * n, d, generator=generator)
    ptr = tuple(range(0, graphs * n + 1, n))
    return Projections(((queries, keys, values),), ptr, {"data": "Gaussian", "n": n, "d": d, "seed": seed})


def write_projections(path: str | os.PathLike[str], projections: Projections) -> None:
    """Write one safetensors file, complete or not at all.

    Its tensors are ``layer<l>/queries``, ``…/keys``, ``…/values`` and ``ptr`` (int64); the metadata of
    its header hold ``format``, ``version`` and ``about`` (JSON).
    """
    from safetensors.torch import save

    tensors = {
        f"layer{number}/{name}": tensor.contiguous()
        for number, layer in enumerate(projections.layers)
        for name, tensor in zip(TENSORS, layer, strict=True)
    }
    tensors["ptr"] = torch.tensor(projections.ptr, dtype=torch.int64)
    metadata = {"format": FORMAT, "version": str(VERSION), "about": json.dumps(dict(projections.about))}
    write_output(Path(path), save(tensors, metadata))


def read_projections(path: str | os.PathLike[str]) -> Projections:
    """Read a file of :func:`write_projections`.

    Raises ``DamagedInput`` if it is no such file, or its tensors do not fit together; ``OSError`` if it does
    not exist or cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    Path(path).open("rb").close()  # an OSError that names the file, which safetensors does not
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if (metadata.get("format"), metadata.get("version")) != (FORMAT, str(VERSION)):
                raise ValueError(f"format {metadata.get('format')!r}, version {metadata.get('version')!r}")  # noqa: TRY301
            count, get = sum(name.endswith("/queries") for name in file.keys()), file.get_tensor  # noqa: SIM118
            layers = tuple(
                (get(f"layer{n}/queries"), get(f"layer{n}/keys"), get(f"layer{n}/values"))
                for n in range(count)
            )
            ptr = tuple(get("ptr").tolist())
            found = Projections(layers, ptr, json.loads(metadata["about"]))
        _check(found)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DamagedInput(
            f"{os.fspath(path)} cannot be read as projections.",
            expected=f"safetensors of format {FORMAT!r}, version {VERSION}",
            found=str(error).splitlines()[0] if str(error) else type(error).__name__,
            next="kmip-data evaluate RUN --dump-qk FILE writes one",
        ) from error
    return found


def _check(projections: Projections) -> None:
    """Raise ValueError if the tensors and pointers do not fit together."""
    ptr = projections.ptr
    if not projections.layers:
        raise ValueError("no layer")
    if not ptr or ptr[0] != 0 or any(stop < start for start, stop in pairwise(ptr)):
        raise ValueError("pointers that do not rise from 0")
    for number, layer in enumerate(projections.layers):
        shapes = [tuple(tensor.shape) for tensor in layer]
        rows = {shape[:2] for shape in shapes}
        if {*map(len, shapes)} != {3} or shapes[0] != shapes[1] or rows != {(shapes[0][0], ptr[-1])}:
            raise ValueError(f"shapes {shapes} in layer {number} for {ptr[-1]} nodes")
        if not all(tensor.is_floating_point() and bool(tensor.isfinite().all()) for tensor in layer):
            raise ValueError(f"values that are not finite floating-point numbers in layer {number}")


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
            sizes = f"{self._least} to {self._most or 'any number of'} nodes"
            raise UsageError(f"There is no graph to record of {sizes}.", next="another part, or other sizes")
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
        raise UsageError("The model has no k-MIP attention to record.", next="a run of the model gps-kmip")
    return found


def check_part(data: RunData, part: str) -> None:
    """Raise ``UsageError`` if ``data`` have no such part."""
    if part not in data.parts:
        raise UsageError(f"The run has no part {part!r}.", next=f"one of {', '.join(data.parts)}")


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
