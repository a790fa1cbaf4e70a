"""Reject SDF molecules, with the command that converts them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kmip_data.errors import Command, DamagedInput
from kmip_data.pipelines.formats.file_heads import decompressed_head

_SDF = re.compile(rb"^M  END\s*$|V[23]000\s*$", re.MULTILINE)
#: Mode x never overwrites a file.
_SDF_TO_CSV = (
    "from rdkit.Chem.PandasTools import LoadSDF; "
    'LoadSDF({path}, smilesName="smiles", molColName=None).to_csv({table}, index=False, mode="x")'
)


def refuse_unsupported_format(path: Path) -> None:
    """Raise ``DamagedInput`` for SDF, with the command that writes a CSV."""
    if not _SDF.search(decompressed_head(path)):
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
