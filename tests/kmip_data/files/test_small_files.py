"""Small files are read only after their size and kind are known, wherever they come from."""

from __future__ import annotations

import json
import operator
import os
import re
import tomllib

import numpy as np
import pytest
import tomli_w
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from support.raises import raises

from kmip_data.columns.column_roles import read_column_roles
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.small_files import (
    MAX_BYTES,
    MAX_JSON_VALUES,
    first_problem,
    parse_toml,
    read_json,
    read_small_file,
)
from kmip_data.models.sweeps.plans import read_sweep_plan
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.run.result import read_result
from kmip_data.models.training.run.run_folder import RESULT_NAME
from kmip_data.pipelines.datasets.graphland import read_column_names


def test_files_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert read_small_file(path) == read_small_file(path, 3) == b"abc"
    for most in (0, 2):
        with pytest.raises(OSError):
            read_small_file(path, most)
    with pytest.raises(FileNotFoundError):
        read_small_file(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        with pytest.raises(OSError):
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
        b"[" + b"[]," * (MAX_JSON_VALUES // 2) + b"[]]",
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError):
            read_json(path)
    path = tmp_path / RESULT_NAME
    path.touch()
    os.truncate(path, MAX_BYTES + 1)
    for read, limit in (
        (read_json, MAX_BYTES),
        (lambda path: read_result(path.parent), MAX_BYTES),
        (read_config, 2**20),
    ):
        with raises((OSError, DamagedInput), naming=limit):
            read(path)


TOML_BOMBS = {
    "dotted key": ".".join("a" * 20_000) + " = 1",
    "dotted header": f"[{'.'.join('a' * 20_000)}]",
    "quoted key": " . ".join(['"a"'] * 20_000) + " = 1",
    "arrays": "a = " + "[" * 100_000,
    "arrays that end": "a = " + "[" * 100_000 + "]" * 100_000,
    "arrays on lines": "a = " + "[\n" * 100_000,
    "inline tables": "a = " + "{a = " * 50_000,
    "after strings": "a = " + "['''[''', '\"', \"\\\"\", # ]\n" * 5_000,
    "after a string of quotes": 'a = [""" \\""" """"", ' * 5_000,
}


@pytest.mark.parametrize("text", TOML_BOMBS.values(), ids=TOML_BOMBS)
def test_nested_toml_is_refused_before_it_is_parsed(text, tmp_path, monkeypatch):
    def loads(_text):
        raise AssertionError("parsed")

    monkeypatch.setattr(tomllib, "loads", loads)
    path = tmp_path / "config.toml"
    path.write_text(text)
    for read in (read_config, read_column_roles, lambda path: read_sweep_plan(str(path))):
        with pytest.raises((DamagedInput, UsageError)):
            read(path)


@pytest.mark.parametrize(
    "text", ["a: " + "[" * 60_000, "{a: " * 10_000, "- " * 30_000, "? " * 30_000, "&a [*a]"]
)
def test_nested_yaml_is_refused_at_its_first_events(text, tmp_path, monkeypatch):
    def load(_text, *_loader):
        raise AssertionError("parsed")

    monkeypatch.setattr(yaml, "load", load)
    path = tmp_path / "info.yaml"
    path.write_text(text)
    with pytest.raises(DamagedInput):
        read_column_names(path)


@settings(max_examples=30, deadline=None)
@given(
    st.recursive(
        st.integers() | st.booleans() | st.text() | st.floats(allow_nan=False),
        lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    )
)
def test_toml_is_parsed_as_by_python(value):
    """Brackets, dots and quotes within strings count as nothing."""
    text = tomli_w.dumps({"key": [value, "[" * 99 + "." * 99, '\'"""{\\'], "a.b": {"c": value}})
    assert parse_toml(text) == tomllib.loads(text)


def test_strings_of_any_kind_hide_brackets():
    for text in (
        'a = """\n[[[ "" \\""" ... """"" # [',
        "a = '''[[ '' \\ [['''''",
        r'a = "\"[[[\\" # " [[[',
        "a = '[[[\\' # ' [[[",
    ):
        repeated = "".join(f"[t{number}]\n{text}\n" for number in range(40))
        assert parse_toml(repeated) == tomllib.loads(repeated)


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


def nested_list(depth):
    return json.loads("[" * depth + "]" * depth)


#: Operations on untrusted values, each of which fails with a message of Python's or numpy's own.
FAILING = {
    "zip": lambda: list(zip([1], [], strict=True)),
    "zip, longer": lambda: list(zip([], [1], strict=True)),
    "recursion": lambda: nested_list(100_000),
    "unpack": lambda: (lambda pair: [first for first, second in pair])([(1,)]),
    "unpack more": lambda: (lambda pair: [first for first, second in pair])([(1, 2, 3)]),
    "no attribute": lambda: operator.attrgetter("keys")(None),
    "no index": lambda: None[0],
    "no number": lambda: operator.add(1, "a"),
    "list index": lambda: operator.getitem([1], 3),
    "array index": lambda: np.zeros(2)[5],
    "text index": lambda: operator.getitem([1], "a"),
    "unhashable": lambda: {[]: 1},
    "order": lambda: sorted([1, "a"]),
    "large": lambda: np.int64(2**70),
    "large byte": lambda: np.array([300]).astype(np.int64).item().to_bytes(1, "big"),
    "long text": lambda: int("9" * 5_000),
    "infinite": lambda: int(float("inf")),
    "text as integer": lambda: int("seven"),
    "text as number": lambda: float("seven"),
    "bytes": lambda: str(b"\xff", "utf-8"),
    "key": lambda: {}["edges"],
}
PYTHON_WORDS = re.compile(
    r"zip\(|recursion|NoneType|object|attribute|convert|out of|unpack|codec|base 10|\bint\b|\bfloat\b"
    r"|unhashable|indices|operand|instances|subscript|Error"
)


@pytest.mark.parametrize("name", FAILING)
def test_no_words_of_python_describe_a_file(name):
    with pytest.raises(Exception) as error:
        FAILING[name]()
    words = first_problem(error.value)
    assert not PYTHON_WORDS.search(words), words
    assert words


@pytest.mark.parametrize("words", ["line 3 has two signs", "it is no list", "1 of 2 objects"])
def test_words_about_a_file_are_kept(words):
    assert first_problem(ValueError(words)) == words
