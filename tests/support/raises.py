"""Expected errors: their class, values of the test's own input that they name, and their steps.

Words of messages are compared once, in ``tests/messages.txt``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

import pytest

from kmip_data.errors import KmipDataError, Step, as_steps, format_error
from kmip_data.text import values_of


@contextlib.contextmanager
def raises(
    error: type[BaseException] | tuple[type[BaseException], ...],
    *,
    naming: object = (),
    steps: Step | Sequence[Step] = (),
) -> Iterator[pytest.ExceptionInfo]:
    """Expect an error whose message, or what it found, names a value or each of several.

    A value is a name, a path or a number of the test's input; ``7`` is not in ``17``, and ``7999`` is
    in ``7,999 bytes``. ``steps`` are all steps of the error.
    """
    with pytest.raises(error) as caught:
        yield caught
    text = str(caught.value)
    if isinstance(caught.value, KmipDataError):
        text = format_error(caught.value.message, caught.value.labelled_lines([]))
        assert not steps or caught.value.steps == as_steps(steps), caught.value.steps
    for value in values_of(naming):
        digits = re.sub(r"(?<=\d),(?=\d{3})", "", text) if isinstance(value, int) else text
        assert re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", digits), f"{value} not in {text}"
