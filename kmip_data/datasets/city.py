"""Street networks: City-Networks, cities that you built, and GraphLand's roads."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypedDict, Unpack, get_args

from torch_geometric.data import Data

from kmip_data.builds.home import Build, Home, list_builds
from kmip_data.datasets.base import (
    BuiltDataset,
    DatasetArguments,
    Folder,
    dataset_name_of_class,
    dataset_names_of_class,
    home_from_arguments,
)
from kmip_data.datasets.inputs import replace_city_inputs
from kmip_data.datasets.pyg_arguments import accept_pyg_order, require_value
from kmip_data.errors import Command, Step, UsageError, unknown_name_error
from kmip_data.format.card import CARD_NAME
from kmip_data.graphs.city_columns import CoordinateMode, city_input_names, is_city
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.text import is_likely_typo, nearest_name


def _refuse_delete_raw(_: str, value: bool) -> dict[str, object]:
    if value:
        raise UsageError("delete_raw=True: raw files stay.", steps="leave out delete_raw")
    return {}


class CityNetwork(BuiltDataset):
    """The streets of a city: one graph with nodes classified by their eccentricity.

    The item is ``Data(x=[N, 67], edge_index=[2, E], y=[N], pos=[N, 2], eccentricity=[N],
    edge_length=[E], train_mask=[N], val_mask=[N], test_mask=[N])``: every street in both
    directions, ``pos`` longitude and latitude in degrees, lengths in metres. ``y`` is derived from
    ``eccentricity``, which must therefore not be an input.

    Parameters
    ----------
    name
        ``"paris"``, ``"shanghai"``, ``"la"``, ``"london"``, ``"helsinki"``, in any case; or the
        name of a city that was built with ``kmip-data build city --name NAME``.
    coordinates
        Columns of ``x``. ``"replace"``: sinusoids instead of longitude and latitude, then the other
        35 columns standardised over the training nodes (67, as in the paper's code). ``"append"``:
        sinusoids in addition to all 37 columns (69, as in the paper's text). ``"none"``: only the
        35 columns. There are 4 sinusoids per band.
    raw_features
        Only the 37 stored columns, as in PyTorch Geometric's class: ``Data(x=[N, 37], edge_index,
        y, train_mask, val_mask, test_mask)``. ``schema.column("node/x").fields`` has their names
        and units.
    *pyg, augmented, delete_raw
        Two or more positional arguments have the order of PyTorch Geometric's class:
        ``CityNetwork(root, name, augmented, …)``. ``augmented=True`` means ``raw_features=True``.
        ``delete_raw`` must be False.
    hops
        Radius of the eccentricity in hops, at least 1.
    classes
        Number of classes: quantiles of the eccentricity.
    weight
        Edge weight of the eccentricity: length in metres, or travel_time in seconds at the speed of
        each street.
    bands
        Frequencies per coordinate of the encoding.
    split_rule
        random: intersections at random, as in the paper; spatial: whole blocks of the map with a
        buffer between them, so that train and test streets are not neighbours; stratified: at
        random, with equal class fractions.
    split_seed
        Seed of the split rule.
    block_size
        Side of a block in metres (spatial). Default: the largest of 1,000, 500, 250 … at which no
        block has more than a fifteenth of the intersections.
    buffer
        Hops between two parts (spatial): intersections nearer than that to another part belong to
        no part. With 0, blocks touch.
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "paris"
    has_parts = False

    @accept_pyg_order(
        *("root", "name", "augmented", "transform", "pre_transform", "force_reload"),
        "delete_raw",
        augmented=lambda name, value: {"raw_features": True, **require_value(True)(name, value)},
        delete_raw=_refuse_delete_raw,
    )
    def __init__(  # noqa: PLR0913 -- the parameters of its build and split
        self,
        name: str,
        *pyg: object,
        root: Folder | None = None,
        coordinates: CoordinateMode = "replace",
        raw_features: bool = False,
        augmented: bool | None = None,
        delete_raw: bool = False,
        hops: int = 16,
        classes: int = 10,
        weight: Literal["length", "travel_time"] = "length",
        bands: int = 8,
        split_rule: Literal["random", "spatial", "stratified"] = "random",
        split_seed: int = 0,
        block_size: float | None = None,
        buffer: int = 1,
        **arguments: Unpack[DatasetArguments],
    ) -> None:
        if coordinates not in get_args(CoordinateMode):
            raise unknown_name_error(
                "value of coordinates",
                coordinates,
                get_args(CoordinateMode),
                command="help(kmip_data.CityNetwork), in Python",
            )
        # Names of shipped cities match in any case, names of the user's cities exactly.
        if name.lower() in dataset_names():
            name = name.lower()
            if load_manifest(name).dataset_class != CityNetwork.__name__:
                raise _not_a_city_error(name, f"the dataset {name}", name)
        else:
            _check_built(name, home_from_arguments(root, arguments))
        self._coordinates: CoordinateMode | None = None if raw_features else coordinates
        self._open(
            root,
            arguments,
            name=name,
            class_transform=lambda build: _check_city(name, build),
            required_columns=("x", "y", "edge_index") if raw_features else (),
            hops=hops,
            classes=classes,
            weight=weight,
            bands=bands,
            split_rule=split_rule,
            split_seed=split_seed,
            block_size=block_size,
            buffer=buffer,
        )

    def get(self, idx: int) -> Data:
        """Return the graph, without the transform."""
        data = super().get(idx)
        if self._coordinates is None:
            return data
        return replace_city_inputs(data, self.card, self._coordinates)

    @property
    def num_node_features(self) -> int:
        """Number of columns of ``x``."""
        if self._coordinates is None or self.transform is not None:
            return super().num_node_features
        return len(city_input_names(self.card, self._coordinates))


class GraphLandCall(TypedDict, total=False):
    """Keywords of PyTorch Geometric's ``GraphLandDataset``."""

    split: str
    numerical_features_transform: str
    fraction_features_transform: str
    categorical_features_transform: str
    regression_targets_transform: str | None
    numerical_features_nan_imputation_strategy: str
    fraction_features_nan_imputation_strategy: str
    to_undirected: bool


class GraphLandArguments(DatasetArguments, GraphLandCall, total=False):
    """Keywords of :class:`GraphLandDataset`."""


def _target_scaling_argument(name: str, value: str | None) -> dict[str, object]:
    if value is None:
        return {"target_scaling": "none"}
    return require_value("default", "standard_scaler")(name, value)


class GraphLandDataset(BuiltDataset):
    """GraphLand's ``city-roads-M`` and ``city-roads-L``: regression on the streets of a city.

    The item is ``Data(x=[N, F], edge_index=[2, E], y=[N], train_mask=[N], val_mask=[N],
    test_mask=[N], x_numerical_mask=[F], x_fraction_mask=[F], x_categorical_mask=[F])``. Values are
    imputed as by PyTorch Geometric 2.8's class with its defaults; ``y`` is float32, NaN if unknown.
    ``schema.column("node/x").fields`` has the names of the features.

    Parameters
    ----------
    name
        ``"city-roads-m"`` or ``"city-roads-l"``, in any case.
    split_rule
        ``"RL"``: 10/10/80 per cent of the streets, ``"RH"``: 50/25/25, both published;
        ``"stratified"``, drawn with ``split_seed``.
    target_scaling
        Published split whose train streets give the mean and deviation that standardise ``y``.
        Default: the split of ``split_rule`` (``"RL"`` for ``"stratified"``). ``"none"``: ``y`` as
        published. ``card.statistics["roads"]`` has the constants.
    *pyg, split, numerical_features_transform, …
        Two or more positional arguments have the order of PyTorch Geometric's class:
        ``GraphLandDataset(root, name, split, …)``, where ``split`` is our ``split_rule``.
        Transforms must be the defaults, with which the build is stored;
        ``regression_targets_transform=None`` is ``target_scaling="none"``.
    split_seed
        Seed of the split rule.
    root, transform, columns, build, sample, limit, **arguments
        See :class:`~kmip_data.datasets.base.BuiltDataset`.
    """

    dataset_name = "city-roads-m"
    has_parts = False

    @accept_pyg_order(
        *("root", "name", *GraphLandCall.__annotations__),
        *("transform", "pre_transform", "force_reload"),
        split=lambda _, value: {"split_rule": value},
        numerical_features_transform=require_value("default", "quantile_transform_normal"),
        fraction_features_transform=require_value("default", None),
        categorical_features_transform=require_value("one_hot_encoding"),
        regression_targets_transform=_target_scaling_argument,
        numerical_features_nan_imputation_strategy=require_value("most_frequent"),
        fraction_features_nan_imputation_strategy=require_value("most_frequent"),
        to_undirected=require_value(True),
    )
    def __init__(
        self,
        name: str,
        *pyg: object,
        root: Folder | None = None,
        split_rule: Literal["RL", "RH", "stratified"] = "RL",
        target_scaling: Literal["RL", "RH", "none"] | None = None,
        split_seed: int = 0,
        **arguments: Unpack[GraphLandArguments],
    ) -> None:
        scaling = target_scaling or ("RL" if split_rule == "stratified" else split_rule)
        self._open(
            root,
            arguments,
            name=dataset_name_of_class(name, type(self)),
            target_scaling=scaling,
            split_rule=split_rule,
            split_seed=split_seed,
        )


def _check_built(name: str, home_folder: Folder | None) -> None:
    """Refuse a city that is neither shipped nor built, with the command that builds it."""
    if home_folder is not None and (Path(home_folder).expanduser() / CARD_NAME).is_file():
        return
    home = Home.locate(home_folder)
    builds = list_builds(home, name)
    if builds:
        _check_city(name, builds[0])
        return
    cities = [city for city in dataset_names_of_class(CityNetwork) if city != "city"]  # the recipe
    built_cities = [build.card.dataset for build in list_builds(home) if is_city(build.card)]
    nearest = nearest_name(name, [*cities, *built_cities])
    hint = ""
    step: Step = Command("kmip-data build city --name {} --place PLACE", name)
    if nearest is not None:
        hint = f" Did you mean {nearest!r}?"
        if is_likely_typo(name, nearest):
            step = f"kmip_data.CityNetwork({nearest!r})"
    raise UsageError(
        f"There is no city called {name!r} in {home.built}.{hint}",
        expected=f"{', '.join(cities)}, or a city that you built",
        steps=step,
    )


def _check_city(name: str, build: Build) -> None:
    if not is_city(build.card):
        raise _not_a_city_error(name, f"the build {build.path}", build.path)


def _not_a_city_error(name: str, actual: str, opened: object) -> UsageError:
    return UsageError(
        f"{name!r} is not a city.",
        expected=f"{', '.join(dataset_names_of_class(CityNetwork))}, or the name of a city that you built",
        found=actual,
        steps=f"kmip_data.open({str(opened)!r})",
    )
