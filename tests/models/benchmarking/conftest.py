"""Tests of measuring measure nothing worth two threads."""

import pytest
import torch

from kmip_data.runtime.parallel import set_num_threads


@pytest.fixture
def one_thread():
    """One thread for torch and our kernels."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    set_num_threads(1)
    yield
    torch.set_num_threads(before)
    set_num_threads(None)
