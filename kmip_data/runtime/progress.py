"""Progress: tqdm on a terminal, one line every ten seconds elsewhere, nothing when quiet."""

from __future__ import annotations

import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar, NoReturn, Self, TextIO

from kmip_data.text import replace_controls

if TYPE_CHECKING:
    from tqdm import tqdm

#: Format of a bar: work done, time taken and time left. A rate would be less useful for slow work.
BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt}{unit} [{elapsed}, {remaining} left]"
INTERVAL = 10.0  #: seconds between lines where stderr is not a terminal


def print_status(text: str, *, quiet: bool = False) -> None:
    """Print a line on stderr, unless ``quiet``."""
    if quiet:
        return
    above_bars: AbstractContextManager[object] = nullcontext()
    if Progress.bars:
        from tqdm import tqdm

        above_bars = tqdm.external_write_mode(file=_unfiltered_stderr())
    with above_bars:
        print(replace_controls(text), file=sys.stderr, flush=True)  # noqa: T201


def _unfiltered_stderr() -> TextIO:
    """Return stderr as it is below a filter of control characters: a bar is drawn with them."""
    return getattr(sys.stderr, "unfiltered", sys.stderr)


class Progress:
    """Show progress on stderr: a title, such as ``build s3dis``, and the total if known.

    ``unit`` ``B`` scales to kB, MB …; ``initial`` is the work already done by an earlier run.
    """

    bars: ClassVar[int] = 0  #: on the terminal

    def __init__(
        self,
        description: str,
        total: int | None,
        *,
        unit: str = "it",
        initial: int = 0,
        quiet: bool = False,
    ) -> None:
        self.description = replace_controls(description)
        self.total = total
        self.unit = unit
        self.done = initial
        self.quiet = quiet
        self._bar: tqdm[NoReturn] | None = None
        self._last = time.monotonic()
        if not quiet and sys.stderr.isatty():
            from tqdm import tqdm

            Progress.bars += 1
            is_bytes = unit == "B"
            self._bar = tqdm(
                total=total,
                desc=self.description,
                initial=initial,
                file=_unfiltered_stderr(),
                colour=None if os.environ.get("NO_COLOR") else "green",
                dynamic_ncols=True,
                bar_format=None if is_bytes or total is None else BAR,
                unit=unit if is_bytes else f" {unit}",
                unit_scale=is_bytes,
                leave=None,  # a bar below another one goes at its end
            )

    def update(self, amount: int) -> None:
        """Add ``amount`` of work done."""
        self.done += amount
        if self._bar is not None:
            self._bar.update(amount)
        elif not self.quiet and time.monotonic() - self._last >= INTERVAL:
            self._last = time.monotonic()
            done = str(self.done)
            if self.total is not None:
                done += f" of {self.total}"
            print_status(f"{self.description}: {done} {self.unit}")

    def print_line(self, text: str) -> None:
        """Print a line above the bar, unless quiet; it is progress, too."""
        self._last = time.monotonic()
        print_status(text, quiet=self.quiet)

    def close(self) -> None:
        """Leave the bar unchanged."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
            Progress.bars -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
