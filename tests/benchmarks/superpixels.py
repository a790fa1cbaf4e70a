"""Superpixels: pictures to a finished build, in two processes against one."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.table import Row, compare

from kmip_data.files.changes import remove_scratch

PICTURES, QUICK_PICTURES = 24, 4
SIDES = 375, 500  #: of generated pictures, as Pascal VOC's


def rows(*, quick: bool = False) -> list[Row]:
    """Measure on ``images/`` and ``masks/`` in ``$KMIP_DATA_PICTURES``, or on generated pictures."""
    from kmip_data.builds.home import Home
    from kmip_data.pipelines.build import build_own

    pictures = QUICK_PICTURES if quick else PICTURES
    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as place:
        folder = Path(place)
        given = os.environ.get("KMIP_DATA_PICTURES")
        source = Path(given) if given else _generated(folder / "pictures", pictures)

        def ours(jobs: int) -> Any:
            remove_scratch(folder / "home")
            return build_own(
                "superpixels",
                "pictures",
                {"images": source / "images", "masks": source / "masks"},
                parameters={"limit": pictures},
                home=Home(folder / "home"),
                jobs=jobs,
                quiet=True,
            )

        ours(1)
        times = compare(partial(ours, 2), partial(ours, 1), repeats=1 if quick else 3, warmup=0)
    what = f"superpixels of {pictures} pictures{'' if given else ', generated'}, 2 processes"
    note = (
        "superpixels: from the folders to the card, workers started anew; "
        "other pictures by KMIP_DATA_PICTURES=DIR with images/ and masks/"
    )
    return [Row.compared(what, "1 process", times, target=1.7, note=note)]


def _generated(folder: Path, pictures: int) -> Path:
    """Write pictures of the size of Pascal VOC's."""
    from PIL import Image
    from support.sample_pictures import write_sample

    write_sample(folder, pictures=pictures)
    for path in folder.rglob("*.png"):
        with Image.open(path, formats=("PNG",)) as image:
            kind = Image.Resampling.NEAREST if image.mode == "L" else Image.Resampling.BICUBIC
            larger = image.resize((SIDES[1], SIDES[0]), kind)
        larger.save(path)
    return folder
