"""Run a dataset class of PyTorch Geometric, OGB or the user, and save its items with their split.

This runs the user's code, so only ``kmip-data build pyg`` calls it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from kmip_data.builds.home import Build
from kmip_data.columns.part_masks import PART_ARRAYS
from kmip_data.errors import SAME_AGAIN, KmipDataError, Setting, SourceUnavailable, UsageError
from kmip_data.format.split_files import PARTS, part_name
from kmip_data.graphs.split_rules import count_of_fraction, shuffled_split
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.saving.data_to_arrays import record_from_data
from kmip_data.saving.in_memory_pipeline import IndicesOrMask, update_digest
from kmip_data.saving.save import check_new_folder, save

#: Defaults that show that the argument ``split`` selects a part.
_PART_DEFAULTS = (*PARTS, "trainval", inspect.Parameter.empty)


def save_items_of_class(
    class_path: str, arguments: Mapping[str, object], root: Path, folder: Path, *, name: str
) -> Build:
    """Save the items of a dataset class as a build.

    The split comes from the first of these that exists: an argument ``split`` that selects a part,
    ``get_idx_split``, the masks of a single graph. Otherwise graphs, or the nodes of a single graph,
    are drawn 80/10/10.

    Parameters
    ----------
    class_path
        ``MODULE:CLASS``, a subclass of ``torch.utils.data.Dataset``.
    arguments
        Arguments of its constructor, by name.
    root
        Folder where the class downloads and processes its files, unless ``arguments`` have another.
    folder, name
        Folder and name of the build, as for :func:`kmip_data.save`.

    Returns
    -------
    Build
        The build in ``folder``.

    Raises
    ------
    UsageError
        The class cannot be imported or run, has the same items in every part, or its items cannot
        be saved; the folder exists, or the name is taken.
    """
    check_new_folder(folder, name)
    with _convert_class_errors(class_path):
        dataset_class = _load_class(class_path)
        parameters = inspect.signature(dataset_class).parameters
        has_parts = "split" in parameters and parameters["split"].default in _PART_DEFAULTS
        datasets = {}
        if has_parts and "split" not in arguments:
            for part in PARTS:
                datasets[part] = _instantiate(dataset_class, root, {**arguments, "split": part})
            first_items = [dataset[0] for dataset in datasets.values() if len(dataset)]
            _check_parts_differ(class_path, first_items)
        else:
            datasets[""] = _instantiate(dataset_class, root, arguments)
        sizes = {part: len(dataset) for part, dataset in datasets.items()}
    if not sum(sizes.values()):
        raise UsageError(f"{class_path} has no items.", steps="give it other arguments")

    items: Iterable[Data] = _yield_items(class_path, datasets.values())
    title = f"{class_path} {dict(arguments) or ''}".strip()
    split: dict[str, IndicesOrMask] = {}
    has_masks = False
    first = 0
    for part, size in sizes.items():
        if part:
            split[part] = range(first, first + size)
        first += size

    if not split:
        dataset = datasets[""]
        count = sizes[""]
        # A single graph is split by nodes, and by its masks if it has any.
        if count == 1:
            items = list(items)
            has_masks = any(mask in items[0] for mask in PART_ARRAYS)
            count = int(getattr(items[0], "num_nodes", None) or 0)
        if hasattr(dataset, "get_idx_split"):
            with _convert_class_errors(class_path):
                published = {
                    part_name(part): rows for part, rows in dataset.get_idx_split().items()
                }
            split = {part: published[part] for part in PARTS if part in published}
    if not split and not has_masks:
        split = _draw_split(count)
        title += ", split drawn 80/10/10 with seed 0"
    return save(items, folder, name=name, split=split or None, title=title)


def _load_class(class_path: str) -> Any:
    module, _, name = class_path.partition(":")
    dataset_class = (
        getattr(importlib.import_module(module), name, None) if module and name else None
    )
    if not (isinstance(dataset_class, type) and issubclass(dataset_class, Dataset)):
        raise UsageError(
            f"{class_path!r} is not a dataset class.",
            expected="MODULE:CLASS, a subclass of torch_geometric.data.Dataset",
            steps="name one such as torch_geometric.datasets:Planetoid",
        )
    return dataset_class


def _instantiate(dataset_class: Any, root: Path, arguments: Mapping[str, object]) -> Any:
    """Return an instance of the class; pass ``root`` if it has that parameter."""
    if "root" in inspect.signature(dataset_class).parameters:
        arguments = {"root": str(root), **arguments}
    # OGB reads with torch.load, which refuses these classes, what it has just written.
    with torch.serialization.safe_globals([DataEdgeAttr, DataTensorAttr, GlobalStorage]):
        return dataset_class(**arguments)


@contextlib.contextmanager
def _convert_class_errors(class_path: str) -> Iterator[None]:
    """Convert errors of the user's class to ours, and send its output to stderr."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except KmipDataError:
        raise
    except ImportError as error:
        raise UsageError(
            f"{class_path} cannot be imported: {error}",
            steps="install its package; for your own file, add its folder to PYTHONPATH",
        ) from error
    except (Exception, SystemExit) as error:
        if reason := _network_problem(error):
            raise SourceUnavailable(
                f"{class_path} could not download: {reason}",
                steps=["connect to the network, or put its raw files in place", SAME_AGAIN],
            ) from error
        raise UsageError(
            f"{class_path} failed: {type(error).__name__}: {error}",
            steps="pass its arguments (root has a default)",
        ) from error


def _network_problem(error: BaseException | None) -> str:
    """Return the network problem behind an error; empty for other errors."""
    while error is not None:
        # Errors of urllib, requests, aiohttp and fsspec are an OSError or have one as their cause.
        is_network = isinstance(error, ConnectionError | TimeoutError | socket.gaierror)
        module = type(error).__module__.partition(".")[0]
        if is_network or module in {"urllib", "urllib3", "requests", "aiohttp"}:
            return f"{type(error).__name__}: {error}"
        error = error.__cause__ or error.__context__
    return ""


def _check_parts_differ(class_path: str, items: Sequence[object]) -> None:
    """Raise ``UsageError`` if parts start with the same item: a class may ignore ``split``."""
    digests = set()
    for data in items:
        digest = hashlib.sha256()
        update_digest(digest, record_from_data(data, "0", ReadOptions(GraphParams()))[0])
        digests.add(digest.hexdigest())
    if len(digests) == 1 and len(items) > 1:
        raise UsageError(
            f"{class_path} has the same items in train, val and test.",
            steps=["draw the split 80/10/10 of one of them", Setting(split="train")],
        )


def _yield_items(class_path: str, datasets: Iterable[Sequence[Data]]) -> Iterator[Data]:
    for dataset in datasets:
        for number in range(len(dataset)):
            with _convert_class_errors(class_path):
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
