"""The one base of everything that is read as typed data: manifests, cards, receipts, parameters."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A model with no other keys than its own, not changed once made, its numbers finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
