"""Datasets from your own files: copies, class names, skipped files and splits."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import numpy as np
from numpy.random import PCG64, Generator
from pydantic import Field, field_validator, model_validator

from kmip_data.arrays import I64
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.path_errors import (
    absent_file_error,
    absolute_path,
    convert_write_errors,
    require_room,
)
from kmip_data.files.reading import sha256_file
from kmip_data.format.card import Receipt
from kmip_data.format.split_files import PARTS, part_name
from kmip_data.format.writer import Skipped
from kmip_data.graphs.split_rules import count_of_fraction
from kmip_data.pipelines.base import (
    BaseSplitParams,
    BuildParams,
    Pipeline,
    RawFolder,
    Records,
    Split,
)
from kmip_data.pipelines.raw.copies import receipt_of_members, store_user_files
from kmip_data.strict_model import Strict

KEY_LENGTH = 160  #: most bytes of the key of a record


class OwnParams(BuildParams):
    """Parameters of datasets of a user's own files."""

    class_name: tuple[str, ...] = Field(
        default=(), description="name of each class, in order; repeat"
    )
    on_error: Literal["stop", "skip"] = Field(
        default="stop",
        description="a file, or a row of a table, that cannot be used: stop, or skip and list it on the card",
    )

    @classmethod
    def of(cls, params: OwnParams, **resolved: object) -> Self:
        """Return ``params`` as this class, with the values that the files decide.

        A class of parameters has a subclass for those that ``resolve`` returns. Its further fields
        hold what was read of the files: excluded from the build key, which has the files' digests.
        """
        values = {**dict(params), **resolved}
        made = cls.model_construct(params.model_fields_set | resolved.keys(), **values)
        return cast(Self, made)


class OwnTextParams(OwnParams):
    """Parameters of datasets of which a file may be text."""

    encoding: str = Field(
        default="",
        description="encoding of texts that are neither UTF-8 nor UTF-16, such as cp1252",
    )

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, value: str) -> str:
        try:
            "".encode(value or "utf-8")
        except LookupError as error:
            raise ValueError(f"{error}; one is cp1252") from error
        return value


class OwnSplitParams(BaseSplitParams):
    """Parameters of the split."""

    random_rules: ClassVar[tuple[str, ...]] = ("given", "random", "stratified")
    rule_of_part_sizes: ClassVar[str | None] = "random"

    split_rule: str = Field(
        default="given",
        pattern="^(given|random|stratified)$",
        description="given: folders called train, val and test, else random; random: records divided at "
        "random; stratified: with equal shares of the classes",
    )
    val_fraction: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="share of records in val",
    )
    test_fraction: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="share of records in test",
    )

    @model_validator(mode="after")
    def _some_train(self) -> Self:
        if self.val_fraction + self.test_fraction >= 1:
            raise ValueError("val_fraction and test_fraction leave nothing to train with")
        return self


MAX_MEMORY = 2**32  #: default memory limit for reading a user's own files
P = TypeVar("P", bound=OwnParams)


class OwnPipeline(Pipeline[P, OwnSplitParams]):
    """A dataset of a user's own files, under a name of their choice."""

    SplitParams = OwnSplitParams
    folder_name_templates = (("on_error", "{}"),)
    Source: ClassVar[type[Strict]]  #: sources; its fields are options of ``build``
    memory: int | None = None  #: bytes that reading the files may take; ``None``: no limit
    unread: Mapping[str, str] = {}  #: files of the source that are not copied -> reason

    def import_files(
        self,
        source: Any,
        params: P,
        home: Home,
        *,
        offline: bool,
        quiet: bool,
    ) -> tuple[RawFolder, bool]:
        """Copy the files into the home folder, all or none; return the copy, and True if it is new.

        So a build can be verified and repaired without the originals. Raises ``UsageError`` or
        ``OutOfResources`` where a file cannot be read or written.
        """
        dataset = self.manifest.name
        files = source.files()  # by their names in the copy
        self.unread = getattr(source, "unread", {})
        folder = home.raw / dataset

        def make(destination: Path) -> tuple[dict[str, str], list[Receipt]]:
            destinations = [destination / name for name in files]
            with convert_write_errors(destination):
                destination.mkdir()
                total = sum(path.stat().st_size for path in files.values())
                require_room(folder, total, "A copy of the files")
                for parent in {path.parent for path in destinations}:
                    parent.mkdir(parents=True, exist_ok=True)
                # Many small files wait for the disk: eight threads copy and hash side by side.
                with ThreadPoolExecutor(_THREADS) as pool:
                    copied = list(pool.map(_copy, files.values(), destinations))

            digests = [digest for digest, _ in copied]
            members = dict(zip(files, digests, strict=True))
            size = sum(size for _, size in copied)
            return members, [receipt_of_members(dataset, source.origin, members, size)]

        return store_user_files(folder, make, quiet=quiet)

    def class_names(self, params: P) -> tuple[str, ...]:
        """Return the given class names."""
        return params.class_name

    def split(self, records: Records, params: OwnSplitParams, raw: Path | None) -> Split:
        """Divide records by the folders of their files, else by a permutation.

        Parts are in source order, and train is never empty.
        """
        by_folder = parts_by_folder(records.keys) if params.split_rule == "given" else {}
        if by_folder:
            if by_folder["val"]:
                return Split("folders", "given", {}, by_folder, note="by the folders of the files")
            options = params.model_dump(include={"split_seed", "val_fraction"})
            name = f"folders-val{params.val_fraction:g}-seed{params.split_seed}"
            note = f"by the folders of the files; {params.val_fraction:.0%} of train, drawn, is val"
            parts = by_folder | self._with_val(by_folder["train"], records.keys, params)
            return Split(name, "given", options, parts, note=note)
        parts = {
            part: rows.tolist()
            for part, rows in divide_at_random(len(records.keys), params).items()
        }
        name = random_split_name(params)
        return Split(name, "random", params.model_dump(exclude={"split_rule"}), parts)

    def file_of(self, key: str) -> str:
        """Return the name of the file of a record, whose records stay in one part."""
        return key

    def _with_val(
        self, train: Sequence[int], keys: Sequence[str], params: OwnSplitParams
    ) -> dict[str, list[int]]:
        """Return train and val, of whole files that are drawn from the files of ``train``."""
        files = sorted({self.file_of(keys[row]) for row in train})
        order = Generator(PCG64(params.split_seed)).permutation(len(files))
        size = min(count_of_fraction(len(files), params.val_fraction or 0), len(files) - 1)
        drawn = {files[position] for position in order[:size]}
        parts: dict[str, list[int]] = {"train": [], "val": []}
        for row in train:
            parts["val" if self.file_of(keys[row]) in drawn else "train"].append(row)
        return parts

    def advice_on_damage(self) -> None:
        """Return None: there is no other copy."""

    def stop_or_skip(self, key: str, error: DamagedInput, params: OwnParams) -> Skipped:
        """Return the skipped file, or raise its error, as chosen by ``params``."""
        # Skipped records stand on the card with their reason.
        if params.on_error == "skip":
            reason = error.message
            if error.found:
                reason += f" ({error.found})"
            return Skipped(key, reason)
        skip = "repair or remove the file, or skip such files: --set on_error=skip"
        error.next = error.next or skip
        raise error

    def stop_or_skip_all(
        self, unusable: Mapping[str, DamagedInput], total: int, params: OwnParams
    ) -> None:
        """Raise an error that names every file that cannot be used, out of ``total``, unless they are skipped."""
        if not unusable or params.on_error == "skip":
            return
        first = next(iter(unusable.values()))
        skip = "--set on_error=skip leaves such files out" if total > len(unusable) else ""
        hints = list(dict.fromkeys(refusal.next for refusal in unusable.values()))
        hint = hints[0] or "repair or remove the files" if len(hints) == 1 else ""
        if len(unusable) == 1:
            first.next = "; ".join(filter(None, (first.next, skip))) or _REPAIR
            raise first
        lines = [refusal.message for refusal in list(unusable.values())[:_SHOWN]]
        if len(unusable) > _SHOWN:
            lines.append(f"and {len(unusable) - _SHOWN:,} more")
        raise DamagedInput(
            f"{len(unusable):,} of {total:,} files cannot be used.",
            found=" ".join(lines),
            next="; ".join(filter(None, (hint, skip))) or _REPAIR,
        )


_REPAIR = "repair or replace the file"


def classes_option_text(value: object) -> object:
    """Return a number of classes, or a list of their values, as the command line gives it."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, int) else value


def class_codes(classes: str | None) -> tuple[int, ...]:
    """Return the values of the classes in order; none for a number of classes."""
    return tuple(map(int, classes.split(","))) if classes and "," in classes else ()


def check_codes(classes: str, most: int) -> int:
    """Return the number of classes; raise ``ValueError`` for a text that is neither number nor list."""
    try:
        codes = class_codes(classes)
        count = len(codes) or int(classes)
    except ValueError:
        raise ValueError("classes is a number, or values such as 2,6,9") from None
    if not 2 <= count <= most or len(set(codes)) < len(codes):
        raise ValueError(f"classes are 2 to {most}, or different values such as 2,6,9")
    return count


def divide_at_random(total: int, params: OwnSplitParams) -> dict[str, I64]:
    """Divide ``total`` records by a permutation; return the positions of each part in source order."""
    test = count_of_fraction(total, params.test_fraction) if params.test_fraction else 0
    # Take test first: its fraction is of all, val's fraction of the rest.
    val_share = params.val_fraction / (1 - params.test_fraction)  # share of the rows outside test
    val = count_of_fraction(total - test, val_share) if val_share else 0

    order = Generator(PCG64(params.split_seed)).permutation(total)
    rows = {
        "train": order[test + val :],
        "val": order[test : test + val],
        "test": order[:test],
    }
    return {part: np.sort(rows[part]) for part in PARTS}


def parts_by_folder(keys: Sequence[str]) -> dict[str, list[int]]:
    """Return the records of each part if all lie in folders named after parts, including train; else none."""
    parts: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        folder, slash, _ = key.partition("/")
        parts.setdefault(part_name(folder.lower()) or "" if slash else "", []).append(row)
    if len(parts) < 2 or not {"train"} <= parts.keys() <= {*PARTS}:
        return {}
    return {part: parts.get(part, []) for part in PARTS}


def random_split_name(params: OwnSplitParams) -> str:
    """Return the name of a random split."""
    name = f"random-seed{params.split_seed}"
    if (params.val_fraction, params.test_fraction) != (0.1, 0.1):
        name += f"-val{params.val_fraction:g}-test{params.test_fraction:g}"
    return name


_SHOWN = 8  #: files that an error lists
_THREADS = 8  #: files copied at a time; most are small and wait for the disk


def existing_file(path: Path, option: str) -> Path:
    """Return the absolute path of the file given by an option; raise if it is missing."""
    path = absolute_path(path, "file")
    # Not of Path: False, not an error, where a folder on the way may not be searched.
    if not os.path.isfile(path):  # noqa: PTH113
        raise absent_file_error(path, f"check the path given to {option}")
    return path


def files_below(
    folder: Path | None,
    option: str,
    suffixes: Collection[str],
    also: Collection[str] = (),
) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the files of a folder and its sub-folders that end in one of ``suffixes``, by path below it.

    Files that end in one ``also`` come along. The second dictionary has the other files, with the
    reason. Hidden files are left out; one file may be given instead of a folder. Raises
    ``UsageError`` where the folder is not given, not there, or has no such file.
    """
    endings = ", ".join(sorted(suffixes))
    hint = f"give {option} a folder of {endings} files"
    if folder is None:
        raise UsageError(f"{option} is missing.", next=hint)
    folder = absolute_path(folder, "folder")
    if os.path.isfile(folder):  # noqa: PTH113 -- as above
        if folder.suffix.lower() in suffixes:
            return {folder.name: folder}, {}
        raise UsageError(
            f"{folder} has the suffix {folder.suffix or 'of no format'!r}, which is not read.",
            expected=endings,
            next="an archive is unpacked first; other formats are converted to one of these, and text is renamed",
        )
    if not os.path.isdir(folder):  # noqa: PTH112
        raise UsageError(f"There is no file or folder {folder}.", next=hint)

    existing_files = {}
    others = {}
    for parent, inner, files in os.walk(folder):
        for name in inner:
            path = Path(parent, name)
            if path.is_symlink() and not name.startswith("."):
                others[path.relative_to(folder).as_posix()] = "a link to a folder"
        # In place: os.walk descends only into the folders left in the list.
        inner[:] = [name for name in inner if not name.startswith(".")]
        for name in files:
            path = Path(parent, name)
            if name.startswith(".") or not path.is_file():
                continue
            key = path.relative_to(folder).as_posix()
            if path.suffix.lower() not in {*suffixes, *also}:
                others[key] = f"not one of {endings}"
                continue
            # A name that is not UTF-8 could be in no card.
            if key.encode("utf-8", "ignore").decode() != key:
                raise UsageError(f"The name of {key!a} in {folder} is not UTF-8.", next="rename it")
            existing_files[key] = path
    if not any(path.suffix.lower() in suffixes for path in existing_files.values()):
        raise UsageError(
            f"{folder} has no usable file.",
            found=", ".join(sorted(others)[:_SHOWN]) or "no file",
            next=hint,
        )
    return dict(sorted(existing_files.items())), dict(sorted(others.items()))


def escaped_key(name: str, length: int) -> str:
    """Return a name as the key of a record: ASCII, and cut with a digest where it is too long."""
    key = name.encode("ascii", "backslashreplace").decode()
    if len(key) <= length:
        return key
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"{key[: length - 13]}~{digest[:12]}"


def _copy(path: Path, destination: Path) -> tuple[str, int]:
    """Copy one file and return digest and size of what was written."""
    shutil.copyfile(path, destination)
    return sha256_file(destination)
