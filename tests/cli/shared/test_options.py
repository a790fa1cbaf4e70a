"""Options that several commands share."""

import pytest

from kmip_data.cli.shared.options import number_list
from kmip_data.errors import UsageError


@pytest.mark.parametrize(("text", "numbers"), [("0", [0]), ("0..2", [0, 1, 2]), ("5,0..1,5", [5, 0, 1, 5])])
def test_number_list(text, numbers):
    assert number_list("--seeds", text) == numbers


@pytest.mark.parametrize("text", ["", "x", "1..", "..1", "3..1", "-1", "1,,2", "0..10000"])
def test_number_list_of_something_else(text):
    with pytest.raises(UsageError):
        number_list("--seeds", text)
