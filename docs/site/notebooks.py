"""Execute the notebooks of the docs and turn them into pages: ``python docs/site/notebooks.py``.

Executed copies, and the files that cells leave behind, lie in ``build/notebooks`` until the site takes them;
nothing is written into the tree. Each notebook has a process of its own, two at a time, and all have one home
folder, which is empty at first.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "docs" / "notebooks"
EXECUTED = ROOT / "build" / "notebooks"
SECONDS = 600  #: most seconds of one cell
BADGE = re.compile(r"\[!\[Open in Colab\]\([^)]+\)\]\(([^)]+)\)")
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def digest(source: Path) -> str:
    """SHA-256 of a notebook, which its executed copy keeps."""
    return hashlib.sha256(source.read_bytes()).hexdigest()


def execute(source: Path) -> None:
    """Run all cells in ``build/notebooks`` and write the copy with their outputs there."""
    from nbclient import NotebookClient

    notebook = nbformat.read(source, as_version=4)
    client = NotebookClient(
        notebook, timeout=SECONDS, resources={"metadata": {"path": str(EXECUTED)}}
    )
    client.execute()
    for cell in notebook.cells:  # a command that fails does not stop a notebook
        for output in cell.get("outputs", []):
            if re.search("^Error: ", output.get("text", ""), re.MULTILINE):
                raise SystemExit(f"{cell.source}\n{output.text}")
    notebook.metadata["source"] = digest(source)
    nbformat.write(notebook, EXECUTED / source.name)


def executed(name: str) -> Path | None:
    """Return the executed copy of a notebook, if there is one of its present text."""
    copy = EXECUTED / name
    if not copy.exists():
        return None
    same = nbformat.read(copy, as_version=4).metadata.get("source") == digest(SOURCES / name)
    return copy if same else None


def as_markdown(path: Path) -> str:
    """Return a notebook as Markdown: text, code, and what the code printed and drew."""
    parts = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(BADGE.sub(rf"[Open in Colab](\1) · [download]({path.name})", cell.source))
            continue
        parts.append(f"````python\n{cell.source}\n````")
        parts += [_shown(output) for output in cell.get("outputs", [])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _shown(output: Any) -> str:
    """Return one output: a picture, HTML or text, the first of them that it has."""
    data = output.get("data", {})
    if "image/png" in data:
        address = f"data:image/png;base64,{data['image/png'].strip()}"
        return f'<img class="output" alt="Output of the cell above" src="{address}">'
    if "text/html" in data:
        return f'<div class="output">{"".join(data["text/html"].split(chr(10)))}</div>'
    text = (
        COLOUR.sub("", output.get("text", data.get("text/plain", "")))
        .replace("\r\n", "\n")
        .strip("\n")
    )
    return f"````{{.text .output}}\n{text}\n````" if text else ""


def main() -> None:
    """Execute all, or with a name that one; print the seconds of each."""
    if len(sys.argv) > 1:
        execute(SOURCES / sys.argv[1])
        return
    shutil.rmtree(EXECUTED, ignore_errors=True)
    EXECUTED.mkdir(parents=True)

    def run(source: Path) -> str:
        started = time.monotonic()
        done = subprocess.run([sys.executable, __file__, source.name], env=environment, check=False)
        if done.returncode:
            raise SystemExit(f"{source.name} failed")
        return f"{source.name:25} {time.monotonic() - started:5.1f} s"

    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(2) as pool:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        # One thread each, as the rows of the tables, and as two notebooks have two cores.
        environment = {**os.environ, "KMIP_DATA_HOME": home, "PATH": path, "OMP_NUM_THREADS": "1"}
        environment["PYTHONWARNINGS"] = "ignore:IProgress not found"  # tqdm, without ipywidgets
        for line in pool.map(run, sorted(SOURCES.glob("*.ipynb"))):
            print(line, flush=True)  # noqa: T201 -- its output


if __name__ == "__main__":
    main()
