"""Options that several commands share."""

import pytest

from kmip_data.cli.shared.options import number_list
from kmip_data.errors import UsageError


def test_lists_of_numbers_are_read_in_the_order_given():
    lists = {"0": [0], "0..3": [0, 1, 2, 3], "5,0..1,5": [5, 0, 1, 5], "15, 10": [15, 10]}
    assert {text: number_list("--seeds", text) for text in lists} == lists
    for text in ("", "x", "1..", "..1", "3..1", "-1", "1,,2", "0..10000", "\u0661"):
        with pytest.raises(UsageError, match="--seeds is not a list of numbers"):
            number_list("--seeds", text)
