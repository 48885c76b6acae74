import math

import pytest
import torch

from saccade.errors import ConfigError
from saccade.layers.pointer import PointerOutput
from saccade.models.seq2seq import Config, build
from saccade.models.shapes import Shapes


def test_the_copy_distribution_is_attention_by_hand():
    """Vocabulary of 3; the source is the words 2, 1, 2, looked at with .5, .2, .3; half of the time it writes."""
    output = PointerOutput(1, 3)
    torch.nn.init.zeros_(output.write.weight)
    output.write.bias.data = torch.tensor([0.0, math.log(2), 0.0])  # writes with 1/4, 2/4, 1/4
    readout = torch.tensor([[7.0, 0.0, 0.5, 0.2, 0.3, 2, 1, 2]])
    expected = torch.tensor([[0.5 * 0.25, 0.5 * 0.5 + 0.5 * 0.2, 0.5 * 0.25 + 0.5 * 0.8]])
    assert torch.allclose(output(readout).exp(), expected, atol=1e-6)
    total, nll = output.cross_entropy(readout, torch.tensor([2]))
    assert total.item() == pytest.approx(-math.log(0.525), rel=1e-5)
    assert float(nll) == pytest.approx(total.item())


def test_a_closed_gate_only_copies():
    output = PointerOutput(1, 50)
    readout = torch.tensor([0.0, -40.0, 0.9, 0.1, 33, 7])
    found = output(readout).exp()
    assert found[[33, 7]].tolist() == pytest.approx([0.9, 0.1], abs=1e-6)


def model(**settings):
    torch.manual_seed(1)
    config = Config(copies=True, hidden=8, embedding=6, dropout=0.0, **settings)
    return build(config, Shapes(source_words=20, target_words=20)).eval()


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("attention", ["additive", "dot"])
def test_steps_and_the_whole_sentence_give_the_same_distributions(cell, attention):
    summariser = model(cell=cell, attention=attention)
    source, lengths = torch.tensor([[5, 6, 7, 2], [8, 2, 0, 0]]), torch.tensor([4, 2])
    target = torch.tensor([[1, 6, 9], [1, 8, 3]])
    encoded = summariser.encode(source, lengths)
    at_once = summariser.output(summariser.read(encoded, target)[0])  # (B, T, V)
    assert torch.allclose(at_once.exp().sum(-1), torch.ones(2, 3), atol=1e-5)
    state = summariser.start(encoded)
    for place in range(3):
        step, state = summariser.step(target[:, place], state)
        assert torch.allclose(step, at_once[:, place], atol=1e-5)
    words = target.flatten()
    _, nll = summariser.output.cross_entropy(summariser.read(encoded, target)[0].flatten(0, 1), words)
    assert torch.allclose(nll, -at_once.flatten(0, 1)[torch.arange(6), words], atol=1e-5)


def test_copying_learns_what_no_vocabulary_could_say():
    """Words are copied that never were in training: only where they stand can be learned."""
    torch.manual_seed(0)
    summariser = build(
        Config(copies=True, hidden=16, embedding=8, dropout=0.0), Shapes(source_words=60, target_words=60)
    )
    optimiser = torch.optim.Adam(summariser.parameters(), 2e-2)

    def rows(low, high, count=32):
        words = torch.randint(low, high, (count, 1))
        return torch.cat((torch.full((count, 1), 5), words, torch.full((count, 1), 2)), 1), words[:, 0]

    for _ in range(120):
        source, words = rows(6, 40)
        encoded = summariser.encode(source, torch.full((len(source),), 3))
        readouts, _ = summariser.read(encoded, torch.ones(len(source), 1, dtype=torch.long))
        optimiser.zero_grad()
        summariser.output.cross_entropy(readouts[:, 0], words)[0].backward()
        optimiser.step()
    source, words = rows(40, 60)
    encoded = summariser.encode(source, torch.full((len(source),), 3))
    found = summariser.output(summariser.read(encoded, torch.ones(len(source), 1, dtype=torch.long))[0])[:, 0]
    assert (found.argmax(-1) == words).float().mean() > 0.9


def test_what_does_not_go_with_copying_is_refused():
    with pytest.raises(ValueError, match="soft attention in order=bahdanau"):
        Config(copies=True, order="luong")
    with pytest.raises(ConfigError, match=r"data\.joint to true"):
        build(Config(copies=True), Shapes(source_words=4, target_words=5))
