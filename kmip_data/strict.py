"""Base of all typed data: manifests, cards, receipts, parameters."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A frozen model without unknown keys, with finite numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
