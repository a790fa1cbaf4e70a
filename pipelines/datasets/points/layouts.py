"""Layouts of folders of clouds: a file per cloud, a folder per class, or a file per annotation.

S3DIS and those who imitate it store a room as ``AREA/ROOM/Annotations/CLASS_N.txt``. All files of
``Annotations`` are one cloud, and the class of their points is what stands before the last ``_N``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from kmip_data.pipelines.datasets.points.files import (
    CLOUD_SUFFIXES,
    LABEL_SUFFIXES,
    is_annotation,
    label_files,
)


@dataclass(frozen=True)
class CloudFolder:
    """Clouds among the files of a folder."""

    files: Mapping[str, tuple[str, ...]]  #: cloud -> its files, in name order
    labels: Mapping[str, str]  #: cloud -> file of its labels
    ignored: Mapping[str, str]  #: file -> reason

    @property
    def annotated_areas(self) -> list[str]:
        """First folders of annotated rooms, which are folds if there are several."""
        rooms = [name for name, files in self.files.items() if is_annotation(files[0])]
        if len(rooms) < len(self.files):
            return []
        areas = sorted({PurePosixPath(room).parts[0] for room in rooms if "/" in room})
        return areas if len(areas) > 1 else []


def find_clouds(members: Iterable[str]) -> CloudFolder:
    """Return the clouds among files, each with its files."""
    names = sorted(members)
    rooms: dict[str, list[str]] = {}
    for name in names:
        if is_annotation(name) and name.lower().endswith(CLOUD_SUFFIXES):
            room = str(PurePosixPath(name).parent.parent)
            rooms.setdefault("room" if room == "." else room, []).append(name)
    files = {room: tuple(parts) for room, parts in rooms.items()}

    annotations = {part for parts in files.values() for part in parts}
    others = [name for name in names if name not in annotations]
    labels = label_files(others)
    ignored: dict[str, str] = {}
    for name in others:
        room = str(PurePosixPath(name).parent)
        if ("room" if room == "." else room) in rooms:
            ignored[name] = "next to Annotations, which have the same points with their classes"
        elif name in labels.values():
            continue
        elif name.lower().endswith(CLOUD_SUFFIXES):
            files[name] = (name,)
        elif name.lower().endswith(LABEL_SUFFIXES):
            ignored[name] = "labels without a cloud of the same name"
    return CloudFolder(dict(sorted(files.items())), labels, ignored)
