"""The core of the tests, and injected faults by kind, summed over all processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

TORTURE = "torture"  #: the name under which a report carries ``(kind, number)``
CORE = 2  #: tests of a file that the core has


@pytest.fixture
def torture_count(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Count injected faults: ``torture_count("kills")``, ``torture_count("bit flips", 300)``.

    The sums by kind are printed at the end of the run, over all processes of pytest-xdist.
    """

    def count(kind: str, number: int = 1) -> None:
        record_property(TORTURE, (kind, int(number)))

    return count


class Tallies:
    """Keep the core of the tests, and sum up the faults of all processes."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()

    @pytest.hookimpl(trylast=True)  # of what markers have left
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """With ``--core`` keep the first case of the first tests of each file."""
        if not config.getoption("--core"):
            return
        first: dict[str, pytest.Item] = {}
        tests_of: Counter[str] = Counter()
        for item in items:
            test = item.nodeid.partition("[")[0]
            file = test.partition("::")[0]
            if test not in first and tests_of[file] < CORE:
                first[test] = item
                tests_of[file] += 1
        kept = set(first.values())
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = first.values()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what one test injected, once."""
        if report.when == "teardown":
            for name, value in report.user_properties:
                if name == TORTURE:
                    kind, number = value
                    self.faults[kind] += number

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print one line for each kind of fault."""
        if self.faults:
            terminalreporter.section("faults injected")
            for kind, number in sorted(self.faults.items()):
                terminalreporter.write_line(f"{number:>9,}  {kind}")
