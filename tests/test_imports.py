"""Importing is cheap, complete, and works from the clone however the project is installed."""

from __future__ import annotations

import importlib
import multiprocessing
import pkgutil
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from support.builds.written import numbered_build
from support.cli import python
from support.raises import raises
from support.shared import ROOT

import kmip_data
import kmip_data.graphs
import kmip_data.models

HEAVY = ["torch", "torch_geometric", "lightning", "h5py", "numpy", "numba"]
HEAVY += ["pydantic", "matplotlib", "requests"]


def run(code: str) -> str:
    return python("-c", code).out.strip()


def test_import_kmip_data_loads_nothing_heavy():
    assert run(f"import sys, kmip_data; print(sorted(set({HEAVY}) & set(sys.modules)))") == "[]"


def test_modules_named_by_messages_are_available_at_once():
    """In a fork without our modules, which has PyTorch: a new process imports it for 5 s."""

    def name_them() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "kmip_data"]:
            del sys.modules[name]
        names = "kmip_data.errors.UsageError, kmip_data.plugins.load"
        names += ", kmip_data.graphs.expander_targets, kmip_data.models.evaluate_predictions"
        exec(f"import kmip_data; {names}", {})

    fork = multiprocessing.get_context("fork").Process(target=name_them)
    fork.start()
    fork.join(600)
    assert fork.exitcode == 0


def test_modules_load_only_what_they_need_and_an_iterator_in_use_at_exit_is_silent(tmp_path):
    """One process imports in this order; each assertion also forbids the modules to all imports before it."""
    code = """
import sys
import kmip_data.models as models
assert not {"pydantic", "torch"} & set(sys.modules)
models.load_preset("s3dis"), models.ModelConfig(positional="rwse", attention="none")
import kmip_data.graphs.knn
assert not {"numba", "torch"} & set(sys.modules)
import kmip_data.models.search, torch
assert not {"numba", "pykeops"} & set(sys.modules)
import kmip_data.models.training.self_check
assert "torch._dynamo" not in sys.modules  # takes longer than PyTorch, and doctor has processes
from kmip_data.models.attention import torch_kernels, kmip, operators
assert operators.triton_or_torch_kernels(torch.ones(1)) is torch_kernels
assert not [name for name in sys.modules if "attention.gpu" in name]
import kmip_data.reading.loader
assert "lightning" not in sys.modules
import kmip_data.cli.main, kmip_data.models.training.run.train, kmip_data.pipelines.datasets.s3dis
assert not {"osmnx", "osmium", "shapely"} & set(sys.modules)
iterator = iter(kmip_data.GraphLoader(kmip_data.ShardedDataset(sys.argv[1]), 2))
print(next(iterator).num_graphs)
"""
    numbered_build(tmp_path / "numbers", 50)
    done = python("-c", code, tmp_path / "numbers")
    assert (done.out, done.err) == ("2\n", "")


def test_pipelines_load_no_torch():
    """Workers of a build import the pipelines: torch would cost each of them seconds and memory."""
    names = [
        name
        for _, name, _ in pkgutil.walk_packages([str(ROOT / "pipelines")], "kmip_data.pipelines.")
    ]
    assert "kmip_data.pipelines.engine.resumable_build" in names
    code = f"import importlib, sys; [importlib.import_module(n) for n in {names}]; print('torch' in sys.modules)"
    assert run(code) == "False"


def test_every_module_imports_and_has_a_docstring():
    names = [
        info.name
        for info in pkgutil.walk_packages([str(ROOT / "kmip_data")], "kmip_data.")
        if not info.name.endswith("__main__")
    ]
    assert {"kmip_data.cli.main", "kmip_data.models.network"} < set(names)
    for name in names:
        assert (importlib.import_module(name).__doc__ or "").split("\n")[0].strip(), name


def test_public_names_exist():
    """The lists are the stubs, which type checkers read."""
    stub = Path(kmip_data.__file__).with_suffix(".pyi").read_text("utf-8")
    assert {*re.findall(r"^from \S+ import \w+ as (\w+)", stub, re.MULTILINE)} <= {
        *kmip_data.__all__
    }
    assert {"GPSLayer", "KMIPAttention", "build_model", "topk_inner_product"} < set(
        kmip_data.models.__all__
    )
    for package in (kmip_data, kmip_data.models):
        assert not [name for name in package.__all__ if getattr(package, name) is None]
        with pytest.raises(AttributeError):
            _ = package.no_such_name
    assert set(kmip_data.__all__) <= set(dir(kmip_data))


WITHOUT_EDITABLE = """
import sys
sys.path = [folder for folder in sys.path if not folder.endswith("/src")]
"""


def test_clone_works_with_nothing_installed():
    """The clone's root can be imported and run with only the dependencies installed."""
    names = "kmip_data, kmip_data.models, kmip_data.pipelines.base, kmip_data.cli.main"
    code = f"{WITHOUT_EDITABLE}\nimport {names}\nprint(kmip_data.models.__file__)"
    assert run(code) == str(ROOT / "kmip_data" / "models" / "__init__.py")
    assert kmip_data.__version__ in python("-m", "kmip_data", "--version").out


PROGRAMS = {
    "console script": "from kmip_data.cli.main import main; main()",
    "module": "",
    "library": "import os; from kmip_data import build_own;"
    "build_own('graphs', 'table', {'path': 'table.xlsx'}, memory='2GiB');"
    "assert 'PYTHONSAFEPATH' not in os.environ",
}
#: Commands that start workers, a process for a workbook and runs of a sweep, and draw.
COMMANDS = (
    "build graphs --archive table.xlsx --name table --memory 2GiB",
    "sweep --dataset table --epochs 1 --seeds 1 --set system.device=cpu",
    "preview table",
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_but_named_files_of_the_current_folder_is_read(tmp_path, program) -> None:
    """Neither modules nor settings, here or in child processes."""
    folder = tmp_path / "stranger's"
    folder.mkdir()
    imported = tmp_path / "imported"
    names = {module.name for module in pkgutil.iter_modules()} - {"kmip_data"}
    if program == "module":  # Python and this package load some before it can be prevented
        names -= set(
            run("import __future__, ast, lazy_loader, runpy, sys; print(*sys.modules)").split()
        )
    for name in names:
        code = f"open({str(imported)!r}, 'a').write(__name__ + ' ')"
        (folder / f"{name}.py").write_text(code)
    table = pd.DataFrame({"smiles": ["CCO", "CCN", "CCC", "CC"] * 5, "y": [1, 0] * 10})
    table.to_excel(folder / "table.xlsx", index=False)

    start: list[object] = ["-m", "kmip_data"]
    commands = COMMANDS[:1]
    if program != "module":
        script = tmp_path / "script.py"
        script.write_text(PROGRAMS[program])
        start = [script]
    if program == "console script":
        commands = COMMANDS
    if program != "library":  # whose process may read settings
        (folder / ".numba_config.yaml").write_text("cache_dir: [")
        (folder / "matplotlibrc").write_bytes(b"\xff")
    variables = {"KMIP_DATA_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    for command in commands:
        python(*start, *command.split(), cwd=folder, **variables)
    assert not imported.exists(), imported.read_text()


def test_names_of_folders_are_not_importable_elsewhere(tmp_path, monkeypatch):
    """``models``, ``cli`` and so on exist under ``kmip_data`` only."""
    names = ["models", "cli", "pipelines", "manifests", "tests", "src"]
    code = f"import importlib.util as u; print([n for n in {names} if u.find_spec(n) is not None])"
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert python("-c", code, cwd=tmp_path).out.strip() == "[]"


def test_dir_shows_public_names_alone():
    for package in (kmip_data, kmip_data.models, kmip_data.graphs):
        assert dir(package) == sorted(package.__all__)


def test_names_of_other_libraries_suggest_our_names():
    """And what they name exists."""
    for name, ours in kmip_data._COUNTERPARTS.items():
        with raises(ImportError, naming=[name, ours]):
            getattr(kmip_data, name)
        for word in re.findall(r"(?:models\.)?[A-Za-z]\w+", ours.replace(" or ", " ")):
            if word[0].isupper():
                assert word in kmip_data.__all__, word


def test_layers_name_no_concern_of_the_whole_step():
    """Recomputation, captured steps, padding, several processes and versions are matters around a network."""
    concerns = re.compile(
        r"COUNTED|PADDING|[Rr]ows\.first|trusted|replay|partition|\brepeated\b|\barithmetic\("
    )
    sources = [*(ROOT / "models/layers").rglob("*.py"), *(ROOT / "models/attention").rglob("*.py")]
    assert len(sources) > 20
    naming = {path.name: concerns.findall(path.read_text()) for path in sources}
    assert not {name: words for name, words in naming.items() if words}
