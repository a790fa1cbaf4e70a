"""Builds with one job run in the process of the tests, where it is not the engine that is tested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kmip_data.pipelines.engine import run


@pytest.fixture(autouse=True, scope="module")
def _one_job_runs_here(request: pytest.FixtureRequest) -> Iterator[None]:
    """A worker process takes 2 to 4 s to start; bytes and errors are the same (``engine/test_pool.py``)."""
    open_executor = run.open_executor

    def here(options: Any, work: Any, *, jobs: int, **more: Any) -> Any:
        return open_executor(options, work, jobs=jobs, **{**more, "here": more.get("here") or jobs == 1})

    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name != "engine" and request.path.name != "test_build.py":
            patch.setattr(run, "open_executor", here)
        yield
