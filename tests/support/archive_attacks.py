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

from kmip_data.manifest import Content, Member

CONTENT = Content(
    anchor="index.txt",
    members=(
        Member(pattern="index.txt", max_bytes=1_000),
        Member(pattern="parts/*.bin", max_bytes=2_000_000, max_count=20),
    ),
    max_total_bytes=10_000_000,
)
GOOD = {
    "toy/index.txt": b"parts/0.bin\nparts/1.bin\n",
    "toy/parts/0.bin": bytes(range(256)) * 300,
    "toy/parts/1.bin": b"one" * 1000,
}
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


def _zip_with(*more: tuple[str | zipfile.ZipInfo, bytes]) -> Callable[[Path], None]:
    return lambda path: good_zip(path, *more)


def _patched(name: bytes, change: Callable[[bytearray, int, int], None]) -> Callable[[Path], None]:
    """Change the headers of a member; ``change`` gets the bytes, local and central offset."""

    def build(path: Path) -> None:
        good_zip(path)
        data = bytearray(path.read_bytes())
        local = data.rindex(b"PK\3\4", 0, data.index(name))
        central = data.rindex(b"PK\1\2", 0, data.rindex(name))
        change(data, local, central)
        path.write_bytes(data)

    return build


def _put(fmt: str, local_at: int | None, central_at: int | None, value: int):
    def change(data: bytearray, local: int, central: int) -> None:
        if local_at is not None:
            struct.pack_into(fmt, data, local + local_at, value)
        if central_at is not None:
            struct.pack_into(fmt, data, central + central_at, value)

    return change


def _rename_local(data: bytearray, local: int, central: int) -> None:
    data[local + 30 + 4 : local + 30 + 9] = b"other"


def _nul_name(path: Path) -> None:
    good_zip(path, ("toy/evilXname", b"x"))
    path.write_bytes(path.read_bytes().replace(b"evilXname", b"evil\0name"))


def _empty_name(path: Path) -> None:
    good_zip(path)
    data = path.read_bytes()
    end = data.rindex(b"PK\5\6")
    start = struct.unpack_from("<L", data, end + 16)[0]
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 0x21, 0, 0, 0, 0, 0)
    central = struct.pack(
        "<4s4B4H3L5H2L", b"PK\1\2", 20, 3, 20, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0, 0, 0, 0, 0, start
    )
    body = data[:start] + local + data[start:end] + central
    path.write_bytes(body + _end_record(data, end, 1, start + len(local), end - start + len(central)))


def _end_record(data: bytes, end: int, more: int, start: int, length: int) -> bytes:
    count = struct.unpack_from("<H", data, end + 10)[0] + more
    return struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, length, start, 0)


def _overlap(path: Path) -> None:
    """Give one more name to data that another member has already (the heart of an overlap bomb)."""
    good_zip(path)
    data = path.read_bytes()
    end = data.rindex(b"PK\5\6")
    start = struct.unpack_from("<L", data, end + 16)[0]
    first = data[start : data.index(b"PK\1\2", start + 4)]
    twin = first.replace(b"toy/index.txt", b"toy/index.two")
    body = data[:end] + twin
    path.write_bytes(body + _end_record(data, end, 1, start, end - start + len(twin)))


def _nested_overlap(path: Path) -> None:
    """Let one member's data be the next member, header and all."""
    good_zip(path, members={"toy/index.txt": GOOD["toy/index.txt"], "toy/parts/0.bin": b"x" * 10})
    data = bytearray(path.read_bytes())
    central = data.index(b"PK\1\2")
    local = 0
    second = data.index(b"PK\3\4", 4)
    third = central
    size = third - (local + 30 + len("toy/index.txt"))
    assert second < third
    for at in (18, 22):
        struct.pack_into("<L", data, local + at, size)
    for at in (20, 24):
        struct.pack_into("<L", data, central + at, size)
    struct.pack_into("<H", data, local + 8, 0)
    struct.pack_into("<H", data, central + 10, 0)
    path.write_bytes(data)


def _lying_bomb(path: Path) -> None:
    """Declare 100 bytes and hold 64 MiB of zeros."""
    good_zip(path, members={**GOOD, "toy/parts/0.bin": bytes(64 * 2**20)})
    data = bytearray(path.read_bytes())
    name = b"toy/parts/0.bin"
    local = data.rindex(b"PK\3\4", 0, data.index(name))
    central = data.rindex(b"PK\1\2", 0, data.rindex(name))
    struct.pack_into("<L", data, local + 22, 100)
    struct.pack_into("<L", data, central + 24, 100)
    path.write_bytes(data)


def _honest_bomb(path: Path) -> None:
    good_zip(path, members={**GOOD, "toy/parts/0.bin": bytes(64 * 2**20)})


def _empty_members_zip(path: Path, count: int = 1_000_000) -> None:
    """Hold very many empty members, with a directory that says so."""
    with path.open("wb") as file:
        position, directory = 0, []
        for i in range(count):
            name = b"%d" % i
            file.write(struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 0x21, 0, 0, 0, len(name), 0) + name)
            directory.append(
                struct.pack(
                    "<4s4B4H3L5H2L",
                    *(b"PK\1\2", 20, 3, 20, 0, 0, 0, 0, 0x21, 0, 0, 0, len(name), 0, 0, 0, 0, 0, position),
                )
                + name
            )
            position += 30 + len(name)
        central = b"".join(directory)
        file.write(central)
        end = position + len(central)
        file.write(
            struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(central), position)
        )
        file.write(struct.pack("<4sLQL", b"PK\6\7", 0, end, 1))
        file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))


def _lying_count(path: Path) -> None:
    """Say that there are three members and have very many."""
    _empty_members_zip(path, 120_000)
    data = path.read_bytes()
    end = data.rindex(b"PK\6\6")
    length, start = struct.unpack_from("<2Q", data, end + 40)
    path.write_bytes(data[:end] + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 3, 3, length, start, 0))


def _cut(share: float, build: Callable[[Path], None]) -> Callable[[Path], None]:
    def cut(path: Path) -> None:
        build(path)
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * share)])

    return cut


def _extra_deflate(path: Path) -> None:
    """Hide bytes after the end of a deflate stream."""
    payload = GOOD["toy/index.txt"]
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = stream.compress(payload) + stream.flush() + b"hidden bytes"
    name = b"toy/index.txt"
    head = (20, 0, 8, 0, 0x21, zlib.crc32(payload), len(packed), len(payload), len(name))
    local = struct.pack("<4s5H3L2H", b"PK\3\4", *head, 0) + name
    central = struct.pack("<4s4B4H3L5H2L", b"PK\1\2", 20, 3, 20, 0, *head[1:], 0, 0, 0, 0, 0, 0) + name
    part = b"toy/parts/0.bin"
    local2 = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 0x21, 0, 0, 0, len(part), 0) + part
    at = len(local) + len(packed)
    central2 = (
        struct.pack(
            "<4s4B4H3L5H2L", b"PK\1\2", 20, 3, 20, 0, 0, 0, 0, 0x21, 0, 0, 0, len(part), 0, 0, 0, 0, 0, at
        )
        + part
    )
    body = local + packed + local2
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2, 2, len(central + central2), len(body), 0)
    path.write_bytes(body + central + central2 + end)


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


def _tar_with(*more: tuple[str | tarfile.TarInfo, bytes], **options: object) -> Callable[[Path], None]:
    return lambda path: good_tar(path, *more, **options)


def _link_then_write(path: Path) -> None:
    outside = str(path.parent / "outside")
    good_tar(
        path,
        (tar_info("toy/link", tarfile.SYMTYPE, linkname=outside), b""),
        ("toy/link/escaped.txt", b"out"),
    )


def _long_link_chain(path: Path) -> None:
    """Links whose resolved path outgrows PATH_MAX, as in CVE-2025-4517."""
    part = "d" * 247
    entries: list[tuple[tarfile.TarInfo, bytes]] = []
    where = ""
    for step in "abcdefghijklmnop":
        entries.append((tar_info(f"{where}{part}", tarfile.DIRTYPE), b""))
        entries.append((tar_info(f"{where}{step}", tarfile.SYMTYPE, linkname=part), b""))
        where += f"{part}/"
    link = "/".join("abcdefghijklmnop") + "/" + "l" * 254
    entries.append((tar_info(link, tarfile.SYMTYPE, linkname="../" * 16), b""))
    entries.append((tar_info("escape", tarfile.SYMTYPE, linkname=f"{link}/../outside"), b""))
    entries.append((tar_info("escape/escaped.txt"), b"out"))
    good_tar(path, *entries)


def _raw_header(name: bytes, size: bytes, kind: bytes = b"0") -> bytes:
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[108:116] = block[116:124] = b"0000000\0"
    block[124 : 124 + len(size)] = size
    block[136:148] = b"00000000000\0"
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + 8 * 32 + sum(block[156:]))
    return bytes(block)


def _tar_raw(*blocks: bytes, end: bool = True) -> Callable[[Path], None]:
    def build(path: Path) -> None:
        good_tar(path)
        data = path.read_bytes()
        body = data[: _tar_end(data)]
        path.write_bytes(body + b"".join(blocks) + bytes(1024) * end)

    return build


def _tar_end(data: bytes) -> int:
    """Where the end mark starts: the data of the last member, padded, end there."""
    return -(-len(data.rstrip(b"\0")) // 512) * 512


def _empty_members_tar(path: Path) -> None:
    block = _raw_header(b"x/", b"00000000000\0", b"5")
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(1000):
            file.write(block * 1000)
        file.write(bytes(1024))


def _deep_names(path: Path) -> None:
    """Imply very many folders with very long names."""
    with tarfile.open(path, "w:gz") as archive:
        for i in range(2000):
            archive.addfile(tar_info(f"{i}/" + "a/" * 2000 + "x"))


def _pax_headers_only(path: Path) -> None:
    block = _raw_header(b"x", b"00000000014\0", b"x") + b"12 path=abc\n".ljust(512, b"\0")
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(450):
            file.write(block * 1000)


def _trailing_bomb(path: Path) -> None:
    good_tar(path)
    data = path.read_bytes()
    with gzip.open(path, "wb") as file:
        file.write(data)
        for _ in range(256):
            file.write(bytes(2**20))


def _many_gzip_members(path: Path) -> None:
    good_tar(path)
    data = path.read_bytes()
    path.write_bytes(gzip.compress(data) + gzip.compress(b"") * 100_000 + gzip.compress(b"x" * (20 << 20)))


def _broken_gzip(path: Path) -> None:
    good_tar(path)
    data = bytearray(gzip.compress(path.read_bytes()))
    data[-6] ^= 1
    path.write_bytes(data)


def _huge_xz_dictionary(path: Path) -> None:
    good_tar(path)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    data = bytearray(lzma.compress(path.read_bytes(), filters=filters))
    # Block header: size, flags, filter id 0x21, length 1, dictionary size; then its CRC-32.
    at = data.index(b"\x21\x01", 12) + 2
    data[at] = 40  # 4 GiB − 1
    length = (data[12] + 1) * 4
    struct.pack_into("<L", data, 12 + length - 4, zlib.crc32(data[12 : 12 + length - 4]))
    path.write_bytes(data)


def _compressed(build: Callable[[Path], None], pack: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def compressed(path: Path) -> None:
        build(path)
        path.write_bytes(pack(path.read_bytes()))

    return compressed


def _flip_tar_header(path: Path) -> None:
    good_tar(path)
    data = bytearray(path.read_bytes())
    at = data.index(b"toy/parts/0.bin")
    data[at + 2] ^= 1
    path.write_bytes(data)


def _pax_records(records: bytes, kind: bytes = b"x", after: bytes = b"") -> Callable[[Path], None]:
    header = _raw_header(b"pax", b"%011o\0" % len(records), kind)
    return _tar_raw(header + records.ljust(-(-len(records) // 512) * 512, b"\0") + after)


def _record(key: str, value: str) -> bytes:
    body = f" {key}={value}\n".encode()
    length = len(body) + 1
    while len(str(length)) + len(body) != length:
        length += 1
    return str(length).encode() + body


_FILE = _raw_header(b"toy/plain", b"00000000000\0")

#: name -> (builder, part of the message)
ATTACKS: dict[str, tuple[Callable[[Path], None], str]] = {
    "zip parent": (_zip_with(("../escaped.txt", b"out")), "has the part '..'"),
    "zip parent inside": (_zip_with(("toy/../../escaped.txt", b"out")), "has the part '..'"),
    "zip absolute": (lambda p: good_zip(p, (f"{p.parent}/outside/escaped.txt", b"out")), "an absolute name"),
    "zip drive": (_zip_with(("C:/escaped.txt", b"out")), "a drive letter"),
    "zip backslash": (_zip_with((zip_info("toy\\..\\escaped.txt"), b"out")), "a backslash"),
    "zip NUL": (_nul_name, "a NUL byte"),
    "zip empty name": (_empty_name, "an empty name"),
    "zip control": (_zip_with(("toy/\x1b[2Jname", b"x")), "control characters"),
    "zip right to left": (_zip_with(("toy/\u202etxt.exe", b"x")), "control characters"),
    "zip long part": (_zip_with(("toy/" + "n" * 256, b"x")), "a part longer than 255 bytes"),
    "zip long part utf-8": (_zip_with(("toy/" + "ü" * 128, b"x")), "a part longer than 255 bytes"),
    "zip long name": (_zip_with(("/".join(["toy"] + ["n" * 200] * 25), b"x")), "longer than 4096"),
    "zip double slash": (_zip_with(("toy//x", b"x")), "has the part ''"),
    "zip symlink": (_zip_with((zip_info("toy/link", 0o120777), b"/etc/passwd")), "a symbolic link"),
    "zip symlink member": (
        lambda p: good_zip(p, (zip_info("toy/parts/9.bin", 0o120777), b"/etc/passwd")),
        "a symbolic link",
    ),
    "zip fifo": (_zip_with((zip_info("toy/fifo", 0o010644), b"")), "a fifo"),
    "zip device": (_zip_with((zip_info("toy/null", 0o020666), b"")), "a device"),
    "zip duplicate": (_zip_with(("toy/index.txt", b"second")), "is there twice"),
    "zip case clash": (_zip_with(("toy/INDEX.txt", b"second")), "only by case"),
    "zip unicode clash": (
        _zip_with(("toy/é.txt", b"1"), ("toy/e\u0301.txt", b"2")),
        "only by case or Unicode",
    ),
    "zip folder clash": (_zip_with(("toy/index.txt/x", b"x")), "both a file and a folder"),
    "zip folder with data": (
        _zip_with((zip_info("toy/folder/", 0o040755), b"data")),
        "a folder that holds data",
    ),
    "zip encrypted": (_patched(b"toy/parts/0.bin", _put("<H", 6, 8, 1)), "is encrypted"),
    "zip two names": (_patched(b"toy/parts/0.bin", _rename_local), "differs from the directory"),
    "zip two sizes": (_patched(b"toy/parts/0.bin", _put("<L", 22, None, 7)), "differs from the directory"),
    "zip two methods": (_patched(b"toy/parts/0.bin", _put("<H", 8, None, 0)), "differs from the directory"),
    "zip no local header": (_patched(b"toy/parts/0.bin", _put("<L", 0, None, 0)), "no header of its own"),
    "zip wrong offset": (_patched(b"toy/parts/0.bin", _put("<L", None, 42, 9)), "overlaps"),
    "zip other method": (_patched(b"toy/parts/0.bin", _put("<H", 8, 10, 9)), "compressed by method 9"),
    "zip wrong CRC": (_patched(b"toy/parts/0.bin", _put("<L", 14, 16, 9)), "its CRC-32 differs"),
    "zip overlap": (_overlap, "overlaps"),
    "zip nested": (_nested_overlap, "overlaps"),
    "zip lying bomb": (_lying_bomb, "holds more than the 100 bytes it declares"),
    "zip honest bomb": (_honest_bomb, "declares 67108864 bytes, and 2000000 are allowed"),
    "zip hidden data": (_extra_deflate, "more compressed data than its content needs"),
    "zip million members": (_empty_members_zip, "its directory claims"),
    "zip lying count": (_lying_count, "members, and"),
    "zip cut at half": (_cut(0.5, good_zip), "not a whole zip archive"),
    "zip cut at 99 %": (_cut(0.99, good_zip), "not a whole zip archive"),
    "zip too many parts": (
        lambda p: good_zip(p, *[(f"toy/parts/{i}.bin", b"x") for i in range(2, 30)]),
        "30 of parts/*.bin (expected 1 to 20)",
    ),
    "tar parent": (_tar_with(("../escaped.txt", b"out")), "has the part '..'"),
    "tar absolute": (lambda p: good_tar(p, (f"{p.parent}/outside/x.txt", b"out")), "an absolute name"),
    "tar symlink": (_tar_with((tar_info("toy/l", tarfile.SYMTYPE, linkname="/etc"), b"")), "a symbolic link"),
    "tar link then write": (_link_then_write, "a symbolic link"),
    "tar link chain": (_long_link_chain, "a symbolic link"),
    "tar long link": (
        _tar_with((tar_info("toy/l", tarfile.SYMTYPE, linkname="a" * 300), b""), form=tarfile.GNU_FORMAT),
        "is a symbolic link",
    ),
    "tar hard link": (
        _tar_with((tar_info("toy/h", tarfile.LNKTYPE, linkname="/etc/passwd"), b"")),
        "a hard link",
    ),
    "tar device": (
        _tar_with((tar_info("toy/null", tarfile.CHRTYPE, devmajor=1, devminor=3), b"")),
        "a device",
    ),
    "tar block device": (_tar_with((tar_info("toy/sda", tarfile.BLKTYPE), b"")), "a device"),
    "tar fifo": (_tar_with((tar_info("toy/fifo", tarfile.FIFOTYPE), b"")), "a fifo"),
    "tar sparse": (_tar_raw(_raw_header(b"toy/s", b"00000000000\0", b"S")), "a sparse file"),
    "tar pax sparse": (_pax_records(_record("GNU.sparse.major", "1"), after=_FILE), "a sparse file"),
    "tar unknown type": (_tar_raw(_raw_header(b"toy/v", b"00000000000\0", b"V")), "of type b'V'"),
    "tar duplicate": (_tar_with(("toy/index.txt", b"second")), "is there twice"),
    "tar case clash": (_tar_with(("toy/Parts/9.bin", b"x")), "only by case"),
    "tar long part": (_tar_with(("toy/" + "n" * 256, b"x")), "a part longer than 255 bytes"),
    "tar pax parent": (_pax_records(_record("path", "../escaped.txt"), after=_FILE), "has the part '..'"),
    "tar pax NUL": (_pax_records(_record("path", "toy/a\0b"), after=_FILE), "a NUL byte"),
    "tar pax size": (_pax_records(_record("size", "9" * 30), after=_FILE), "a header is damaged"),
    "tar pax garbage": (_pax_records(b"999 x=y\n", after=_FILE), "extended header is damaged"),
    "tar global path": (_pax_records(_record("path", "/etc/x"), b"g", _FILE), "a global header names files"),
    "tar huge pax": (_tar_raw(_raw_header(b"p", b"77777777777\0", b"x")), "an extended header claims"),
    "tar huge name": (_tar_raw(_raw_header(b"p", b"77777777777\0", b"L")), "an extended header claims"),
    "tar negative size": (_tar_raw(_raw_header(b"toy/n", b"\xff" * 12)), "a negative size"),
    "tar not UTF-8": (_tar_raw(_raw_header(b"toy/\xff\xfe", b"00000000000\0")), "not valid UTF-8"),
    "tar lying size": (_tar_raw(_raw_header(b"toy/big", b"77777777777\0")), "ends early"),
    "tar.gz bomb": (
        _compressed(_tar_raw(_raw_header(b"toy/big", b"77777777777\0")), gzip.compress),
        "brings the declared size to",
    ),
    "tar big member": (
        _tar_with(("toy/parts/8.bin", bytes(3_000_000))),
        "declares 3000000 bytes, and 2000000 are allowed",
    ),
    "tar header flip": (_flip_tar_header, "a header is damaged"),
    "tar cut at half": (_cut(0.5, good_tar), "ends early"),
    "tar without end": (_tar_raw(end=False), "ends early"),
    "tar.gz million members": (_empty_members_tar, "members that are allowed"),
    "tar.gz deep names, huge": (_deep_names, "brings the names to more than"),
    "tar.gz pax headers": (_pax_headers_only, "an extended header claims"),
    "tar.gz trailing bomb": (_trailing_bomb, "goes on after its end mark"),
    "tar.gz gzip members": (_many_gzip_members, "goes on after its end mark"),
    "tar.gz wrong CRC": (_broken_gzip, "not a whole tar archive"),
    "tar.gz cut": (_cut(0.7, _compressed(good_tar, gzip.compress)), "not a whole tar archive"),
    "tar.bz2 cut": (_cut(0.9, _compressed(good_tar, bz2.compress)), "neither zip nor tar"),
    "tar.xz cut": (_cut(0.9, _compressed(good_tar, lzma.compress)), "not a whole tar archive"),
    "tar.xz huge dictionary": (_huge_xz_dictionary, "neither zip nor tar"),
}
