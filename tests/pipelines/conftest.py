"""Fixtures of the tests of pipelines."""

import itertools

import pytest


@pytest.fixture
def new_folder(tmp_path):
    """Name a folder that is not there yet, a new one each time."""
    numbers = itertools.count()
    return lambda: tmp_path / f"work{next(numbers)}"
