"""The process in which cells are measured: whatever ends it, the program that asked goes on.

Reads one JSON object a line from stdin and answers each with one on the stdout it was started with;
anything that libraries print goes to stderr.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from kmip_data.models.profiling.cells import Cell, Status
from kmip_data.models.profiling.measuring import Measurer, Protocol
from kmip_data.models.profiling.workload import Shape, Source

ROOM = 2**30  #: bytes of address space that threads and compiled code may take beside the limit


def main() -> None:
    """Answer until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.filterwarnings("ignore")
    measurer: Measurer | None = None
    for line in sys.stdin:
        question = json.loads(line)
        if "shape" in question:
            measurer = _start(question)
            gc.freeze()  # what the libraries made at import is no garbage to look through
            answer: dict[str, Any] = {"ready": True}
        else:
            assert measurer is not None
            answer = _answer(measurer, question)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _start(question: dict[str, Any]) -> Measurer:
    import torch

    from kmip_data.runtime.threads import set_num_threads

    set_num_threads(question["threads"])
    torch.set_num_threads(question["threads"])
    try:
        import faiss

        faiss.omp_set_num_threads(question["threads"])
    except ImportError:
        pass
    protocol = Protocol(**question["protocol"])
    shape = question["shape"]
    sizes = shape["graph_sizes"]
    source = Source(Shape(**{**shape, "graph_sizes": None if sizes is None else tuple(sizes)}))
    device = torch.device(question["device"])
    if protocol.memory_limit is not None:
        _limit_memory(protocol.memory_limit, device.type)
    return Measurer(source, protocol, device)


def _answer(measurer: Measurer, question: dict[str, Any]) -> dict[str, Any]:
    from kmip_data.errors import KmipDataError
    from kmip_data.models.profiling.breakdown import stages
    from kmip_data.models.profiling.methods import get_method
    from kmip_data.runtime.memory_errors import is_out_of_memory

    method, n = get_method(question["method"]), question["n"]
    name = {"method": question["method"], "setting": question["setting"], "n": n}
    try:
        if question["stages"]:
            return {"stages": stages(measurer, method, n)}
        return {"cell": measurer.cell(method, question["setting"], n).to_json()}
    except (KmipDataError, NotImplementedError) as error:
        if is_out_of_memory(error):
            return {"cell": Cell(**name, status="oom", note=str(error).splitlines()[0]).to_json()}
        detail = error.parts["found"] if isinstance(error, KmipDataError) else None
        note = f"{str(error).splitlines()[0]}{f' ({detail})' if detail else ''}"
        return {"cell": Cell(**name, status="unavailable", note=note).to_json()}
    except Exception as error:  # noqa: BLE001 -- one cell; the next may work
        status: Status = "oom" if is_out_of_memory(error) else "failed"
        lines = str(error).splitlines()
        note = lines[0] if lines else type(error).__name__
        return {"cell": Cell(**name, status=status, note=note).to_json()}


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
