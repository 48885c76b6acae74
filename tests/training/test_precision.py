"""Half precision is chosen, or refused, by a trial in another process."""

import pytest
import torch

from saccade.errors import UserError
from saccade.training import precision

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def forgotten():
    """Each test has a trial of its own."""
    precision._trial.cache_clear()
    yield
    precision._trial.cache_clear()


def test_a_processor_that_crashes_trains_in_fp32_and_refuses_bf16(monkeypatch):
    monkeypatch.setattr(precision, "_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    monkeypatch.setattr(precision, "_promises_bf16", lambda: True)
    assert precision.resolve("auto", CPU) is torch.float32
    assert precision.resolve("fp32", CPU) is torch.float32
    with pytest.raises(UserError, match="bf16, but a trial of it crashed on this processor: choose fp32 or auto"):
        precision.resolve("bf16", CPU)


@pytest.mark.parametrize(("gain", "dtype"), [(1.5, torch.bfloat16), (1.05, torch.float32)])
def test_auto_takes_bf16_where_it_is_faster(monkeypatch, gain, dtype):
    monkeypatch.setattr(precision, "_TRIAL", f"print({gain})")
    monkeypatch.setattr(precision, "_promises_bf16", lambda: True)
    assert precision.resolve("auto", CPU) is dtype
    assert precision.resolve("bf16", CPU) is torch.bfloat16
