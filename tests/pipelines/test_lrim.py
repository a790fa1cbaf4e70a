"""LRIM: energies against double sums, the sampler against all states, oracles against the authors' figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import poisson
from support.builds.raw_graphs import refused_folder
from support.cases import check_each
from support.cli import expect_refusal, expect_success
from torch_geometric.data import Data
from torch_geometric.utils import grid as grid_of_pyg

from kmip_data import LRIM, GeneratedLRIM
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.datasets.lrim_generated import (
    NUM_SWEEPS,
    SIGMAS,
    TEMPERATURES,
    draw_spins_and_energies,
)
from kmip_data.pipelines.datasets.lrim_generated.cluster_sampler import (
    BondTables,
    alias_table,
    poisson_table,
    random_spins,
    run_sampler,
)
from kmip_data.pipelines.datasets.lrim_generated.ising import (
    couplings_by_displacement,
    grid_edges,
    half_flip_energies,
)
from kmip_data.pipelines.raw.find_or_download import fetch_dataset


def hops(size: int) -> np.ndarray:
    """Edges of a shortest path to each displacement."""
    steps = np.minimum(np.arange(size), size - np.arange(size))
    return np.add.outer(steps, steps)


def fields_by_fft(spins: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Sum of J s over the other nodes of each."""
    return np.fft.irfft2(np.fft.rfft2(spins) * np.fft.rfft2(table), s=spins.shape)


@pytest.mark.parametrize("sigma", SIGMAS.values())
@pytest.mark.parametrize("size", [5, 8])
def test_energies_equal_the_double_sum_and_an_fft(size: int, sigma: float) -> None:
    spins = random_spins(size, np.random.default_rng(size))
    energies = half_flip_energies(spins, couplings_by_displacement(size, sigma))
    for row, column in np.ndindex(size, size):
        terms = []
        for other in np.ndindex(size, size):
            down, right = (abs(a - b) for a, b in zip((row, column), other, strict=True))
            distance = math.hypot(min(down, size - down), min(right, size - right))
            if distance:
                terms.append(int(spins[other]) / distance ** (2 + sigma))
        expected = int(spins[row, column]) * math.fsum(terms)
        assert energies[row, column] == pytest.approx(expected, abs=1e-12)
    by_fft = spins * fields_by_fft(spins, couplings_by_displacement(size, sigma))
    assert np.abs(energies - by_fft).max() < 1e-12


def test_edges_are_the_periodic_grid() -> None:
    edges = {tuple(pair) for pair in grid_edges(5).T.tolist()}
    assert len(edges) == grid_edges(5).shape[1] == 100
    inner = grid_of_pyg(5, 5)[0].T.tolist()
    straight = {(a, b) for a, b in inner if abs(a // 5 - b // 5) + abs(a % 5 - b % 5) == 1}
    assert straight < edges
    assert all((a // 5 - b // 5) % 5 in {0, 1, 4} for a, b in edges)
    assert all((a % 5 - b % 5) % 5 in {0, 1, 4} for a, b in edges)


@pytest.mark.parametrize("difficulty", SIGMAS)
def test_a_small_system_has_the_energy_and_magnetisation_of_all_its_states(difficulty: str) -> None:
    """4 × 4 spins have 65,536 states; means of 40,000 sweeps agree within five standard errors."""
    size, temperature = 4, 6.0
    table = couplings_by_displacement(size, SIGMAS[difficulty])
    states = 2.0 * (np.arange(2**16)[:, None] >> np.arange(16) & 1) - 1
    node = np.arange(16)
    down, right = (np.subtract.outer(a, a) % size for a in (node // size, node % size))
    energy = -0.5 * ((states @ table[down, right]) * states).sum(1)
    size_of_sum = np.abs(states.sum(1))
    weight = np.exp(-(energy - energy.min()) / temperature)
    weight /= weight.sum()

    rng = np.random.default_rng(7)
    bonds = BondTables.at_temperature(table, temperature)
    spins = random_spins(size, rng)
    measured = []
    for _ in range(4_000):
        sums = run_sampler(spins, bonds, 10, rng)
        measured.append((-0.5 * half_flip_energies(spins, table).sum(), abs(sums[-1])))
    for values, quantity in zip(np.transpose(measured), (energy, size_of_sum), strict=True):
        expected = (weight * quantity).sum()
        error = values.std() / math.sqrt(len(values))
        assert abs(values.mean() - expected) < 5 * error
        assert error < 0.02 * abs(expected)


def test_alias_and_poisson_tables_equal_their_distributions() -> None:
    weights = couplings_by_displacement(8, 0.6).ravel()
    keep, alias = alias_table(weights)
    share = keep.copy()
    np.add.at(share, alias, 1 - keep)
    assert share / len(weights) == pytest.approx(weights / weights.sum(), abs=1e-15)
    counts = poisson_table(1.1)
    assert counts == pytest.approx(poisson.cdf(np.arange(len(counts)), 1.1), abs=1e-15)


#: log10 of the mean squared error of the authors' oracle on the published 16 × 16 files, by the hops that
#: it sees: the site's oracle.csv, mean over the three parts.
PUBLISHED = {
    "hard": {1: 0.988, 2: 0.571, 4: -0.034, 8: -1.206, 12: -2.910, 14: -4.338, 15: -5.47875},
    "easy": {1: 0.366, 2: -0.386, 4: -1.331, 8: -2.802, 12: -4.649, 14: -6.147, 15: -7.37523},
}


@pytest.mark.parametrize("difficulty", SIGMAS)
def test_restricted_oracles_have_the_errors_that_the_authors_published(difficulty: str) -> None:
    """Errors fall smoothly with the radius, and agree with the published files (400 grids: ± 0.04)."""
    table = couplings_by_displacement(16, SIGMAS[difficulty])
    bonds = BondTables.at_temperature(table, TEMPERATURES[16, difficulty])
    grids = [
        draw_spins_and_energies(table, bonds, np.random.default_rng([5, row])) for row in range(400)
    ]
    errors = {}
    for radius in range(1, 16):
        unseen = np.where(hops(16) > radius, table, 0)
        fields = [fields_by_fft(spins.reshape(16, 16), unseen) for spins, _ in grids]
        errors[radius] = math.log10(np.square(fields).mean())
    falls = -np.diff(list(errors.values()))
    assert (falls > 0.1).all()
    for radius, expected in PUBLISHED[difficulty].items():
        assert errors[radius] == pytest.approx(expected, abs=0.12), radius
    # One node is left beyond 15 hops: its coupling has no noise.
    assert errors[15] == pytest.approx(PUBLISHED[difficulty][15], abs=1e-5)
    # Seeing eight hops of sixteen removes less where sigma is small.
    if difficulty == "hard":
        easy = PUBLISHED["easy"]
        assert errors[1] - errors[8] < easy[1] - easy[8]


@pytest.mark.parametrize("difficulty", SIGMAS)
def test_chains_forget_their_start(difficulty: str) -> None:
    """The integrated autocorrelation time of |m| is a tenth of a chain's sweeps at most."""
    table = couplings_by_displacement(16, SIGMAS[difficulty])
    rng = np.random.default_rng(3)
    bonds = BondTables.at_temperature(table, TEMPERATURES[16, difficulty])
    values = np.abs(run_sampler(random_spins(16, rng), bonds, 20_000, rng)[100:]).astype(float)
    values -= values.mean()
    time = 0.5
    for lag in range(1, 50):
        time += (values[lag:] * values[:-lag]).mean() / values.var()
    assert 1 < time < NUM_SWEEPS / 10


def test_generated_grids_are_divided_by_number_and_reproducible(tmp_path) -> None:
    """Parts by number, equal bytes from equal parameters, some of them the same, and the mark."""
    part = {
        name: GeneratedLRIM(root=tmp_path, graphs=40, split=name)
        for name in ("train", "val", "test")
    }
    assert [len(items) for items in part.values()] == [32, 4, 4]
    item = part["test"][0]
    assert item.x.shape == item.y.shape == (256, 1)
    assert item.x.dtype == item.y.dtype == torch.float32
    assert set(item.x.unique().tolist()) == {-1, 1}
    expected = half_flip_energies(
        item.x.numpy().reshape(16, 16), couplings_by_displacement(16, 0.6)
    )
    assert np.array_equal(item.y.numpy().ravel(), expected.ravel().astype(np.float32))

    card = part["train"].card
    assert "not the published files" in card.heading
    assert any("not the published files" in note for note in card.notes)
    again = build_dataset(
        "lrim-generated", parameters={"graphs": 40}, home=Home.locate(tmp_path / "b")
    )
    assert [shard.sha256 for shard in again.card.shards] == [shard.sha256 for shard in card.shards]
    some = GeneratedLRIM(root=tmp_path, graphs=40, split=None, limit=10)
    assert torch.equal(some[9].x, part["test"][0].x)
    other = GeneratedLRIM(root=tmp_path, graphs=40, seed=1, split="test")
    assert not torch.equal(other[0].x, item.x)
    with pytest.raises(UsageError):
        fetch_dataset(load_manifest("lrim-generated"), Home.locate(tmp_path))


def test_the_command_line_names_a_size(tmp_path) -> None:
    command = ("build", "lrim-generated", "--set", "graphs=10", "--limit", "2", "--jobs", "1")
    built = expect_success(*command, "--set", "size=32", "--home", tmp_path, "--json").json
    assert built["counts"]["nodes"] == 2 * 32 * 32
    assert "16, 32, 64, 128 or 256" in expect_refusal(
        *command, "--set", "size=48", "--home", tmp_path
    )


def a_grid(**changes: object) -> Data:
    columns = {
        "x": torch.tensor([[1.0], [-1.0], [1.0]]),
        "edge_index": torch.tensor([[0, 1], [1, 2]]),
        "y": torch.rand(3),
    }
    return Data(**(columns | changes))


def test_another_layout_is_refused(tmp_path) -> None:
    cases = [
        ([a_grid(y=torch.rand(2))], "graph 0"),
        ([a_grid(x=torch.tensor([[1.0], [-1.0], [2.0]]))], 2.0),
        ([a_grid(x=torch.rand(3, 2))], "float32"),
        ([Data(x=torch.rand(3, 1))], "y"),
        ({"x": 1}, "dict"),
    ]

    def check(case) -> None:
        value, named = case
        torch.save(value, tmp_path / "lrim_16_0.6_10k.pt")
        refused_folder("lrim-16-hard", tmp_path, named)

    check_each(check, cases)


def test_an_unknown_set_is_named() -> None:
    with pytest.raises(UsageError):
        LRIM("16-medium")
