"""Precisions that are switches: set within, put back after, also after an error."""

from __future__ import annotations

import pytest
import torch

from kmip_data.models.layers.precision import products, splits


def state() -> tuple[str, str | None]:
    return torch.get_float32_matmul_precision(), splits()


@pytest.mark.parametrize(
    ("precision", "within"),
    [
        ("32", ("highest", "bf16x6")),
        ("tf32", ("high", None)),
        ("bf16x3", ("highest", "bf16x3")),
        ("bf16-mixed", ("highest", "bf16x6")),
    ],
)
def test_set_within_and_put_back(precision: str, within: tuple[str, str | None]) -> None:
    with products(precision):
        assert state() == within
        with products("bf16x3"):
            assert splits() == "bf16x3"
        assert state() == within
    with pytest.raises(ValueError, match="stop"), products(precision):
        raise ValueError("stop")
    assert state() == ("highest", "bf16x6")


def test_what_the_user_has_set_stays() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with products("32"):
            assert state()[0] == "medium"
        assert state()[0] == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
