"""Base class of pipelines for your own files: copies, class names, skipped files and splits."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import traceback
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

from pydantic import Field, field_validator

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, OpenQuestions, Setting, UsageError
from kmip_data.files.path_errors import (
    absent_file_error,
    absolute_path,
    convert_write_errors,
    require_disk_space,
)
from kmip_data.files.small_files import sha256_file
from kmip_data.format.card import Receipt
from kmip_data.format.writer import SkippedRecord
from kmip_data.pipelines.base import Pipeline, RawCopy, RecordTable, Split
from kmip_data.pipelines.formats.text import UnknownEncoding
from kmip_data.pipelines.own_split import OwnSplitParams, own_split
from kmip_data.pipelines.parameters import BuildParams
from kmip_data.pipelines.raw.copies import receipt_of_members, store_own_files
from kmip_data.strict_model import StrictModel

KEY_LENGTH = 160  #: maximum length of record keys in bytes


class OwnParams(BuildParams):
    """Parameters of datasets of a user's own files."""

    class_name: tuple[str, ...] = Field(
        default=(), description="name of each class, in order; repeat"
    )
    on_error: Literal["stop", "skip"] = Field(
        default="stop",
        description="if a file or a table row cannot be used: stop, or skip it and list it on the card",
    )

    def described(self, **inferred: object) -> dict[str, Any]:
        """Return the parameters that describe a build, with ``inferred`` ones, as JSON values."""
        given = self.model_dump(
            mode="json", exclude_defaults=True, exclude={"inferred", "limit", "on_error"}
        )
        values = {**given, **{key: value for key, value in inferred.items() if value is not None}}
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
        }

    def refuse_unread(self, reasons: Mapping[str, str], **known: object) -> None:
        """Raise ``UsageError`` for a parameter that is given although no step of the build reads it.

        ``reasons`` has the reason of each such parameter. A value that is the default, or is in
        ``known``, as a description has, is no choice of the user.
        """
        for key, reason in reasons.items():
            value = getattr(self, key)
            if value in (type(self).model_fields[key].default, known.get(key)):
                continue
            raise UsageError(
                f"{Setting({key: value})} has no effect: {reason}.", steps=Setting({key: None})
            )

    @classmethod
    def from_params(cls, params: OwnParams, **inferred: object) -> Self:
        """Return ``params`` as this class, with values inferred from the files.

        ``complete`` returns an instance of such a subclass. Its additional fields are excluded from
        the build key, which has the files' digests.
        """
        fields_set = params.model_fields_set | inferred.keys()
        return cast(Self, cls.model_construct(fields_set, **{**dict(params), **inferred}))


class OwnTextParams(OwnParams):
    """Parameters of datasets whose files may be text."""

    encoding: str = Field(
        default="",
        description="encoding of text that is neither UTF-8 nor UTF-16, such as cp1252",
    )
    decimal: Literal[".", ","] | None = Field(
        default=None,
        description="decimal sign of numbers such as 1,234, where the other sign separates thousands "
        "(default: as the numbers of the file show)",
    )
    ignore: tuple[str, ...] = Field(
        default=(), description="column or attribute to leave out; repeat"
    )

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, value: str) -> str:
        try:
            "".encode(value or "utf-8")
        except LookupError as error:
            raise ValueError(f"{error}; one is cp1252") from error
        return value


DEFAULT_MEMORY = 2**32  #: default memory limit for reading a user's own files
P = TypeVar("P", bound=OwnParams)


class OwnPipeline(Pipeline[P, OwnSplitParams]):
    """Pipeline of a user's own files, under a name of their choice."""

    counts_repeats = True
    SplitParams = OwnSplitParams
    folder_name_templates = (("on_error", "{}"),)
    #: Location of the files; its fields are options of ``build``.
    Source: ClassVar[type[StrictModel]]
    memory_limit: int | None = None  #: for reading the files, in bytes
    ignored_files: Mapping[str, str] = {}  #: file of the source that is not copied -> reason
    divides_nodes: ClassVar[bool] = False  #: True if a split divides the nodes of a single graph

    def parameters_like(
        self, source: Any, typed: Mapping[str, object], home: Home
    ) -> Mapping[str, object]:
        """Return the typed parameters, with those of the build or description that ``source`` is like."""
        return typed

    def store_raw_files(
        self,
        source: Any,
        params: P,
        home: Home,
        *,
        offline: bool,
        quiet: bool,
    ) -> tuple[RawCopy, bool]:
        """Copy all files into the home folder, or none; return the copy, and True if it is new.

        With the copy, a build can be verified and repaired without the originals. Raises
        ``UsageError`` or ``OutOfResources`` if a file cannot be read or written.
        """
        dataset = self.manifest.name
        files = source.files()  # name in the copy -> path
        self.ignored_files = getattr(source, "ignored_files", {})
        folder = home.raw / dataset

        def copy_into(destination: Path) -> tuple[dict[str, str], list[Receipt]]:
            destinations = [destination / name for name in files]
            with convert_write_errors(destination):
                destination.mkdir()
                total = sum(path.stat().st_size for path in files.values())
                require_disk_space(folder, total, "A copy of the files")
                for parent in {path.parent for path in destinations}:
                    parent.mkdir(parents=True, exist_ok=True)
                # Small files mostly wait for the disk, so several threads copy and hash.
                with ThreadPoolExecutor(_COPY_THREADS) as pool:
                    digests_and_sizes = list(pool.map(_copy, files.values(), destinations))

            digests = [digest for digest, _ in digests_and_sizes]
            members = dict(zip(files, digests, strict=True))
            size = sum(size for _, size in digests_and_sizes)
            return members, [receipt_of_members(dataset, source.origin, members, size)]

        return store_own_files(folder, copy_into, quiet=quiet)

    def class_names(self, params: P) -> tuple[str, ...]:
        """Return the class names given by the user."""
        return params.class_name

    def split(self, records: RecordTable, params: OwnSplitParams, raw_folder: Path | None) -> Split:
        """Divide records by the parts given in the files, or else at random."""
        groups = [self.group_of_record(key) for key in records.keys]
        divides_nodes = self.divides_nodes and len(groups) == 1
        return own_split(records, params, groups, self.manifest.name, divides_nodes=divides_nodes)

    def group_of_record(self, key: str) -> str:
        """Return the name of a record's group: records of a group stay in one part."""
        return key

    def stop_or_skip(self, key: str, error: DamagedInput, params: OwnParams) -> SkippedRecord:
        """Return a skipped record with the reason, or raise the error if ``params`` say so."""
        if params.on_error == "skip":
            return SkippedRecord(key, skip_reason(error))
        error.steps = error.steps or ["repair the file, or skip such files", _SKIP]
        raise error

    def stop_or_skip_all(
        self, errors: Collection[DamagedInput], total: int, params: OwnParams
    ) -> None:
        """Raise an error for the unusable files, out of ``total``, unless they are skipped.

        Questions about files come before their faults, because answers may change these.
        """
        if not errors or params.on_error == "skip":
            return
        if questions := _joined_questions(errors):
            raise OpenQuestions(questions)
        # A fault that several files share is shown for the first of them, with its steps.
        faults: dict[object, DamagedInput] = {}
        for error in errors:
            faults.setdefault(_fault(error), error)
        first, *others = faults.values()
        steps = first.steps
        if any(error.steps != steps for error in others):
            steps = []
            for error in errors:  # an encoding may be the reason of the other faults
                if isinstance(error, UnknownEncoding):
                    raise error
        elif len(errors) > 1:
            steps = steps or ["repair the files, or move them out of the folder"]
        if total > len(errors):
            steps = [*steps, "leave such files out", _SKIP]
        steps = steps or ["repair or replace the file"]
        if len(errors) == 1:
            first.steps = steps
            raise first

        lines = [error.message for error in faults.values()][:_MAX_SHOWN]
        if len(lines) < len(errors):
            same = " with the same fault" if len(faults) == 1 else ""
            lines.append(f"And {len(errors) - len(lines):,} more{same}.")
        raise DamagedInput(
            f"{len(errors):,} of {total:,} files cannot be used.",
            found=" ".join(lines),
            steps=steps,
        )


_SKIP = Setting(on_error="skip")


def _joined_questions(errors: Iterable[DamagedInput]) -> dict[str, Setting]:
    """Return the question about the first file with each likeliest answer."""
    questions: dict[str, Setting] = {}
    for error in errors:
        if isinstance(error, OpenQuestions):
            for question, answer in error.questions.items():
                if answer not in questions.values():
                    questions[question] = answer
    return questions


def _fault(error: DamagedInput) -> object:
    """Return the line of code that raised an error, and its steps: equal for the same fault."""
    origin = error.__cause__ or error
    lines = [(frame.f_code, line) for frame, line in traceback.walk_tb(origin.__traceback__)]
    return *lines[-1:], str(error.steps)


def skip_reason(error: DamagedInput) -> str:
    """Return the reason why a record is skipped, in one line."""
    return f"{error.message} ({error.found})" if error.found else error.message


def format_classes_option(value: object) -> object:
    """Format a number of classes, or a list of their values, as on the command line."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, int) else value


def parse_class_values(classes: str | None) -> tuple[int | str, ...]:
    """Return the listed labels of the classes, or none if ``classes`` is a number."""
    values = [value.strip() for value in (classes or "").split(",")]
    if len(values) < 2:
        return ()
    integers = [value for value in values if re.fullmatch(r"-?\d+", value)]
    if integers and len(integers) < len(values):
        raise ValueError("classes are integers or texts, not both")
    return tuple(map(int, values)) if integers else tuple(values)


def parse_class_count(classes: str, max_classes: int) -> int:
    """Return the number of classes from a number or a list of labels; else raise ``ValueError``."""
    try:
        values = parse_class_values(classes)
        count = len(values) or int(classes)
    except ValueError:
        raise ValueError("classes is a number, or values such as 2,6,9") from None
    if not 2 <= count <= max_classes or len(set(values)) < len(values) or "" in values:
        raise ValueError(f"classes are 2 to {max_classes}, or distinct values such as 2,6,9")
    return count


def classes_as_text(classes: Sequence[int | str] | None) -> str | None:
    """Return classes as the parameter that lists them; ``None`` if it cannot."""
    if classes is None or any("," in str(label) for label in classes) or len(classes) < 2:
        return None
    if list(classes) == list(range(len(classes))):
        return str(len(classes))
    return ",".join(map(str, classes))


_MAX_SHOWN = 8  #: number of files listed by an error
_COPY_THREADS = 8


def existing_file(path: Path) -> Path:
    """Return the absolute path of the user's file; raise if it is missing."""
    path = absolute_path(path, "file")
    # Unlike Path.is_file, os.path.isfile is False if a parent folder may not be searched.
    if not os.path.isfile(path):  # noqa: PTH113
        raise absent_file_error(path, "check this path")
    return path


def files_below(
    folder: Path | None,
    key: str,
    suffixes: Collection[str],
    companion_suffixes: Collection[str] = (),
) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the files below a folder with one of ``suffixes``, and the ignored files with reasons.

    Both dictionaries have relative paths as keys. Files with ``companion_suffixes`` are included,
    hidden files are left out, and a single file may be given instead of a folder. Raises
    ``UsageError`` if the folder is not given as ``key``, does not exist, or has no file with
    ``suffixes``.
    """
    endings = ", ".join(sorted(suffixes))
    expected = f"a folder of {endings} files"
    if folder is None:
        raise UsageError(f"{key} is missing.", expected=expected, steps=Setting({key: "FOLDER"}))
    remedy = f"give {expected}"
    folder = absolute_path(folder, "folder")
    if os.path.isfile(folder):  # noqa: PTH113 -- as above
        if folder.suffix.lower() in suffixes:
            return {folder.name: folder}, {}
        raise UsageError(
            f"{folder} has the suffix {folder.suffix or 'of no format'!r}, which is not read.",
            expected=endings,
            steps="unpack an archive; convert another format to one of these; rename a text file",
        )
    if not os.path.isdir(folder):  # noqa: PTH112
        raise UsageError(f"There is no file or folder {folder}.", steps=remedy)

    existing_files = {}
    ignored_files = {}
    for parent, inner, files in os.walk(folder):
        for name in inner:
            path = Path(parent, name)
            if path.is_symlink() and not name.startswith("."):
                ignored_files[path.relative_to(folder).as_posix()] = "a link to a folder"
        # Change the list in place: os.walk descends into the folders left in it.
        inner[:] = [name for name in inner if not name.startswith(".")]
        for name in files:
            path = Path(parent, name)
            if name.startswith(".") or not path.is_file():
                continue
            key = path.relative_to(folder).as_posix()
            if path.suffix.lower() not in {*suffixes, *companion_suffixes}:
                ignored_files[key] = f"not one of {endings}"
                continue
            # Cards cannot hold a name that is not UTF-8.
            if key.encode("utf-8", "ignore").decode() != key:
                raise UsageError(
                    f"The name of {key!a} in {folder} is not UTF-8.", steps="rename it"
                )
            existing_files[key] = path
    if not any(path.suffix.lower() in suffixes for path in existing_files.values()):
        raise UsageError(
            f"{folder} has no usable file.",
            found=", ".join(sorted(ignored_files)[:_MAX_SHOWN]) or "no file",
            steps=remedy,
        )
    return dict(sorted(existing_files.items())), dict(sorted(ignored_files.items()))


def escaped_key(name: str, max_length: int) -> str:
    """Return a name as a record key: in ASCII, and shortened by a digest if it is too long."""
    key = name.encode("ascii", "backslashreplace").decode()
    if len(key) <= max_length:
        return key
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"{key[: max_length - 13]}~{digest[:12]}"


def _copy(path: Path, destination: Path) -> tuple[str, int]:
    """Copy one file; return digest and size of the copy."""
    shutil.copyfile(path, destination)
    return sha256_file(destination)
