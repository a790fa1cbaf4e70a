"""Summary at the end of a run: injected faults by kind, and tests that did not run, by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

TORTURE = "torture"  #: the name under which a report carries ``(kind, number)``
LEFT_OUT = "left_out"  #: the name under which an xdist worker hands over what it deselected
CASES = "further tests and cases of a file"
CORE = 2  #: tests of a file that the core has
#: Tests that a target leaves out, and the target that has them.
TARGETS = {"torture": "make torture", "slow": "make test", CASES: "make test"}


@pytest.fixture
def torture_count(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Count injected faults: ``torture_count("kills")``, ``torture_count("bit flips", 300)``.

    The sums by kind are printed at the end of the run, over all processes of pytest-xdist.
    """

    def count(kind: str, number: int = 1) -> None:
        record_property(TORTURE, (kind, int(number)))

    return count


class Tallies:
    """Collects counts from the reports of all processes, and prints them."""

    def __init__(self, markers: str) -> None:
        self.markers = markers  # the expression of ``-m``
        self.faults: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()

    @pytest.hookimpl(trylast=True)  # of what markers have left
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """With ``--core`` keep the first case of the first tests of each file."""
        if config.getoption("--core"):
            first: dict[str, pytest.Item] = {}
            tests_of: Counter[str] = Counter()
            for item in items:
                test = item.nodeid.partition("[")[0]
                file = test.partition("::")[0]
                if test not in first and tests_of[file] < CORE:
                    first[test] = item
                    tests_of[file] += 1
            kept = set(first.values())
            further = [item for item in items if item not in kept]
            self.left_out[CASES] = len(further)
            items[:] = first.values()
            config.hook.pytest_deselected(items=further)

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        """Count what ``-m`` leaves out in this process, by the marker that says where it runs."""
        asked = [mark for mark in TARGETS if f"not {mark}" in self.markers]
        for item in items:
            self.left_out.update(mark for mark in asked if item.get_closest_marker(mark))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the counts of a worker to the process that prints."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[LEFT_OUT] = dict(self.left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the counts of a worker; every worker collects, and leaves out, the same tests."""
        self.left_out |= Counter(getattr(node, "workeroutput", {}).get(LEFT_OUT, {}))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count modules that are skipped whole."""
        if report.skipped:
            self._skip(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what one test injected, once, and why it was skipped."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skip(report)
        if report.when == "teardown":
            for name, value in report.user_properties:
                if name == TORTURE:
                    kind, number = value
                    self.faults[kind] += number

    def _skip(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        self.skipped[reason.removeprefix("Skipped: ")] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print one line for each kind of fault, each reason, each target that was left out."""
        if self.faults:
            terminalreporter.section("faults injected")
            for kind, number in sorted(self.faults.items()):
                terminalreporter.write_line(f"{number:>9,}  {kind}")
        lines = [f"{number:>9,}  skipped: {reason}" for reason, number in self.skipped.most_common()]
        for mark, number in self.left_out.most_common():
            lines.append(f"{number:>9,}  left out: {mark} (`{TARGETS[mark]}` has them)")
        if lines:
            terminalreporter.section("not run")
            for line in lines:
                terminalreporter.write_line(line)
