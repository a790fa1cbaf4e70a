"""Split rules: pure functions from positions of records (and their groups) to train, val and test."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from kmip_data.arrays import I64, Array

Parts = dict[str, list[int]]


def count_of_share(count: int, share: float | Fraction) -> int:
    """Return the number of records that is nearest to ``share`` of ``count``, halves up.

    Both parts keep at least one record where ``count`` allows it.
    """
    wanted = int(count * share + Fraction(1, 2))
    return max(min(wanted, count - 1), min(1, count - 1), 0)


def shuffled_split(
    pool: Sequence[int],
    test: Sequence[int],
    *,
    val: int,
    seed: int,
) -> Parts:
    """Shuffle the pool and the test records with Python's own generator.

    Val is the head of the pool.

    The rule of the k-MIP code (``s3dis_on_disk.py``): ``random.seed(seed)``, ``random.shuffle``
    of the train list, then of the test list; the first ``val`` of the train list validate.
    """
    generator = random.Random(seed)  # noqa: S311 -- the rule to reproduce, nothing secret
    train = list(pool)
    tested = list(test)
    generator.shuffle(train)
    generator.shuffle(tested)
    return {"train": train[val:], "val": train[:val], "test": tested}


def grouped_split(
    pool: Sequence[int],
    test: Sequence[int],
    groups: Mapping[int, str],
    *,
    val: int,
    seed: int,
) -> Parts:
    """Move whole groups of the pool to val, as near to ``val`` records as whole groups can come.

    ``groups`` names the group (room) of each record. They are tried in an order shuffled by
    ``seed``. Of all sums of group sizes, the nearest to ``val`` is taken (the smaller of two equally
    near), with the first groups that give it. With at least two groups, neither train nor val is
    empty. Parts are in source order.
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

    # The nearest sum, the smaller of two; then back through the groups that made it.
    possible = [total for total in made if total < len(pool)]
    total = min(possible, key=lambda total: (abs(total - val), total), default=0)
    chosen = set()
    while total:
        group, total = made[total]
        chosen.add(group)
    return {
        "train": [record for record in pool if groups[record] not in chosen],
        "val": [record for record in pool if groups[record] in chosen],
        "test": list(test),
    }


_DRAWS = 2  #: LRGB draws twice from one generator and keeps the second


def meta_labels(classes: I64, background: int | None = None) -> I64:
    """Return the class that is most frequent in each graph, the smaller of two, (G,).

    ``classes`` (G, C) counts each class in each graph; the class ``background`` is used only
    without any other (0 in LRGB's rule).
    """
    if background is not None:
        classes = classes.copy()
        others = np.delete(classes, background, axis=1)
        classes[:, background] = np.where(others.any(axis=1), -1, 1)
    labels: I64 = classes.argmax(axis=1)
    return labels


def stratified_draw(labels: Array, second_size: int, *, seed: int = 0) -> tuple[I64, I64]:
    """Distribute positions over two parts with nearly equal shares of each label.

    The second split of scikit-learn's ``StratifiedShuffleSplit(n_splits=2, random_state=seed)``
    with ``second_size`` test records, number by number; labels that occur once are allowed. This is
    the rule that LRGB (``scripts/PascalVOC/superpixels.py``) makes val and test with. Gives int64
    positions in ``labels`` (n,), positions of the first part and the ``second_size`` positions of the other, in
    the order of the draw.
    """
    first_size = len(labels) - second_size
    if not len(labels):
        return np.empty(0, np.int64), np.empty(0, np.int64)

    _, label, counts = np.unique(labels, return_inverse=True, return_counts=True)
    by_label = np.argsort(label.reshape(-1), kind="stable")
    members = np.split(by_label, np.cumsum(counts)[:-1])

    # The calls of the generator, and their order, are scikit-learn's: any other order gives other
    # parts.
    generator = np.random.RandomState(seed)
    for _ in range(_DRAWS):
        first_counts = _count_per_label(counts, first_size, generator)
        second_counts = _count_per_label(counts - first_counts, second_size, generator)
        in_first = []
        in_second = []
        for rows, middle, more in zip(members, first_counts, second_counts, strict=True):
            shuffled = rows[generator.permutation(len(rows))]
            in_first.append(shuffled[:middle])
            in_second.append(shuffled[middle : middle + more])
        first_part = generator.permutation(np.concatenate(in_first))
        second_part = generator.permutation(np.concatenate(in_second))
    return first_part, second_part


def _count_per_label(counts: I64, total: int, generator: np.random.RandomState) -> I64:
    """Return counts of the labels that add up to ``total``: shares rounded down, plus 1 by largest remainder."""
    if not counts.sum():
        return np.zeros_like(counts)
    shares = counts / counts.sum() * total
    dealt = np.floor(shares)
    remainders = shares - dealt

    # Labels with equal remainders draw lots for what is left.
    left = int(total - dealt.sum())
    for remainder in np.unique(remainders)[::-1]:
        if left <= 0:
            break
        equal = np.flatnonzero(remainders == remainder)
        more = generator.choice(equal, size=min(len(equal), left), replace=False)
        dealt[more] += 1
        left -= len(more)
    numbers: I64 = dealt.astype(np.int64)
    return numbers


def stratified_parts(
    labels: Array,
    sizes: Mapping[str, int],
    *,
    seed: int = 0,
) -> Parts:
    """Distribute positions of labels (n,) over parts of given sizes: one part against the rest, repeatedly."""
    rows = np.arange(len(labels))
    parts = {}
    names = list(sizes)
    for i, name in enumerate(names[:-1]):
        others_size = sum(sizes[other] for other in names[i + 1 :])
        taken, others = stratified_draw(labels[rows], others_size, seed=seed)
        parts[name] = rows[taken].tolist()
        rows = rows[others]
    return {**parts, names[-1]: rows.tolist()}


def order_before_draw(first: Array, second: Array) -> I64 | None:
    """Undo :func:`stratified_draw` with seed 0 by the labels (n,) and (m,) of its parts, in their order.

    The rule depends on labels alone, so it is applied to the same labels in ascending order and
    must give the label at each position. Returns positions in the first part followed by the
    second, in an order for which the rule yields these parts; ``None`` if it does not.
    """
    labels = np.concatenate([first, second])
    ascending = np.sort(labels)
    drawn = np.concatenate(stratified_draw(ascending, len(second)))
    if not np.array_equal(ascending[drawn], labels):
        return None
    return np.argsort(drawn)
