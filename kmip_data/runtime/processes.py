"""The program as a process of its own, beside others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Any

from kmip_data.runtime.threads import available_cores

PROGRAM = (sys.executable, "-m", "kmip_data")  #: the same as ``kmip-data``


def begin_process(
    arguments: Sequence[str], said: IO[Any], *, share: int = 1, **environment: str
) -> subprocess.Popen[bytes]:
    """Begin ``kmip-data`` as a process that asks nothing and writes all it says into ``said``.

    On 1/``share`` of the cores, unless ``OMP_NUM_THREADS`` is set. Ctrl-C does not reach it: whoever began it
    ends it, once.
    """
    whole = {**os.environ, **environment}
    if share > 1:
        whole.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // share)))
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=subprocess.STDOUT,
        env=whole,
        start_new_session=True,
    )
