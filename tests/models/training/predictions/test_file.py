"""Files of predictions are read as they were written, and none is trusted."""

from __future__ import annotations

import io
import pickle
import zipfile

import numpy as np
import pytest

from kmip_data.errors import DamagedInput, OutOfResources
from kmip_data.models import evaluate_predictions
from kmip_data.models.training.predictions import file
from kmip_data.models.training.predictions.file import read_predictions, write_predictions


def test_a_file_is_read_as_it_was_written(predictions, tmp_path) -> None:
    for name in ("found.npz", "again.npz"):
        write_predictions(tmp_path / name, predictions)
    assert (tmp_path / "found.npz").read_bytes() == (tmp_path / "again.npz").read_bytes()
    same(read_predictions(tmp_path / "found.npz"), predictions)


def same(found, expected) -> None:
    assert found.about == expected.about
    assert set(found.arrays) == set(expected.arrays)
    for name, array in expected.arrays.items():
        assert np.array_equal(found.arrays[name], array), name


class Boom:
    """Shows that a pickle was executed."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def test_hostile_files_are_damaged_and_never_executed(clouds, tmp_path, monkeypatch) -> None:
    with_objects = io.BytesIO()
    np.savez(with_objects, logits=np.array([Boom()], dtype=object))
    bare = io.BytesIO()
    np.save(bare, np.zeros(3))
    about = io.BytesIO()
    np.savez(about, logits=np.zeros(3), about=np.array('{"version": 7}'))
    hostile = {
        "objects": with_objects.getvalue(),
        "pickle": pickle.dumps(Boom()),
        "bare": bare.getvalue(),
        "cut": with_objects.getvalue()[:-30],
        "about": about.getvalue(),
        "empty": b"",
    }
    for name, data in hostile.items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(data)
        with pytest.raises(DamagedInput, match="cannot be read as predictions"):
            evaluate_predictions(path, clouds)
    with pytest.raises(FileNotFoundError):
        evaluate_predictions(tmp_path / "none.npz", clouds)
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("logits.npy", bytes(2**20))
    monkeypatch.setattr(file, "free_host_memory", lambda: 2**19)
    with pytest.raises(OutOfResources, match="does not fit into memory"):
        evaluate_predictions(tmp_path / "bomb.npz", clouds)
