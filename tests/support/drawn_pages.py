"""Header, arrays and columns of an explorer page, read back from its file."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

KINDS = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "f32": np.float32, "f64": np.float64}


def read_page(path: Path) -> tuple[dict[str, Any], Callable[[dict[str, Any]], np.ndarray]]:
    """Return the header, and a function from an entry of the header to its array."""
    text = path.read_text("utf-8")
    header = json.loads(re.search(r'class="header">(.*?)</script>', text, re.DOTALL)[1])
    packed = re.search(r'class="data">(.*?)</script>', text, re.DOTALL)[1]
    data = gzip.decompress(base64.b64decode(packed))
    return header, lambda at: np.frombuffer(data, KINDS[at["kind"]], at["count"], at["at"])


def page_columns(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a page by name, which must differ."""
    header, array = read_page(path)
    columns = {}
    for column in [*header["layers"], *header["columns"]]:
        if "values" not in column:
            continue
        values = array(column["values"])
        assert column["name"] not in columns
        columns[column["name"]] = values[array(column["codes"])] if "codes" in column else values
    return columns
