"""Every test of this room starts from the same random numbers."""

from pathlib import Path

import pytest
import torch
from thinning import mark_products_slow


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    mark_products_slow(items, Path(__file__).parent)


@pytest.fixture(autouse=True)
def same_random_numbers():
    torch.manual_seed(0)
