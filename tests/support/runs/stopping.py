"""End a training run at a chosen place, as Ctrl-C or an error would."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from kmip_data.models.training.run.loop import Loop


def stop_at(
    patch: pytest.MonkeyPatch,
    epoch: int,
    where: Literal["batch", "unsaved", "saved"] = "batch",
    *,
    batch: int = 0,
    error: type[BaseException] = KeyboardInterrupt,
) -> None:
    """Raise ``error`` before a batch of ``epoch`` is learned from, or before or after the epoch is saved."""
    step, save = Loop.train_batch, Loop.save

    def stepping(self: Loop, *args: Any, **options: Any) -> Any:
        if (self.epoch, self.batches_done) == (epoch, batch):
            raise error("stopped")
        return step(self, *args, **options)

    def saving(self: Loop) -> None:
        due = self.epoch == epoch + 1 and not self.batches_done
        if due and where == "unsaved":
            raise error("stopped")
        save(self)
        if due:
            raise error("stopped")

    if where == "batch":
        patch.setattr(Loop, "train_batch", stepping)
    else:
        patch.setattr(Loop, "save", saving)
