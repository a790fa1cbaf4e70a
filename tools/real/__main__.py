"""``make real``: build every dataset from its real mirrors.

It has not run anywhere yet.

``python -m tools.real --out DIR [NAME…]`` downloads from every mirror of every dataset, checks sizes
and digests, fetches, builds, compares counts with the published ones, verifies and trains one epoch.
Each step is a process with a time limit and a line in ``results.jsonl``; the next run skips steps
that passed. With ``DRY=1`` the files are generated samples from local servers.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import click  # noqa: E402 -- after the path

from kmip_data.builds.home import Home  # noqa: E402
from kmip_data.manifest import dataset_names, load_manifest  # noqa: E402


@click.command()
@click.argument("names", nargs=-1)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True)
@click.option("--hours", type=float, default=24.0, show_default=True, help="Limit of one step.")
def main(names: tuple[str, ...], out: Path, hours: float) -> None:
    """Run the steps of all datasets, or of NAMES, and print the table.

    Exit code 1 if one failed.
    """
    from tools.real import dry, results

    out.mkdir(parents=True, exist_ok=True)
    rehearsal = os.environ.get("DRY") == "1"
    if rehearsal:
        names = names or dry.NAMES
    names = names or tuple(name for name in dataset_names() if not load_manifest(name).recipe)
    with contextlib.ExitStack() as stack:
        if rehearsal:
            stack.enter_context(dry.served(names, out / "samples"))
        rows = run_all(names, out, limit=3600 * hours)
    text = results.table(rows, dry=rehearsal)
    (out / "summary.md").write_text(text, "utf-8")
    click.echo(text)
    sys.exit(any(row["status"] != "ok" for row in rows))


def run_all(names: Sequence[str], out: Path, *, limit: float) -> list[dict[str, Any]]:
    """Run the steps without a success in ``out``; return the row of every step."""
    from tools.real.results import append, read
    from tools.real.steps import steps_of

    home = Home(out / "home")
    known = read(out)
    rows = []
    for name in names:
        missing = ""  # failed step that the next ones need
        for step, action in steps_of(name, home):
            row = known.get((name, step))
            if row is None or row["status"] != "ok":
                row = {"dataset": name, "step": step, "seconds": 0.0}
                if missing:
                    row |= {"status": "not run", "note": f"{missing} failed"}
                else:
                    click.echo(f"{name}: {step} …", err=True)
                    row |= in_process(action, limit)
                    append(out, row)
            if row["status"] != "ok" and step in {"fetch", "build"}:
                missing = missing or step
            rows.append(row)
    return rows


def in_process(action: Callable[[], str], limit: float) -> dict[str, Any]:
    """Run a step in a fork; return its status, note and seconds, however it ends."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=_send, args=(action, theirs))
    begun = time.monotonic()
    process.start()
    theirs.close()
    status = "stopped"
    note = f"after {limit:.0f} s"
    try:
        if ours.poll(limit):
            status, note = ours.recv()
    except EOFError:
        process.join()
        status = "died"
        note = f"exit status {process.exitcode}"
    finally:  # also after Ctrl-C, which does not reach a process in another session
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid or 0, signal.SIGKILL)  # and its remaining workers
        process.kill()
        process.join()
    return {"status": status, "note": note, "seconds": round(time.monotonic() - begun, 1)}


def _send(action: Callable[[], str], pipe: Any) -> None:
    os.setsid()
    try:
        pipe.send(("ok", action()))
    except Exception as error:
        lines = " ".join(str(error).split())
        pipe.send(("failed", f"{type(error).__name__}: {lines}"[:500]))


if __name__ == "__main__":
    main(prog_name="python -m tools.real")
