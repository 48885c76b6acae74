"""The allocator takes its settings where it has any, in a process of its own."""

import subprocess
import sys

import pytest


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_freed_memory_is_kept():
    """Freeing a large block and asking for it again meets fresh pages each time, until the allocator was told."""
    program = """
import resource
import torch
from saccade.training.allocator import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(1 << 24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
before, told = faults(), keep_freed_memory()
faults(), faults()
print(told, before, faults())
"""
    told, before, after = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    if told == "False":
        pytest.skip("another allocator")
    assert int(after) < int(before) / 4
