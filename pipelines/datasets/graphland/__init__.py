"""GraphLand: speed prediction for the streets of two cities, from the published tables.

Raw layout of ``NAME.zip``: ``info.yaml`` names the columns by type; ``features.csv`` and
``targets.csv`` have a row per street, ``edgelist.csv`` a row per edge, ``split_masks_RL.csv`` and
``split_masks_RH.csv`` the columns train, val and test. Steps and defaults follow PyTorch
Geometric 2.8's ``GraphLandDataset``. Facts and deviations: ``docs/datasets/city-roads.md``,
``docs/fidelity.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, PrivateAttr, ValidationError

from kmip_data.arrays import F32, I64, U8, Array
from kmip_data.columns.part_masks import part_codes_from_masks
from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import check_yaml, first_problem
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Column, Schema
from kmip_data.format.split_files import NO_PART, PARTS
from kmip_data.graphs.elementary_functions import normal_quantile
from kmip_data.pipelines.base import (
    CardAdditions,
    Prepared,
    RawCopy,
    RecordTable,
    Split,
    Unit,
    require_raw,
)
from kmip_data.pipelines.common_columns import feature_column
from kmip_data.pipelines.graph_arrays.graph_checks import check_raw_edges
from kmip_data.pipelines.graph_arrays.reverse_edges import edges_in_both_directions
from kmip_data.pipelines.parameters import BaseSplitParams
from kmip_data.pipelines.units_and_splits import OneGraphParams, OneGraphPipeline
from kmip_data.text import list_names

if TYPE_CHECKING:
    import pandas as pd

FEATURE_TYPES = ("numerical", "fraction", "categorical")  #: in the column order of x
QUANTILES = 1_000
MAX_CATEGORIES = 4_096  #: categories of one column, each of which is a column of x
MAX_FEATURE_VALUES = 2**30  #: values of x, 4 GB; the published tables have 2**25
QUANTILE_TOLERANCE = 1e-7  #: distance from the extremes at which values get the extreme quantiles
_ARRAYS_FILE = "streets.npz"
ColumnName = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,100}$")]


class GraphLandParams(OneGraphParams):
    """Parameters that change the record."""

    target_scaling: Literal["RL", "RH", "none"] = Field(
        default="RL",
        description="standardise the target by mean and deviation of the train streets of this split; "
        "none: as published",
    )
    #: column names of x, which depend on the categories in the data; known after ``prepare``
    _feature_names: tuple[str, ...] = PrivateAttr(default=())


class GraphLandSplitParams(BaseSplitParams):
    """Parameters of the split."""

    split_rule: Literal["RL", "RH", "stratified"] = Field(
        default="RL",
        description="RL, RH: as published, 10/10/80 and 50/25/25 % of the streets; stratified: a new draw "
        "of RL's sizes (at random: there are no classes)",
    )


class GraphLandPipeline(OneGraphPipeline[GraphLandParams, GraphLandSplitParams]):
    """Pipeline of ``city-roads-{m,l}``."""

    version = 1
    folder_name_templates = (("target_scaling", "target-{}"),)
    Params = GraphLandParams
    SplitParams = GraphLandSplitParams

    def schema(self, params: GraphLandParams) -> Schema:
        """Return the columns of features and target, and upstream's masks of feature types."""
        names = params._feature_names  # noqa: SLF001
        target = Column(
            key="node/y", attribute="y", stored="float32", presented="float32", finite=False,
            unit="" if params.target_scaling == "none" else "standard deviations",
            doc="target; NaN where it is not known",
        )  # fmt: skip
        masks = (
            Column(
                key=f"graph/x_{feature_type}_mask", attribute=f"x_{feature_type}_mask",
                stored="uint8", presented="bool", shape=(len(names),), form="row",
                doc=f"columns of x that are {feature_type} features",
            )
            for feature_type in FEATURE_TYPES
        )  # fmt: skip
        x = feature_column("node/x", names, "numerical, fraction and one-hot features")
        return Schema(
            columns=(x, target, *masks),
            max_nodes=self.manifest.max_nodes,
            directed=False,
        )

    def prepare(self, raw: RawCopy, params: GraphLandParams, workdir: Path) -> Prepared:
        """Read and check the tables, and transform features and target."""
        features = read_features(raw.path)
        y = _read_column(read_table(raw.path / "targets.csv"), features.target, "targets.csv")
        edges = read_edges(raw.path / "edgelist.csv", len(features.x))
        facts: dict[str, Any] = {"feature_names": features.names, "roads": {}}
        if len(y) != len(features.x):
            raise DamagedInput(
                f"targets.csv has {len(y):,} rows, features.csv {len(features.x):,}."
            )

        if params.target_scaling != "none":
            is_train = read_masks(raw.path, params.target_scaling, len(y)) == 0
            train = y[is_train & ~np.isnan(y)].astype(float)
            if not len(train) or not np.ptp(train):
                raise DamagedInput(
                    f"The target of {len(train)} labelled train streets cannot be standardised."
                )
            mean = train.mean()
            deviation = train.std()
            y = (y - np.float32(mean)) / np.float32(deviation)
            facts["roads"]["target_scaling"] = {
                "target": features.target,
                "mean": float(mean),
                "std": float(deviation),
            }

        arrays: dict[str, Array] = {"node/x": features.x, "node/y": y}
        for feature_type in FEATURE_TYPES:
            mask = np.array(features.feature_types) == feature_type
            arrays[f"graph/x_{feature_type}_mask"] = mask.astype(np.uint8)
        arrays["edges"] = edges_in_both_directions(edges.T, len(y))
        np.savez(workdir / _ARRAYS_FILE, **arrays)  # type: ignore[arg-type]
        return Prepared(workdir, facts)

    def with_inferred(self, params: GraphLandParams, prepared: Prepared) -> GraphLandParams:
        """Return the parameters with the column names of x."""
        completed = params.model_copy()
        completed._feature_names = tuple(prepared.facts["feature_names"])  # noqa: SLF001
        return completed

    def records(
        self, prepared: Prepared, unit: Unit, params: GraphLandParams
    ) -> Iterator[GraphRecord]:
        """Yield the only record, the city."""
        with np.load(prepared.path / _ARRAYS_FILE, allow_pickle=False) as stored:
            columns = dict(stored)
        edges = columns.pop("edges")
        yield GraphRecord(
            key=unit.name,
            num_nodes=len(columns["node/y"]),
            columns=columns,
            edge_index=edges.astype(self.schema(params).index_dtype),
        )

    def card_additions(self, prepared: Prepared, params: GraphLandParams) -> CardAdditions:
        """Return the mean and deviation for converting predictions to the table's unit."""
        return CardAdditions({"roads": prepared.facts["roads"]})

    def split(
        self, records: RecordTable, params: GraphLandSplitParams, raw_folder: Path | None
    ) -> Split:
        """Read the published masks; streets without a target are in no part."""
        code = read_masks(
            require_raw(self.manifest, raw_folder), params.split_rule, int(records.node_counts[0])
        )
        code[np.isnan(records.read_column("node/y"))] = NO_PART
        note = "the published masks, without streets whose target is unknown"
        return Split(params.split_rule, params.split_rule, {}, note=note, part_codes=code)


PIPELINE = GraphLandPipeline


class TransformedFeatures(NamedTuple):
    """Transformed features of N streets."""

    x: F32  #: (N, F)
    names: tuple[str, ...]  #: column names of x; ``column=category`` for one-hot columns
    feature_types: tuple[str, ...]  #: type of each column of x, one of :data:`FEATURE_TYPES`
    target: str  #: name of the target column


def read_features(folder: Path) -> TransformedFeatures:
    """Read the features and transform them by type, with upstream's defaults.

    Numerical features are mapped to a normal distribution (:func:`normal_scores`), fractions are
    unchanged; missing values of both become the most frequent one. Categories become one-hot
    columns in numerical order, or one column if there are two. Raises ``DamagedInput`` for any
    other layout.
    """
    columns_by_type = read_column_names(folder / "info.yaml")
    fractions = columns_by_type.fraction_features_names
    numerical = columns_by_type.numerical_features_names
    names_by_type = {
        # Fractions are also listed as numerical.
        "numerical": [name for name in numerical if name not in fractions],
        "fraction": fractions,
        "categorical": columns_by_type.categorical_features_names,
    }
    table = read_table(folder / "features.csv")
    columns = []
    names: list[str] = []
    feature_types: list[str] = []
    for feature_type, names_of_type in names_by_type.items():
        for name in names_of_type:
            values = _read_column(table, name, "features.csv")
            if np.isnan(values).all():
                raise DamagedInput(f"features.csv: the column {name!r} is empty.")
            if feature_type == "categorical":
                categories = _indicator_categories(values, name, len(names))
                columns += [(values == category).astype(np.float32) for category in categories]
                names += [f"{name}={category:.0f}" for category in categories]
            else:
                columns.append(
                    normal_scores(values) if feature_type == "numerical" else fill_missing(values)
                )
                names.append(name)
            feature_types += [feature_type] * (len(names) - len(feature_types))

    if not columns:
        raise DamagedInput("info.yaml names no features.")
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise DamagedInput(f"info.yaml: two columns of x would be called {duplicates[0]!r}.")
    return TransformedFeatures(
        np.column_stack(columns), tuple(names), tuple(feature_types), columns_by_type.target_name
    )


def _indicator_categories(values: F32, name: str, num_columns: int) -> F32:
    """Return the categories that become one-hot columns; for two categories only the second one.

    ``num_columns`` is the number of columns that x already has.
    """
    categories = np.unique(values)
    num_values = (num_columns + len(categories)) * len(values)
    too_many = len(categories) > MAX_CATEGORIES or num_values > MAX_FEATURE_VALUES
    if too_many or np.isnan(values).any() or (categories != np.rint(categories)).any():
        raise DamagedInput(f"features.csv: the column {name!r} does not have numbered categories.")
    if len(categories) == 2:
        return categories[1:]
    return categories


def fill_missing(values: F32) -> F32:
    """Replace NaN in a column (N,) with its most frequent value, the smallest on a tie."""
    missing = np.isnan(values)
    distinct, count = np.unique(values[~missing], return_counts=True)
    return np.where(missing, distinct[count.argmax()], values)


def normal_scores(values: F32) -> F32:
    """Map a column (N,) to a normal distribution by its quantiles, ignoring NaN.

    Equal to ``QuantileTransformer(output_distribution="normal", subsample=None)`` of scikit-learn
    1.9, fitted before missing values are filled: 1,000 quantiles, linear interpolation, and ±5.2 at
    the ends.
    """
    # Fit the quantiles before filling missing values, like upstream.
    probabilities = np.linspace(0, 1, min(QUANTILES, len(values)))
    quantiles = np.nanpercentile(values, 100 * probabilities)
    values = fill_missing(values)
    # Average the interpolation from below and above, which differ for repeated values.
    upwards = np.interp(values, quantiles, probabilities)
    downwards = np.interp(-values, -quantiles[::-1], -probabilities[::-1])
    probability = (0.5 * (upwards - downwards)).astype(np.float32)
    probability[values + QUANTILE_TOLERANCE > quantiles[-1]] = 1
    probability[values - QUANTILE_TOLERANCE < quantiles[0]] = 0
    # Clip the extremes to finite scores.
    lowest = QUANTILE_TOLERANCE - np.spacing(1)
    clipped = np.clip(probability.astype(float), lowest, 1 - lowest)
    return normal_quantile(clipped).astype(np.float32)


class ColumnNames(BaseModel):
    """Column names of ``info.yaml``: features by type, and the target."""

    numerical_features_names: list[ColumnName]
    fraction_features_names: list[ColumnName]
    categorical_features_names: list[ColumnName]
    target_name: ColumnName


def read_column_names(path: Path) -> ColumnNames:
    """Read the names of the columns."""
    import yaml

    try:
        text = path.read_text("utf-8")
        check_yaml(text)
        # BaseLoader keeps scalars as strings and ignores merge keys of the untrusted file.
        content = yaml.load(text, yaml.BaseLoader)  # noqa: S506
        return ColumnNames.model_validate(content)
    except ValidationError as error:
        raise DamagedInput(
            f"{path.name} does not name the columns.",
            expected=", ".join(ColumnNames.model_fields),
            found=first_problem(error),
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        raise DamagedInput(f"{path.name} is not YAML: {str(error)[:200]}") from error


def read_table(path: Path, index_column: int | None = 0) -> pd.DataFrame:
    """Read a table with a header, by default with row numbers in the first column."""
    import pandas as pd

    try:
        return pd.read_csv(path, index_col=index_column)
    except (ValueError, OSError, IndexError) as error:  # pandas' errors derive from ValueError
        raise DamagedInput(f"{path.name} is not a table: {str(error)[:200]}") from error


def _read_column(table: pd.DataFrame, name: str, file: str) -> F32:
    """Return the finite numbers of a column, float32 (N,), NaN if missing."""
    if name not in table:
        raise DamagedInput(
            f"{file} has no column {name!r}.", found=list_names(map(str, table), 500)
        )
    try:
        with np.errstate(over="ignore"):
            values: F32 = table[name].to_numpy().astype(np.float32)
    except (ValueError, TypeError) as error:
        raise DamagedInput(
            f"{file}: the column {name!r} is not numeric: {str(error)[:100]}"
        ) from error
    if np.isinf(values).any():
        raise DamagedInput(f"{file}: the column {name!r} has an infinite value.")
    return values


def read_edges(path: Path, nodes: int) -> I64:
    """Return the edges in file order, int64 (2, E)."""
    values = read_table(path, index_column=None).to_numpy()
    if values.shape[1] != 2 or not len(values) or values.dtype.kind not in "iu":
        raise DamagedInput(f"{path.name} is not a list of edges: two columns of integers.")
    check_raw_edges(values, nodes, path.name)
    return values.T.astype(np.int64)


def read_masks(folder: Path, rule: str, nodes: int) -> U8:
    """Return the part of each node in a published split, (N,): 0 train, 1 val, 2 test, 255 none."""
    name = f"split_masks_{rule}.csv"
    table = read_table(folder / name)
    masks = [_read_column(table, part, name) for part in PARTS]
    return part_codes_from_masks(masks, nodes, name, dtype_kinds="f")
