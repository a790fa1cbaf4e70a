"""The metric of a constant prediction is chosen on train and measured on test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kmip_data.format.card import Card
from kmip_data.models.training.references.constant import constant_answer
from kmip_data.models.training.references.reference import Reference


def data_with_counts(class_names: str = "", **counts: list[int]) -> SimpleNamespace:
    """Return data whose card has the class counts of each part."""
    statistics = {"classes": {"splits": {"given": counts}}}
    card = Card.model_construct(statistics=statistics, class_names=[*class_names])
    return SimpleNamespace(
        build=SimpleNamespace(card=card), split_name="given", parts=tuple(counts)
    )


def test_accuracy_is_of_the_most_frequent_train_class() -> None:
    data = data_with_counts(train=[5, 2, 3], val=[0, 9, 0], test=[1, 6, 3])
    assert constant_answer(data, "accuracy") == Reference(val=0.0, test=0.1)


@pytest.mark.parametrize(
    ("val", "predicted", "tie"),
    [
        (
            [9, 1, 5, 2],
            2,
            "class 2; 3 classes tie on train, and it is the most frequent of them on val",
        ),
        (
            [9, 4, 4, 2],
            1,
            "class 1; 3 classes tie on train, and then on val, and it is the lowest of them",
        ),
        ([9, 4, 4, 4], 1, "class 1; 3 classes tie on train, and it is the lowest of them"),
        (None, 1, "class 1; 3 classes tie on train, and it is the lowest of them"),
        ([], 1, "class 1; 3 classes tie on train, and it is the lowest of them"),
    ],
)
def test_a_tie_on_train_is_broken_by_val_and_then_by_number(
    val: list[int] | None, predicted: int, tie: str
) -> None:
    """As in a split with as many train nodes of each class; class 0 is frequent in val alone."""
    test = [1, 2, 3, 4]
    counts = {"train": [1, 20, 20, 20], "test": test} | ({} if val is None else {"val": val})
    on_val = val[predicted] / sum(val) if val else None
    expected = Reference(val=on_val, test=test[predicted] / 10, note=tie)
    assert constant_answer(data_with_counts(**counts), "accuracy") == expected
    named = data_with_counts("wxyz", **counts)
    assert constant_answer(named, "accuracy").note == tie.replace(
        f"class {predicted}", f"class {'wxyz'[predicted]}"
    )


def test_constant_answers_have_a_fixed_correlation_and_balanced_accuracy() -> None:
    data = data_with_counts(train=[5, 2, 3], test=[1, 6, 0])
    assert constant_answer(data, "mcc").test == 0
    assert constant_answer(data, "balanced_accuracy").test == 0.5


@pytest.mark.parametrize("counts", [{"train": [1, 2]}, {"test": [1, 2]}, {}])
def test_parts_without_classes_have_no_constant_answer(counts: dict[str, list[int]]) -> None:
    assert constant_answer(data_with_counts(**counts), "accuracy") is None
