"""Status lines and progress bars on stderr: tqdm on a terminal, else a line every ten seconds."""

from __future__ import annotations

import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar, NoReturn, Self, TextIO

from kmip_data.text import one_line

if TYPE_CHECKING:
    from tqdm import tqdm

#: Bar with elapsed and remaining time; for slow work, a rate would be less useful.
BAR_FORMAT = "{desc}{bar}| {n_fmt}/{total_fmt}{unit} [{elapsed}, {remaining} left{postfix}]"
INTERVAL_SECONDS = 10.0  #: time between progress lines if stderr is not a terminal


def print_status(text: str, *, quiet: bool = False) -> None:
    """Print a line on stderr, above any progress bars, unless ``quiet``."""
    if quiet:
        return
    bars_hidden: AbstractContextManager[object] = nullcontext()
    if Progress.open_bars:
        from tqdm import tqdm

        bars_hidden = tqdm.external_write_mode(file=_unfiltered_stderr())
    with bars_hidden:
        print(one_line(text), file=sys.stderr, flush=True)  # noqa: T201


def _unfiltered_stderr() -> TextIO:
    """Return stderr without the filter of control characters, which bars are drawn with."""
    return getattr(sys.stderr, "unfiltered", sys.stderr)


class Progress:
    """Progress display with a title, such as ``build s3dis``, and the total if known.

    The unit ``B`` scales to kB, MB …; ``initial`` is the work done by an earlier run.
    """

    open_bars: ClassVar[int] = 0  #: number of bars on the terminal

    def __init__(
        self,
        description: str,
        total: int | None,
        *,
        unit: str = "it",
        initial: int = 0,
        quiet: bool = False,
    ) -> None:
        self.description = one_line(description)
        self.total = total
        self.unit = unit
        self.done = initial
        self.quiet = quiet
        self.note = ""  #: added to each line: what it waits for, or its latest result
        self._bar: tqdm[NoReturn] | None = None
        self._last_line = time.monotonic()
        if not quiet and sys.stderr.isatty():
            from tqdm import tqdm

            Progress.open_bars += 1
            is_bytes = unit == "B"
            self._bar = tqdm(
                total=total,
                desc=self.description,
                initial=initial,
                file=_unfiltered_stderr(),
                colour=None if os.environ.get("NO_COLOR") else "green",
                dynamic_ncols=True,
                bar_format=None if is_bytes or total is None else BAR_FORMAT,
                unit=unit if is_bytes else f" {unit}",
                unit_scale=is_bytes,
                leave=None,  # remove a nested bar at its end
            )

    def update(self, amount: int) -> None:
        """Add ``amount`` to the work done."""
        self.done += amount
        if self._bar is not None:
            self._bar.set_postfix_str(self.note, refresh=False)
            self._bar.update(amount)
        elif not self.quiet and time.monotonic() - self._last_line >= INTERVAL_SECONDS:
            self._last_line = time.monotonic()
            done = str(self.done)
            if self.total is not None:
                done += f" of {self.total}"
            note = f", {self.note}" if self.note else ""
            print_status(f"{self.description}: {done} {self.unit}{note}")

    def print_line(self, text: str) -> None:
        """Print a line above the bar, unless quiet; it counts as a progress line."""
        self._last_line = time.monotonic()
        print_status(text, quiet=self.quiet)

    def close(self) -> None:
        """Finish the bar in its current state."""
        if self._bar is not None:
            self._bar.set_postfix_str(self.note)
            self._bar.close()
            self._bar = None
            Progress.open_bars -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
