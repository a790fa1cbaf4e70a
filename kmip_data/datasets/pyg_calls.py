"""Constructor calls of PyTorch Geometric's classes, translated to ours by one table.

Two or more positional arguments have the order of PyTorch Geometric's class; a single one keeps our
meaning. A keyword of PyTorch Geometric's has its meaning there; an argument that is left out has
our default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from kmip_data.errors import UsageError

#: The last arguments of PyTorch Geometric's datasets of many graphs.
STEPS = ("transform", "pre_transform", "pre_filter", "force_reload")

#: Name of our class -> positional arguments of PyTorch Geometric's, in order.
ORDER: Mapping[str, tuple[str, ...]] = {
    "S3DIS": ("root", "test_area", "train", *STEPS),
    "ShapeNetPart": ("root", "categories", "include_normals", "split", *STEPS),
    "MalNetTiny": ("root", "split", *STEPS),
    "ZINC": ("root", "subset", "split", *STEPS),
    "PCQM4Mv2": ("root", "split", "transform", "backend", "from_smiles"),
    "HeterophilousGraphDataset": (
        "root",
        "name",
        "transform",
        "pre_transform",
        "force_reload",
    ),
    "Planetoid": (
        "root",
        "name",
        "split",
        "num_train_per_class",
        "num_val",
        "num_test",
        "transform",
        "pre_transform",
        "force_reload",
    ),
    "CityNetwork": (
        "root",
        "name",
        "augmented",
        "transform",
        "pre_transform",
        "force_reload",
        "delete_raw",
    ),
    "GraphLandDataset": (
        "root",
        "name",
        "split",
        "numerical_features_transform",
        "fraction_features_transform",
        "categorical_features_transform",
        "regression_targets_transform",
        "numerical_features_nan_imputation_strategy",
        "fraction_features_nan_imputation_strategy",
        "to_undirected",
        "transform",
        "pre_transform",
        "force_reload",
    ),
}


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


def _stored_as(*values: Any) -> Callable[[str, Any], dict[str, Any]]:
    """Return the meaning of an argument that has to be as the build stores it."""

    def meaning(name: str, value: Any) -> dict[str, Any]:
        if value not in values:
            raise UsageError(
                f"{name}={value!r} is not how the build is stored.",
                expected=f"{name}={values[0]!r}",
                next="transform=…, on reading",
            )
        return {}

    return meaning


def _raw_is_kept(_: str, value: bool) -> dict[str, Any]:
    if value:
        raise UsageError("delete_raw=True: raw files stay.", next="kmip-data remove raw/NAME")
    return {}


def _target_scaling(name: str, value: str | None) -> dict[str, Any]:
    if value is None:
        return {"target_scaling": "none"}
    return _stored_as("default", "standard_scaler")(name, value)


#: Name of our class -> argument of PyTorch Geometric's that we lack -> our arguments, of its name
#: and value.
MEANINGS: Mapping[str, Mapping[str, Callable[[str, Any], dict[str, Any]]]] = {
    "S3DIS": {"train": lambda _, value: {"split": "trainval" if value else "test"}},
    "ShapeNetPart": {
        "include_normals": lambda _, value: (
            {} if value else {"columns": ["edge_index", "y", "pos", "category"]}
        )
    },
    "CityNetwork": {
        "augmented": lambda name, value: {"raw_features": True, **_stored_as(True)(name, value)},
        "delete_raw": _raw_is_kept,
    },
    "GraphLandDataset": {
        "split": lambda _, value: {"split_rule": value},
        "numerical_features_transform": _stored_as("default", "quantile_transform_normal"),
        "fraction_features_transform": _stored_as("default", None),
        "categorical_features_transform": _stored_as("one_hot_encoding"),
        "regression_targets_transform": _target_scaling,
        "numerical_features_nan_imputation_strategy": _stored_as("most_frequent"),
        "fraction_features_nan_imputation_strategy": _stored_as("most_frequent"),
        "to_undirected": _stored_as(True),
    },
}


def translated(
    title: str, names: Sequence[str], positional: tuple[Any, ...], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a call of the class ``title``, whose positional parameters are ``names``, as keywords of ours.

    Raises ``UsageError`` where an argument is given twice, also once in our words and once in
    PyG's, or has a value of PyG's that a build does not have; ``TypeError`` where there are too
    many positional arguments.
    """
    order = names
    if title in ORDER and (len(positional) > 1 or names[0] in keywords):
        order = ORDER[title]
    if len(positional) > len(order):
        raise TypeError(f"{title} takes at most {len(order)} positional arguments: {order}")

    call = dict(keywords)
    for name, value in zip(order, positional, strict=False):
        _put(call, name, value, title)
    for name, meaning in MEANINGS.get(title, {}).items():
        if name in call:
            for ours, value in meaning(name, call.pop(name)).items():
                _put(call, ours, value, title)
    return call


def _put(call: dict[str, Any], name: str, value: Any, title: str) -> None:
    if name in call:
        raise UsageError(
            f"{title} is given {name} twice, by position or in PyTorch Geometric's words.",
            next=f"give {name} once: help(kmip_data.{title})",
        )
    call[name] = value
