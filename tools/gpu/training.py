"""The row: a run of peptides-func/gps-kmip that ends in time and is packed for the next machine."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.gpu.packing import archive, unpack

DATASET, MODEL, NAME = "peptides-func", "gps-kmip", "row"
ARCHIVE = f"{NAME}.tar.gz"  #: of the run, for the next machine's carried files
SAVING = 15.0  #: seconds kept for the last checkpoint and the archive
PREVIOUS = "previous.ckpt"  #: left out: the last checkpoint suffices, and large files do not travel
TRAIN = (sys.executable, "-m", "kmip_data", "train")
#: Minutes between checkpoints within an epoch.
CHECKPOINT = "system.checkpoint_every=1"


def run(out: Path, seconds: float, home: Path, arguments: Sequence[str]) -> int:
    """Train for at most ``seconds``, and leave the run as ``row.tar.gz``, its result and log in ``out``.

    Return the exit status of ``kmip-data train``: 143 if the time was over, and the run can go on.
    """
    until = time.monotonic() + seconds - SAVING
    unpack(home)
    folder = home / "runs" / DATASET / MODEL / NAME
    if (folder / "config.toml").is_file():
        chosen = ["--resume", str(folder)]
    else:
        chosen = [DATASET, "--model", MODEL, "--seeds", "0", "--name", NAME, "--offline"]
        chosen += ["--set", CHECKPOINT, *arguments]

    out.mkdir(parents=True, exist_ok=True)
    log = out / f"{NAME}.log"
    command = [*TRAIN, *chosen, "--home", str(home)]
    with log.open("w", encoding="utf-8") as file:
        child = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGTERM)
        try:
            child.wait(SAVING / 2)
        except subprocess.TimeoutExpired:  # checkpoints are complete or absent
            child.kill()
    status = child.wait()

    if folder.is_dir():
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        archive(out / ARCHIVE, home, [path for path in files if path.name != PREVIOUS])
        for name in ("metrics.csv", "result.json"):
            if (folder / name).is_file():
                shutil.copy(folder / name, out / name)
    sys.stdout.write(log.read_text("utf-8")[-4_000:])
    return status
