"""Runs that begin with the weights of another: what is taken, what is said, what is refused."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import load_file
from support.builds.learnable import learnable_build, tiny_config
from support.cases import damage_file
from support.raises import raises
from support.runs.stopping import stop_at

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.atomic_writes import create_marked_folder
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.run.checkpoint import INITIAL_WEIGHTS, WEIGHTS_NAME, copy_weights
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.run_folder import RUN_MARKER
from kmip_data.models.training.run.train import resume, train


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def build(place):
    return learnable_build(place / "build")


@pytest.fixture(scope="module")
def source(place, build):
    return train(tiny_config(build), home=Home(place / "home"), name="source", quiet=True).runs[0]


@pytest.fixture
def begun(monkeypatch):
    """Weights that runs begin with."""
    weights, fit = [], Loop.train_epochs

    def noting(loop):
        weights.append(copy_weights(loop.module.model))
        fit(loop)

    monkeypatch.setattr(Loop, "train_epochs", noting)
    return weights


def tuned(build, source, **sections):
    sections["training"] = {
        "epochs": 1,
        "seed": 5,
        "init_from": str(source),
        **sections.get("training", {}),
    }
    return tiny_config(build, **sections)


def test_another_number_of_classes_gives_a_new_head(build, source, tmp_path, begun, capsys) -> None:
    other = learnable_build(tmp_path / "build", classes=7)
    train(tuned(other, source), home=Home(tmp_path / "home"), quiet=False)
    weights = load_file(source / WEIGHTS_NAME)
    differing = [name for name, tensor in begun[0].items() if tensor.shape != weights[name].shape]
    assert differing
    assert all(name.startswith("head.") for name in differing)
    for name, tensor in begun[0].items():
        assert name in differing or torch.equal(tensor, weights[name])
    line = next(
        line for line in capsys.readouterr().err.splitlines() if line.startswith("weights:")
    )
    new = ", ".join(dict.fromkeys(name.rpartition(".")[0] for name in differing))
    assert line.endswith(f"initialised at random, as they do not fit: {new}")


def test_new_weights_equal_the_draws_of_a_run_with_that_seed(
    build, source, tmp_path, begun, capsys
) -> None:
    deeper, weights = {"layers": 3}, load_file(source / WEIGHTS_NAME)
    run = train(tuned(build, source, model=deeper), home=Home(tmp_path / "1")).runs[0]
    assert (
        f"weights: {len(weights)} of {len(begun[0])} tensors from {source}; "
        in capsys.readouterr().err
    )
    assert read_config(run / "config.toml").training.init_from == str(source)
    plain = tuned(build, source, model=deeper, training={"init_from": ""})
    train(plain, home=Home(tmp_path / "2"), quiet=True)
    new = [name for name in begun[0] if name.startswith("layers.2.")]
    assert new
    assert all(torch.equal(begun[0][name], begun[1][name]) for name in new)


def test_nothing_that_fits_is_refused_before_a_folder_is_made(build, source, tmp_path) -> None:
    home = Home(tmp_path)
    with raises(UsageError, naming=source):
        train(tuned(build, source, model={"hidden_dim": 16}), home=home, quiet=True)
    assert not list(home.runs.glob("*/*/*"))


def test_a_run_stopped_in_its_first_epoch_begins_with_the_same_weights(
    build, source, tmp_path, monkeypatch, begun
) -> None:
    source_copy = tmp_path / "own"
    shutil.copytree(source, source_copy)
    home = Home(tmp_path / "home")
    whole = train(tuned(build, source_copy), home=home, name="whole", quiet=True).runs[0]
    with monkeypatch.context() as patch:
        stop_at(patch, 0)
        with pytest.raises(KeyboardInterrupt):
            train(tuned(build, source_copy), home=home, name="stopped", quiet=True)
    shutil.rmtree(source_copy)  # what the run took is in its own folder
    run = resume("stopped", home=home, quiet=True).runs[0]
    assert all(torch.equal(begun[0][name], tensor) for name, tensor in begun[-1].items())
    assert (run / WEIGHTS_NAME).read_bytes() == (whole / WEIGHTS_NAME).read_bytes()


def test_a_folder_that_has_only_these_weights_is_no_run_yet(build, source, tmp_path) -> None:
    home = Home(tmp_path)
    left = home.runs / "clouds/gps-kmip/early"
    create_marked_folder(left, RUN_MARKER)
    shutil.copy(source / WEIGHTS_NAME, left / INITIAL_WEIGHTS)
    assert train(tuned(build, source), home=home, name="early", quiet=True).runs == [left]


def test_a_flipped_bit_in_the_first_weights_is_refused(build, source, tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    with monkeypatch.context() as patch:
        stop_at(patch, 0)
        with pytest.raises(KeyboardInterrupt):
            train(tuned(build, source), home=home, name="stopped", quiet=True)
    (run,) = home.runs.glob("*/*/stopped")
    sound = (run / INITIAL_WEIGHTS).read_bytes()
    damage_file(run / INITIAL_WEIGHTS, sound, "flipped")
    with raises(DamagedInput, naming=run / INITIAL_WEIGHTS):
        resume(run, home=home, quiet=True)
    (run / INITIAL_WEIGHTS).write_bytes(sound)
    assert resume(run, home=home, quiet=True).runs == [run]


def test_no_weights_are_taken_from_a_run_whose_result_was_edited(build, source, tmp_path):
    changed_run = tmp_path / "own"
    shutil.copytree(source, changed_run)
    text = (changed_run / "result.json").read_text()
    (changed_run / "result.json").write_text(text.replace('"seed": ', '"seed": 1', 1))
    with raises(DamagedInput, naming=changed_run / "result.json"):
        train(tuned(build, changed_run), home=Home(tmp_path / "home"), quiet=True)
