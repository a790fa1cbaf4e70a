"""Bounds of the weight, which only fall (``tools/weight.py``), and words of errors that nothing reads."""

import ast
import re

import pytest

from tools import structure, weight

SUMS = dict.fromkeys(weight.SUMS, 1_000)


def test_a_sum_above_its_bound_and_a_bound_that_rose_are_named(monkeypatch):
    monkeypatch.setattr(weight, "earlier_bounds", lambda: [("abc", {"code": 900, "tests": 2_000})])
    bounds = SUMS | {"tests": 999}
    lines = list(weight.exceeded(SUMS, bounds))
    assert [line.split(":")[0] for line in lines] == ["tests", "code"]
    assert "1,000, at most 999" in lines[0]
    assert "rose from 900 (abc) to 1,000" in lines[1]


def test_bounds_leave_three_thousandths_and_never_rise():
    bounds = weight.lower(SUMS, SUMS | {"code": 1_002, "docs": 2_000})
    assert bounds["code"] == 1_002
    assert bounds["docs"] == 1_003
    assert weight.lower(SUMS, {})["docs"] == 1_003


@pytest.mark.parametrize(
    ("source", "tokens"),
    [
        ("x = 1\n", 3),
        ('"""A module."""\n\nx = 1  # a comment\n', 3),
        ('def f():\n    """A function."""\n    return "a"\n', 7),
        ('x = (\n    "no docstring"\n)\n', 5),
        ("x = f'{a + 1} {f\"{b}\"}'\n", 3),
        (f"x = '{'a' * 298}'\n", 3 + 300 // 6),
    ],
)
def test_tokens_are_counted_without_layout_comments_and_docstrings(source, tokens):
    assert weight.count_tokens(source) == tokens
    # Neither the names nor line breaks matter.
    padded = source.replace("x", "long_name").replace("\n", "\n\n")
    assert weight.count_tokens(padded) == tokens


#: Handler of an error, and True if it reads words of an error of the package.
HANDLERS = {
    "except UsageError as e: 'no' in e.message": True,
    "except UsageError as e: re.sub('a', '', (e.found or ''))": True,
    "except (OSError, DamagedInput) as e: str(e).split()": True,
    "except DamagedInput as error: command in error.steps": True,
    "except OSError as e: 'memory' in str(e)": False,
    "except UsageError as e: e.found is None and isinstance(e, DamagedInput)": False,
    "except OSError as e: pass\n for error in found: error.message.startswith('a')": True,
    "except OSError as e: pass\n refusal = refuse()\n refusal.left.removeprefix('a')": True,
    "except OSError as e: card.expected.splits": False,
    "except OSError as e: 'a' in card.expected": False,
}


@pytest.mark.parametrize("handler", HANDLERS)
def test_code_that_reads_the_words_of_an_error_is_named(handler):
    tree = ast.parse(f"def f():\n try: pass\n {handler}")
    assert any(structure.words_of_errors(tree)) == HANDLERS[handler]


#: Call that expects an error by its words.
MATCHES_WORDS = re.compile(r"\braises\([^:]*?match=[rf]*[\"']")


def test_no_test_repeats_the_words_of_an_error():
    """``tests/messages.txt`` has them; ``support/raises.py`` compares values and steps."""
    tests = structure.ROOT / "tests"
    files = [path for path in tests.rglob("*.py") if MATCHES_WORDS.search(path.read_text("utf-8"))]
    assert not files
