"""Records of raw folders by the pipelines alone."""

from __future__ import annotations

import csv
import gzip
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from support.raises import raises
from support.shared import shared_data

from kmip_data.errors import DamagedInput
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.writer import SkippedRecord
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import Pipeline, Prepared, RawCopy, RecordTable, load_pipeline
from kmip_data.pipelines.engine.pool import convert_unit_errors

FUNC_TABLE = "peptide_multi_class_dataset.csv.gz"


def write_sample(name: str, folder: Path, **options) -> Path:
    """Write the sample of a dataset into a folder, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    load_pipeline(load_manifest(name)).write_sample(folder, **options)
    return folder


def prepare(name: str, folder: Path, work: Path, **parameters) -> tuple[Pipeline, object, Prepared]:
    """Run ``prepare`` on a raw folder."""
    pipeline = load_pipeline(load_manifest(name))
    params = pipeline.Params(**parameters)
    work.mkdir(parents=True, exist_ok=True)
    return pipeline, params, pipeline.prepare(RawCopy(folder, {}, ()), params, work)


def records_of_folder(
    name: str, folder: Path, work: Path | None = None, **parameters
) -> tuple[Pipeline, list[GraphRecord | SkippedRecord]]:
    """All records of a raw folder, which is also where work is done unless another is given."""
    pipeline, params, prepared = prepare(name, folder, work or folder, **parameters)
    units = pipeline.units(prepared, params)
    return pipeline, [
        record for unit in units for record in pipeline.records(prepared, unit, params)
    ]


def refused_folder(name: str, folder: Path, *named: object, **parameters) -> None:
    """Preparing or reading must end in one error with steps that names all values ``named``."""
    remedy = load_pipeline(load_manifest(name)).damage_remedy()
    with (
        TemporaryDirectory() as work,
        raises(DamagedInput, naming=named) as error,
        convert_unit_errors(name, "here", remedy),
    ):
        records_of_folder(name, folder, Path(work), **parameters)
    assert error.value.steps


def unzip(archive: Path, target: Path) -> Path:
    """Unpack a trusted archive and return its root folder."""
    with zipfile.ZipFile(archive) as file:
        file.extractall(target)
    return next(path for path in target.iterdir() if path.is_dir())


def real_rows(every: int = 1) -> list[dict[str, str]]:
    """Rows of the real table of peptides-func."""
    with gzip.open(shared_data("peptides_func", FUNC_TABLE), "rt") as file:
        return list(csv.DictReader(file))[::every]


def records_of(keys: Sequence[str]) -> RecordTable:
    """Records with these keys and nothing else that rules of splits could go by."""
    none = np.zeros(len(keys), np.int64)
    return RecordTable(list(keys), none, none, np.zeros((len(keys), 0), np.int64), None)
