"""Every test of this room starts from the same random numbers."""

import pytest
import torch


@pytest.fixture(autouse=True)
def same_random_numbers():
    torch.manual_seed(0)
