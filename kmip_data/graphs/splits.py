"""Split rules: pure functions from positions of records (and their groups) to train, val and test."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

Parts = dict[str, list[int]]


def share_of(count: int, share: float | tuple[int, int]) -> int:
    """Return the number of records that is nearest to ``share`` of ``count``, halves up.

    Both parts keep at least one record where ``count`` allows it. ``share`` is a fraction or an
    exact ratio (numerator, denominator).
    """
    if isinstance(share, tuple):
        numerator, denominator = share
        wanted = (2 * count * numerator + denominator) // (2 * denominator)
    else:
        wanted = int(count * share + 0.5)
    return max(min(wanted, count - 1), min(1, count - 1), 0)


def shuffled_split(pool: Sequence[int], test: Sequence[int], *, val: int, seed: int) -> Parts:
    """Shuffle the pool and the test records with Python's own generator; val is the head of the pool.

    The recipe of the k-MIP code (``s3dis_on_disk.py``): ``random.seed(seed)``, ``random.shuffle`` of
    the train list, then of the test list; the first ``val`` of the train list validate. The parts are
    in the shuffled order, which is the order in which that code trains.
    """
    generator = random.Random(seed)  # noqa: S311 -- the recipe to reproduce, nothing secret
    train, tested = list(pool), list(test)
    generator.shuffle(train)
    generator.shuffle(tested)
    return {"train": train[val:], "val": train[:val], "test": tested}


def grouped_split(
    pool: Sequence[int], test: Sequence[int], groups: Mapping[int, str], *, val: int, seed: int
) -> Parts:
    """Move whole groups of the pool to val, as near to ``val`` records as whole groups can come.

    Groups are tried in an order shuffled by ``seed``; of all sums that some of them make, the nearest to
    ``val`` is taken (the smaller of two), made of the first groups that make it. Where the pool has two
    groups or more, neither train nor val is empty. Parts are in source order.

    Parameters
    ----------
    groups
        Position of a record to the name of its group (room).
    """
    sizes = Counter(groups[record] for record in pool)
    order = sorted(sizes)
    random.Random(seed).shuffle(order)  # noqa: S311
    # Subset sums: each sum with the group that made it and the sum before that group.
    made: dict[int, tuple[str, int]] = {}
    most = val + max(sizes.values(), default=0)
    for group in order:
        for total in [0, *made]:
            if total + sizes[group] <= most:
                made.setdefault(total + sizes[group], (group, total))
        if val in made:
            break
    chosen: set[str] = set()
    total = min((total for total in made if total < len(pool)), key=lambda t: (abs(t - val), t), default=0)
    while total:
        group, total = made[total]
        chosen.add(group)
    return {
        "train": [record for record in pool if groups[record] not in chosen],
        "val": [record for record in pool if groups[record] in chosen],
        "test": list(test),
    }
