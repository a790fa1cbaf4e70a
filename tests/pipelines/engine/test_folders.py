"""Files of the user's in or next to what a build made stay, whatever becomes of the build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.builds.toy_pipeline import (
    InProcessPipeline,
    digests,
    raw_folder,
    toy_pipeline,
    write_raw,
)

from kmip_data.builds.execution_options import ExecutionOptions
from kmip_data.builds.home import Build, Home
from kmip_data.builds.verify import verify_build
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.atomic_writes import MARKER_NAME
from kmip_data.pipelines.base import Prepared, RawCopy
from kmip_data.pipelines.build import build_from_raw
from kmip_data.pipelines.engine.plan import BuildPlan
from kmip_data.pipelines.engine.unfinished_builds import remove_work
from kmip_data.pipelines.parameters import BuildParams

GRAPHS = 12
MINE = "years of work"


def _build(folder: Path, output: Path, *, pipeline: Any = None, **parameters: Any) -> Build:
    pipeline = pipeline or toy_pipeline()
    params = pipeline.Params(**parameters)
    raw = raw_folder(folder / "raw")
    split = pipeline.SplitParams()
    options = ExecutionOptions(output=output, jobs=1, quiet=True)
    return build_from_raw(BuildPlan(pipeline, params, raw, Home(folder), options), split)


class _Failing(type(toy_pipeline())):  # type: ignore[misc]
    """Writes a file and fails, as raw files do that turn out to be damaged."""

    def prepare(self, raw: RawCopy, params: BuildParams, workdir: Path) -> Prepared:
        (workdir / "half").write_text("half")
        raise DamagedInput("The raw files are damaged.")


def _interrupted(folder: Path, output: Path, *, after: bool) -> None:
    """Leave a build as Ctrl-C does, before the first shard: in ``prepare``, or right after it."""

    class Interrupted(InProcessPipeline):
        def prepare(self, raw: RawCopy, params: Any, workdir: Path) -> Prepared:
            if not after:
                raise KeyboardInterrupt
            return super().prepare(raw, params, workdir)  # type: ignore[no-any-return]

        def units(self, prepared: Prepared, params: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _build(folder, output, pipeline=Interrupted(toy_pipeline().manifest))


def _put_in_every_folder(folder: Path) -> dict[Path, str]:
    """A file of the user's in every folder but ``work``; returns all files of the user's."""
    places = [folder, folder / "shards", folder / "splits"]
    for place in places:
        (place / "mine.txt").write_text(MINE)
        (place / "mine.partial").write_text(MINE)
    return {path: MINE for place in places for path in (place / "mine.txt", place / "mine.partial")}


def _are_there(files: dict[Path, str]) -> bool:
    return {path: path.read_text() if path.exists() else None for path in files} == files


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An output folder to be, beside raw files of a toy."""
    write_raw(tmp_path / "raw", GRAPHS)
    return tmp_path / "D"


@pytest.mark.parametrize("after", [False, True])
def test_another_build_keeps_an_unfinished_build_and_its_files(
    tmp_path: Path, place: Path, after: bool
) -> None:
    _interrupted(tmp_path, place, after=after)
    files = _put_in_every_folder(place)
    before = digests(place)
    with pytest.raises(UsageError) as caught:
        _build(tmp_path, place, k=3)
    assert caught.value.found.startswith("build ")
    assert digests(place) == before
    assert _build(tmp_path, place).card.counts["graphs"] == GRAPHS
    assert _are_there(files)


@pytest.mark.parametrize("after", [False, True])
def test_a_failed_build_removes_what_it_made_and_nothing_else(
    tmp_path: Path, place: Path, after: bool
) -> None:
    _interrupted(tmp_path, place, after=after)
    files = _put_in_every_folder(place)
    with pytest.raises(DamagedInput):
        _build(
            tmp_path,
            place,
            pipeline=(_FailingUnits if after else _Failing)(toy_pipeline().manifest),
        )
    assert _are_there(files)
    marker = place / MARKER_NAME
    assert {path for path in place.rglob("*") if path.is_file()} == {*files, marker}


class _FailingUnits(type(toy_pipeline())):  # type: ignore[misc]
    def units(self, prepared: Prepared, params: Any) -> Any:
        raise DamagedInput("The raw files are damaged.")


def test_a_failed_build_leaves_nothing_of_its_own(tmp_path: Path, place: Path) -> None:
    with pytest.raises(DamagedInput):
        _build(tmp_path, place, pipeline=_Failing(toy_pipeline().manifest))
    assert not place.exists()
    place.mkdir()  # a folder of the user's
    with pytest.raises(DamagedInput):
        _build(tmp_path, place, pipeline=_Failing(toy_pipeline().manifest))
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("card", [None, "{}", '{"dataset": "mine", "key": 3}', "{"])
def test_a_foreign_folder_is_refused(tmp_path: Path, place: Path, card: str | None) -> None:
    for name in ("src/thesis.tex", "work/notes", "shards/00000.h5", "draft.partial"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(MINE)
    if card is not None:
        (place / "card.json").write_text(card)
    before = digests(place)
    for pipeline in (_Failing(toy_pipeline().manifest), None):
        with pytest.raises(UsageError) as caught:
            _build(tmp_path, place, pipeline=pipeline)
        assert "draft.partial" in caught.value.found
        assert digests(place) == before


def test_a_finished_build_keeps_files_and_loses_its_work_folder(
    tmp_path: Path, place: Path
) -> None:
    build = _build(tmp_path, place)
    (place / "work").mkdir()
    (place / "work/half").write_text("half")
    (place / "draft.partial").write_text(MINE)
    assert _build(tmp_path, place).card == build.card
    remove_work(place)
    assert not (place / "work").exists()
    assert (place / "draft.partial").read_text() == MINE
    assert verify_build(place).ok
    (place / MARKER_NAME).unlink()  # it may be somebody else's
    (place / "work").mkdir()
    remove_work(place)
    assert (place / "work").exists()
