"""Two processes that write the same thing, one or both of them held at a chosen file operation.

What is written is imported once, by the process that this module is run as; each writer is a fork of it.

    python -m support.two_writers SCENARIO FOLDER [ROUNDS [PART PARTS]]

prints a JSON object for each round: what it was, and what was wrong; empty if nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from support.file_operations import served, watch
from support.links import difference, states

NEVER = 10**9
SECONDS = 300.0  #: after which a writer hangs


def rounds(
    scenario: str, folder: Path, *, most: int = NEVER, part: int = 0, parts: int = 1
) -> list[dict[str, str]]:
    """Play rounds of a scenario in a process of their own; at most so many, the ``part``-th of ``parts``."""
    return list(served("support.two_writers", scenario, folder, most, part, parts, cwd=folder))


def play(scenario: str, folder: Path, *, most: int = NEVER, part: int = 0, parts: int = 1) -> int:
    """Play :func:`rounds`, in none of which anything may be wrong; return how many there were."""
    played = rounds(scenario, folder, most=most, part=part, parts=parts)
    assert [entry for entry in played if entry["fault"]] == []
    return len(played)


class Writer:
    """A fork that runs ``action`` and is held before its n-th change below ``folder``."""

    def __init__(self, action: Callable[[], int], folder: Path, n: int, said: Path) -> None:
        self.said, self.code = said, None
        self._held, held = os.pipe()
        go, self._go = os.pipe()
        said.write_text("")
        self.pid = os.fork()
        if self.pid == 0:
            self._act(action, folder, n, held, go)
        os.close(held)
        os.close(go)

    def _act(self, action: Callable[[], int], folder: Path, n: int, held: int, go: int) -> None:
        os.close(self._held)
        os.close(self._go)
        descriptor = os.open(self.said, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        read, write = os.read, os.write

        def before(seen: int, name: str, path: str) -> None:
            if seen == n:
                write(held, f"{name} {Path(path).name}".encode())
                read(go, 1)

        watch(folder, before)
        code = 70
        try:
            code = action()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def until_held(self) -> Literal["held", "waits", "ended"]:
        """Go on until it is held, waits for another, or has ended."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if select.select([self._held], [], [], 0.02)[0]:
                if operation := os.read(self._held, 1000):
                    self.operation = operation.decode()
                    return "held"
                self.wait()
                return "ended"
            if "waiting for" in self.said.read_text():
                return "waits"
        self.kill()
        raise TimeoutError(self.said.read_text())

    def let_go(self) -> None:
        """Let it go on."""
        with contextlib.suppress(OSError):
            os.write(self._go, b"x")

    def kill(self) -> None:
        """End it where it is."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Return how it ended (negative: by a signal)."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._held)
            os.close(self._go)
        return self.code

    def finish(self) -> int:
        """Let it go on to its end."""
        self.let_go()
        return self.wait()


def count(action: Callable[[], int], folder: Path, said: Path) -> int:
    """Return how many changes below ``folder`` the action makes."""
    log = said.with_suffix(".count")

    def counted() -> int:
        watch(folder, lambda n, *_: log.write_text(str(n + 1)) and None)
        return action()

    writer = Writer(counted, folder / "of nobody", NEVER, said)
    assert writer.wait() == 0, said.read_text()
    return int(log.read_text())


# One build


def _of_one_build(folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    from support.toy_pipeline import ToySplitParams, build_toy, digests, toy_pipeline, write_raw

    from kmip_data.builds.home import Build
    from kmip_data.errors import KmipDataError
    from kmip_data.format.card import read_card
    from kmip_data.pipelines import build as builds

    write_raw(folder / "raw", 6)
    builds.pipeline_of = lambda _: toy_pipeline()  # the toy is not installed
    output = folder / "place/D"

    def build(k: int, place: Path = output) -> int:
        try:
            build_toy(folder, jobs=1, one_unit=True, output=place, parameters={"k": k})
        except KmipDataError as error:
            print(error)  # noqa: T201
            return error.exit_code
        return 0

    def add(fold: int) -> int:
        builds._add_split(
            Build(output, read_card(output)), toy_pipeline(), ToySplitParams(fold=fold), None, quiet=False
        )
        return 0

    expected = {}
    for k in (2, 3):
        assert build(k, folder / f"k{k}") == 0
        expected[k] = digests(folder / f"k{k}")

    def tidy(*writers: Writer) -> str:
        left = [
            path.name for path in output.parent.rglob("*") if "partial" in path.name or path.name == "work"
        ]
        left += [path.name for path in output.parent.iterdir() if path != output]
        said = "".join(writer.said.read_text() for writer in writers)
        return f"left: {left}" if left else said if "Traceback" in said else ""

    def begin(n: int, first: Callable[[], int], second: Callable[[], int]) -> tuple[Writer, Writer]:
        """Hold the first; go on with the second until it waits or has ended; then both to the end."""
        one = Writer(first, output.parent, n, folder / "a.said")
        one.until_held()
        two = Writer(second, output.parent, NEVER, folder / "b.said")
        two.until_held()
        one.finish()
        two.finish()
        return one, two

    def play(n: int, k: int) -> str:
        shutil.rmtree(output.parent, ignore_errors=True)
        output.parent.mkdir()
        one, two = begin(n, lambda: build(2), lambda: build(k))
        codes = one.wait(), two.wait()
        said = one.said.read_text() + two.said.read_text()
        if k == 2 and codes != (0, 0):
            return f"{codes} {said}"
        if k != 2 and (sorted(codes) != [0, 2] or "holds something else" not in said):
            return f"{codes} {said}"
        if digests(output) != expected[2 if codes[0] == 0 else k]:
            return "another build"
        return tidy(one, two)

    def play_splits(n: int) -> str:
        shutil.rmtree(output.parent, ignore_errors=True)
        shutil.copytree(folder / "k2", output)
        one, two = begin(n, lambda: add(1), lambda: add(2))
        splits = set(read_card(output).splits)
        if (one.wait(), two.wait()) != (0, 0) or splits != {"graph-fold0", "graph-fold1", "graph-fold2"}:
            return f"{splits} {one.said.read_text()}{two.said.read_text()}"
        return tidy(one, two)

    output.parent.mkdir()
    most = count(lambda: build(2), output.parent, folder / "count.said")
    for n in range(most):
        for k in (2, 3):
            yield f"build {n}, {k}", lambda n=n, k=k: play(n, k)  # type: ignore[misc]
    for n in range(count(lambda: add(1), output.parent, folder / "count.said")):
        yield f"split {n}", lambda n=n: play_splits(n)  # type: ignore[misc]


# One run folder


def _of_one_run(folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    from support.training_data import learnable_build

    from kmip_data.cli.main import run as command

    small = [
        word
        for key in ("layers=1", "hidden_dim=8", "attention.heads=2", "attention.k=3")
        for word in ("--set", f"model.{key}")
    ]
    home = folder / "home"
    runs = home / "runs/clouds/gps-kmip"

    def train(name: str, place: Path = home) -> int:
        words = ["train", "--dataset", str(folder / "build"), "--home", str(place), "--epochs", "2", "-q"]
        return command([*words, "--device", "cpu", "--set", "training.batch_size=4", "--name", name, *small])

    def resume() -> int:
        return command(["train", "--resume", str(runs / "run"), "--home", str(home), "-q"])

    def play(n: int, second: Callable[[], int]) -> str:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        one = Writer(lambda: train("run"), home, n, folder / "a.said")
        one.until_held()
        before = states(home)
        two = Writer(second, home, NEVER, folder / "b.said")
        state = two.until_held()
        after = states(home)
        codes = one.finish(), two.finish()
        said = f"{one.operation}: {codes} {state}\n{one.said.read_text()}{two.said.read_text()}"
        if "Traceback" in said or sorted(codes) not in ([0, 0], [0, 2]):
            return said
        if codes[0] == 0 and after != before:
            return f"{said}\n{difference(before, after)}"
        if (runs / "run/model.safetensors").read_bytes() != weights:
            return f"other weights: {said}"
        left = [path.name for path in runs.rglob("*") if "partial" in path.name]
        left += [path.name for path in runs.iterdir() if path.name != "run"]
        return f"left: {left}, {said}" if left else ""

    learnable_build(folder / "build")
    assert train("run", folder / "whole") == 0  # imports and kernels: what every fork begins with
    weights = (folder / "whole/runs/clouds/gps-kmip/run/model.safetensors").read_bytes()
    home.mkdir()
    for n in range(count(lambda: train("run"), home, folder / "count.said")):
        yield f"{n}, resume", lambda n=n: play(n, resume)  # type: ignore[misc]
        yield f"{n}, the same name", lambda n=n: play(n, lambda: train("run"))  # type: ignore[misc]


SCENARIOS = {"build": _of_one_build, "run": _of_one_run}


def main() -> None:
    """Serve the command line that the module says."""
    scenario, folder = SCENARIOS[sys.argv[1]], Path(sys.argv[2])
    most, part, parts = map(int, sys.argv[3:6])
    with contextlib.redirect_stdout(sys.stderr):
        played = list(scenario(folder))
    chosen = random.Random(0).sample(played, min(most, len(played)))
    for title, play in chosen[part::parts]:
        print(json.dumps({"round": title, "fault": play()}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
