"""Pictures in a foreign format: refused before their decoder, or a program that it starts, sees them."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path

import pytest
from PIL import EpsImagePlugin, Image

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.superpixels import picture_graphs

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(stolen) (w) file closefile\n%%EOF\n"


def every_format() -> dict[str, bytes]:
    """Return a picture in each format that Pillow opens and writes, and the program of an EPS file."""
    Image.init()
    pictures = {
        "EPS": EPS,
        "QOI": b"qoif\0\0\0\x08\0\0\0\x08\3\0\xfe\0\0\0\xfd\xc0" + bytes(7) + b"\1",
    }
    modes = {"BLP": "P", "MSP": "1", "XBM": "1", "SPIDER": "F"}
    for form in sorted({*Image.OPEN} & {*Image.SAVE} - set(pictures)):
        file = io.BytesIO()
        with contextlib.suppress(OSError):  # of stubs for other libraries
            Image.new(modes.get(form, "RGB"), (16, 16)).save(file, form)
            pictures[form] = file.getvalue()
    return pictures


@pytest.mark.filterwarnings("ignore:IM image format:DeprecationWarning")
def test_only_the_usual_formats_are_opened_whatever_a_file_is_called(tmp_path, monkeypatch):
    """A Ghostscript leaves a trace here instead of running the file."""
    (tmp_path / "bin").mkdir()
    trace, program = tmp_path / "started", tmp_path / "bin" / "gs"
    program.write_text(f"#!/bin/sh\ntouch {trace}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # looked for once a process
    path, opened, formats = tmp_path / "picture.jpg", set(), every_format()
    for form, data in formats.items():
        path.write_bytes(data)
        for read in (picture_graphs.read_picture, picture_graphs.read_mask):
            try:
                read(path, "p")
                opened.add(form)
            except DamagedInput as error:
                if "Pillow does not support" not in str(error):
                    opened.add(form)
    # MPO is a JPEG with a second picture behind it.
    assert opened == {"BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP", "MPO"} & set(formats)
    assert len(formats) > 20
    assert not trace.exists()


def test_every_call_in_the_tree_names_the_formats():
    top = Path(__file__).resolve().parents[3]
    parts = ("kmip_data", "pipelines", "models", "cli", "docs")
    texts = [path.read_text("utf-8") for part in parts for path in (top / part).rglob("*.py")]
    calls = [call for text in texts for call in re.findall(r"\bImage\.open\([^)]*\)", text)]
    assert len(calls) >= 2
    assert all("formats=" in call for call in calls)
