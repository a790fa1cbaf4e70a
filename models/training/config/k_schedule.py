"""Schedules of k, the keys that a query attends to in training: ``cosine:50:5`` goes from 50 to 5."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

#: Share of the way from the first number to the last, for a share of the run.
SHAPES: dict[str, Callable[[float], float]] = {
    "cosine": lambda done: (1 - math.cos(math.pi * done)) / 2,
    "linear": lambda done: done,
}


@dataclass(frozen=True)
class KSchedule:
    """From ``first`` in the first epoch to ``last`` in the last one."""

    shape: str
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> KSchedule:
        """Read ``cosine:50:5``; raises ``ValueError`` that says what is wrong."""
        shape, *numbers = text.split(":")
        right = all(number.isdecimal() and int(number) > 0 for number in numbers)
        if shape not in SHAPES or len(numbers) != 2 or not right:
            shapes = " or ".join(SHAPES)
            msg = f"{text!r} is no schedule of k: {shapes}, then two numbers, such as cosine:50:5"
            raise ValueError(msg)
        return cls(shape, *map(int, numbers))

    def at(self, epoch: int, epochs: int) -> int:
        """K in ``epoch``, from 0, of a run of ``epochs``; a run of one epoch has the last number.

        Examples
        --------
        >>> [KSchedule.parse("cosine:50:5").at(epoch, 5) for epoch in range(5)]
        [50, 43, 28, 12, 5]
        """
        done = epoch / (epochs - 1) if epochs > 1 else 1.0
        return round(self.first + (self.last - self.first) * SHAPES[self.shape](done))
