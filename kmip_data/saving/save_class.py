"""Run a dataset class of PyTorch Geometric, OGB or your own, and save its items with their split.

As this runs code, only ``kmip-data build pyg`` calls it, with the user's input.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset
from torch_geometric.data import Data

from kmip_data.builds.home import Build
from kmip_data.columns.part_masks import PART_ARRAYS
from kmip_data.errors import KmipDataError, SourceUnavailable, UsageError
from kmip_data.format.split_files import PARTS, part_name
from kmip_data.graphs.split_rules import count_of_fraction, shuffled_split
from kmip_data.saving.data_to_arrays import arrays_of_data
from kmip_data.saving.pipeline import IndicesOrMask, SpooledGraphs
from kmip_data.saving.save import check_new_folder, save

#: Defaults of an argument ``split`` that chooses a part; it may have none.
_SPLITS = (*PARTS, "trainval", inspect.Parameter.empty)


def save_class(
    address: str, arguments: Mapping[str, object], root: Path, folder: Path, *, name: str
) -> Build:
    """Save the items of a dataset class as a build.

    Its split is the first that it has of an argument ``split`` that is ``"train"`` by default or
    must be given, ``get_idx_split`` and the masks of a single graph; else nodes or graphs are drawn
    80/10/10.

    Parameters
    ----------
    address
        ``MODULE:CLASS``, a subclass of ``torch.utils.data.Dataset``.
    arguments
        Arguments of its constructor, by name.
    root
        Folder where the class downloads and processes, unless the arguments have another.
    folder, name
        Folder and name of the build, as for :func:`kmip_data.save`.

    Returns
    -------
    Build
        The build in ``folder``.

    Raises
    ------
    UsageError
        The class cannot be imported or run, gives the same items for every part, or its items
        cannot be saved; the folder is not new, or the name is not free.
    """
    check_new_folder(folder, name)
    with _convert_class_errors(address):
        loaded = _load_class(address)
        known = inspect.signature(loaded).parameters
        by_part = "split" in known and known["split"].default in _SPLITS
        if by_part and "split" not in arguments:
            datasets = {
                part: _instantiate(loaded, root, {**arguments, "split": part}) for part in PARTS
            }
            _check_parts_differ(
                address, [dataset[0] for dataset in datasets.values() if len(dataset)]
            )
        else:
            datasets = {"": _instantiate(loaded, root, arguments)}
        sizes = {part: len(dataset) for part, dataset in datasets.items()}
    if not sum(sizes.values()):
        raise UsageError(f"{address} has no items.", next="other arguments: --set KEY=VALUE")

    items: Iterable[Data] = _yield_items(address, datasets.values())
    title = f"{address} {dict(arguments) or ''}".strip()
    split: dict[str, IndicesOrMask] = {}
    has_masks = False
    first = 0
    for part, size in sizes.items():
        if part:
            split[part] = range(first, first + size)
        first += size

    if not split:
        whole = datasets[""]
        count = sizes[""]
        # A single graph is split by its nodes, and by its masks if it has some.
        if count == 1:
            items = list(items)
            has_masks = any(mask in items[0] for mask in PART_ARRAYS)
            count = int(getattr(items[0], "num_nodes", None) or 0)
        if hasattr(whole, "get_idx_split"):
            with _convert_class_errors(address):
                published = {part_name(part): rows for part, rows in whole.get_idx_split().items()}
            split = {part: published[part] for part in PARTS if part in published}
    if not split and not has_masks:
        split = _draw_split(count)
        title += ", split drawn 80/10/10 with seed 0"
    return save(items, folder, name=name, split=split or None, title=title)


def _load_class(address: str) -> Any:
    module, _, name = address.partition(":")
    loaded = getattr(importlib.import_module(module), name, None) if module and name else None
    if not (isinstance(loaded, type) and issubclass(loaded, Dataset)):
        raise UsageError(
            f"{address!r} is not a class of a dataset.",
            expected="MODULE:CLASS, a subclass of torch_geometric.data.Dataset",
            next="--set class=MODULE:CLASS, such as torch_geometric.datasets:Planetoid",
        )
    return loaded


def _instantiate(loaded: Any, root: Path, arguments: Mapping[str, object]) -> Any:
    """Return the dataset, with ``root`` where its class names that argument."""
    if "root" in inspect.signature(loaded).parameters:
        arguments = {"root": str(root), **arguments}
    return loaded(**arguments)


@contextlib.contextmanager
def _convert_class_errors(address: str) -> Iterator[None]:
    """Convert errors of the user's class to one error, and send its output to stderr."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except KmipDataError:
        raise
    except ImportError as error:
        raise UsageError(
            f"{address} cannot be imported: {error}",
            next="install its package; for a file of your own, PYTHONPATH=FOLDER",
        ) from error
    except (Exception, SystemExit) as error:
        if reason := _network_problem(error):
            raise SourceUnavailable(
                f"{address} could not download: {reason}",
                next="the same command, on a machine with a network or with its raw files in place",
            ) from error
        raise UsageError(
            f"{address} failed: {type(error).__name__}: {error}",
            next="the arguments that it wants, as --set KEY=VALUE (root has a default where it is named)",
        ) from error


def _network_problem(error: BaseException | None) -> str:
    """Return the network problem behind an error; empty for other errors."""
    while error is not None:
        # Those of urllib, requests, aiohttp and fsspec are an OSError or have one as their cause.
        is_network = isinstance(error, ConnectionError | TimeoutError | socket.gaierror)
        module = type(error).__module__.partition(".")[0]
        if is_network or module in {"urllib", "urllib3", "requests", "aiohttp"}:
            return f"{type(error).__name__}: {error}"
        error = error.__cause__ or error.__context__
    return ""


def _check_parts_differ(address: str, items: Sequence[object]) -> None:
    """Refuse parts that begin with the same item: a class may take ``split`` and ignore it."""
    digests = set()
    for data in items:
        graph = SpooledGraphs(None)
        graph.add(*arrays_of_data(data, "0"))
        digests.add(graph.digest)
    if len(digests) == 1 and len(items) > 1:
        raise UsageError(
            f"{address} gives the same items for train, val and test.",
            next="--set split=train: the split is drawn 80/10/10",
        )


def _yield_items(address: str, datasets: Iterable[Sequence[Data]]) -> Iterator[Data]:
    for dataset in datasets:
        for number in range(len(dataset)):
            with _convert_class_errors(address):
                data = dataset[number]
            yield data


def _draw_split(count: int) -> dict[str, IndicesOrMask]:
    order = shuffled_split(range(count), (), val=0, seed=0)["train"]
    tenth = count_of_fraction(count, 0.1)
    return {
        "train": order[2 * tenth :],
        "val": order[:tenth],
        "test": order[tenth : 2 * tenth],
    }
