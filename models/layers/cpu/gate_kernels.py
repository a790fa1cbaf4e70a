"""Compiled passes over the edges of a neighbour table, for GatedGCN.

Arrays are flat float32; node i's channels begin at ``i · d``, those of its edge in slot s at
``(i · k + s) · d``. A kernel works on the nodes ``start`` to ``stop``, 16 channels at a time, so a node's
edges stay in the cache between two looks at them. What it writes for a node does not depend on the range.
Nothing is checked: the table must name nodes that are there.
"""

from __future__ import annotations

import numpy as np

from kmip_data.arrays import F32, I32, I64
from kmip_data.models.layers.cpu.arithmetic import (
    LANES,
    load,
    minus,
    plus,
    sigmoid,
    store,
    times,
    where_above,
    where_drawn,
)
from kmip_data.models.search.cpu.lanes import splat
from kmip_data.runtime.threads import njit_nogil

Several = tuple[F32, ...]
Table = I32 | I64
Dropout = tuple[int, int, float]  #: seed, chance of 2³² (0: none), factor of what is kept


@njit_nogil()
def gate(
    start: int, stop: int, d: int, neighbor: Table, nodes: Several, pre: F32, add: bool, statistics: bool,
    results: Several,
) -> None:  # fmt: skip
    """Gate each edge, and sum messages and gates at the target.

    Of ``nodes`` = (at_target, at_source, message), ``pre`` becomes z = at_target of the target +
    at_source of the source, + what it held if ``add``. ``results`` are for each node Σ sigmoid(z) · message
    of the source, Σ sigmoid(z), and with ``statistics`` Σ z and Σ (z − mean of the node)².
    """
    at_target, at_source, message = nodes
    messages, gates, sums, squares = results
    k = neighbor.shape[1]
    share = splat(np.float32(1 / k))
    nothing = splat(np.float32(0))
    for node in range(start, stop):
        for channel in range(0, d, LANES):
            count = min(LANES, d - channel)
            place = node * d + channel
            own = load(at_target, place, count)
            message_sum, gate_sum, total = nothing, nothing, nothing
            for slot in range(k):
                source = np.int64(neighbor[node, slot]) * d + channel
                edge = (node * k + slot) * d + channel
                z = plus(own, load(at_source, source, count))
                if add:
                    z = plus(z, load(pre, edge, count))
                store(pre, edge, count, z)
                total = plus(total, z)
                opened = sigmoid(z)
                gate_sum = plus(gate_sum, opened)
                message_sum = plus(message_sum, times(opened, load(message, source, count)))
            store(messages, place, count, message_sum)
            store(gates, place, count, gate_sum)
            if statistics:
                mean, square = times(total, share), nothing
                for slot in range(k):
                    away = minus(load(pre, (node * k + slot) * d + channel, count), mean)
                    square = plus(square, times(away, away))
                store(sums, place, count, total)
                store(squares, place, count, square)


@njit_nogil()
def update(
    start: int, stop: int, d: int, k: int, pre: F32, norm: F32, dropout: Dropout, old: F32, new: F32
) -> None:
    """New edge features: ``old`` + dropout(relu(factor · z + shift)).

    ``norm`` holds (d,) factors, then (d,) shifts. ``old`` has a row per edge, or one for all. ``new`` may
    be ``pre`` itself.
    """
    seed, dropped, kept_scale = dropout
    shared = old.shape[0] == d
    nothing = splat(np.float32(0))
    scale = splat(np.float32(kept_scale))
    for node in range(start, stop):
        for channel in range(0, d, LANES):
            count = min(LANES, d - channel)
            a, b = load(norm, channel, count), load(norm, d + channel, count)
            for slot in range(k):
                edge = (node * k + slot) * d + channel
                y = plus(times(load(pre, edge, count), a), b)
                y = where_above(y, nothing, y)
                if dropped > 0:
                    y = times(where_drawn(seed, edge, dropped, y), scale)
                store(new, edge, count, plus(load(old, channel if shared else edge, count), y))


@njit_nogil()
def sum_gradients(
    start: int, stop: int, d: int, k: int, pre: F32, grad: F32, norm: F32, dropout: Dropout, results: Several
) -> None:
    """For each node, Σ g and Σ g · (z − mean), g the gradient of what the norm gives.

    ``grad`` is that of :func:`update`'s ``new``; ``norm`` holds factors, shifts and means.
    """
    seed, dropped, kept_scale = dropout
    sums, products = results
    nothing = splat(np.float32(0))
    scale = splat(np.float32(kept_scale))
    for node in range(start, stop):
        for channel in range(0, d, LANES):
            count = min(LANES, d - channel)
            a, b = load(norm, channel, count), load(norm, d + channel, count)
            middle = load(norm, 2 * d + channel, count)
            total, product = nothing, nothing
            for slot in range(k):
                edge = (node * k + slot) * d + channel
                z = load(pre, edge, count)
                g = where_above(plus(times(z, a), b), nothing, load(grad, edge, count))
                if dropped > 0:
                    g = times(where_drawn(seed, edge, dropped, g), scale)
                total = plus(total, g)
                product = plus(product, times(g, minus(z, middle)))
            store(sums, node * d + channel, count, total)
            store(products, node * d + channel, count, product)


@njit_nogil()
def differentiate(
    start: int, stop: int, d: int, neighbor: Table, edges: Several, message: F32, grad_sums: Several,
    norm: F32, dropout: Dropout, results: Several, first: int, at_sources: Several,
) -> None:  # fmt: skip
    """Gradient of z for each edge, and its sums at targets and at sources.

    ``edges`` are (pre, grad), ``grad_sums`` the gradients of the messages and gates that :func:`gate`
    gives. Where grad, that of the new edges, is not empty, g is as in :func:`sum_gradients`, ``norm``
    holds factors, shifts, means, offsets and slopes, and z takes
    factor · g − offset − slope · (z − mean) besides. ``results`` are the gradient of z, from its
    beginning on, and that of at_target. Gradients of at_source and message are added to ``at_sources``,
    node i's to row ``i - first``, in the order of the edges.
    """
    seed, dropped, kept_scale = dropout
    pre, grad = edges
    grad_messages, grad_gates = grad_sums
    grad_pre, grad_target = results
    grad_source, grad_message = at_sources
    updates = grad.shape[0] > 0
    k = neighbor.shape[1]
    nothing = splat(np.float32(0))
    one = splat(np.float32(1))
    scale = splat(np.float32(kept_scale))
    for node in range(start, stop):
        for channel in range(0, d, LANES):
            count = min(LANES, d - channel)
            place = node * d + channel
            of_message, of_gate = load(grad_messages, place, count), load(grad_gates, place, count)
            if updates:
                a, b = load(norm, channel, count), load(norm, d + channel, count)
                middle = load(norm, 2 * d + channel, count)
                below, by = load(norm, 3 * d + channel, count), load(norm, 4 * d + channel, count)
            else:
                a, b, middle, below, by = nothing, nothing, nothing, nothing, nothing
            total = nothing
            for slot in range(k):
                source = np.int64(neighbor[node, slot])
                edge = (node * k + slot) * d + channel
                z = load(pre, edge, count)
                opened = sigmoid(z)
                slope_of_gate = times(opened, minus(one, opened))
                of_opened = plus(of_gate, times(of_message, load(message, source * d + channel, count)))
                g = times(slope_of_gate, of_opened)
                if updates:
                    passed = where_above(plus(times(z, a), b), nothing, load(grad, edge, count))
                    if dropped > 0:
                        passed = times(where_drawn(seed, edge, dropped, passed), scale)
                    g = plus(g, minus(minus(times(a, passed), below), times(by, minus(z, middle))))
                store(grad_pre, edge - start * k * d, count, g)
                total = plus(total, g)
                row = (source - first) * d + channel
                store(grad_source, row, count, plus(load(grad_source, row, count), g))
                part = plus(load(grad_message, row, count), times(opened, of_message))
                store(grad_message, row, count, part)
            store(grad_target, place, count, total)
