"""City-Networks, cities of your own, and the streets of GraphLand."""

from __future__ import annotations

from typing import Any, Literal, get_args

from torch_geometric.data import Data

from kmip_data.builds.home import Build
from kmip_data.datasets.base import Arguments, BuiltDataset, names_of
from kmip_data.datasets.inputs import feed_city
from kmip_data.datasets.pyg_calls import GraphLandCall
from kmip_data.errors import UsageError
from kmip_data.graphs.city_columns import Coordinates, is_city
from kmip_data.manifest import dataset_names, load_manifest, unknown_name


class GraphLandArguments(Arguments, GraphLandCall, total=False):
    """Keywords of :class:`GraphLandDataset`."""


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
        Columns of ``x``: ``"replace"``, sinusoids instead of longitude and latitude, then the other
        35 columns standardised over the train nodes (67, as in the paper's code); ``"append"``:
        sinusoids besides all 37 (69, as in its text); ``"none"``: the 35 alone. There are 4
        sinusoids per band.
    raw_features
        Only the 37 stored columns, as in PyTorch Geometric's class: ``Data(x=[N, 37], edge_index,
        y, train_mask, val_mask, test_mask)``. Their names and units are
        ``schema.column("node/x").fields``.
    *pyg, augmented, delete_raw
        Two or more positional arguments have the order of PyTorch Geometric's class:
        ``CityNetwork(root, name, augmented, …)``. ``augmented=True``: its features,
        ``raw_features=True``. ``delete_raw`` must be False.
    """

    _name = "paris"
    _arguments = Arguments

    def _reading(
        self,
        name: str,
        *,
        coordinates: Coordinates = "replace",
        raw_features: bool = False,
        augmented: bool | None = None,
        delete_raw: bool = False,
    ) -> dict[str, Any]:
        if coordinates not in get_args(Coordinates):
            raise unknown_name(
                "way to feed coordinates",
                coordinates,
                get_args(Coordinates),
                command="help(kmip_data.CityNetwork), in Python",
            )
        # Shipped names match in any case, your own city exactly.
        if name.lower() in dataset_names():
            name = name.lower()
            if load_manifest(name).dataset_class != CityNetwork.__name__:
                raise _not_a_city(name, f"the dataset {name}")
        self._coordinates: Coordinates | None = None if raw_features else coordinates
        return {
            "name": name,
            "first": lambda build: _check_city(name, build),
            "always": ("x", "y", "edge_index") if raw_features else (),
        }

    def get(self, idx: int) -> Data:
        """Return the graph, without the transform."""
        data = super().get(idx)
        return data if self._coordinates is None else feed_city(data, self.card, self._coordinates)

    @property
    def num_node_features(self) -> int:
        """Number of columns of ``x``."""
        stored = super().num_node_features
        if self._coordinates is None or self.transform is not None:
            return stored
        # Longitude and latitude leave unless they are appended to.
        sinusoids = 0 if self._coordinates == "none" else self._features("coordinate_encoding")
        return sinusoids + stored - (0 if self._coordinates == "append" else 2)


class GraphLandDataset(BuiltDataset):
    """GraphLand's ``city-roads-M`` and ``city-roads-L``: the streets of a city, with a number to predict.

    The item is ``Data(x=[N, F], edge_index=[2, E], y=[N], train_mask=[N], val_mask=[N],
    test_mask=[N], x_numerical_mask=[F], x_fraction_mask=[F], x_categorical_mask=[F])``, equal to
    that of PyTorch Geometric 2.8's class with its defaults; ``y`` is float32, NaN where unknown.
    ``schema.column("node/x").fields`` are the names of the features.

    Parameters
    ----------
    name
        ``"city-roads-m"`` or ``"city-roads-l"``, in any case.
    split_rule
        ``"RL"``: 10/10/80 of the streets, ``"RH"``: 50/25/25, both published; ``"stratified"`` with
        ``split_seed``.
    target_scaling
        Published split whose train streets standardise ``y``; default: that of ``split_rule``
        (``"RL"`` for ``"stratified"``). ``"none"``: ``y`` as published.
        ``card.statistics["roads"]`` has the constants.
    *pyg, split, numerical_features_transform, …
        Two or more positional arguments have the order of PyTorch Geometric's class:
        ``GraphLandDataset(root, name, split, …)``, where ``split`` is our ``split_rule``.
        Transforms must be the defaults, with which the build is stored;
        ``regression_targets_transform=None`` is ``target_scaling="none"``.
    """

    _name = "city-roads-m"
    _arguments = GraphLandArguments
    _replaced = ("target_scaling",)

    def _reading(
        self,
        name: str,
        *,
        split_rule: Literal["RL", "RH", "stratified"] = "RL",
        target_scaling: Literal["RL", "RH", "none"] | None = None,
    ) -> dict[str, Any]:
        known = names_of(GraphLandDataset)
        if name.lower() not in known:
            raise unknown_name("dataset of GraphLand", name, known)
        # The target is standardised by the train streets of the split that is read.
        scaling = target_scaling or ("RL" if split_rule == "stratified" else split_rule)
        return {
            "name": name.lower(),
            "parameters": {"target_scaling": scaling},
            "rule": {"split": split_rule},
        }


def _check_city(name: str, build: Build) -> None:
    if not is_city(build.card):
        raise _not_a_city(name, f"the build {build.path}")


def _not_a_city(name: str, found: str) -> UsageError:
    return UsageError(
        f"{name!r} is not a city.",
        expected=f"{', '.join(names_of(CityNetwork))}, or a city built under a name of its own",
        found=found,
        next="kmip-data list",
    )
