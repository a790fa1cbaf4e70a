"""Precisions that are switches: set within, put back after, also after an error."""

from __future__ import annotations

import pytest
import torch

from kmip_data.models.layers.precision import products, splits


def state() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), splits()


@pytest.mark.parametrize(
    ("precision", "within"),
    [
        ("32", ("highest", False)),
        ("tf32", ("high", False)),
        ("bf16x3", ("highest", True)),
        ("bf16-mixed", ("highest", False)),
    ],
)
def test_set_within_and_put_back(precision: str, within: tuple[str, bool]) -> None:
    with products(precision):
        assert state() == within
        with products("bf16x3"):
            assert splits()
        assert state() == within
    with pytest.raises(ValueError, match="stop"), products(precision):
        raise ValueError("stop")
    assert state() == ("highest", False)


def test_what_the_user_has_set_stays() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with products("32"):
            assert state()[0] == "medium"
        assert state()[0] == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
