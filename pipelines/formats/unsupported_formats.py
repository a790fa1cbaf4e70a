"""Refuse files of other programs, with the command that converts them: spreadsheets, and molecules as SDF."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.formats.file_heads import decompressed_head

_SHEETS = {".xlsx", ".xls", ".ods"}
_SDF = re.compile(rb"^M  END\s*$|V[23]000\s*$", re.MULTILINE)
#: Mode x never replaces a file.
_OF_SHEET = 'import pandas; pandas.read_excel({path}).to_csv({table}, index=False, mode="x")'
_OF_SDF = (
    "from rdkit.Chem.PandasTools import LoadSDF; "
    'LoadSDF({path}, smilesName="smiles", molColName=None).to_csv({table}, index=False, mode="x")'
)


def refuse_unsupported_format(path: Path) -> None:
    """Raise ``DamagedInput`` for a spreadsheet or an SDF, with the way to a CSV."""
    stem = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    table = str(stem.with_suffix(".csv"))
    # Texts of JSON are texts of Python, in the quotes that the shell leaves alone.
    names = {"path": json.dumps(str(path)), "table": json.dumps(table)}
    build = f"then pass the CSV: --archive {shlex.quote(table)}"
    if path.suffix.lower() in _SHEETS:
        step = f"save the sheet as CSV, {build}"
        if path.suffix.lower() == ".xlsx":
            package = "" if importlib.util.find_spec("openpyxl") else "pip install openpyxl; "
            command = shlex.quote(_OF_SHEET.format(**names))
            step = f"save the sheet as CSV, or its first sheet by: {package}python -c {command}; {build}"
        raise DamagedInput(f"{path} is a spreadsheet, not a table of text.", next=step)
    if _SDF.search(decompressed_head(path)):
        raise DamagedInput(
            f"{path} has molecules as SDF.",
            expected="a CSV with a column of SMILES, which have atoms and bonds, without coordinates",
            next=f"python -c {shlex.quote(_OF_SDF.format(**names))}; {build}",
        )
