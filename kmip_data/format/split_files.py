"""Split files: records or nodes in train, val and test."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Json

from kmip_data.arrays import I64, U8, Array, Integers
from kmip_data.errors import DamagedInput, Step
from kmip_data.files.path_errors import raise_damaged
from kmip_data.files.small_files import canonical_json, read_small_file
from kmip_data.format.writer import file_bytes, open_memory_file, write_text_attribute
from kmip_data.strict_model import StrictModel

PARTS: tuple[str, ...] = ("train", "val", "test")
TRAIN_AND_VAL = "trainval"  #: union of two parts, named as in PyTorch Geometric
#: lower-case alias -> part
_ALIASES = {
    alias: part
    for part, aliases in {
        "train": "train training trn tr",
        "val": "val valid validation validate vld va dev development",
        "test": "test testing tst te",
    }.items()
    for alias in aliases.split()
}


def part_name(name: str | None) -> str | None:
    """Return the standard name of a part, such as ``"val"`` for ``"dev"``; other names unchanged."""
    # Users pass any object as a part; whoever reads the part refuses it.
    return _ALIASES.get(name.lower(), name) if isinstance(name, str) else name


def parts_in_order(parts: Iterable[str]) -> list[str]:
    """Sort parts: train, val, test, then others by name.

    >>> parts_in_order(["extra", "test", "train"])
    ['train', 'test', 'extra']
    """
    rank = {part: position for position, part in enumerate(PARTS)}
    return sorted(parts, key=lambda part: (rank.get(part, len(PARTS)), part))


SPLIT_FORMAT = "kmip-data-split"  #: value of the root attribute ``format``
SPLIT_VERSION = 1
#: Key of the parameter ``split_rule`` in split files, whose bytes are pinned by digests.
_STORED_RULE = "split"
PART_CODES_PATH = "split/node_code"  #: uint8 [N]: 0 train, 1 val, 2 test, 255 none
PART_CODES = {part: code for code, part in enumerate(PARTS)}  #: codes of train, val and test
NO_PART = 255  #: code of a node in no part
_MAX_BYTES = 2**26  #: limit of a split file: 64 MiB, and _BYTES_PER_RECORD for each record
_BYTES_PER_RECORD = 16

_PART_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


class _Attributes(StrictModel):
    """Root attributes of a split file, except format and version."""

    rule: str
    parameters: Json[dict[str, object]]
    digests: Json[dict[str, str]]


@dataclass(frozen=True)
class SplitFile:
    """Content of a split of records, or of the nodes of a single graph."""

    rule: str
    parameters: dict[str, object]
    #: part -> positions of its records in source order over all shards; ``None`` for nodes
    parts: dict[str, I64] | None
    part_codes: U8 | None  #: (N,) part of each node, see :data:`PART_CODES`; ``None`` for records
    digests: dict[str, str]  #: part -> :func:`graph_keys_digest` of its keys

    def problem(self, graphs: int, nodes: int) -> str | None:
        """Return the reason why this is not a split of a build with these counts, or ``None``."""
        part_codes = self.part_codes
        if part_codes is None:
            return parts_problem(self.parts or {}, graphs)
        if len(part_codes) != nodes or graphs != 1:
            return f"codes of {len(part_codes):,} nodes, with {nodes:,} in {graphs:,} graphs"
        return _part_codes_problem(part_codes)


def graph_keys_digest(keys: Sequence[str]) -> str:
    """Return the SHA-256 (hex) of the keys in order, joined by line feeds."""
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


def encode_split(
    parts: Mapping[str, Sequence[int] | Integers],
    *,
    rule: str,
    parameters: Mapping[str, object],
    keys: Sequence[str],
) -> tuple[bytes, dict[str, str]]:
    """Return the bytes of a split file of records, and the digest of each part's keys.

    ``parts`` are ordered positions (n,) in ``keys``, the keys of all records in source order. Raises
    ``DamagedInput`` for a position that is out of range or occurs twice.
    """
    arrays = {
        name: np.asarray(parts[name], dtype="<i8").reshape(-1) for name in parts_in_order(parts)
    }
    problem = parts_problem(arrays, len(keys))
    _refuse_problem(rule, f"each of {len(keys):,} records in at most one part", problem)

    digests = {}
    datasets = {}
    for name, part in arrays.items():
        digests[name] = graph_keys_digest([keys[position] for position in part])
        datasets[f"split/{name}"] = part
    return _encode_split_file(datasets, rule, parameters, digests), digests


def encode_node_split(
    part_codes: U8,
    *,
    rule: str,
    parameters: Mapping[str, object],
) -> tuple[bytes, dict[str, str]]:
    """Return the bytes of a split file of the nodes of a single graph, and the digest of each part.

    ``part_codes`` (N,) holds :data:`PART_CODES` or :data:`NO_PART`; other values raise ``DamagedInput``.
    """
    part_codes = np.asarray(part_codes, dtype=np.uint8).reshape(-1)
    _refuse_problem(rule, "codes 0, 1, 2 and 255", _part_codes_problem(part_codes))
    digests = node_digests(part_codes)
    return _encode_split_file({PART_CODES_PATH: part_codes}, rule, parameters, digests), digests


def _refuse_problem(rule: str, expected: str, problem: str | None) -> None:
    if problem is not None:
        raise DamagedInput(
            f"The split {rule!r} cannot be written.",
            expected=expected,
            found=problem,
        )


def node_digests(part_codes: U8) -> dict[str, str]:
    """Return the digest of each part of a node split (N,); the key of a node is its index in decimal."""
    digests = {}
    for name, value in PART_CODES.items():
        nodes = np.flatnonzero(part_codes == value).tolist()
        digests[name] = graph_keys_digest(list(map(str, nodes)))
    return digests


def parts_problem(parts: Mapping[str, I64], records: int) -> str | None:
    """Return the problem of a split with positions (n,) among ``records`` records, or ``None``."""
    for name, part in parts.items():
        if _PART_NAME.fullmatch(name) is None or name == PART_CODES_PATH.rpartition("/")[2]:
            return f"a part called {name!r}"
        if part.size and (part.min() < 0 or part.max() >= records):
            return f"positions {part.min()} to {part.max()} in {name}, with {records:,} records"
    positions = np.concatenate([np.empty(0, np.int64), *parts.values()])
    positions.sort()
    duplicates = positions[1:][positions[1:] == positions[:-1]]
    return f"position {duplicates[0]} more than once" if duplicates.size else None


def _part_codes_problem(part_codes: U8) -> str | None:
    unknown = np.setdiff1d(part_codes, [*PART_CODES.values(), NO_PART])
    return f"codes {unknown.tolist()[:8]}" if unknown.size else None


def read_split(
    path: str | os.PathLike[str],
    *,
    records: int = 0,
    sha256: str = "",
    remedy: Step | None = None,
) -> SplitFile:
    """Read a split file of at most 64 MiB plus 16 bytes for each of ``records`` graphs or nodes.

    Raises ``DamagedInput``, with ``remedy`` as the next step, if the file is larger, damaged,
    malicious, not a split file, from a newer version of this package, or does not match ``sha256``.
    """
    from kmip_data.format.untrusted_hdf5 import open_untrusted_hdf5, read_root_attributes

    path = Path(path)
    max_bytes = _MAX_BYTES + _BYTES_PER_RECORD * records
    # Limit the size first: HDF5 must not open a file that is too large.
    try:
        data = read_small_file(path, max_bytes)
    except (OSError, ValueError) as error:
        raise_damaged(path, "cannot be read as a split", error, remedy=remedy)
    digest = hashlib.sha256(data).hexdigest()
    if sha256 and digest != sha256:
        raise_damaged(
            path,
            "is not the split file that the card names",
            f"SHA-256 {digest}, not {sha256}",
            remedy=remedy,
        )
    with open_untrusted_hdf5(
        path,
        max_declared_bytes=max_bytes,
        filters=frozenset(),
        source=io.BytesIO(data),
    ) as (file, stored):
        attributes = read_root_attributes(path, file, _Attributes, SPLIT_FORMAT, SPLIT_VERSION)
        # The datasets are codes of nodes, or the positions of each part.
        dtype = np.dtype("u1" if set(stored) == {PART_CODES_PATH} else "<i8")
        for key, dataset in stored.items():
            folder, _, name = key.partition("/")
            if folder != "split" or _PART_NAME.fullmatch(name) is None:
                problem = f"{key[:80]!r}, not a part under /split"
                raise_damaged(path, "does not follow the format", problem)
            if dataset.dtype != dtype or len(dataset.shape) != 1:
                problem = f"{key} as {dataset.dtype} {dataset.shape}, not {dtype} (n,)"
                raise_damaged(path, "does not follow the format", problem)
        part_codes = None
        parts = None
        if set(stored) == {PART_CODES_PATH}:
            part_codes = file[PART_CODES_PATH][:]
        else:
            parts = {}
            for name in parts_in_order(key.removeprefix("split/") for key in stored):
                positions = file[f"split/{name}"][:]
                parts[name] = positions.astype(np.int64, copy=False)

    # Every part needs a digest: without one, changes would go unnoticed.
    expected_names = set(PART_CODES if parts is None else parts)
    if set(attributes.digests) != expected_names:
        problem = f"digests of {sorted(attributes.digests)}, not of its parts"
        raise_damaged(path, "does not follow the format", problem)
    parameters = dict(attributes.parameters)
    if _STORED_RULE in parameters:
        parameters["split_rule"] = parameters.pop(_STORED_RULE)
    return SplitFile(
        rule=attributes.rule,
        parameters=parameters,
        parts=parts,
        part_codes=part_codes,
        digests=attributes.digests,
    )


def _encode_split_file(
    datasets: Mapping[str, Array],
    rule: str,
    parameters: Mapping[str, object],
    digests: Mapping[str, str],
) -> bytes:
    stored = dict(parameters)
    if "split_rule" in stored:
        stored[_STORED_RULE] = stored.pop("split_rule")
    with open_memory_file() as file:
        write_text_attribute(file, "format", SPLIT_FORMAT)
        file.attrs.create("format_version", np.array(SPLIT_VERSION, dtype="<i8"))
        write_text_attribute(file, "rule", rule)
        write_text_attribute(file, "parameters", canonical_json(stored))
        write_text_attribute(file, "digests", canonical_json(digests))
        for key, array in datasets.items():
            file.create_dataset(key, data=array, track_times=False)
        return file_bytes(file)
