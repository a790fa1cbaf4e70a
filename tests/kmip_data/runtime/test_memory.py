"""Memory that is used again: never while anything refers to it, and not without bound."""

import gc
import os
import sys

import numpy as np
import pytest
import torch
from support.cli import python

from kmip_data.errors import OutOfResources
from kmip_data.runtime import memory, reused_buffers

FLOAT = np.dtype(np.float32)


@pytest.fixture(autouse=True, scope="module")
def imported_modules_are_not_searched():
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def nothing_kept():
    gc.collect()
    reused_buffers.release_buffers()
    yield
    reused_buffers.release_buffers()


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize(
    "keep",
    [
        lambda tensor: tensor[5:7],
        lambda tensor: tensor.numpy()[1:],
        lambda tensor: tensor.untyped_storage(),
    ],
)
def test_memory_is_used_again_once_nothing_refers_to_it(keep):
    array = reused_buffers.reused_array((1000, 1000), FLOAT)
    where = address(array)
    kept = keep(torch.from_numpy(array))
    del array
    gc.collect()
    assert reused_buffers.free_buffer_bytes() == 0
    other = reused_buffers.reused_array((1000, 1000), FLOAT)
    assert address(other) != where
    del kept
    assert address(reused_buffers.reused_array((999, 1001), FLOAT)) == where


def test_free_buffers_stay_below_their_limit(monkeypatch):
    monkeypatch.setattr(reused_buffers, "MAX_FREE_BUFFER_BYTES", 10 << 20)
    arrays = [reused_buffers.reused_array((4 << 20,), np.dtype(np.uint8)) for _ in range(5)]
    arrays.clear()
    gc.collect()
    assert 0 < reused_buffers.free_buffer_bytes() <= 10 << 20
    assert reused_buffers.reused_array((10, 2), FLOAT).flags.owndata  # small arrays are ordinary


@pytest.mark.parametrize("in_use", [True, False])
def test_a_forked_child_writes_into_pages_of_its_own(in_use):
    array = reused_buffers.reused_array((1000, 1000), FLOAT)
    array[:] = 1
    where = address(array)
    if not in_use:
        del array  # the child takes the buffer from the free list it inherited
    child = os.fork()
    if child == 0:
        mine = array if in_use else reused_buffers.reused_array((1000, 1000), FLOAT)
        same = address(mine) == where
        mine[:] = 2
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    here = array if in_use else reused_buffers.reused_array((1000, 1000), FLOAT)
    assert address(here) == where
    assert (here == 1).all()


def test_the_pool_keeps_as_much_memory_as_its_peak_use(monkeypatch):
    monkeypatch.setattr(reused_buffers, "MAX_FREE_BUFFER_BYTES", 0)
    size = 4 << 20
    held = [reused_buffers.reused_array((size,), np.dtype(np.uint8)) for _ in range(3)]
    reused_buffers.keep_used_buffers()
    held.pop()
    held.clear()
    assert reused_buffers.free_buffer_bytes() == 3 * size
    other = reused_buffers.reused_array(
        (2 * size,), np.dtype(np.uint8)
    )  # others make room for its size
    assert reused_buffers.free_buffer_bytes() == size
    del other
    assert reused_buffers.free_buffer_bytes() == 3 * size
    reused_buffers.release_buffers()
    del held
    assert reused_buffers.free_buffer_bytes() == 0
    again = reused_buffers.reused_array((size,), np.dtype(np.uint8))
    del again
    assert reused_buffers.free_buffer_bytes() == 0


def test_work_beyond_memory_is_refused_before_it_starts(monkeypatch) -> None:
    monkeypatch.setattr(memory, "free_host_memory", lambda: 1_000)
    memory.require_memory(1_000, "a city", "free some")
    with pytest.raises(OutOfResources) as raised:
        memory.require_memory(1_001, "a city", "free some")
    assert raised.value.steps == ["free some"]


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone returns holes of its heap")
def test_free_heap_memory_is_returned_to_the_system() -> None:
    code = """
import ctypes
from kmip_data.runtime import memory

library = ctypes.CDLL(None)
library.mallopt(memory.M_MMAP_THRESHOLD, 32 << 20)
bound = memory.HeapBound()
bound.slack = 64 << 20
bound.limit = memory.private_memory() + bound.slack
library.malloc.restype = ctypes.c_void_p
library.free.argtypes = [ctypes.c_void_p]
blocks = [library.malloc(16 << 20) for _ in range(16)]
for block in blocks:
    ctypes.memset(block, 1, 16 << 20)
used = memory.private_memory()
for block in blocks[:-1]:  # the last one keeps the end of the heap, which glibc returns by itself
    library.free(block)
held = memory.private_memory()
bound.return_excess()
print(used, held, memory.private_memory())
"""
    used, held, after = map(int, python("-c", code).out.split())
    assert held > used - (32 << 20), "the heap holds what was freed"
    assert after < used - (200 << 20), "the check returned it"
