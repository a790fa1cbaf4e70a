"""``kmip_data.save``: write graphs in memory as a build."""

from __future__ import annotations

import hashlib
import inspect
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd
from torch.utils.data import Dataset as TorchDataset
from torch_geometric.data import Data, HeteroData

from kmip_data.builds.execution_options import ExecutionOptions
from kmip_data.builds.files_of_build import WORK_FOLDER, foreign_file_notes
from kmip_data.builds.home import Build, Home
from kmip_data.builds.verify import feature_problems
from kmip_data.columns.labels import TaskName
from kmip_data.errors import DamagedInput, Setting, Step, UsageError, unknown_name_error
from kmip_data.files import atomic_writes
from kmip_data.files.path_errors import absolute_path
from kmip_data.format.card import CARD_NAME, NAME_RULE, is_path_component
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import ItemForm
from kmip_data.manifest import License, dataset_names, load_manifest
from kmip_data.pipelines.base import RawCopy
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.engine.plan import BuildPlan
from kmip_data.pipelines.engine.resumable_build import run_build
from kmip_data.pipelines.graph_arrays.spooled_graphs import SpooledGraphs, spool_graphs
from kmip_data.pipelines.parameters import check_params
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.saving.data_to_arrays import record_from_data
from kmip_data.saving.frames import ArrowTable
from kmip_data.saving.in_memory_pipeline import (
    IndicesOrMask,
    InMemoryPipeline,
    InMemoryTables,
    SavedGraphs,
    update_digest,
)
from kmip_data.text import dataset_name_from, list_names


def save(  # noqa: PLR0913 -- fields of the card and parameters of the graphs
    dataset: TorchDataset[object]
    | Iterable[Data]
    | Data
    | nx.Graph
    | pd.DataFrame
    | ArrowTable
    | Mapping[str, pd.DataFrame | ArrowTable],
    folder: str | os.PathLike[str],
    split: Mapping[str, IndicesOrMask] | None = None,
    *,
    name: str | None = None,
    overwrite: bool = False,
    class_names: Sequence[str] = (),
    title: str = "",
    license: str = "",  # noqa: A002 -- its name on the card
    citation: str = "",
    task: TaskName | None = None,
    label: str | Sequence[str] = "",
    ignore: str | Sequence[str] = (),
    undirected: bool = False,
    **keys: Any,
) -> Build:
    """Write graphs as a build, which :func:`kmip_data.open` reads back unchanged.

    Attributes, values and dtypes are preserved; if graphs have dtypes of different width, the widest
    is used. Values are stored in the narrowest lossless dtype. If ``edge_index`` lists the k sources
    of node 0, then of node 1 and so on (k-NN graphs), it becomes a neighbour table with a quarter
    of the bytes, which can be loaded with ``compact=True``. Memory holds one shard (about 64 MiB) at
    a time. The folder appears once it is complete; an error leaves nothing behind.

    Parameters
    ----------
    dataset
        A PyTorch Geometric dataset, another iterable of ``Data``, or one ``Data``. It is read once;
        unless it is a list, graphs are kept in a temporary file next to ``folder``. Also accepted: a
        networkx graph or a list of them, a table of edges, or tables by name, ``{"nodes": …,
        "edges": …, "graphs": …}``, which are read like CSV files of these names. Tables are frames
        of pandas, whose index is a column unless it numbers the rows, or, with pyarrow installed,
        of polars or another library that exports them.
    folder
        A new folder, relative to the working directory. A build in ``built/`` of the home folder
        can be opened by its name from anywhere.
    split
        Positions of the graphs in each part (``train``, ``val`` or ``valid``, ``test``), or of the
        nodes of a single graph, as ``get_idx_split`` returns them. By default, the boolean
        ``train_mask``, ``val_mask`` and ``test_mask`` of a single graph become its split.
        Masks [N, F] become F splits: ``data.split.fold`` is 0 to F - 1. Without masks, the split
        is random, like that of ``kmip-data build graphs``.
    name
        Name of the dataset. Default: the name of the folder.
    overwrite
        Replace the build in ``folder``, once the new one is complete. Its graphs may be the ones
        that are saved. A folder that holds other files is refused.
    class_names, title, license, citation
        Fields of the card.
    task
        Task of ``y``: ``"classification"``, ``"multilabel"`` or ``"regression"``. Default: inferred
        from the values. Integers are classes, rows of several 0 and 1 are labels, and other floats
        are a regression, as in PyTorch Geometric. In tables, floats without fractions are classes.
    label
        Attribute that becomes ``y``, or several columns of tables.
    ignore
        Attributes to leave out.
    undirected
        Add the reverse of each edge if it is missing.
    keys
        Other keys of ``kmip-data build graphs --set``, such as ``source``, ``feature`` and ``missing``.

    Raises
    ------
    UsageError
        A graph (named in the message) is not homogeneous, does not match previous graphs, or has an
        attribute that the format cannot store; the task of the targets is ambiguous; the folder
        exists and is not to be overwritten; or the split is invalid, for example because masks have
        a node in two parts.
    OutOfResources
        The disk is full.

    Examples
    --------
    >>> import kmip_data
    >>> from torch_geometric.datasets import FakeDataset
    >>> build = kmip_data.save(FakeDataset(num_graphs=100), "my-graphs")  # doctest: +SKIP
    >>> dataset = kmip_data.open("./my-graphs")  # doctest: +SKIP
    """
    _check_arguments(dataset, folder, split, keys)
    folder = absolute_path(folder, "folder")
    name = name or folder.name
    check_new_folder(folder, name, overwrite=overwrite)
    manifest = load_manifest("graphs").model_copy(
        update={
            "name": name,
            "registered_name": "",
            "pipeline": "",
            "title": title or name,
            "citation": citation,
            "license": License(name=license, url="", notice=""),
            "notes": ("Written by kmip_data.save.",),
        }
    )
    values = {
        "task": task,
        "label": _names(label),
        "ignore": _names(ignore),
        "undirected": undirected,
        "class_name": tuple(class_names),
        **keys,
    }
    params = check_params(GraphParams, values, "graphs")
    with atomic_writes.new_folder(folder, "unfinished build", replace=overwrite) as partial:
        try:
            spool = partial / WORK_FOLDER / "graphs"
            graphs = InMemoryTables.from_objects(dataset) or _spool_graphs(dataset, spool, params)
            pipeline = InMemoryPipeline(manifest, graphs, split)
            raw = RawCopy(partial, {"graphs": graphs.digest}, ())
            options = ExecutionOptions(output=partial, quiet=True, jobs=1)
            plan = BuildPlan(pipeline, params, raw, Home.locate(None), options)
            atomic_writes.write_marker(partial, atomic_writes.build_marker_content(plan.key))
            card = run_build(plan, pipeline.splits_to_write)
            # Files may have been added to the old build while the new one was written.
            check_new_folder(folder, name, overwrite=overwrite)
        except (DamagedInput, UsageError) as error:
            raise _as_call_error(error) from None
    build = Build(folder, card)
    for problem in [*pipeline.warnings, *feature_problems(build)]:
        warnings.warn(problem, stacklevel=2)
    return build


def _names(value: str | Sequence[str]) -> tuple[str, ...]:
    """Return one or several names as a tuple."""
    if isinstance(value, str):
        return (value,) if value else ()
    return tuple(value)


def _check_arguments(
    dataset: object, folder: object, split: object, keys: Mapping[str, object]
) -> None:
    """Raise ``UsageError`` for arguments that are swapped, misspelt or of a wrong type."""
    if isinstance(dataset, str | os.PathLike):
        raise UsageError(
            f"save takes the graphs first, then the folder; the first argument is {str(dataset)!r}.",
            steps=f"kmip_data.save(graphs, {str(dataset)!r})",
        )
    if not isinstance(folder, str | os.PathLike):
        raise UsageError(
            f"The folder is of type {type(folder).__name__}, not a path.",
            steps="kmip_data.save(graphs, 'my-graphs')",
        )
    if split is not None and not isinstance(split, Mapping):
        raise UsageError(
            f"The split is of type {type(split).__name__}, not a dictionary of parts.",
            steps=f"kmip_data.save(graphs, {str(folder)!r}, split={{'train': …, 'val': …, 'test': …}})",
        )
    for key in keys:
        if key not in GraphParams.model_fields:
            raise unknown_name_error(
                "argument of kmip_data.save",
                key,
                sorted({*inspect.signature(save).parameters, *GraphParams.model_fields} - {"keys"}),
                command="help(kmip_data.save)",
            )


def check_new_folder(folder: Path, name: str, *, overwrite: bool = False) -> None:
    """Raise ``UsageError`` if the folder may not be written, or the name of the dataset is invalid.

    With ``overwrite``, the folder may hold a build, and nothing else.
    """
    atomic_writes.refuse_link(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        is_build = (folder / CARD_NAME).is_file()
        if not (overwrite and is_build):
            steps: list[Step] = ["use another folder"]
            if is_build:
                steps.insert(0, f"kmip_data.save(graphs, {str(folder)!r}, overwrite=True)")
            raise UsageError(f"{folder} already exists.", steps=steps)
        if note := next(foreign_file_notes(folder), None):
            raise UsageError(f"{folder} cannot be overwritten: {note}.", steps="use another folder")
    if not is_path_component(name):
        raise UsageError(
            f"A dataset cannot be called {name!r}.",
            expected=NAME_RULE,
            steps=Setting(name=dataset_name_from(name) or "my-graphs"),
        )
    # The name of a recipe, such as graphs, is allowed, because its builds have other names.
    if name in dataset_names() and not load_manifest(name).recipe:
        raise UsageError(
            f"The name {name!r} belongs to a dataset of this package.",
            steps=Setting(name=f"my-{name}"),
        )


def _spool_graphs(dataset: Any, spool: Path, params: GraphParams) -> SavedGraphs:
    """Write all graphs as arrays to ``spool``: their columns are known only after the last one."""
    names = dataset.keys if isinstance(dataset, ShardedDataset) else None
    dataset = [dataset] if isinstance(dataset, Data | HeteroData) else dataset
    if not (hasattr(dataset, "__iter__") or hasattr(dataset, "__getitem__")):
        raise UsageError(
            f"An object of type {type(dataset).__name__} cannot be saved: it is no graph.",
            expected="Data, a dataset or a list of Data, a networkx graph or pandas tables",
            steps="help(kmip_data.save)",
        )
    options = ReadOptions(params)
    attributes: dict[str, None] = {}
    forms: dict[str, ItemForm] = {}
    digest = hashlib.sha256()

    def graphs() -> Iterator[GraphRecord]:
        for number, data in enumerate(dataset):
            name = f"{number:08d}" if names is None else names[number]
            graph, graph_forms = record_from_data(data, name, options)
            attributes.update(dict.fromkeys(data.keys()))
            if number and graph_forms != forms:
                raise _changed_types_error(name, graph_forms, forms)
            forms.update(graph_forms)
            update_digest(digest, graph)
            yield graph if isinstance(dataset, list | tuple) else _copy_graph(graph)

    spool_graphs(spool, graphs())
    if not len(SpooledGraphs(spool)):
        raise UsageError("There is nothing to save: no graph.")
    if unknown_names := set(params.ignore) - attributes.keys():
        raise UsageError(
            f"No graph has an attribute {min(unknown_names)!r}.",
            found=list_names(attributes, 500),
            steps="use names of these in ignore=",
        )
    return SavedGraphs(spool, forms, digest.hexdigest())


def _copy_graph(graph: GraphRecord) -> GraphRecord:
    """Copy the arrays of a graph: an iterable may reuse the tensors of its previous items."""
    columns = {name: array.copy() for name, array in graph.columns.items()}
    edges = None if graph.edge_index is None else graph.edge_index.copy()
    return replace(graph, columns=columns, edge_index=edges)


def _changed_types_error(
    name: str, forms: Mapping[str, ItemForm], first_forms: Mapping[str, ItemForm]
) -> UsageError:
    """Return the error for a graph whose numbers and strings differ from those of previous graphs."""
    names = sorted({key.partition("/")[2] for key, _ in forms.items() ^ first_forms.items()})
    return UsageError(
        f"Graph {name} has another type than previous graphs in {', '.join(names)}.",
        steps="use a tensor, a number or a string in every graph",
    )


def _as_call_error(error: DamagedInput | UsageError) -> UsageError:
    """Convert an error of a build to one of the call, whose arguments were wrong."""
    return UsageError(error.message, expected=error.expected, found=error.found, steps=error.steps)
