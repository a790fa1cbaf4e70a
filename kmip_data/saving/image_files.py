"""Write figures of matplotlib as images, with reproducible bytes."""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import Any

from kmip_data.errors import Setting, UsageError
from kmip_data.files.atomic_writes import write_output
from kmip_data.runtime.progress import print_status

#: Image formats by file suffix, with reproducible metadata.
IMAGE_METADATA: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}
MAX_MISSING_LETTERS = 12  #: maximum number of characters without a font in a message
_NO_GLYPH = re.compile(r"Glyph (\d+) .* missing from")


def save_figure(figure: Any, path: Path, **options: object) -> None:
    """Write a figure in the format of the suffix of ``path``; equal figures give equal bytes.

    Characters without an installed font are drawn as boxes, and a message on stderr lists them.
    """
    suffix = image_suffix(path)
    picture = io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(
            picture,
            format=suffix[1:],
            metadata=IMAGE_METADATA[suffix],
            **options,
        )
    missing = dict[str, None]()
    for warning in caught:
        glyph = _NO_GLYPH.match(str(warning.message))
        if glyph is None:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
        else:
            missing[chr(int(glyph[1]))] = None
    if missing:
        letters = "".join([*missing][:MAX_MISSING_LETTERS])
        print_status(
            f"No installed font has {letters}: {path.name} shows boxes; install a font such as Noto Sans CJK."
        )
    write_output(path, picture.getvalue())


def image_suffix(path: Path) -> str:
    """Return the suffix of an image, a key of :data:`IMAGE_METADATA`; PNG without a suffix.

    Raises ``UsageError`` for other suffixes.
    """
    suffix = path.suffix.lower() or ".png"
    if suffix not in IMAGE_METADATA:
        raise UsageError(
            f"A picture cannot be written as {path.name}.",
            expected=f"a name that ends in {', '.join(IMAGE_METADATA)}",
            steps=Setting(output=str(path.with_suffix(".png"))),
        )
    return suffix
