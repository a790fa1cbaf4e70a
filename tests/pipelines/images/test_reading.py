"""Pictures in a foreign format: refused before their decoder, or a program that it starts, sees them."""

from __future__ import annotations

import io
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.images import reading

PROGRAM = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(stolen) (w) file closefile\n%%EOF\n"
)


def little(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def placed(size: int, parts: dict[int, bytes]) -> bytes:
    data = bytearray(size)
    for at, part in parts.items():
        data[at : at + len(part)] = part
    return bytes(data)


def saved(form: str, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.new(mode, (16, 16)).save(file, form)
    return file.getvalue()


def made_by_hand() -> dict[str, bytes]:
    """Return the beginning of a picture in each format that Pillow only reads."""
    cards = ["SIMPLE  = T", "BITPIX  = 8", "NAXIS   = 2", "NAXIS1  = 8", "NAXIS2  = 8", "END"]
    iptc = {(3, 60): b"\1\0", (3, 20): b"\0\0\0\10", (3, 30): b"\0\0\0\10", (3, 120): b"\0\0\0\1"}
    fields = b"".join(b"\x1c" + bytes(tag) + struct.pack(">H", len(v)) + v for tag, v in iptc.items())
    return {
        "BUFR": b"BUFR" + bytes(60),
        "CUR": b"\0\0\2\0\1\0" + b"\10\10\0\0\0\0\0\0" + little(168, 22) + saved("DIB"),
        "DCX": little(0x3ADE68B1, 12, 0) + saved("PCX"),
        "EPS": PROGRAM,
        "FITS": placed(5760, {80 * i: card.encode().ljust(80) for i, card in enumerate(cards)}),
        "FLI": placed(400, {4: b"\x12\xaf\1\0\10\0\10\0\10\0", 128: little(100)}),
        "FTEX": b"FTEX" + little(0, 8, 8, 1, 1, 1, 32, 192) + bytes(192),
        "GBR": struct.pack(">5I", 21, 1, 8, 8, 1) + bytes(65),
        "GRIB": b"GRIB\0\0\0\1" + bytes(60),
        "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(60),
        "IMT": b"width 8\nheight 8\npixel n8\n\x0c" + bytes(164),
        "IPTC": fields + b"\x1c\10\12\0\0" + bytes(64),
        "MCIDAS": struct.pack(">64i", 0, 4, *[0] * 6, 8, 8, 1, 0, 0, 1, *[0] * 19, 256, *[0] * 30)
        + bytes(64),
        "MPEG": b"\0\0\1\xb3\0\x80\10" + bytes(60),
        "PCD": placed(400_000, {2048: b"PCD_IPI"}),
        "PIXAR": placed(2048, {0: b"\x80\xe8\0\0", 416: struct.pack("<2H", 8, 8), 424: b"\16\0\2\0"}),
        "PSD": b"8BPS\0\1" + bytes(6) + struct.pack(">H2I2H", 3, 8, 8, 8, 3) + bytes(12 + 2 + 192),
        "QOI": b"qoif" + struct.pack(">2I2B", 8, 8, 3, 0) + b"\xfe\0\0\0\xfd\xc0" + bytes(7) + b"\1",
        "SUN": struct.pack(">8I", 0x59A66A95, 8, 8, 8, 64, 1, 0, 0) + bytes(64),
        "WMF": placed(80, {0: b"\xd7\xcd\xc6\x9a", 10: b"\10\0\10\0\x48\0", 22: b"\1\0\t\0"}),
        "XPM": b'/* XPM */\nstatic char *p[] = {\n"8 8 1 1",\n"a c #000000",\n' + b'"aaaaaaaa",\n' * 8,
        "XVTHUMB": b"P7 332\n#END_OF_COMMENTS\n8 8 255\n" + bytes(64),
    }


def every_format() -> dict[str, bytes]:
    """Return a picture in each format that Pillow opens or writes."""
    Image.init()
    found = made_by_hand()
    for form in sorted({*Image.OPEN, *Image.SAVE} - set(found)):
        modes = {"BLP": "P", "MSP": "1", "XBM": "1", "PALM": "1", "SPIDER": "F"}
        found[form] = saved(form, modes.get(form, "RGB"))
    return found


@pytest.fixture
def started(tmp_path, monkeypatch) -> Path:
    """A Ghostscript that leaves a trace instead of running the file."""
    from PIL import EpsImagePlugin

    (tmp_path / "bin").mkdir()
    trace, program = tmp_path / "started", tmp_path / "bin" / "gs"
    program.write_text(f"#!/bin/sh\ntouch {trace}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # looked for once a process
    return trace


@pytest.mark.filterwarnings("ignore:IM image format:DeprecationWarning")
def test_only_the_usual_formats_are_opened_whatever_a_file_is_called(tmp_path, started):
    Image.init()
    wrong, foreign = [], 0
    for form, data in every_format().items():
        path = tmp_path / "picture.jpg"
        path.write_bytes(data)
        usual = form in {
            "BMP",
            "GIF",
            "JPEG",
            "PNG",
            "TIFF",
            "WEBP",
            "MPO",
        }  # MPO: a JPEG with a second picture behind it
        if form in Image.OPEN and not usual:
            with Image.open(path) as picture:  # without a list, Pillow takes it for a picture
                assert picture.format.upper() == form, form
            foreign += 1
        for read in (
            lambda path: reading.read_picture(path, "p"),
            lambda path: reading.read_mask(
                path, "p", classes=2, void=None, palette=np.zeros((1, 3), np.uint8)
            ),
        ):
            try:
                read(path)
                opened = True
            except DamagedInput as error:
                opened = "not a picture in" not in str(error)
            if opened != usual:
                wrong.append(form)
    wrong += ["a program was started"] * started.exists()
    assert not wrong, f"{len(wrong)} of {2 * len(every_format())}: {wrong}"
    assert foreign > 30


def test_every_call_in_the_tree_names_the_formats():
    top = Path(__file__).resolve().parents[3]
    files = [
        path
        for part in ("kmip_data", "pipelines", "models", "cli", "docs")
        for path in (top / part).rglob("*.py")
    ]
    calls = {path: re.findall(r"\bImage\.open\([^)]*\)", path.read_text("utf-8")) for path in files}
    assert sum(map(len, calls.values())) >= 2
    assert not [(path, call) for path, found in calls.items() for call in found if "formats=" not in call]
