"""Loss, metric and head of a run, chosen by its targets where the configuration leaves a choice."""

from __future__ import annotations

from kmip_data.errors import UsageError
from kmip_data.format.schema import LINKS, Column
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.objective.losses import LOSSES
from kmip_data.models.training.objective.metrics import METRICS
from kmip_data.models.training.objective.tasks import Kind, Level, Task, is_class, is_whole

#: Kind of the targets -> loss and metric of a run that names none.
USUAL: dict[Kind, tuple[str, str]] = {
    "single-label": ("cross_entropy", "accuracy"),
    "multilabel": ("binary_cross_entropy", "ap"),
    "regression": ("l1", "mae"),
    "links": ("link_cross_entropy", "mrr"),
}


def task_of(column: Column, config: RunConfig, *, num_classes: int) -> Task:
    """Return the task that the targets pose, and that ``config`` chooses where they leave a choice.

    Whole numbers, one per row, are classes; whole numbers, several per row, are labels; other numbers are
    values, or labels where the loss says so; bits of pairs are links. Raises ``UsageError`` where the loss,
    the metric or the head of ``config`` is for other targets.
    """
    kind: Kind = "multilabel" if is_whole(column) else "regression"
    if is_class(column):
        kind = "single-label"
    loss, metric, head = config.training.loss, config.training.metric, config.model.head
    if loss is not None and LOSSES[loss].kind == "multilabel" and column.shape:
        kind = "multilabel"  # labels that are stored as numbers, because some are unknown
    level: Level = "node" if column.level == "node" else "graph"
    if column.attribute == LINKS:
        kind, level = "links", "link"
    for name, chosen, fits in (
        ("training.loss", loss, loss is None or LOSSES[loss].kind == kind),
        ("training.metric", metric, metric is None or METRICS[metric].kind == kind),
        ("model.head", head, head is None or head == level),
    ):
        if not fits:
            found = f"{column.stored} {list(column.shape) or ''}".strip()
            raise UsageError(
                f"{name} = {chosen} does not fit the targets.",
                expected="one for links" if level == "link" else f"one for {kind} targets of a {level}",
                found=f"{chosen}; {column.attribute} is {found} of a {column.level}",
                left="nothing was started",
                next=f"--set {name}=none (chosen by the targets), or another value of it",
            )
    several = column.shape[0] if column.shape and kind != "links" else 1
    outputs = num_classes if kind == "single-label" else several
    return Task(level, kind, outputs)


def with_task(config: RunConfig, task: Task) -> RunConfig:
    """Return ``config`` with loss, metric and head written out where it leaves them to the task."""
    loss, metric = USUAL[task.kind]
    if task.kind == "single-label" and task.level == "node":
        loss = "weighted_cross_entropy"
    training = config.training.model_copy(
        update={"loss": config.training.loss or loss, "metric": config.training.metric or metric}
    )
    model = config.model.model_copy(update={"head": config.model.head or task.level})
    return config.model_copy(update={"training": training, "model": model})
