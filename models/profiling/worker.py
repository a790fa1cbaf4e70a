"""The process in which cells are measured: whatever ends it, the program that asked goes on.

It is started with the descriptor of its end of a ``multiprocessing.Pipe``, receives the arguments of
:func:`_measurer`, then those of :func:`_answer` again and again, and answers each.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import warnings
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from kmip_data.models.profiling.measuring import Measurer, Protocol, stages
from kmip_data.models.profiling.results import Cell, Setting, Status
from kmip_data.models.profiling.workload import Shape, Source

ROOM = 2**30  #: bytes of address space that threads and compiled code may take beside the limit


def main() -> None:
    """Answer until nobody asks."""
    warnings.filterwarnings("ignore")
    connection = Connection(int(sys.argv[1]))
    measurer = _measurer(*connection.recv())
    gc.freeze()  # what the libraries made at import is not garbage to look through
    connection.send(True)
    with contextlib.suppress(EOFError):
        while True:
            connection.send(_answer(measurer, *connection.recv()))


def _measurer(shape: Shape, protocol: Protocol) -> Measurer:
    import torch

    from kmip_data.runtime.threads import set_num_threads

    set_num_threads(protocol.threads)
    torch.set_num_threads(protocol.threads)
    with contextlib.suppress(ImportError):
        import faiss

        faiss.omp_set_num_threads(protocol.threads)
    source = Source(shape)
    if protocol.memory_limit is not None:
        _limit_memory(protocol.memory_limit, protocol.device)
    return Measurer(source, protocol)


def _answer(measurer: Measurer, name: str, setting: Setting, n: int, by_stage: bool) -> Cell:
    """The cell, with its times or stages, or why there are none."""
    from kmip_data.errors import KmipDataError
    from kmip_data.models.profiling.methods import get_method
    from kmip_data.runtime.memory_errors import is_out_of_memory

    method, cell = get_method(name), partial(Cell, method=name, setting=setting, n=n)
    try:
        if by_stage:
            return cell(status="ok", stages=stages(measurer, method, n))
        return measurer.cell(method, setting, n)
    except Exception as error:  # noqa: BLE001 -- one cell; the next may work
        status: Status = "failed"
        note = (str(error).splitlines() or [type(error).__name__])[0]
        if is_out_of_memory(error):
            status = "oom"
        elif isinstance(error, KmipDataError | NotImplementedError):
            status = "unavailable"
            detail = error.parts["found"] if isinstance(error, KmipDataError) else None
            note += f" ({detail})" if detail else ""
        return cell(status=status, note=note)


def _limit_memory(limit: int, device_type: str) -> None:
    """Let allocations fail above ``limit`` bytes, and offer this process first where memory ends.

    A GPU driver reserves far more address space than it uses: there only the second.
    """
    try:
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
        import resource
    except (OSError, ImportError):
        return
    if device_type == "cpu" and sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        bound = pages * os.sysconf("SC_PAGE_SIZE") + limit + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


if __name__ == "__main__":
    main()
