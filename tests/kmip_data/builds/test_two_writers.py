"""Two processes that build one folder, one of them held at a chosen file operation."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.forks import NEVER, Writer, count, play
from support.toy_pipeline import ToySplitParams, build_toy, digests, toy_pipeline, write_raw

from kmip_data.builds.home import Build
from kmip_data.errors import KmipDataError
from kmip_data.format.card import read_card
from kmip_data.pipelines import build as builds


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "pipeline_of", lambda _: toy_pipeline())  # it is not installed


def rounds(folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """Hold a build, or one that adds a split, at each of its changes, while another begins."""
    write_raw(folder / "raw", 6)
    output, said = folder / "place/D", folder / "count.said"

    def build(k: int, place: Path = output) -> int:
        try:
            build_toy(folder, jobs=1, one_unit=True, output=place, parameters={"k": k})
        except KmipDataError as error:
            print(error)  # noqa: T201
            return error.exit_code
        return 0

    def add(fold: int) -> int:
        built = Build(output, read_card(output))
        builds._add_split(built, toy_pipeline(), ToySplitParams(fold=fold), None, quiet=False)
        return 0

    expected = {k: digests(folder / f"k{k}") for k in (2, 3) if build(k, folder / f"k{k}") == 0}

    def begin(n: int, first: Callable[[], int], second: Callable[[], int]) -> tuple[int, int, str]:
        """Hold the first; go on with the second until it waits or has ended; then both to the end."""
        one = Writer(first, output.parent, n, folder / "a.said")
        one.until_held()
        two = Writer(second, output.parent, NEVER, folder / "b.said")
        two.until_held()
        return one.finish(), two.finish(), one.said.read_text() + two.said.read_text()

    def tidy(said: str) -> str:
        place = output.parent
        left = [path.name for path in place.rglob("*") if "partial" in path.name or path.name == "work"]
        left += [path.name for path in place.iterdir() if path != output]
        return f"left: {left}" if left else said if "Traceback" in said else ""

    def of_builds(n: int, k: int) -> str:
        shutil.rmtree(output.parent, ignore_errors=True)
        output.parent.mkdir()
        *codes, said = begin(n, lambda: build(2), lambda: build(k))
        if k == 2 and codes != [0, 0]:
            return f"{codes} {said}"
        if k != 2 and (sorted(codes) != [0, 2] or "holds something else" not in said):
            return f"{codes} {said}"
        if digests(output) != expected[2 if codes[0] == 0 else k]:
            return "another build"
        return tidy(said)

    def of_splits(n: int) -> str:
        shutil.rmtree(output.parent, ignore_errors=True)
        shutil.copytree(folder / "k2", output)
        *codes, said = begin(n, lambda: add(1), lambda: add(2))
        splits = set(read_card(output).splits)
        if codes != [0, 0] or splits != {"graph-fold0", "graph-fold1", "graph-fold2"}:
            return f"{splits} {said}"
        return tidy(said)

    output.parent.mkdir()
    for n in range(count(lambda: build(2), output.parent, said)):
        for k in (2, 3):
            yield f"build {n}, {k}", lambda n=n, k=k: of_builds(n, k)
    for n in range(count(lambda: add(1), output.parent, said)):
        yield f"split {n}", lambda n=n: of_splits(n)


def test_two_writers_of_one_build(tmp_path: Path) -> None:
    assert play(rounds(tmp_path), most=6) == 6


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(2))
def test_two_writers_of_one_build_at_any_moment(
    tmp_path: Path, part: int, torture_count: Callable[..., None]
) -> None:
    torture_count("two writers", play(rounds(tmp_path), part=part, parts=2))
