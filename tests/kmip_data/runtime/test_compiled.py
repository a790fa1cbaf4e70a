"""Kernels compile also where nothing can be cached."""

from pathlib import Path

from support.cli import python

CODE = (
    "import sys; sys.path.insert(0, {folder!r})\n"
    "import kernel; assert kernel.double(4) == 8; print(kernel.double.stats.cache_path)\n"
)
KERNEL = "from kmip_data.runtime.threads import njit_nogil\n@njit_nogil()\ndef double(x):\n    return 2 * x\n"


def run(folder: Path, **environment: str) -> str:
    (folder / "kernel.py").write_text(KERNEL)
    return python("-B", "-c", CODE.format(folder=str(folder)), **environment).out.strip()


def test_machine_code_is_kept(tmp_path):
    assert run(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache")).startswith(
        str(tmp_path / "cache")
    )
    assert list(tmp_path.glob("cache/*/*.nbc"))


def test_machine_code_is_made_again_where_a_kernel_of_the_package_changed(tmp_path):
    """Numba itself looks at the file of the outer kernel alone, which holds the code of the others."""
    cache = str(tmp_path / "cache")
    run(tmp_path, NUMBA_CACHE_DIR=cache)
    code = CODE + "print(sum(kernel.double.stats.cache_misses.values()))"
    newer = "import kmip_data.runtime.threads as t; t._newest_kernel = lambda: 7\n"
    for before, misses in (("", "0"), (newer, "1")):
        text = before + code.format(folder=str(tmp_path))
        assert python("-B", "-c", text, NUMBA_CACHE_DIR=cache).out.split()[-1:] == [misses]


def test_without_a_place_for_it(tmp_path):
    # Names that cannot be folders, for root too: the source's own cache folder and the user's.
    (tmp_path / "__pycache__").write_text("")
    (tmp_path / "home").write_text("")
    nowhere = str(tmp_path / "home")
    options = {"HOME": nowhere, "XDG_CACHE_HOME": nowhere, "IPYTHONDIR": nowhere}
    assert run(tmp_path, **options) == "None"
