"""Reject SDF molecules and the raw files of OGB, with the command that converts or builds them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kmip_data.errors import Command, DamagedInput, Step
from kmip_data.pipelines.formats.file_heads import decompressed_head

_SDF = re.compile(rb"^M  END\s*$|V[23]000\s*$", re.MULTILINE)
#: Mode x never overwrites a file.
_SDF_TO_CSV = (
    "from rdkit.Chem.PandasTools import LoadSDF; "
    'LoadSDF({path}, smilesName="smiles", molColName=None).to_csv({table}, index=False, mode="x")'
)


def refuse_unsupported_format(path: Path) -> None:
    """Raise ``DamagedInput`` for SDF or OGB's raw files, with a command that converts or builds them."""
    if path.is_dir():
        _refuse_raw_files_of_ogb(path)
    if not path.is_file() or not _SDF.search(decompressed_head(path)):
        return
    stem = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    table = str(stem.with_suffix(".csv"))
    # JSON strings are Python literals, with double quotes that need no escape in the shell.
    code = _SDF_TO_CSV.format(path=json.dumps(str(path)), table=json.dumps(table))
    raise DamagedInput(
        f"{path} has molecules as SDF.",
        expected="a CSV with a column of SMILES, which have atoms and bonds, without coordinates",
        steps=[Command("python -c", code), f"then build from {table}"],
    )


def _refuse_raw_files_of_ogb(folder: Path) -> None:
    """Raise ``DamagedInput`` for a folder as OGB's classes download it, with the command for them."""
    if not [*folder.glob("num-node-list.csv*"), *folder.glob("raw/num-node-list.csv*")]:
        return
    if folder.name == "raw":
        folder = folder.parent
    steps: list[Step] = [
        "graphs of your own: read them in three lines of Python, as in docs/errors.md"
    ]
    name = folder.name.replace("_", "-")
    task = {"ogbg": "Graph", "ogbn": "Node"}.get(name.partition("-")[0])
    if task is not None:
        command = Command(
            "kmip-data build pyg --set {} --set {} --set {} --name",
            f"class=ogb.{task.lower()}proppred:Pyg{task}PropPredDataset",
            f"name={name}",
            f"root={folder.parent}",
            f"my-{name}",
        )
        steps.insert(0, command)
    raise DamagedInput(
        f"{folder} has raw files of OGB, which only its own classes read.", steps=steps
    )
