"""Compiled kernels are cached, compiled again where one changed, and need no place for a cache."""

from pathlib import Path

import pytest
from support.cli import python

from kmip_data.runtime.compiling import COMPILING_NOTICE

CODE = (
    "import sys; sys.path.insert(0, {folder!r})\n"
    "import kernel; assert kernel.double(4) == 8; stats = kernel.double.stats\n"
    "print(stats.cache_path, sum(stats.cache_misses.values()))\n"
)
KERNEL = "from kmip_data.runtime.parallel import njit_nogil\n@njit_nogil()\ndef double(x):\n    return 2 * x\n"


def run(folder: Path, before: str = "", **environment: str) -> list[str]:
    """Run a kernel in a new process; return where its code is cached and the times it was compiled."""
    (folder / "kernel.py").write_text(KERNEL)
    code = before + CODE.format(folder=str(folder))
    return python("-B", "-c", code, **environment).out.split()


@pytest.mark.slow
def test_machine_code_is_cached_until_a_kernel_changes(tmp_path):
    """Numba itself looks at the file of the outer kernel alone, which holds the code of the others."""
    cache = str(tmp_path / "cache")
    newer = "import kmip_data.runtime.parallel as t; t._newest_kernel_time = lambda: 7\n"
    for before, misses in (("", "1"), ("", "0"), (newer, "1")):
        path, counts = run(tmp_path, before, NUMBA_CACHE_DIR=cache)
        assert path.startswith(cache)
        assert counts == misses


def test_kernels_without_a_cache_folder_are_not_cached(tmp_path):
    # Names that cannot be folders, for root too: the source's own cache folder and the user's.
    (tmp_path / "__pycache__").write_text("")
    (tmp_path / "home").write_text("")
    names = ("HOME", "XDG_CACHE_HOME", "IPYTHONDIR")
    assert run(tmp_path, **dict.fromkeys(names, str(tmp_path / "home")))[0] == "None"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("silent", "notices"),
    [(0, [COMPILING_NOTICE]), pytest.param(1000, [], marks=pytest.mark.torture)],
)
def test_slow_compilation_is_logged_once_and_excluded_from_timings(tmp_path, silent, notices):
    """The clock of trainings stands still. A notice comes before a further kernel, on the first run."""
    code = (
        "import sys, time; sys.path.insert(0, {folder!r})\n"
        "from kmip_data.runtime import compiling\n"
        "compiling.announce_compiling(print)\n"
        "compiling.NOTICE_AFTER_SECONDS = {silent}\n"
        "import kernel\n"
        "wall, work = time.perf_counter(), compiling.time_without_compiling()\n"
        "kernel.double(4); kernel.double(4.0); kernel.double(4j)\n"
        "wall, work = time.perf_counter() - wall, compiling.time_without_compiling() - work\n"
        "print(work < wall - 0.01)\n"
    )
    (tmp_path / "kernel.py").write_text(KERNEL)
    code = code.format(folder=str(tmp_path), silent=silent)
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    first = python("-B", "-c", code, **environment).out.splitlines()
    second = python("-B", "-c", code, **environment).out.splitlines()
    assert first == [*notices, "True"]
    assert second == ["False"]
