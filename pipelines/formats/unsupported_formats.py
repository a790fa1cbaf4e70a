"""Reject SDF molecules, TNTP networks and the raw files of OGB, with the command that converts or builds them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kmip_data.errors import Command, DamagedInput, Step
from kmip_data.pipelines.formats.file_heads import decompressed_head

#: Line of a format -> its content, the table to write, and the Python that does. Mode x never overwrites.
_CONVERSIONS = {
    rb"^M  END\s*$|V[23]000\s*$": (
        "molecules as SDF",
        "a CSV with a column of SMILES, which have atoms and bonds, without coordinates",
        (
            "from rdkit.Chem.PandasTools import LoadSDF; "
            'LoadSDF({path}, smilesName="smiles", molColName=None).to_csv({table}, index=False, mode="x")'
        ),
    ),
    rb"^<NUMBER OF |^<END OF METADATA>": (
        "a network of roads as TNTP",
        "a CSV with a row for each link",
        (
            'import io, pandas; text = open({path}).read().partition("<END OF METADATA>")[2].strip(); '
            r'table = pandas.read_csv(io.StringIO(text), sep="\t").iloc[:, 1:-1]; '
            'table.to_csv({table}, index=False, mode="x")'
        ),
    ),
}


def refuse_unsupported_format(path: Path) -> None:
    """Raise ``DamagedInput`` for SDF, TNTP or OGB's raw files, with a command that converts or builds them."""
    if path.is_dir():
        _refuse_raw_files_of_ogb(path)
    for file in [path] if path.is_file() else path.glob("*_net.tntp"):
        head = decompressed_head(file)
        for pattern, (content, expected, code) in _CONVERSIONS.items():
            if re.search(pattern, head, re.MULTILINE):
                raise _conversion_error(file, content, expected, code)


def _conversion_error(path: Path, content: str, expected: str, code: str) -> DamagedInput:
    stem = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    table = str(stem.with_suffix(".csv"))
    # JSON strings are Python literals, with double quotes that need no escape in the shell.
    code = code.format(path=json.dumps(str(path)), table=json.dumps(table))
    return DamagedInput(
        f"{path} has {content}.",
        expected=expected,
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
