"""Which numbers to train with. "auto" is bf16 on a GPU and fp32 on a CPU, unless bf16 survives there and is faster.

Some CPUs promise fast bf16 and kill the process with an illegal instruction, so the trial runs in a process of its own.
"""

import subprocess
import sys
from functools import cache

import torch

from saccade.errors import UserError

_CRASHED = -1.0
# Prints how many times faster bf16 is than fp32 for one layer forward and backward; a crash prints nothing.
_TRIAL = """
import time, torch
torch.set_num_threads(1)
layer = torch.nn.Linear(512, 512)
x = torch.randn(1024, 512)
def seconds(enabled):
    best = 1e9
    for _ in range(5):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            layer(x).float().square().mean().backward()
        best = min(best, time.perf_counter() - start)
    return best
print(seconds(False) / seconds(True))
"""


def resolve(precision: str, device: torch.device) -> torch.dtype:
    """ "auto", "fp32" or "bf16" as a dtype to compute in."""
    if precision == "bf16" and device.type == "cpu" and _trial() == _CRASHED:
        raise UserError("train.precision is bf16, but a trial of it crashed on this processor: choose fp32 or auto")
    if precision != "auto":
        return torch.bfloat16 if precision == "bf16" else torch.float32
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if cpu_gain_of_bf16() > 1.1 else torch.float32


def cpu_gain_of_bf16() -> float:
    """How many times faster bf16 trains than fp32 on this CPU; 0 if it crashes or has no instructions for it."""
    return max(_trial(), 0.0) if _promises_bf16() else 0.0


@cache
def _trial(timeout: float = 30.0) -> float:
    """What the trial prints; 0 if it does not come to an end in time."""
    try:
        trial = subprocess.run(
            [sys.executable, "-c", _TRIAL], capture_output=True, text=True, timeout=timeout, check=True
        )
        return float(trial.stdout)
    except subprocess.CalledProcessError:
        return _CRASHED
    except (subprocess.SubprocessError, ValueError, OSError):
        return 0.0


def _promises_bf16() -> bool:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return any("amx_bf16" in line for line in lines)
    except OSError:
        return False
