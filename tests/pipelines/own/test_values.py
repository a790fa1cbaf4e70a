"""Columns of own tables: random columns with their truth, written as people write them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.raises import raises

from kmip_data.columns.column_roles import ColumnRoles
from kmip_data.errors import DamagedInput, Setting, joined_setting
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.own.columns.values import read_columns
from kmip_data.pipelines.own.table import Table

TEXTS = ["NA", "?", "-", "None"]  #: words that may be values of a column of texts
WORDS = [*TEXTS, "n/a", "null"]


@dataclasses.dataclass
class Written:
    """Cells of a column, and the features that they are."""

    cells: list[str | None]
    features: dict[str, list[float]]


def read(columns, *, level="node", separator=",", id_uses=None, described=None, **params):
    """Return the values by key and the findings of a table of texts."""
    findings = Findings()
    options = ReadOptions(GraphParams(**params), described=described)
    cells = {
        name: cells if isinstance(cells, pa.Array) else pa.array(cells, pa.string())
        for name, cells in columns.items()
    }
    table = Table("nodes.csv", cells, lines=2, separator=separator)
    return read_columns(table, level, id_uses or {}, options, findings), findings


def read_answered(columns, **options):
    """Read a table, with the likeliest answers to its questions; return the number of rounds, too."""
    given_params: dict[str, object] = {}
    for rounds in range(5):
        values, findings = read(columns, **options, **given_params)
        questions = findings.notices.questions
        if not questions:
            return values, findings, rounds
        answers = [Setting(given_params), *questions.values()]
        given_params = dict(joined_setting(answers).values)
        for key in ("missing", "ignore", "rounded", "label"):
            if isinstance(given_params.get(key), str):
                given_params[key] = [given_params[key]]
    raise AssertionError(f"an answered question is asked again: {questions}")


def written_number(number: float, sign: str, *, groups: bool, minus: str) -> str:
    text = f"{number:,.2f}" if groups else f"{number:.2f}"
    if sign == ",":
        text = text.translate(str.maketrans(",.", ".,"))
    return text.replace("-", minus)


@st.composite
def columns_of_a_table(draw):
    """Draw a table of some 30 rows: columns in German or English notation, and their features."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = draw(st.integers(24, 40))
    sign = draw(st.sampled_from(".,"))
    minus = draw(st.sampled_from(["-", "\u2212"]))
    table: dict[str, Written] = {}
    kinds = ["decimal", "whole", "percent", "boolean", "category", "date", "code", "empty", "name"]
    for i, kind in enumerate(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6))):
        name = f"c{i}"
        is_missing = rng.random(rows) < draw(st.sampled_from([0.0, 0.2]))
        is_missing[:4] = False
        word = draw(st.sampled_from([None, *WORDS]))
        truth: dict[str, list[float]] = {}
        if kind in {"decimal", "percent", "whole"}:
            numbers = np.round(rng.normal(0, 3_000, rows), 2)
            numbers[:2] = 1_234.25, -0.5
            if kind == "whole":
                numbers = np.array([number // 1 for number in numbers])
                cells = [f"{number:.0f}".replace("-", minus) for number in numbers]
            else:
                groups = draw(st.booleans())
                cells = [written_number(n, sign, groups=groups, minus=minus) for n in numbers]
            if kind == "percent":
                cells = [cell + draw(st.sampled_from([" %", "%"])) for cell in cells]
                name_of = f"{name} [%]"
            else:
                name_of = name
            truth[name_of] = numbers.astype(np.float32)
        elif kind == "boolean":
            false, true = draw(
                st.sampled_from([("no", "yes"), ("False", "True"), ("false", "true")])
            )
            flags = rng.random(rows) < 0.5
            cells = [true if flag else false for flag in flags]
            truth[name] = flags.astype(np.float32)
        elif kind in {"category", "code"}:
            texts = ["red", "green", "blue"] if kind == "category" else ["01067", "4711", "007"]
            chosen = rng.integers(0, 3, rows)
            chosen[:3] = 0, 1, 2
            cells = [texts[c] for c in chosen]
            for text in sorted(texts):
                truth[f"{name}={text}"] = np.array([float(c == text) for c in cells])
        elif kind == "date":
            form = draw(
                st.sampled_from(["2021-03-{:02}", "{:02}.03.2021", "2021-03-{:02} 12:30:01"])
            )
            cells = [form.format(i % 28 + 1) for i in range(rows)]
        elif kind == "name":
            cells = [f"station {i} north" for i in range(rows)]
        else:
            cells = [word] * rows
        if kind not in {"empty", "name"}:
            cells = [word if gone else cell for cell, gone in zip(cells, is_missing, strict=True)]
            is_text = kind in {"category", "code"}
            has_value = is_text and word in TEXTS and is_missing.any()
            for key in truth:
                truth[key] = np.where(is_missing, 0, truth[key])
            if has_value:  # the likeliest answer: the word is a value
                truth[f"{name}={word}"] = is_missing.astype(float)
                truth = dict(sorted(truth.items()))
            elif truth and is_missing.any() and not is_text:
                truth[f"{name} missing"] = is_missing.astype(float)
        table[name] = Written(cells, truth)
    return table, sign


@settings(max_examples=200, deadline=None)
@given(columns_of_a_table())
def test_columns_are_their_truth_or_a_question_whose_answer_gives_it(drawn):
    """Numbers in two notations, percent, booleans, codes, categories, dates, and missing words."""
    table, _ = drawn
    columns = {name: written.cells for name, written in table.items()}
    values, findings, rounds = read_answered(columns)
    expected = {key: truth for written in table.values() for key, truth in written.features.items()}
    names = findings.attributes.component_names.get("x", ())
    assert list(names) == list(expected)
    assert rounds <= 1
    for position, (name, truth) in enumerate(expected.items()):
        np.testing.assert_array_equal(values["node/x"][:, position], np.float32(truth), name)


@pytest.mark.parametrize("of_texts", [True, False])
@pytest.mark.parametrize("word", WORDS)
def test_both_answers_about_a_word_are_read(word, of_texts):
    """A word is a category or missing; null among texts, and each among numbers, is missing in any case."""
    cells = ["a", "b", word, "a", "b", "nan"] if of_texts else ["1", "2", word, "1", "2", "1"]
    columns = {"land": cells, "other": ["x", "y"] * 3}
    _, findings = read(columns)
    assert len(findings.notices.questions) == (of_texts and word in TEXTS)
    if not of_texts:
        assert findings.attributes.component_names["x"][:2] == ("land", "land missing")
        return
    for answer, expected in ((word, ("land=a", "land=b")), ("none", None)):
        _, findings = read(columns, missing=[f"land:{answer}"])
        assert not findings.notices.questions
        names = findings.attributes.component_names["x"]
        categories = tuple(name for name in names if name.startswith("land="))
        texts = sorted(["a", "b", *{word} & {*TEXTS}])
        assert categories == (expected or tuple(f"land={text}" for text in texts))


AMBIGUOUS = ["1,234", "5,678", "2,500", "1,100"]
ASKED = {
    "sign with commas": ({"c": AMBIGUOUS}, ",", "decimal", "."),
    "sign with points and semicolons": (
        {"c": [text.replace(",", ".") for text in AMBIGUOUS]}, ";", "decimal", ".",
    ),
    "thousands with semicolons": ({"c": ["1.234", "7", "2.500"]}, ";", "decimal", ","),
    "text among numbers": ({"c": ["1", "2", "k. A.", "4"]}, ",", "missing", "c:k. A."),
    "number with letters": ({"c": ["1", "2", "7bis", "4"]}, ",", "missing", "c:none"),
    "two notations": ({"c": ["1.5", "2.5", "3,5", "4.5"]}, ",", "missing", "c:none"),
    "partly percent": ({"c": ["1 %", "2 %", "3", "4 %"]}, ",", "missing", "c:none"),
    "two signs": ({"a": ["1.5", "2.5"], "b": ["0,5", "0,7"], "c": ["7,5", "2,5"]}, ";", "ignore", "a"),
    "two units": ({"c": ["800 m", "1.5 km", "20 m", "4 m"]}, ",", "missing", "c:none"),
    "sentinel": ({"c": ["1", "2", "-999", "4"]}, ",", "missing", "c:-999"),
    "sentinel and fractions": ({"c": ["1.5", "-7.5", "-99", "4"]}, ",", "missing", "c:-99"),
    "integers": ({"c": ["1700000001", "1700000002", "3", "3"]}, ",", "ignore", "c"),
    "beyond float64": ({"c": ["9007199254740993", "0", "1", "1"]}, ",", "ignore", "c"),
    "vanishing": ({"c": ["1e-46", "2", "3", "3"]}, ",", "ignore", "c"),
    "infinite": ({"c": ["1e99", "2", "3", "3"]}, ",", "ignore", "c"),
    "-1 among classes": ({"label": ["0", "1", "-1", "2"] * 3}, ",", "missing", "label:-1"),
    "-1 next to another class": ({"label": ["-1.0", "1.0"] * 3}, ",", "missing", "label:none"),
    "None among classes": ({"label": ["a", "b", "None"] * 3}, ",", "missing", "label:none"),
    "seconds": ({"c": ["1700000000.5", "1700000001.5"] * 2}, ",", "ignore", "c"),
    "- among classes": ({"label": ["a", "b", "-", "a"] * 3}, ",", "missing", "label:-"),
    "third word of a split": ({"split": ["train", "test", "Validierung"] * 3}, ",", "missing", "split:none"),
    "lists": ({"c": ["8,37,255", "12,4", "9", "1,2,3"]}, ";", "ignore", "c"),
    "y next to x": ({"x": ["1.5", "2.5", "3.5"], "y": ["0.5", "0.5", "1.5"]}, ",", "label", "none"),
    "two targets": ({"label": ["a", "b"] * 3, "class": ["c", "d"] * 3}, ",", "label", "label"),
}  # fmt: skip


@pytest.mark.parametrize("case", ASKED)
def test_what_has_two_readings_is_one_question_that_its_answer_closes(case):
    columns, separator, key, answer = ASKED[case]
    _, findings = read(columns, separator=separator)
    (setting,) = findings.notices.questions.values()
    assert setting.values == {key: answer}
    value = answer if key == "decimal" else [answer]
    _, findings = read(columns, separator=separator, **{key: value})
    assert not findings.notices.questions


@pytest.mark.parametrize("unit", ["°C", " m/s", " m", "km", " %", ""])
def test_numbers_with_one_unit_are_numbers(unit):
    _, findings = read({"c": [f"{number}{unit}" for number in ("1", "2.5", "1", "4")]})
    shown = f"c [{unit.strip()}]" if unit else "c"
    assert findings.attributes.component_names["x"] == (shown,)
    _, findings = read({"c": ["5a", "7a", "5a", "7a"]})  # names of classes
    assert findings.attributes.component_names["x"] == ("c=5a", "c=7a")


def test_another_column_decides_the_decimal_sign():
    for other, thousands in (("0,5", 1.234), ("0.5", 1_234)):
        values, findings = read({"c": AMBIGUOUS, "d": [other] * 4}, separator=";")
        assert not findings.notices.questions
        assert values["node/x"][0, 0] == np.float32(thousands)
        assert findings.notices.decimal_signs == {other[1]}


IGNORED = {
    "lists or objects": pa.array([[1], [2, 3], [], [4]]),
    "dates or times, such as 2021-01-04": ["2021-01-04", ".", "2021-01-02", "2021-01-03"],
    "dates or times, such as 2021-01-02": ["2021-01-02", "NA", "2021-01-02", "2021-01-03"],
    "names or free text, such as '[1, 2]'": ["[1, 2]"] * 4,
    "names or free text, such as 'ann'": ["ann", "bob", "cem", "dan"],
    "ids or names of the rows": ["14", "12", "13", "11"],
    "empty": [None, "NA", None, "NA"],
}


@pytest.mark.parametrize("why", IGNORED)
def test_columns_that_are_no_features_are_ignored_with_a_reason(why):
    _, findings = read({"row_id": IGNORED[why]})
    assert findings.notices.ignored == {"row_id": why}
    assert [role.why for role in findings.roles] == [why]


NO_TARGETS = {
    "constant": ("node", ["a"] * 40, "one value"),
    "empty": ("node", ["NA"] * 40, "empty"),
    "names of nodes": ("node", [f"n{i}" for i in range(40)], "names, a different"),
    "ids of nodes": ("node", [str(i) for i in range(40)], "names, a different"),
    "names of graphs": ("graph", [f"g{i}" for i in range(40)], "names of the graphs"),
}


@pytest.mark.parametrize("case", NO_TARGETS)
def test_a_target_by_its_name_has_classes_or_numbers(case):
    level, cells, why = NO_TARGETS[case]
    values, findings = read({"label": cells}, level=level)
    assert f"{level}/y" not in values
    assert findings.notices.ignored["label"].startswith(why)
    if case != "empty":
        values, _ = read({"label": cells}, level=level, label=["label"])
        assert len(values[f"{level}/y"]) == 40


def test_targets_keep_their_texts():
    for cells in (["True", "False", "True"], ["yes", "no", None], ["01067", "007", "01067"]):
        values, _ = read({"label": cells})
        assert values["node/y"].tolist() == [cell or "" for cell in cells]
    typed, _ = read({"label": pa.array([True, False, None])})
    assert typed["node/y"].tolist() == ["True", "False", ""]
    numbers, _ = read({"label": ["1.5", "2.5", "NA"]})
    np.testing.assert_array_equal(numbers["node/y"], [1.5, 2.5, np.nan])
    classes, _ = read({"label": ["-1", "1", "-1"]}, missing=["label:none"])
    assert classes["node/y"].tolist() == ["-1", "1", "-1"]


def test_types_of_a_file_give_what_texts_give():
    typed = {
        "a": pa.array([1, 2, None]),
        "b": pa.array([0.5, None, 2.5]),
        "c": pa.array([True, False, True]),
        "d": pa.array(["red", "blue", "red"]).dictionary_encode(),
    }
    texts = {
        "a": ["1", "2", None],
        "b": ["0.5", None, "2.5"],
        "c": ["True", "False", "True"],
        "d": ["red", "blue", "red"],
    }
    first, of_types = read(typed)
    second, of_texts = read(texts)
    np.testing.assert_array_equal(first["node/x"], second["node/x"])
    assert of_types.roles == of_texts.roles


def test_parts_groups_and_masks_have_keys():
    columns = {
        "Teil 1": ["train", "val", "test", None],
        "patient": ["p", "q", "p", None],
        "train_mask": ["1", "0", "0", "0"],
        "val_mask": ["False", "True", "False", "False"],
    }
    values, findings = read(columns, group="patient")
    assert values["node/Teil_1"].tolist() == [0, 1, 2, 255]
    assert values["node/group"].tolist() == [0, 1, 0, -1]
    assert findings.attributes.masks.tolist() == [0, 1, 255, 255]
    with raises(DamagedInput, naming=["nodes.csv, line 4", "dev2, more"]):
        read({"split": ["train", "val", "dev2", "more"]})


def describe(columns, **params):
    _, findings = read(columns, **params)
    assert not findings.notices.questions
    y = findings.attributes.component_names.get("y")
    return ColumnRoles(classes=("a", "b") if y else (), columns=tuple(findings.roles))


def test_a_description_is_followed_and_checked():
    columns = {
        "age": ["1", "2", "3", "1"],
        "full": ["yes", "no", "yes", "no"],
        "land": ["red", "blue", "red", "red"],
        "share": ["1 %", "2 %", "3 %", "4 %"],
        "label": ["a", "b", "a", "b"],
    }
    described = describe(columns)
    first, _ = read(columns)
    again, findings = read(columns, described=described, label=["label"])
    np.testing.assert_array_equal(again["node/x"], first["node/x"])
    assert tuple(findings.roles) == described.columns
    for name, cell, named in (
        ("age", "old", "old"),
        ("age", None, "age"),
        ("full", "2", "2"),
        ("land", "green", "green; blue, red"),
        ("label", "c", "c; a, b"),
        ("share", "5", "5; %"),
    ):
        changed = columns | {name: [*columns[name][:2], cell, *columns[name][3:]]}
        with raises(DamagedInput, naming=["nodes.csv, line 4", name, *named.split("; ")]):
            read(changed, described=described, label=["label"])
    as_category = described.with_use("age", "category")
    _, findings = read(columns, described=as_category, label=["label"])
    assert {"age=1", "age=2", "age=3"} <= {*findings.attributes.component_names["x"]}
