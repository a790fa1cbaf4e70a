"""Parameters of your own pictures: those given, and those inferred from labels of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import Field, InstanceOf, field_validator, model_validator

from kmip_data.errors import UsageError
from kmip_data.pipelines.companion_files.companions import Companions
from kmip_data.pipelines.companion_files.item_columns import (
    InferredLabels,
    ItemLabels,
    infer_labels,
    labels_of_items,
    split_columns,
)
from kmip_data.pipelines.datasets.superpixels import picture_graphs
from kmip_data.pipelines.known_names import NO_LABEL
from kmip_data.pipelines.own_pipeline import (
    OwnTextParams,
    format_classes_option,
    parse_class_count,
    parse_class_values,
)


class OwnSuperpixelParams(OwnTextParams):
    """Parameters that change the records."""

    superpixels: int = Field(
        default=500,
        ge=2,
        le=60_000,
        description="maximum number of superpixels per picture",
    )
    edges: picture_graphs.EdgeRule = Field(
        default="rag-boundary",
        description="rag-boundary: touching superpixels, with edge strength and length of their boundary; "
        "knn: the nearest centroids, with their distance",
    )
    k: int = Field(
        default=8,
        ge=1,
        le=1_000,
        description="neighbours per superpixel, with edges=knn",
    )
    classes: str = Field(
        default="21",
        description="number of classes, including background, or their mask values, such as 0,255; without "
        "masks, the labels of the classes in order",
    )
    void: int = Field(
        default=255,
        ge=0,
        le=65_535,
        description="mask value of pixels without a class",
    )
    white: float | None = Field(
        default=None,
        gt=0,
        le=2**32,
        description="value of white in pictures of more than 8 bits (default: 1 for floats, 65535 for 16 bits)",
    )
    label: str | None = Field(
        default=None,
        description="without masks: column of a table beside the pictures with their labels (default: label, "
        "class or category), else folder: the folder of a picture is its class; none: no labels",
    )
    task: Literal["classification", "regression"] | None = Field(
        default=None,
        description="without masks: task of the labels (default: as their values show)",
    )
    label_optional: bool = Field(
        default=False, description="build without labels if no file has them, as --like does"
    )
    group: str = Field(
        default="",
        description="column of a table beside the pictures: pictures with equal values stay in one part of "
        "a random split",
    )
    exif: picture_graphs.Exif | None = Field(
        default=None,
        description="apply or ignore the EXIF orientation (default: inferred from the mask's size)",
    )

    _classes_as_text = field_validator("classes", mode="before")(format_classes_option)

    @model_validator(mode="after")
    def _check_classes(self) -> Self:
        parse_class_count(self.classes, picture_graphs.MAX_CLASSES)
        return self

    @property
    def class_values(self) -> tuple[int, ...]:
        """Mask value of each class."""
        values = parse_class_values(self.classes) or range(int(self.classes))
        if not all(isinstance(value, int) for value in values):
            raise UsageError(
                f"classes={self.classes} are no values of masks.",
                steps="give a number of classes, or integers such as 0,255",
            )
        return tuple(map(int, values))


class InferredPictures(InferredLabels):
    """Labels of pictures without masks, and the columns that a split reads."""

    has_masks: bool = True


class InferredSuperpixelParams(OwnSuperpixelParams):
    """Parameters completed with the labels of the pictures."""

    inferred: InstanceOf[InferredPictures] = Field(exclude=True)


def infer_pictures(
    pictures: Sequence[str],
    companions: Companions,
    params: OwnSuperpixelParams,
    *,
    has_masks: bool,
) -> tuple[InferredPictures, dict[str, dict[str, Any]]]:
    """Return the labels of pictures, and the value of each in the columns of graphs."""
    labels = None
    if has_masks:
        reason = "the masks have the labels"
        params.refuse_unread(dict.fromkeys(("label", "task"), reason))
    elif params.label is not None or not params.label_optional:  # else like pictures with masks
        labels = _labels_of_pictures(pictures, companions, params)
    label = "" if labels is None else labels.name
    for_split = split_columns(companions, params.group, label)
    values: dict[str, dict[str, Any]] = {column.key: rows for column, rows in for_split.items()}
    inferred = InferredPictures(has_masks=has_masks, split_columns=tuple(for_split))
    if labels is None:
        return inferred, values
    given_classes = None
    if params.classes != type(params).model_fields["classes"].default:
        given_classes = params.classes
    changes = infer_labels(
        labels.statistics(), labels.name, params.task, companions.legends, given_classes
    )
    values["graph/y"] = dict(labels.values)
    if params.label is None:
        changes["summary"]["labels"] = f"{labels.source}, by its name; none: label='none'"
    return inferred.model_copy(update=changes), values


def _labels_of_pictures(
    pictures: Sequence[str], companions: Companions, params: OwnSuperpixelParams
) -> ItemLabels | None:
    """Return the labels of pictures without masks; refuse parameters that they do not need."""
    known = params.model_dump() if params.label_optional else {}
    params.refuse_unread({"void": "there are no masks"}, **known)
    folders = [picture.partition("/")[2] for picture in pictures]
    labels = labels_of_items(params.label, pictures, companions, folders, group=params.group)
    if labels is not None:
        return labels
    reason = "the pictures have no labels"
    params.refuse_unread(dict.fromkeys(("classes", "task", "class_name"), reason), **known)
    if params.label not in {None, NO_LABEL} and not params.label_optional:
        companions.refuse_missing("label", str(params.label))
    return None
