"""Graphs of a user's own files without the engine, and printed advice that is followed."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kmip_data.errors import KmipDataError, Setting
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import AnyPipeline, RawCopy, load_pipeline
from kmip_data.text import values_of

PIPELINE = load_pipeline(load_manifest("graphs"))


class FolderContent(NamedTuple):
    """Schema and records of files, and what the card says of the files."""

    schema: Schema
    records: list[GraphRecord]
    files: dict[str, Any]

    @property
    def first(self) -> GraphRecord:
        """The first graph."""
        return self.records[0]

    def edges(self) -> set[tuple[int, int]]:
        """Edges of the first graph."""
        return set(zip(*self.first.edge_index.tolist(), strict=True))


def write_files(folder: Path, **files: str | bytes) -> Path:
    """Write files; ``edges_csv`` is called ``edges.csv``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / ".".join(name.rsplit("_", 1))).write_bytes(data)
    return folder


def with_edges(record: Any) -> Any:
    """Return a record whose edges are an index, also where they are stored as neighbours."""
    if getattr(record, "neighbor", None) is None:
        return record
    nodes, k = record.neighbor.shape
    ends = [record.neighbor.reshape(-1), np.arange(nodes).repeat(k)]
    return replace(record, edge_index=np.stack(ends), neighbor=None)


def read_files(path: Path, **parameters: Any) -> FolderContent:
    """Read the files of a folder as ``kmip-data build graphs`` does."""
    params, records = build_in_memory(path, **parameters)
    records = [with_edges(record) for record in records]
    return FolderContent(PIPELINE.schema(params), records, params.inferred.summary)


def build_in_memory(
    folder: Path, *names: str, pipeline: AnyPipeline = PIPELINE, **parameters: Any
) -> tuple[Any, list[Any]]:
    """Return completed parameters and records of a folder, without the engine.

    ``names`` are the raw files, by default all files of the folder.
    """
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    names = names or tuple(file.relative_to(folder).as_posix() for file in files)
    raw = RawCopy(folder, dict.fromkeys(names, ""), ())
    params = pipeline.resolve(pipeline.Params(**parameters), raw)
    with tempfile.TemporaryDirectory() as work:
        prepared = pipeline.prepare(raw, params, Path(work))
        params = pipeline.with_inferred(params, prepared)
        records: list[Any] = []
        for unit in pipeline.units(prepared, params):
            records += pipeline.records(prepared, unit, params)
    return params, records


def parse_remedy(error: KmipDataError) -> dict[str, Any]:
    """Return the parameters of an error's first setting that adds any."""
    settings = [step.values for step in error.steps if isinstance(step, Setting)]
    added = [values for values in settings if values and None not in values.values()]
    assert added, f"no setting in {error.steps}"
    parameters: dict[str, Any] = {}
    for key, value in added[0].items():
        field = PIPELINE.Params.model_fields[key]
        is_tuple = "tuple" in str(field.annotation)
        parameters[key] = tuple(values_of(value)) if is_tuple else value
    return parameters


def number_folders(tmp_path: Path) -> Iterator[Path]:
    """Yield new folders."""
    return (tmp_path / f"{number:03d}" for number in itertools.count())
