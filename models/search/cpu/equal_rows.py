"""Groups of equal rows, of which only one row is searched.

Nodes with equal neighbourhoods have bitwise equal queries and keys: half of the rows of a call graph
(ADR 0310). Equal queries have equal results, and of equal keys only the k with the lowest rows
matter.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from kmip_data.arrays import F32, I32, I64
from kmip_data.runtime.parallel import njit_nogil, run_in_ranges

MAX_PROBES = 32  #: probes in the hash table after which a row forms its own group


class EqualRowGroups(NamedTuple):
    """Groups of equal rows in T pieces, each of one head, in the order of their first rows."""

    pieces: I64  #: (T, 3) head, start and stop of the rows
    rows_before: I64  #: (T + 1,) number of rows in earlier pieces
    group_counts: I64  #: (T,) number of groups
    members: I32  #: (R,) rows within their piece, ascending within each group
    #: (R + T,) start of each group in its piece's ``members``, then the end of the last group; those
    #: of piece t start at ``rows_before[t] + t``
    starts: I32

    @property
    def ptr(self) -> I64:
        """(T + 1,) number of groups in earlier pieces."""
        return np.concatenate([[0], np.cumsum(self.group_counts)])


@functools.cache
def _hash_factors(dim: int) -> I64:
    """Return ``dim`` fixed random 64-bit numbers."""
    return np.random.default_rng(0).integers(-(2**63), 2**63 - 1, dim)


def group_rows(rows: F32, pieces: I64) -> EqualRowGroups:
    """Group bitwise equal rows within each of the pieces (T, 3) of ``rows`` (H, N, d)."""
    sizes = pieces[:, 2] - pieces[:, 1]
    rows_before = np.concatenate([[0], np.cumsum(sizes)])
    total = int(rows_before[-1])
    counts = np.zeros(len(pieces), np.int64)
    members = np.empty(total, np.int32)
    starts = np.empty(total + len(pieces), np.int32)
    groups = EqualRowGroups(pieces, rows_before, counts, members, starts)
    bits = rows.view(np.int32)
    factors = _hash_factors(rows.shape[2])
    run_in_ranges(functools.partial(_group_equal_rows, bits, factors, groups), len(pieces))
    return groups


def first_rows(rows: F32, groups: EqualRowGroups) -> F32:
    """Gather the first row of each group, (1, U, d), piece after piece."""
    ptr = groups.ptr
    distinct = np.empty((1, int(ptr[-1]), rows.shape[2]), np.float32)
    run_in_ranges(
        functools.partial(_gather_first_rows, rows, groups, ptr, distinct), len(groups.pieces)
    )
    return distinct


def expand_to_all_queries(
    distinct_scores: F32,
    distinct_indices: I64,
    query_groups: EqualRowGroups,
    key_groups: EqualRowGroups,
    scores: F32,
    indices: I64,
) -> None:
    """Expand the results of distinct queries and keys to all queries and keys.

    Distinct scores and indices (1, U, k) refer to the :func:`first_rows` of queries and keys. Writes
    scores and indices (H, N, k), which must be filled with −inf and −1 if a graph has fewer than k
    keys.
    """
    work = functools.partial(
        _expand_results,
        distinct_scores[0],
        distinct_indices[0],
        query_groups,
        key_groups,
        query_groups.ptr,
        key_groups.ptr,
        scores,
        indices,
    )
    run_in_ranges(work, len(query_groups.pieces))


@njit_nogil(error_model="numpy")
def _group_equal_rows(
    bits: I32,
    factors: I64,
    groups: EqualRowGroups,
    start: int,
    stop: int,
) -> None:
    dim = bits.shape[2]
    most = 1
    for piece in range(start, stop):
        most = max(most, groups.pieces[piece, 2] - groups.pieces[piece, 1])
    room = 16
    while room < 2 * most:
        room *= 2
    table = np.empty(room, np.int32)
    number = np.empty(most, np.int32)  # group of each row
    begins = np.empty(most, np.int32)  # first row of each group

    for piece in range(start, stop):
        head = groups.pieces[piece, 0]
        first = groups.pieces[piece, 1]
        size = groups.pieces[piece, 2] - first
        offset = groups.rows_before[piece]
        starts = groups.starts[offset + piece : offset + piece + size + 1]

        # 1. Hash into a table at most half full, by the upper bits, which depend on all factors.
        width = 4
        while 1 << width < 2 * size:
            width += 1
        mask = (1 << width) - 1
        table[: mask + 1] = -1
        count = 0
        for i in range(size):
            row = bits[head, first + i]
            mixed = np.int64(0)
            for c in range(dim):
                mixed += np.int64(row[c]) * factors[c]
            slot = (mixed >> (64 - width)) & mask

            # 2. Compare with the first row of the groups in the next slots. The number of probes is
            #    limited, as rows could be made to collide; a separate group is correct, too.
            group = -1
            for _ in range(MAX_PROBES):
                other = table[slot]
                if other < 0:
                    table[slot] = count
                    break
                difference = np.int32(0)
                earlier = bits[head, first + begins[other]]
                for c in range(dim):
                    difference |= row[c] ^ earlier[c]
                if difference == 0:
                    group = other
                    break
                slot = (slot + 1) & mask
            if group < 0:
                group = count
                begins[count] = i
                starts[count] = 0
                count += 1
            number[i] = group
            starts[group] += 1

        # 3. Counting sort by group: turn sizes into ends, and fill from the last row to the first.
        total = 0
        for group in range(count):
            total += starts[group]
            starts[group] = total
        for i in range(size - 1, -1, -1):
            starts[number[i]] -= 1
            groups.members[offset + starts[number[i]]] = i
        starts[count] = size
        groups.group_counts[piece] = count


@njit_nogil(error_model="numpy")
def _gather_first_rows(
    rows: F32,
    groups: EqualRowGroups,
    ptr: I64,
    distinct: F32,
    start: int,
    stop: int,
) -> None:
    for piece in range(start, stop):
        head = groups.pieces[piece, 0]
        first = groups.pieces[piece, 1]
        offset = groups.rows_before[piece]
        for group in range(groups.group_counts[piece]):
            row = first + groups.members[offset + groups.starts[offset + piece + group]]
            for c in range(rows.shape[2]):
                distinct[0, ptr[piece] + group, c] = rows[head, row, c]


@njit_nogil(error_model="numpy")
def _expand_results(
    distinct_scores: F32,
    distinct_indices: I64,
    query_groups: EqualRowGroups,
    key_groups: EqualRowGroups,
    query_ptr: I64,
    key_ptr: I64,
    scores: F32,
    indices: I64,
    start: int,
    stop: int,
) -> None:
    k = scores.shape[2]
    tied = np.empty(k * k, np.int64)
    for piece in range(start, stop):
        head = query_groups.pieces[piece, 0]
        first_query = query_groups.pieces[piece, 1]
        first_key = key_groups.pieces[piece, 1]
        offset = query_groups.rows_before[piece]
        starts = query_groups.starts[offset + piece :]
        key_offset = key_groups.rows_before[piece]
        key_starts = key_groups.starts[key_offset + piece :]
        few = min(k, key_groups.group_counts[piece])
        wanted = min(k, key_groups.pieces[piece, 2] - first_key)

        for query in range(query_groups.group_counts[piece]):
            result = query_ptr[piece] + query
            begin = offset + starts[query]
            row = first_query + query_groups.members[begin]
            filled = 0
            best = 0
            while filled < wanted:
                # 1. Collect the keys with the next score, in the order of rows. A group that is not
                #    among the k best comes after k first rows, so none of its rows is missed. NaN,
                #    which equals nothing, would never end this loop, but `check_finite` excludes it.
                score = distinct_scores[result, best]
                count = 0
                groups = 0
                while best < few and distinct_scores[result, best] == score:
                    group = distinct_indices[result, best] - key_ptr[piece]
                    last = min(key_starts[group + 1], key_starts[group] + wanted - filled)
                    for j in range(key_starts[group], last):
                        tied[count] = key_groups.members[key_offset + j]
                        count += 1
                    groups += 1
                    best += 1
                if groups > 1:
                    tied[:count].sort()
                # 2. Take as many as needed.
                for j in range(min(count, wanted - filled)):
                    scores[head, row, filled] = score
                    indices[head, row, filled] = first_key + tied[j]
                    filled += 1

            # 3. Copy the result to equal queries.
            for j in range(begin + 1, offset + starts[query + 1]):
                copy = first_query + query_groups.members[j]
                for i in range(wanted):
                    scores[head, copy, i] = scores[head, row, i]
                    indices[head, copy, i] = indices[head, row, i]
