"""Queries, keys and values of attention layers: in memory, and as a safetensors file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kmip_data.errors import DamagedInput
from kmip_data.files.changes import write_output

FORMAT, VERSION = "kmip-data projections", 1
TENSORS = ("queries", "keys", "values")


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
    layers: tuple[tuple[Tensor, Tensor, Tensor], ...]
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
    for number, (queries, keys, values) in enumerate(projections.layers):
        shapes = [tuple(tensor.shape) for tensor in (queries, keys, values)]
        same = queries.ndim == keys.ndim == values.ndim == 3 and queries.shape == keys.shape
        if not same or values.shape[:2] != keys.shape[:2] or keys.shape[1] != ptr[-1]:
            raise ValueError(f"shapes {shapes} in layer {number} for {ptr[-1]} nodes")
        if not all(
            tensor.is_floating_point() and bool(tensor.isfinite().all()) for tensor in (queries, keys, values)
        ):
            raise ValueError(f"values that are not finite floating-point numbers in layer {number}")
