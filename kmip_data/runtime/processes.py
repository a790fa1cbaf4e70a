"""Start ``kmip-data`` as another process."""

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
    """Start ``kmip-data`` as a process without input that writes its output into ``said``.

    On 1/``share`` of the cores, unless ``OMP_NUM_THREADS`` is set. Ctrl-C does not reach it: the caller
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
