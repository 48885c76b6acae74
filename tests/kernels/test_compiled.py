"""Loading the C kernels, and doing without them."""

import shutil
from unittest.mock import patch

import pytest
import torch

from saccade.kernels import compiled

needs_kernel = pytest.mark.skipif(
    compiled.kernels() is None, reason="the kernels were not compiled, or there is no AVX2"
)


def test_the_kernel_is_there_wherever_a_compiler_is():
    capability = torch.backends.cpu.get_cpu_capability()
    if shutil.which("cc") and capability.startswith("AVX"):
        assert compiled.kernels() is not None
        assert bool(compiled.wide_kernels()) is (capability == "AVX512")


@needs_kernel
def test_a_library_that_cannot_be_loaded_is_none():
    compiled.kernels.cache_clear()
    with patch.object(compiled.ctypes, "CDLL", side_effect=OSError("wrong architecture")):
        assert compiled.kernels() is None
    compiled.kernels.cache_clear()
    assert compiled.kernels() is not None


@needs_kernel
def test_a_library_of_other_sources_is_none():
    compiled.kernels.cache_clear()
    with patch.object(compiled, "LAYOUT", compiled.LAYOUT + 1):
        assert compiled.kernels() is None
    compiled.kernels.cache_clear()
    assert compiled.kernels() is not None
    assert compiled._load("_compiled", lanes=16) == {}
