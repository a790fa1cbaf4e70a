"""One check over many cases: a failure names each case that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def check_each(check: Callable[[Any], None], cases: Iterable[Any]) -> None:
    """Call ``check`` with each case; fail with the cases that raise and what they raise, if there are any."""
    tried, failed = 0, []
    for tried, case in enumerate(cases, start=1):  # noqa: B007 -- counted
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"{case!r}: {type(error).__name__}: {error}")
    assert tried, "there are no cases"
    assert not failed, f"{len(failed)} of {tried} cases fail:\n" + "\n".join(failed)
