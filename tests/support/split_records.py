"""Records for split rules, made from keys alone."""

from collections.abc import Sequence

import numpy as np

from kmip_data.pipelines.base import Records


def records_of(keys: Sequence[str]) -> Records:
    """Records with these keys and nothing else that rules could go by."""
    none = np.zeros(len(keys), np.int64)
    return Records(list(keys), none, none, np.zeros((len(keys), 0), np.int64), None)
