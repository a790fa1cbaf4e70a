"""Tensors in an ordinary pickle, as ``pickle.dump`` writes them, read as numpy arrays without torch.

Such a pickle calls ``torch.storage._load_from_bytes`` with a whole file of ``torch.save`` for every tensor,
which torch would load, and run. Here those bytes are read as data: by their layout where it is the one that
torch writes, so that the array is a view of the bytes, else by
:mod:`kmip_data.pipelines.formats.torch_files`.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.pipelines.formats.restricted_pickle import Allowed, RefusedError
from kmip_data.pipelines.formats.torch_files import STORAGES, TENSORS, load_storage

# Four small pickles (a magic number, a version, facts about the machine, a reference to the storage by its
# type, key and length), a list of the one key, the length again; then the numbers.
_HEADER: Final = re.compile(
    rb"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19\.\x80\x02M\xe9\x03\.\x80\x02}q\x00\("
    rb"X\x10\x00{3}protocol_versionq\x01M\xe9\x03X\r\x00{3}little_endianq\x02\x88X\n\x00{3}type_sizesq\x03}q\x04\("
    rb"X\x05\x00{3}shortq\x05K\x02X\x03\x00{3}intq\x06K\x04X\x04\x00{3}longq\x07K\x04uu\.\x80\x02\("
    rb"X\x07\x00{3}storageq\x00ctorch\n(?P<type>[A-Z][a-z]+Storage)\nq\x01"
    rb"(?P<key>X[\x01-\x20]\x00{3}[0-9]{1,32})q\x02X\x03\x00{3}cpuq\x03(?:K.|M..|J....)Ntq\x04Q\."
    rb"\x80\x02]q\x00(?P=key)q\x01a\.(?P<count>.{8})",
    re.DOTALL,
)
_DTYPES: Final = {name.removeprefix("torch.").encode(): np.dtype(code) for name, code in STORAGES.items()}


def storage_of(data: Any, *rest: Any) -> NDArray[Any]:
    """Stand in for ``torch.storage._load_from_bytes``: the numbers of one storage, (count,).

    Raises
    ------
    RefusedError
        The argument is no bytes.
    DamagedInput
        The bytes are anything but one storage.
    """
    if rest or not isinstance(data, bytes | bytearray | memoryview):
        raise RefusedError("a storage that is not given as bytes")
    header = _HEADER.match(data)
    if header is not None:
        dtype = _DTYPES.get(header["type"])
        count = int.from_bytes(header["count"], "little")
        if dtype is not None and len(data) - header.end() == count * dtype.itemsize:
            return np.frombuffer(data, dtype, count, header.end())
    return load_storage(bytes(data), "a tensor")


#: What may be named in a pickle of tensors.
PICKLED_TENSORS: Final[Allowed] = {**TENSORS, "torch.storage._load_from_bytes": storage_of}
