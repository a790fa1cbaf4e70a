"""Small files are read only after their size and kind are known, wherever they come from."""

from __future__ import annotations

import os

import pytest
from pydantic import BaseModel, ValidationError

from kmip_data.errors import DamagedInput
from kmip_data.files.reading import MAX_BYTES, first_fault, read_json, read_small
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.run.folder import RESULT_NAME, read_result
from kmip_data.pipelines.datasets.openstreetmap.tensors import read_vocabulary


def large(path, size=MAX_BYTES + 1):
    path.touch()
    os.truncate(path, size)
    return path


def test_what_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert read_small(path) == read_small(path, 3) == b"abc"
    for most, text in ((2, "3 bytes, which is more than the 2"), (0, "than the 0")):
        with pytest.raises(OSError, match=text):
            read_small(path, most)
    with pytest.raises(FileNotFoundError):
        read_small(tmp_path / "none")


def test_json_is_read_or_a_value_error(tmp_path):
    path = tmp_path / "file.json"
    for text, value in (
        ('{"a": [1, 2.5]}', {"a": [1, 2.5]}),
        ("\ufeff[]", []),
        ('"\\ud83d\\ude00"', "😀"),
    ):
        path.write_text(text, "utf-8")
        assert read_json(path) == value
    for data in (
        b"\xff\xfe{}",
        b'{"a": ',
        b"[" * 200_000,
        b"1" * 5_000,
        b'{"a": "\\uD800"}',
        b'"\xed\xa0\x80"',
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError):
            read_json(path)
    with pytest.raises(OSError, match=r"more than the 16,777,216 that are read"):
        read_json(large(path))


def test_other_things_than_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            read_small(path)


def test_large_files_of_others(tmp_path):
    path = large(tmp_path / RESULT_NAME)
    for read in (
        lambda: read_config(path),
        lambda: read_result(tmp_path),
        lambda: read_vocabulary(path),
    ):
        with pytest.raises(DamagedInput) as caught:
            read()
        assert "more than the 16,777,216 that are read" in str(caught.value)


def test_the_first_fault_of_many():
    class Model(BaseModel):
        numbers: list[int]

    def fault(*values):
        with pytest.raises(ValidationError) as caught:
            Model.model_validate({"numbers": list(values)})
        return first_fault(caught.value)

    assert fault(1, "a", "b").startswith("numbers.1: Input should be a valid integer")
    assert fault(*"a" * 2_000) == "2,000 faults"
    assert first_fault(ValueError("one\ntwo")) == "one"
    assert first_fault(KeyError()) == "KeyError"
