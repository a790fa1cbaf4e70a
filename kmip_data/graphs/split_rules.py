"""Split rules: pure functions that assign record positions to train, val and test."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from kmip_data.arrays import I64, Array

Parts = dict[str, list[int]]


def count_of_fraction(count: int, fraction: float | Fraction) -> int:
    """Return ``fraction`` of ``count`` records, rounded half up.

    If ``count`` allows it, both sides keep at least one record.
    """
    rounded = int(count * fraction + Fraction(1, 2))
    return max(min(rounded, count - 1), min(1, count - 1), 0)


def shuffled_split(
    pool: Sequence[int],
    test: Sequence[int],
    *,
    val: int,
    seed: int,
) -> Parts:
    """Shuffle the pool and the test records; the first ``val`` records of the pool are val.

    This is the rule of the k-MIP code (``s3dis_on_disk.py``): ``random.seed(seed)``, then
    ``random.shuffle`` of the train list and of the test list.
    """
    generator = random.Random(seed)  # noqa: S311 -- reproduces an upstream rule, nothing secret
    train = list(pool)
    shuffled_test = list(test)
    generator.shuffle(train)
    generator.shuffle(shuffled_test)
    return {"train": train[val:], "val": train[:val], "test": shuffled_test}


def grouped_split(
    pool: Sequence[int],
    test: Sequence[int],
    groups: Mapping[int, str],
    *,
    val: int,
    seed: int,
) -> Parts:
    """Move whole groups of the pool to val, to get as close to ``val`` records as possible.

    ``groups`` has the group (room) of each record. Groups are tried in an order shuffled by
    ``seed``. The sum of group sizes closest to ``val`` wins (the smaller one in a tie), with the
    first groups that add up to it. With at least two groups, neither train nor val is empty. Parts
    are in source order.
    """
    sizes = Counter(groups[record] for record in pool)
    order = sorted(sizes)
    random.Random(seed).shuffle(order)  # noqa: S311
    # Subset sums: each sum with the group added last and the sum before it.
    sums: dict[int, tuple[str, int]] = {}
    max_sum = val + max(sizes.values(), default=0)
    for group in order:
        for total in [0, *sums]:
            if total + sizes[group] <= max_sum:
                sums.setdefault(total + sizes[group], (group, total))
        if val in sums:
            break

    # Take the closest sum, then walk back through the groups that add up to it.
    candidates = [total for total in sums if total < len(pool)]
    total = min(candidates, key=lambda total: (abs(total - val), total), default=0)
    val_groups = set()
    while total:
        group, total = sums[total]
        val_groups.add(group)
    return {
        "train": [record for record in pool if groups[record] not in val_groups],
        "val": [record for record in pool if groups[record] in val_groups],
        "test": list(test),
    }


_DRAWS = 2  #: LRGB draws twice from one generator and keeps the second split


def majority_classes(classes: I64, background: int | None = None) -> I64:
    """Return the most frequent class of each graph, (G,), or the smallest one in a tie.

    ``classes`` (G, C) counts each class in each graph. The class ``background`` (0 in LRGB's rule)
    is returned only if the graph has no other class.
    """
    if background is not None:
        classes = classes.copy()
        foreground = np.delete(classes, background, axis=1)
        classes[:, background] = np.where(foreground.any(axis=1), -1, 1)
    labels: I64 = classes.argmax(axis=1)
    return labels


def stratified_draw(labels: Array, second_size: int, *, seed: int = 0) -> tuple[I64, I64]:
    """Divide positions into two parts with nearly equal fractions of each label.

    Reproduces the second split of scikit-learn's ``StratifiedShuffleSplit(n_splits=2,
    random_state=seed)`` with ``second_size`` test records, and allows labels that occur once. LRGB
    (``scripts/PascalVOC/superpixels.py``) draws val and test by this rule. Returns int64 positions
    in ``labels`` (n,): those of the first part, then the ``second_size`` of the second, in drawn
    order.
    """
    generator = np.random.RandomState(seed)
    for _ in range(_DRAWS):
        parts = draw_stratified(labels, second_size, generator)
    return parts


def draw_stratified(
    labels: Array, second_size: int, generator: np.random.RandomState
) -> tuple[I64, I64]:
    """Divide positions of labels (n,) by one draw of :func:`stratified_draw` from ``generator``.

    Equals scikit-learn's ``train_test_split(stratify=labels)`` with NumPy's global generator.
    """
    first_size = len(labels) - second_size
    if not len(labels):
        return np.empty(0, np.int64), np.empty(0, np.int64)

    _, label, counts = np.unique(labels, return_inverse=True, return_counts=True)
    by_label = np.argsort(label.reshape(-1), kind="stable")
    members = np.split(by_label, np.cumsum(counts)[:-1])

    # The generator is called in scikit-learn's order: any other order yields other parts.
    first_counts = _count_per_label(counts, first_size, generator)
    second_counts = _count_per_label(counts - first_counts, second_size, generator)
    in_first = []
    in_second = []
    for rows, first_count, second_count in zip(members, first_counts, second_counts, strict=True):
        shuffled = rows[generator.permutation(len(rows))]
        in_first.append(shuffled[:first_count])
        in_second.append(shuffled[first_count : first_count + second_count])
    first_part = generator.permutation(np.concatenate(in_first))
    second_part = generator.permutation(np.concatenate(in_second))
    return first_part, second_part


def _count_per_label(counts: I64, total: int, generator: np.random.RandomState) -> I64:
    """Divide ``total`` over the labels in proportion to ``counts``, by largest remainder."""
    if not counts.sum():
        return np.zeros_like(counts)
    exact_counts = counts / counts.sum() * total
    rounded_counts = np.floor(exact_counts)
    remainders = exact_counts - rounded_counts

    # Round up the largest remainders; labels with equal remainders are drawn at random.
    missing = int(total - rounded_counts.sum())
    for remainder in np.unique(remainders)[::-1]:
        if missing <= 0:
            break
        tied = np.flatnonzero(remainders == remainder)
        drawn = generator.choice(tied, size=min(len(tied), missing), replace=False)
        rounded_counts[drawn] += 1
        missing -= len(drawn)
    label_counts: I64 = rounded_counts.astype(np.int64)
    return label_counts


def stratified_parts(
    labels: Array,
    sizes: Mapping[str, int],
    *,
    seed: int = 0,
) -> Parts:
    """Divide positions of labels (n,) into parts of given sizes, by one draw against the rest per part."""
    rows = np.arange(len(labels))
    parts = {}
    names = list(sizes)
    for i, name in enumerate(names[:-1]):
        rest_size = sum(sizes[other] for other in names[i + 1 :])
        drawn, rest = stratified_draw(labels[rows], rest_size, seed=seed)
        parts[name] = rows[drawn].tolist()
        rows = rows[rest]
    return {**parts, names[-1]: rows.tolist()}


def stratified_groups(
    labels: Array, groups: I64, sizes: Mapping[str, int], *, seed: int = 0
) -> Parts:
    """Divide positions of labels (n,) into parts of nearly equal fractions, by entire groups (n,).

    Groups come largest first, equally large ones in drawn order. Each joins the part in which
    Σ (rows - wanted rows)² / wanted rows over parts and labels becomes smallest, where a part
    wants its ``sizes`` share of each label. Then an empty part gets the smallest group of the part
    with the most groups.
    """
    names = [name for name, size in sizes.items() if size]
    _, label = np.unique(labels, return_inverse=True)
    _, group = np.unique(groups, return_inverse=True)
    counts = np.zeros((group.max(initial=-1) + 1, label.max(initial=-1) + 1))
    np.add.at(counts, (group.reshape(-1), label.reshape(-1)), 1)
    shares = np.array([sizes[name] for name in names]) / sum(sizes.values())
    wanted = shares[:, None] * counts.sum(axis=0)

    drawn = np.random.Generator(np.random.PCG64(seed)).permutation(len(counts))
    group_sizes = counts.sum(axis=1)
    part_of_group = np.empty(len(counts), np.int64)
    rows = np.zeros_like(wanted)
    for number in drawn[np.argsort(-group_sizes[drawn], kind="stable")].tolist():
        added = counts[number]
        change = (added * (added + 2 * (rows - wanted)) / wanted).sum(axis=1)
        part = int(change.round(9).argmin())  # the first of equal parts
        part_of_group[number] = part
        rows[part] += added

    for part in range(len(names)):
        groups_of_parts = np.bincount(part_of_group, minlength=len(names))
        if not groups_of_parts[part] and groups_of_parts.max() > 1:
            donors = np.flatnonzero(part_of_group == groups_of_parts.argmax())
            part_of_group[donors[group_sizes[donors].argmin()]] = part
    parts: Parts = {name: [] for name in sizes}
    for part, name in enumerate(names):
        parts[name] = np.flatnonzero(part_of_group[group.reshape(-1)] == part).tolist()
    return parts


def scaffold_split(scaffolds: I64, *, train: float, val: float) -> Parts:
    """Divide molecules by their scaffolds (n,), so that test has the rarest ones.

    Scaffolds come by falling number of molecules, equally frequent ones by falling first position.
    The molecules of a scaffold join train if it then has at most ``train`` · n molecules, else val
    if train and val then have at most (``train`` + ``val``) · n, else test.

    Notes
    -----
    Source: ``scaffold_split`` in ``chem/splitters.py`` of Hu et al., "Strategies for Pre-training
    Graph Neural Networks" (ICLR 2020), whose authors' Open Graph Benchmark publishes the split of
    its molecules by this procedure of MoleculeNet.
    """
    _, first, scaffold, counts = np.unique(
        scaffolds, return_index=True, return_inverse=True, return_counts=True
    )
    members = np.split(np.argsort(scaffold.reshape(-1), kind="stable"), np.cumsum(counts)[:-1])
    parts: Parts = {"train": [], "val": [], "test": []}
    for number in np.lexsort((first, counts))[::-1].tolist():
        molecules = members[number].tolist()
        taken = len(parts["train"]) + len(molecules)
        if taken <= train * len(scaffolds):
            part = "train"
        elif taken + len(parts["val"]) <= (train + val) * len(scaffolds):
            part = "val"
        else:
            part = "test"
        parts[part] += molecules
    return {part: sorted(rows) for part, rows in parts.items()}


def order_before_draw(first: Array, second: Array) -> I64 | None:
    """Invert :func:`stratified_draw` with seed 0, given the labels (n,) and (m,) of its two parts.

    The rule depends only on the labels, so apply it to the same labels in ascending order and compare.
    Returns an order of the concatenated parts for which the rule yields these parts; ``None`` if it
    cannot yield them.
    """
    labels = np.concatenate([first, second])
    ascending = np.sort(labels)
    drawn = np.concatenate(stratified_draw(ascending, len(second)))
    if not np.array_equal(ascending[drawn], labels):
        return None
    return np.argsort(drawn)
