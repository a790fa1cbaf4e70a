"""Hostile and damaged archives, each made from scratch; every one holds the toy data as well."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from kmip_data.manifest import Content, MemberPattern

CONTENT = Content(
    anchor="index.txt",
    members=(
        MemberPattern(pattern="index.txt", max_bytes=1_000),
        MemberPattern(pattern="parts/*.bin", max_bytes=2_000_000, max_count=20),
    ),
    max_total_bytes=10_000_000,
)
GOOD = {
    "toy/index.txt": b"parts/0.bin\nparts/1.bin\n",
    "toy/parts/0.bin": bytes(range(256)) * 300,
    "toy/parts/1.bin": b"one" * 1000,
}
_PART = "toy/parts/0.bin"
WANTED = {name.removeprefix("toy/"): data for name, data in GOOD.items()}


# --- zip ------------------------------------------------------------------------------------------


def zip_info(name: str, mode: int = 0o100644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0))
    info.create_system = 3
    info.external_attr = mode << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def good_zip(path: Path, *more: tuple[str | zipfile.ZipInfo, bytes], members=None) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # about names that are there twice
        for name, data in (GOOD if members is None else members).items():
            archive.writestr(zip_info(name), data)
        for entry, data in more:
            archive.writestr(entry if isinstance(entry, zipfile.ZipInfo) else zip_info(entry), data)


def _patched(fmt: str, local_at: int | None, central_at: int | None, value: int, size: int = 1000):
    """Overwrite a field in the local and the central header of a member of ``size`` zeros."""

    def build(path: Path) -> None:
        good_zip(path, members={**GOOD, _PART: bytes(size)})
        data = bytearray(path.read_bytes())
        local = data.rindex(b"PK\3\4", 0, data.index(_PART.encode()))
        central = data.rindex(b"PK\1\2", 0, data.rindex(_PART.encode()))
        for start, at in ((local, local_at), (central, central_at)):
            if at is not None:
                struct.pack_into(fmt, data, start + at, value)
        path.write_bytes(data)

    return build


def _empty_members_zip(path: Path, count: int, width: int) -> None:
    """Hold very many empty members, whose names have ``width`` digits."""
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(count):
            archive.writestr(zipfile.ZipInfo(f"{i:0{width}}"), b"")


def _changed(
    build: Callable[[Path], None], change: Callable[[bytes], bytes]
) -> Callable[[Path], None]:
    """Change the bytes of what ``build`` writes."""

    def changed(path: Path) -> None:
        build(path)
        path.write_bytes(change(path.read_bytes()))

    return changed


def _cut(share: float, build: Callable[[Path], None]) -> Callable[[Path], None]:
    return _changed(build, lambda data: data[: int(len(data) * share)])


# --- tar ------------------------------------------------------------------------------------------


def tar_info(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = kind, 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def good_tar(
    path: Path,
    *more: tuple[str | tarfile.TarInfo, bytes],
    mode: str = "w",
    members=None,
    form: int = tarfile.PAX_FORMAT,
) -> None:
    with tarfile.open(path, mode, format=form) as archive:
        for entry, data in [*(GOOD if members is None else members).items(), *more]:
            info = entry if isinstance(entry, tarfile.TarInfo) else tar_info(entry)
            if info.type == tarfile.REGTYPE:
                info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def _header(
    name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, form: int = tarfile.USTAR_FORMAT
) -> bytes:
    return tar_info(name, kind, size=size).tobuf(form)


def _tar_raw(*blocks: bytes, end: bool = True) -> Callable[[Path], None]:
    def add(data: bytes) -> bytes:
        last = (
            -(-len(data.rstrip(b"\0")) // 512) * 512
        )  # where the padded data of the last member end
        return data[:last] + b"".join(blocks) + bytes(1024) * end

    return _changed(good_tar, add)


def _pax_headers_only(path: Path) -> None:
    block = _header("x", 12, tarfile.XHDTYPE) + b"12 path=abc\n".ljust(512, b"\0")
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(450):
            file.write(block * 1000)


def _flipped(at: int) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[at] ^= 1
        return bytes(changed)

    return flip


def _huge_xz_dictionary(data: bytes) -> bytes:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    packed = bytearray(lzma.compress(data, filters=filters))
    # Block header: size, flags, filter id 0x21, length 1, dictionary size; then its CRC-32.
    packed[packed.index(b"\x21\x01", 12) + 2] = 40  # 4 GiB − 1
    end = 12 + (packed[12] + 1) * 4 - 4
    struct.pack_into("<L", packed, end, zlib.crc32(packed[12:end]))
    return bytes(packed)


def _with_pax(**headers: str) -> Callable[[Path], None]:
    return _tar_raw(tar_info("toy/plain", pax_headers=headers).tobuf(tarfile.PAX_FORMAT))


def _besides(path: Path, pack: Callable[..., None], special: list[object]) -> None:
    """Hold hostile members beside the data, which nobody reads and which are not written."""
    names = (
        *(
            "../escaped.txt",
            "toy/../../escaped.txt",
            f"{path.parent}/outside/escaped.txt",
            "C:/escaped.txt",
        ),
        *(
            "toy\\..\\escaped.txt",
            "toy/\x1b[2Jname",
            f"toy/{'n' * 256}",
            "toy//x",
            "toy/INDEX.txt",
            "",
        ),
        *("toy/index.txt/x", "toy/link/escaped.txt", "escape/escaped.txt"),
    )
    pack(path, *((entry, b"out") for entry in (*names, *special)))


def _zip_besides(path: Path) -> None:
    modes = {"link": 0o120777, "fifo": 0o010644, "null": 0o020666, "folder/": 0o040755}
    _besides(path, good_zip, [zip_info(f"toy/{name}", mode) for name, mode in modes.items()])


def _tar_besides(path: Path) -> None:
    """Add special members, such as links whose resolved path exceeds PATH_MAX (CVE-2025-4517)."""
    part, where, special = "d" * 247, "", [tar_info("toy/l", tarfile.SYMTYPE, linkname="a" * 300)]
    for step in "abcdefghijklmnop":
        special.append(tar_info(f"{where}{part}", tarfile.DIRTYPE))
        special.append(tar_info(f"{where}{step}", tarfile.SYMTYPE, linkname=part))
        where += f"{part}/"
    link = "/".join("abcdefghijklmnop") + "/" + "l" * 254
    special.append(tar_info(link, tarfile.SYMTYPE, linkname="../" * 16))
    special.append(tar_info("escape", tarfile.SYMTYPE, linkname=f"{link}/../outside"))
    special.append(tar_info("toy/link", tarfile.SYMTYPE, linkname=f"{path.parent}/outside"))
    special.append(tar_info("toy/h", tarfile.LNKTYPE, linkname="/etc/passwd"))
    special += [tar_info(f"toy/{kind!r}", kind) for kind in (b"3", b"4", b"6", b"V")]
    _besides(path, good_tar, special)


def _more(member: str | zipfile.ZipInfo | tarfile.TarInfo, data: bytes = b"x", **options: object):
    """Add one member to the data: to a zip, or to a tar where it is a header of one."""
    if isinstance(member, tarfile.TarInfo):
        return lambda path: good_tar(path, (member, data), **options)
    return lambda path: good_zip(path, (member, data))


_NINE = "toy/parts/9.bin"
_GLOBAL = tarfile.TarInfo.create_pax_global_header({"path": "/etc/x"})
_HUGE = _tar_raw(_header("toy/big", 0o77777777777))
_EARLY = "unexpected end of data"
SAME = None  #: the data are read as if the archive were a good one

#: name -> (builder, part of the message or SAME)
ATTACKS: dict[str, tuple[Callable[[Path], None], str | None]] = {
    "zip with hostile members beside": (_zip_besides, SAME),
    "zip backslash": (_more("toy/parts/a\\9.bin"), "a backslash"),
    "zip control": (_more("toy/parts/\x1b[2J.bin"), "cannot be printed"),
    "zip right to left": (_more("toy/parts/\u202enib.bin"), "cannot be printed"),
    "zip symlink": (_more(zip_info(_NINE, 0o120777)), "a link or a special file"),
    "zip duplicate": (_more("toy/index.txt"), "occurs twice"),
    "zip encrypted": (_patched("<H", 6, 8, 1), "is encrypted"),
    # Python 3.11 reads there and finds no header; 3.13 sees first that two members overlap.
    "zip wrong offset": (_patched("<L", None, 42, 9), "not a complete archive"),
    "zip bzip2": (_patched("<H", 8, 10, 12), "not a complete archive"),
    "zip wrong CRC": (_patched("<L", 14, 16, 9), "Bad CRC-32"),
    "zip lying bomb": (_patched("<L", 22, 24, 100, 64 * 2**20), "Bad CRC-32"),
    "zip honest bomb": (
        lambda p: good_zip(p, members={**GOOD, _PART: bytes(64 * 2**20)}),
        "declares 67108864 bytes, and 2000000 are allowed",
    ),
    "zip 101,000 members": (lambda p: _empty_members_zip(p, 101_000, 6), "more than 100,000 files"),
    "zip cut at 99 %": (_cut(0.99, good_zip), "not a complete archive"),
    "zip too many parts": (
        lambda p: good_zip(p, *[(f"toy/parts/{i}.bin", b"x") for i in range(2, 30)]),
        "30 of parts/*.bin (expected 1 to 20)",
    ),
    "tar with hostile members beside": (_tar_besides, SAME),
    "tar symlink": (_more(tar_info(_NINE, tarfile.SYMTYPE, linkname="/etc/passwd")), "is a link"),
    "tar pax name": (_with_pax(path="toy/parts/\x1b.bin"), "cannot be printed"),
    "tar pax size": (_with_pax(size="9" * 30), "not a complete archive"),
    "tar global path": (_tar_raw(_GLOBAL, _header("toy/plain")), SAME),
    "tar huge pax": (_tar_raw(_header("p", 0o77777777777, tarfile.XHDTYPE)), "not a complete archive"),
    "tar negative size": (_tar_raw(_header("toy/n", -1, form=tarfile.GNU_FORMAT)), "a negative size"),
    "tar not UTF-8": (_tar_raw(_header("toy/parts/\udcff.bin")), "cannot be printed"),
    "tar lying size": (_HUGE, _EARLY),
    "tar.gz bomb": (_changed(_HUGE, gzip.compress), _EARLY),
    "tar big member": (_more(tar_info("toy/parts/8.bin"), bytes(3_000_000)), "declares 3000000 bytes"),
    "tar header flip": (_changed(good_tar, _flipped(1026)), "a header is damaged"),
    "tar without end": (_tar_raw(end=False), "ends early"),
    "tar.gz pax headers": (_pax_headers_only, "not a complete archive"),
    "tar.gz wrong CRC": (
        _changed(_changed(good_tar, gzip.compress), _flipped(-6)), "not a complete archive",
    ),
    "tar.bz2 cut": (_cut(0.9, _changed(good_tar, bz2.compress)), "bzip2"),
    "tar.xz cut": (_cut(0.9, _changed(good_tar, lzma.compress)), "not a complete archive"),
    "tar.xz huge dictionary": (_changed(good_tar, _huge_xz_dictionary), SAME),
}  # fmt: skip
