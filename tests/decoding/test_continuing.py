"""Writing on: beside transformers, and the numbers of min-p and of the repetition penalty on paper."""

import pytest
import torch
from torch import Tensor

from saccade.decoding import Continuing, SamplingConfig, continued
from saccade.decoding.sampling import draw
from saccade.errors import ConfigError
from saccade.models import gpt, hugging_face
from saccade.models.shapes import Shapes


@pytest.fixture(scope="module")
def model() -> gpt.GPT:
    torch.manual_seed(1)
    made = gpt.build(gpt.Config(layers=1, width=16, heads=2, context=16), Shapes(target_words=12)).eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


def written(model: gpt.GPT, prompts: list[list[int]], how: Continuing, limit: int = 6, **more) -> list[list[int]]:
    steps = list(continued(model, torch.tensor(prompts), how, never=(), limit=limit, seed=1, **more))
    return [list(row) for row in zip(*(step.tokens for step in steps), strict=True)]


@torch.no_grad()
def test_greedy_takes_the_likeliest_and_tells_its_log_probability(model):
    text = [3, 4]
    for step in continued(model, torch.tensor([text]), Continuing(), never=(0,), limit=5, seed=1):
        log_probs = model(torch.tensor([text]))[0, -1].log_softmax(-1)
        best = int(log_probs.index_fill(0, torch.tensor([0]), -torch.inf).argmax())
        assert step.tokens == [best]
        assert step.log_probs[0] == pytest.approx(float(log_probs[best]), abs=1e-4)
        text.append(best)


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_it_writes_what_transformers_generates(penalty, tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(2)
    sizes = {"n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": None, "eos_token_id": None}
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=30, **sizes)).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    theirs.save_pretrained(tmp_path)
    ours, _ = hugging_face.from_hugging_face(tmp_path)
    prompts = torch.tensor([[5, 6, 7], [1, 2, 1]])
    generated = theirs.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        max_new_tokens=12,
        do_sample=False,
        repetition_penalty=penalty,
        pad_token_id=0,
    )
    assert written(ours, prompts.tolist(), Continuing(None, penalty), limit=12) == generated[:, 3:].tolist()


def test_a_text_is_the_same_alone_and_beside_others(model):
    how = Continuing(SamplingConfig(temperature=2.0))
    together = written(model, [[1, 2], [3, 4]], how, numbers=[7, 8])
    assert together[1] == written(model, [[3, 4]], how, numbers=[8])[0]
    assert together[1] != written(model, [[3, 4]], how, numbers=[9])[0]


def drawn(shares: list[float], **settings) -> set[int]:
    """The tokens that can be drawn from these probabilities."""
    uniform = torch.linspace(0, 0.9999, 500)
    logits: Tensor = torch.tensor(shares).log().expand(len(uniform), -1)
    return set(draw(logits, uniform, SamplingConfig(**settings)).tolist())


@pytest.mark.parametrize("more", [{}, {"top_k": 4}, {"top_p": 0.99}])
def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest(more):
    shares = [0.5, 0.26, 0.2, 0.04]
    assert drawn(shares, **more) == {0, 1, 2, 3}
    assert drawn(shares, min_p=0.3, **more) == {0, 1, 2}
    assert drawn(shares, min_p=0.5, **more) == {0, 1}
    assert drawn(shares, min_p=1.0, **more) == {0}


def test_settings_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="min_p is 2"):
        SamplingConfig(min_p=2)
    with pytest.raises(ConfigError, match="repetition_penalty is 0"):
        Continuing(repetition_penalty=0)
