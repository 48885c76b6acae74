"""Without the room `saccade/kernels` everything works, slower, with the same numbers."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys
if sys.argv[1] == "without":
    sys.modules["saccade.kernels"] = None  # as if the folder had been deleted
import torch
from saccade.attention import LocalSelfAttention2d
from saccade.attention.routes import HAS_KERNELS, has_compiled_kernels
from saccade.layers.consistency import consistent_cross_entropy
from saccade.layers.cross_entropy import linear_cross_entropy
from saccade.models import seq2seq, transformer
from saccade.models.shapes import Shapes

assert HAS_KERNELS is (sys.argv[1] == "with")
assert HAS_KERNELS or not has_compiled_kernels()
torch.manual_seed(0)
source, target, lengths = torch.randint(4, 20, (64, 20)), torch.randint(4, 20, (64, 18)), torch.full((64,), 20)
numbers = []
configs = [
    transformer.Config(layers=1, width=32, heads=2, feed_forward=32, dropout=0.0),
    seq2seq.Config(hidden=64, embedding=64, dropout=0.0),
]
for module, config in zip((transformer, seq2seq), configs):
    model = module.build(config, Shapes(source_words=20, target_words=20))
    readouts, _ = model.read(model.encode(source, lengths), target)
    total, nll = linear_cross_entropy(readouts.flatten(0, 1), model.output, target.flatten(), 0.1)
    twice, _ = consistent_cross_entropy(readouts.flatten(0, 1), model.output, target[:32].flatten().repeat(2), 0.1, 5.0)
    (total + twice).backward()
    numbers += [total.item(), twice.item(), nll.sum().item(), *(p.grad.norm().item() for p in model.parameters())]
    with torch.no_grad():
        state = model.start(model.encode(source, lengths))
        logits, _ = model.step(target[:, 0], state)
    numbers.append(logits.norm().item())
layer = LocalSelfAttention2d(3, 8, kernel_size=3, heads=2, stride=2)
layer(torch.randn(2, 3, 9, 8)).square().sum().backward()
numbers += [p.grad.norm().item() for p in layer.parameters()]
print(json.dumps(numbers))
"""


def test_the_library_works_without_its_kernels(tmp_path):
    numbers = {}
    for mode in ("with", "without"):
        done = subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        numbers[mode] = json.loads(done.stdout)
    assert len(numbers["with"]) > 40
    assert numbers["without"] == pytest.approx(numbers["with"], rel=1e-3, abs=1e-4)
