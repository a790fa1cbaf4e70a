"""Split files: the records, or nodes, of train, val and test."""

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
from kmip_data.errors import DamagedInput
from kmip_data.files.path_errors import raise_damaged
from kmip_data.files.reading import canonical_json, read_small_file
from kmip_data.format.writer import file_bytes, open_memory_file, write_text_attribute
from kmip_data.strict_model import Strict

PARTS: tuple[str, ...] = ("train", "val", "test")
TRAIN_AND_VAL = "trainval"  #: name of the union of two parts, as in PyTorch Geometric
#: Other names of the parts, in small letters.
_OTHER_NAMES = {
    **{part: part for part in PARTS},
    **dict.fromkeys(["training", "trn", "tr"], "train"),
    **dict.fromkeys(["valid", "validation", "validate", "vld", "va", "dev", "development"], "val"),
    **dict.fromkeys(["testing", "tst", "te"], "test"),
}


def part_name(name: str | None) -> str | None:
    """Return our name of a part: ``"dev"`` and ``"Validation"`` are ``"val"``, others unchanged."""
    return _OTHER_NAMES.get(name.lower(), name) if name else name


def parts_in_order(parts: Iterable[str]) -> list[str]:
    """Sort names of parts: train, val, test, then others by name.

    >>> parts_in_order(["extra", "test", "train"])
    ['train', 'test', 'extra']
    """
    rank = {part: position for position, part in enumerate(PARTS)}
    return sorted(parts, key=lambda part: (rank.get(part, len(PARTS)), part))


SPLIT_FORMAT = "kmip-data-split"  #: value of the root attribute ``format``
SPLIT_VERSION = 1
#: The parameter ``split_rule`` has another name in split files, whose bytes are pinned by digests.
_STORED_RULE = "split"
NODE_CODE = "split/node_code"  #: uint8 [N]: 0 train, 1 val, 2 test, 255 none
NODE_PARTS = {part: code for code, part in enumerate(PARTS)}
NO_PART = 255
_MAX_BYTES = 2**26  #: 64 MiB, the largest split file besides :data:`_BYTES_EACH` a record
_BYTES_EACH = 16

_PART = re.compile(r"[a-z][a-z0-9_]{0,30}")


class _Attributes(Strict):
    """Attributes of a split file, besides its format."""

    rule: str
    parameters: Json[dict[str, object]]
    digests: Json[dict[str, str]]


@dataclass(frozen=True)
class SplitFile:
    """Content of a split file, over records or over the nodes of one graph."""

    rule: str
    parameters: dict[str, object]
    #: positions in source order over all shards, in the order of the part
    parts: dict[str, I64] | None
    node_code: U8 | None  #: (N,): 0 train, 1 val, 2 test, 255 none
    digests: dict[str, str]  #: part to :func:`keys_digest` of its keys

    def problem(self, graphs: int, nodes: int) -> str | None:
        """Return the reason why this is not a split of so many graphs and nodes, if there is one."""
        code = self.node_code
        if code is None:
            return parts_problem(self.parts or {}, graphs)
        if len(code) != nodes or graphs != 1:
            return f"codes of {len(code):,} nodes, with {nodes:,} in {graphs:,} graphs"
        return _node_code_problem(code)


def keys_digest(keys: Sequence[str]) -> str:
    """Return the SHA-256 (hex) of the keys, in order, joined by line feeds."""
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


def encode_split(
    parts: Mapping[str, Sequence[int] | Integers],
    *,
    rule: str,
    parameters: Mapping[str, object],
    keys: Sequence[str],
) -> tuple[bytes, dict[str, str]]:
    """Return the bytes of a split file over positions (n,) of records, and the digest of each part's keys.

    ``keys`` are the keys of all records in source order, and ``parts`` positions among them, in the
    order of the part. A position out of range or repeated is ``DamagedInput``.
    """
    # Positions are checked before a byte is written: a file that exists is sound.
    arrays = {
        name: np.asarray(parts[name], dtype="<i8").reshape(-1) for name in parts_in_order(parts)
    }
    problem = parts_problem(arrays, len(keys))
    _refuse_problem(rule, f"each of {len(keys):,} records in one part at most", problem)

    digests = {}
    datasets = {}
    for name, part in arrays.items():
        digests[name] = keys_digest([keys[position] for position in part])
        datasets[f"split/{name}"] = part
    return _encode_split_file(datasets, rule, parameters, digests), digests


def encode_node_split(
    code: U8,
    *,
    rule: str,
    parameters: Mapping[str, object],
) -> tuple[bytes, dict[str, str]]:
    """Return the bytes of a split file over the nodes of one graph, by codes (N,), and the digests.

    ``code`` is uint8 [N]: 0 train, 1 val, 2 test, 255 none; another value is ``DamagedInput``.
    """
    code = np.asarray(code, dtype=np.uint8).reshape(-1)
    _refuse_problem(rule, "codes 0, 1, 2 and 255", _node_code_problem(code))
    digests = node_digests(code)
    return _encode_split_file({NODE_CODE: code}, rule, parameters, digests), digests


def _refuse_problem(rule: str, expected: str, problem: str | None) -> None:
    if problem is not None:
        raise DamagedInput(
            f"The split {rule!r} cannot be written.",
            expected=expected,
            found=problem,
        )


def node_digests(code: U8) -> dict[str, str]:
    """Return the digest of each part of a split of nodes, given by codes (N,).

    The key of a node is its decimal number.
    """
    digests = {}
    for name, value in NODE_PARTS.items():
        nodes = np.flatnonzero(code == value).tolist()
        digests[name] = keys_digest(list(map(str, nodes)))
    return digests


def parts_problem(parts: Mapping[str, I64], records: int) -> str | None:
    """Return the problem in the positions (n,) of a split over ``records`` records, if there is one."""
    for name, part in parts.items():
        if _PART.fullmatch(name) is None or name == NODE_CODE.rpartition("/")[2]:
            return f"a part called {name!r}"
        if part.size and (part.min() < 0 or part.max() >= records):
            return f"positions {part.min()} to {part.max()} in {name}, with {records:,} records"
    # Sorted, equal positions are neighbours: one pass finds a record in two parts.
    used = np.concatenate([np.empty(0, np.int64), *parts.values()])
    used.sort()
    twice = used[1:][used[1:] == used[:-1]]
    return f"position {twice[0]} more than once" if twice.size else None


def _node_code_problem(code: U8) -> str | None:
    other = np.setdiff1d(code, [*NODE_PARTS.values(), NO_PART])
    return f"codes {other.tolist()[:8]}" if other.size else None


def read_split(
    path: str | os.PathLike[str],
    *,
    records: int = 0,
    sha256: str = "",
    remedy: str = "",
) -> SplitFile:
    """Read a split file of at most 64 MiB and 16 bytes for each of ``records``: graphs, or nodes of one.

    Raises ``DamagedInput`` if it is larger, damaged, hostile, not a split file, or from a newer
    version of this package; with ``sha256``, also if it has another digest. ``remedy`` is the next
    step of that error.
    """
    from kmip_data.format.safety import open_untrusted_hdf5, read_root_attributes

    path = Path(path)
    most = _MAX_BYTES + _BYTES_EACH * records
    # By its size first: a file that is too large is never opened by HDF5.
    try:
        data = read_small_file(path, most)
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
    inspected = open_untrusted_hdf5(
        path,
        max_declared_bytes=most,
        filters=frozenset(),
        source=io.BytesIO(data),
    )
    with inspected as (file, stored):
        attributes = read_root_attributes(path, file, _Attributes, SPLIT_FORMAT, SPLIT_VERSION)
        # One dataset of codes, or one of positions for each part; nothing else.
        dtype = np.dtype("u1" if set(stored) == {NODE_CODE} else "<i8")
        for key, dataset in stored.items():
            folder, _, name = key.partition("/")
            if folder != "split" or _PART.fullmatch(name) is None:
                problem = f"{key[:80]!r}, not a part under /split"
                raise_damaged(path, "does not follow the format", problem)
            if dataset.dtype != dtype or len(dataset.shape) != 1:
                problem = f"{key} as {dataset.dtype} {dataset.shape}, not {dtype} (n,)"
                raise_damaged(path, "does not follow the format", problem)
        code = None
        parts = None
        if set(stored) == {NODE_CODE}:
            code = file[NODE_CODE][:]
        else:
            parts = {}
            for name in parts_in_order(key.removeprefix("split/") for key in stored):
                positions = file[f"split/{name}"][:]
                parts[name] = positions.astype(np.int64, copy=False)

    # A part without a digest could be exchanged unnoticed.
    expected_names = set(NODE_PARTS if parts is None else parts)
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
        node_code=code,
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
