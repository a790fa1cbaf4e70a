"""Rows of the printed table of epochs."""

from types import SimpleNamespace

import pytest

from kmip_data.models.training.metric_text import EpochTable, metrics_table


def epoch_table(**settings):
    defaults = {
        "metric": "accuracy",
        "epochs": 9,
        "last_epoch": 9,
        "eval_every": 1,
        "patience": None,
        "watched_part": "val",
    }
    return EpochTable(SimpleNamespace(**defaults | settings), ("val", "test"))


@pytest.mark.parametrize("best", [3, 2])
def test_the_best_epoch_is_marked_in_its_row(best):
    epoch = {"epoch": 3, "train_loss": 0.5, "seconds": 1.0, "seconds_train": 1.0}
    epoch |= {"train_accuracy": 0.8, "val_accuracy": 0.9, "test_accuracy": 0.7}
    mark = "*" if best == 3 else " "
    row = epoch_table(last_epoch=4).row([epoch], best)
    assert row.endswith(f"   80.00      90.00{mark}     70.00       1.0")
    table = epoch_table(last_epoch=4, watched_part="train")
    assert table.row([epoch], best).endswith(f"   80.00{mark}     90.00      70.00       1.0")
    # A part that was not measured leaves its cell blank.
    skipped = {name: value for name, value in epoch.items() if name != "test_accuracy"}
    assert epoch_table(last_epoch=4).row([skipped], best) == row.replace("70.00", " " * 5)
    # Each figure ends below the name of its column.
    titles = table.header().splitlines()[1]
    for name, figure in {"train": "80.00", "val": "90.00", "test": "70.00"}.items():
        assert titles.rindex(f" {name} ") + len(name) == row.index(f" {figure}") + len(figure)


@pytest.mark.parametrize(("patience", "qualifier"), [(None, ""), (5, "≤ ")])
def test_each_row_shows_the_remaining_time(patience, qualifier):
    """Latest training seconds a remaining epoch, and an evaluation every ``eval_every`` epochs."""
    table = epoch_table(
        metric="balanced_accuracy", epochs=1500, last_epoch=1500, eval_every=5, patience=patience
    )
    # The first two epochs compile.
    history = [{"seconds_train": 90.0}] * 2 + [{"seconds_train": 2.0}] * 9
    latest = {"epoch": 11, "train_loss": 0.5, "seconds": 7.0, "seconds_train": 2.0}
    row = table.row([*history, latest], None)
    assert row.endswith(f"7.0  {qualifier}1 h 14 min")
    assert max(map(len, (row, *table.header().splitlines()))) <= 80
    latest["epoch"] = 1499
    assert table.row([*history, latest], None).endswith("7.0")


def test_a_table_of_many_metrics_has_a_row_for_each():
    names = ["accuracy", "f1", "balanced_accuracy", "mcc", "roc_auc", "ap"]
    metrics = {part: dict.fromkeys(names, 0.5) for part in ("train", "val", "test")}
    wide = metrics_table(metrics, {"test": dict.fromkeys(names, 0.01)}).splitlines()
    assert wide[0].split() == ["train", "val", "test"]
    assert len(wide) == 1 + len(names)
    assert max(map(len, wide)) <= 80
    assert metrics_table({"test": {"accuracy": 0.5}}).splitlines()[1].split() == ["test", "50.00"]
