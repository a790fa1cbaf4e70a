"""Forks of a test that find each other as the processes of torchrun do."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable

import torch


def find_free_port() -> str:
    """Return a port that nobody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return str(held.getsockname()[1])


def run_on_processes(count: int, act: Callable[[int], object]) -> None:
    """Call ``act(rank)`` in so many forks of this process; all must end well."""
    port = find_free_port()

    def as_rank(rank: int) -> None:
        torch.set_num_threads(1)
        variables = {"LOCAL_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": str(count)}
        os.environ.update(
            variables, GLOO_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1", MASTER_PORT=port
        )
        act(rank)

    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=as_rank, args=(rank,)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
        process.kill()
    assert [process.exitcode for process in processes] == [0] * count
