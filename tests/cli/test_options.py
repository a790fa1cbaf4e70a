"""Options that several commands share."""

import pytest

from kmip_data.cli.shared.options import number_list
from kmip_data.errors import UsageError


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", [0]), ("0..3", [0, 1, 2, 3]), ("5,0..1,5", [5, 0, 1, 5]), ("15, 10", [15, 10])],
)
def test_lists_of_numbers_are_read_in_the_order_given(text, numbers):
    assert number_list("--seeds", text) == numbers


@pytest.mark.parametrize("text", ["", "x", "1..", "..1", "3..1", "-1", "1,,2", "0..10000", "\u0661"])
def test_anything_else_is_refused_with_the_name_of_the_option(text):
    with pytest.raises(UsageError, match="--seeds is not a list of numbers"):
        number_list("--seeds", text)
