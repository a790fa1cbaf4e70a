"""Train peptides-func/gps-kmip within a time limit, and pack the run for the next machine."""

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
ARCHIVE = f"{NAME}.tar.gz"  #: the run, to copy to the next machine
SAVE_SECONDS = 15.0  #: time reserved for the last checkpoint and the archive
PREVIOUS = "previous.ckpt"  #: checkpoint left out of the archive to keep it small
TRAIN = (sys.executable, "-m", "kmip_data", "train")
#: Minutes between checkpoints within an epoch.
CHECKPOINT = "system.checkpoint_every=1"


def run(out: Path, seconds: float, home: Path, arguments: Sequence[str]) -> int:
    """Train for at most ``seconds``; write the run as ``row.tar.gz``, its result and log into ``out``.

    Return the exit status of ``kmip-data train``, which is 143 after a timeout.
    """
    until = time.monotonic() + seconds - SAVE_SECONDS
    unpack(home)
    folder = home / "runs" / DATASET / MODEL / NAME
    if (folder / "config.toml").is_file():
        words = ["--resume", str(folder)]
    else:
        words = [DATASET, "--model", MODEL, "--seeds", "0", "--name", NAME, "--offline"]
        words += ["--set", CHECKPOINT, *arguments]

    out.mkdir(parents=True, exist_ok=True)
    log = out / f"{NAME}.log"
    command = [*TRAIN, *words, "--home", str(home)]
    with log.open("w", encoding="utf-8") as file:
        child = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGTERM)
        try:
            child.wait(SAVE_SECONDS / 2)
        except subprocess.TimeoutExpired:  # safe, as checkpoints are written atomically
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
