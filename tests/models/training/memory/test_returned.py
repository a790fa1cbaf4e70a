"""Blocks that are freed leave the process while that is asked for."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from kmip_data.models.training.memory.returned import freed_at_once, returns_memory

#: Blocks of 4 MiB with 256 KiB between, all but the small ones dropped: MiB that stay resident.
CODE = """
import psutil, torch
from kmip_data.models.training.memory.returned import freed_at_once
resident = lambda: psutil.Process().memory_info().rss >> 20
torch.ones(2**22 + 2**21)  # freed: from here on glibc takes smaller blocks from its heap
with freed_at_once({wanted}):
    before = resident()
    blocks = [(torch.ones(2**20), torch.ones(2**16)) for _ in range(40)]
    held = [small for _, small in blocks]
    del blocks
    print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_freed_blocks_leave_the_process() -> None:
    found = {}
    for wanted in (False, True):
        code = CODE.format(wanted=wanted)
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        found[wanted] = int(run.stdout)
    assert found[False] > 100  # of 160 MiB
    assert found[True] < 20


def test_only_recomputing_runs_on_a_cpu_give_back() -> None:
    assert returns_memory("cpu", recompute=True)
    assert not returns_memory("cpu", recompute=False)
    assert not returns_memory("cuda", recompute=True)
    with freed_at_once(False):
        pass
