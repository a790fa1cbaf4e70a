"""The wheel and the sdist: complete, nothing beside ``kmip_data``, working from an empty folder."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from support.cli import python
from support.shared import ROOT
from support.wheel import CODE, build_copy

import kmip_data

LINKS = {"src/kmip_data": "../kmip_data"} | {f"kmip_data/{name}": f"../{name}" for name in CODE[1:]}
IMPORTED_AS = {
    "torch-geometric": "torch_geometric",
    "tomli-w": "tomli_w",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "lazy-loader": "lazy_loader",
    "python-calamine": "python_calamine",
}
SEAMS = {
    "wandb",
    "mlflow",
    "pyarrow",
    "tensorboard",
    "tensorboardX",
}  #: installed if wanted
COME_WITH = {
    "lazrs",
    "llvmlite",
    "mpl_toolkits",
    "pydantic_core",
}  #: laspy, numba, matplotlib, pydantic
#: Asked for where they are missing.
OF_EXTRAS = {
    "lightning",
    "PIL",
    "rdkit",
    "skimage",
    "dask",
    "distributed",
    "huggingface_hub",
    "laspy",
}
DEV_ONLY = {"geopandas", "ogb"}  #: compared with in benchmarks


def requirements() -> list[str]:
    """``install_requires`` of setup.py, as written."""
    tree = ast.parse((ROOT / "setup.py").read_text("utf-8"))
    call = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "setup"
    )
    return ast.literal_eval(
        next(word.value for word in call.keywords if word.arg == "install_requires")
    )


def names_of(lines: list[str]) -> set[str]:
    return {re.match(r"[\w-]+", text)[0] for text in lines}


def test_every_requirement_is_pinned_and_has_its_reason():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {re.split("[=<>]", line)[0].lower().replace("_", "-") for line in lines}
    table = (ROOT / "docs" / "install.md").read_text("utf-8").split("## Packages")[1]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    named = set(re.findall(r"[\w-]+", " ".join(rows)))
    for name in names_of(requirements()):
        assert name in pins, f"{name} is not pinned in constraints.txt"
        assert name in named, f"{name} has no reason in docs/install.md"
    assert "torch==2.13.0" in lines


def test_every_import_is_declared():
    """Imports are of the standard library, ourselves, or a requirement."""
    declared = {IMPORTED_AS.get(name, name) for name in names_of(requirements())}
    known = declared | SEAMS | OF_EXTRAS | DEV_ONLY | COME_WITH | set(sys.stdlib_module_names)
    known |= {"kmip_data", "triton", "cuda"}
    for folder in CODE:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names = [node.module]
                for name in names:
                    assert name.split(".")[0] in known, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.slow
def test_wheel_holds_the_code_the_data_and_nothing_else(built):
    names = zipfile.ZipFile(next(built.glob("*.whl"))).namelist()
    info = f"kmip_data-{kmip_data.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"kmip_data", info}
    for folder in CODE:
        prefix = "" if folder == "kmip_data" else f"{folder}/"
        for path in (ROOT / folder).rglob("*"):
            shipped = {".py", ".pyi", ".toml", ".js", ".css", ".html", ".cu", ".cuh"}
            if path.suffix in shipped or path.name == "py.typed" or path.parent.name == "assets":
                assert f"kmip_data/{prefix}{path.relative_to(ROOT / folder).as_posix()}" in names, (
                    path
                )


@pytest.mark.slow
def test_sdist_holds_what_building_and_testing_need(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = sdist.getnames()
        links = {info.name: info.linkname for info in sdist.getmembers() if info.issym()}
    inside = {name.split("/", 1)[1] for name in names if "/" in name}
    wanted = "setup.py pyproject.toml constraints.txt README.md LICENSE"
    wanted += " manifests/datasets/s3dis/dataset.toml tests/test_x.py"
    wanted += " CITATION.cff .zenodo.json SECURITY.md Dockerfile"
    wanted += " .github/workflows/release.yml conda/recipe.yaml"
    assert set(wanted.split()) <= inside
    assert not [name for name in inside if name.startswith(("build/", ".venv"))]
    assert {name.split("/", 1)[1]: target for name, target in links.items()} == LINKS
    assert {"kmip_data/errors.py", "models/network.py", "cli/main.py"} < inside
    assert not [name for name in inside if name.startswith("src/") and name.endswith(".py")]


@pytest.mark.torture
def test_built_elsewhere_both_have_the_same_bytes(built, tmp_path):
    again = build_copy(tmp_path / "other", date=10**9)
    first, second = ({path.name: path.read_bytes() for path in d.iterdir()} for d in (built, again))
    assert len(first) == 2
    assert [name for name in first if first[name] != second[name]] == []


@pytest.mark.slow
def test_installed_wheel_works_from_an_empty_folder(installed, tmp_path):
    assert {path.name for path in installed.iterdir()} <= {
        "kmip_data", "bin", "share", f"kmip_data-{kmip_data.__version__}.dist-info",
    }  # fmt: skip
    environment = {"PYTHONPATH": str(installed), "KMIP_DATA_HOME": str(tmp_path / "home")}

    def run(*args: str) -> str:
        return python(*args, cwd=tmp_path, **environment).out

    code = (
        "import kmip_data.models, kmip_data.cli.main as commands\n"
        "print(kmip_data.__file__, kmip_data.models.__file__, commands.__file__)\n"
        "commands.run_command_line(['list', '--all', '--json'])"
    )
    printed = run("-c", code)
    assert printed.count(str(installed)) == 3
    assert '"shapenet-part"' in printed
    line = "-m kmip_data build malnet-tiny --sample --limit 2 -q --json"  # compiles nothing
    assert str(tmp_path / "home") in run(*line.split())
    entries = next(installed.glob("*.dist-info/entry_points.txt")).read_text()
    assert "kmip-data = kmip_data.cli.main:main" in entries


@pytest.mark.slow
def test_clone_works_next_to_an_ordinary_install(installed):
    """In the clone, whose folder comes first in the path, imports find the clone's sub-packages."""
    code = "import kmip_data.models, kmip_data.cli.main; print(kmip_data.models.__file__)"
    path = python("-c", code, PYTHONPATH=str(installed)).out.strip()
    assert path == str(ROOT / "kmip_data" / "models" / "__init__.py")


@pytest.mark.parametrize(("python_version", "code"), [("3.13", 2), ("3.14", 0)])
def test_a_missing_required_python_fails(tmp_path, python_version, code):
    """``make test-pythons`` where the PATH has no Python of that version."""
    for tool in ("make", "bash", "sh"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    command = ["make", "test-pythons", f"PYTHONS={python_version}"]
    done = subprocess.run(
        command, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert f"not here {python_version}" in done.stdout
    assert done.returncode == code, done.stderr


def test_links_lead_to_the_folders():
    """Links are relative, so that a clone may lie anywhere."""
    assert {link: (ROOT / link).readlink().as_posix() for link in LINKS} == LINKS


def test_a_checkout_without_links_is_refused(tmp_path):
    """Without symbolic links git writes files with the targets' names; setup.py refuses such a checkout."""
    shutil.copy(ROOT / "setup.py", tmp_path)
    for link, target in LINKS.items():
        path = tmp_path / link
        path.parent.mkdir(exist_ok=True)
        path.write_text(target)
    refused = python("setup.py", "--version", cwd=tmp_path, code=1)
    assert "src/kmip_data is not a link to a folder" in refused.err
    assert "core.symlinks" in refused.err
