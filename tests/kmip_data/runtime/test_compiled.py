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


def test_without_a_place_for_it(tmp_path):
    # Names that cannot be folders, for root too: the source's own cache folder and the user's.
    (tmp_path / "__pycache__").write_text("")
    (tmp_path / "home").write_text("")
    nowhere = str(tmp_path / "home")
    options = {"HOME": nowhere, "XDG_CACHE_HOME": nowhere, "IPYTHONDIR": nowhere}
    assert run(tmp_path, **options) == "None"
