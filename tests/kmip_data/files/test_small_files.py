"""Small files are read only after their size and kind are known, wherever they come from."""

from __future__ import annotations

import os

import pytest
from pydantic import BaseModel, ValidationError

from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import MAX_BYTES, first_problem, read_json, read_small_file
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.run.result import read_result
from kmip_data.models.training.run.run_folder import RESULT_NAME


def test_files_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert read_small_file(path) == read_small_file(path, 3) == b"abc"
    for most in (0, 2):
        with pytest.raises(OSError, match="3 bytes"):
            read_small_file(path, most)
    with pytest.raises(FileNotFoundError):
        read_small_file(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        with pytest.raises(OSError, match="regular"):
            read_small_file(other)


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
    path = tmp_path / RESULT_NAME
    path.touch()
    os.truncate(path, MAX_BYTES + 1)
    for read in (read_json, read_config, lambda path: read_result(path.parent)):
        with pytest.raises((OSError, DamagedInput), match="16,777,216"):
            read(path)


def test_the_first_of_several_faults_is_reported():
    class Model(BaseModel, extra="forbid"):
        numbers: list[int]

    def problem(*values):
        with pytest.raises(ValidationError) as caught:
            Model.model_validate({"numbers": list(values)})
        return first_problem(caught.value)

    assert problem(1, "a", "b").startswith("numbers.1: must be a whole number")
    assert problem(*"a" * 2_000) == "2,000 problems"
    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"number": [1]})
    assert first_problem(caught.value) == "number: Extra inputs are not permitted"
    assert first_problem(ValueError("one\ntwo")) == "one"
    assert first_problem(KeyError()) == "KeyError"
