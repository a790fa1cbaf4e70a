"""Reject spreadsheets and SDF molecules, with the command that converts them."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.formats.file_heads import decompressed_head

_SPREADSHEET_SUFFIXES = {".xlsx", ".xls", ".ods"}
_SDF = re.compile(rb"^M  END\s*$|V[23]000\s*$", re.MULTILINE)
#: Mode x never overwrites a file.
_SPREADSHEET_TO_CSV = (
    'import pandas; pandas.read_excel({path}).to_csv({table}, index=False, mode="x")'
)
_SDF_TO_CSV = (
    "from rdkit.Chem.PandasTools import LoadSDF; "
    'LoadSDF({path}, smilesName="smiles", molColName=None).to_csv({table}, index=False, mode="x")'
)


def refuse_unsupported_format(path: Path) -> None:
    """Raise ``DamagedInput`` for a spreadsheet or SDF, with the command that writes a CSV."""
    stem = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    table = str(stem.with_suffix(".csv"))
    # JSON strings are Python literals, with double quotes that need no escape in the shell.
    paths = {"path": json.dumps(str(path)), "table": json.dumps(table)}
    build_remedy = f"then pass the CSV: --archive {shlex.quote(table)}"
    if path.suffix.lower() in _SPREADSHEET_SUFFIXES:
        remedy = f"save the sheet as CSV, {build_remedy}"
        if path.suffix.lower() == ".xlsx":
            install = "" if importlib.util.find_spec("openpyxl") else "pip install openpyxl; "
            command = shlex.quote(_SPREADSHEET_TO_CSV.format(**paths))
            remedy = (
                f"save the sheet as CSV, or its first sheet with: {install}python -c {command};"
                f" {build_remedy}"
            )
        raise DamagedInput(f"{path} is a spreadsheet, not a text table.", next=remedy)
    if _SDF.search(decompressed_head(path)):
        raise DamagedInput(
            f"{path} has molecules as SDF.",
            expected="a CSV with a column of SMILES, which have atoms and bonds, without coordinates",
            next=f"python -c {shlex.quote(_SDF_TO_CSV.format(**paths))}; {build_remedy}",
        )
