"""The causal language model: equal to transformers' GPT-2 and Llama, causal, the same with a cache, no leak between documents."""

import pytest
import torch
from torch import Tensor

from saccade.attention import Packing, Route, record_attention
from saccade.attention.positions import Rotary
from saccade.errors import UserError
from saccade.models import gpt, hugging_face
from saccade.models.gpt import Config
from saccade.models.shapes import Shapes

WORDS, CONTEXT = 40, 12
VARIANTS = {
    "default": {},
    "gpt-2": {"positions": "learned", "activation": "gelu-tanh", "query_key_norm": False, "biases": True},
    "llama": {"activation": "gated", "norm": "rms", "key_heads": 1, "tied": False, "query_key_norm": False},
}


@pytest.fixture(params=VARIANTS)
def model(request) -> gpt.GPT:
    torch.manual_seed(1)
    settings = {"layers": 2, "width": 16, "heads": 2, "context": CONTEXT, **VARIANTS[request.param]}
    made = gpt.build(Config(**settings), Shapes(target_words=WORDS)).eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.4)  # zero at first, blocks would hide what they do wrong
    return made


def text(rows: int = 3, length: int = CONTEXT) -> Tensor:
    return torch.randint(WORDS, (rows, length), generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def test_a_later_token_changes_nothing_before_it(model):
    tokens = text()
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % WORDS
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert (before[:, 7:] != after[:, 7:]).any(-1).all()


@torch.no_grad()
@pytest.mark.parametrize("prompt", [0, 1, 5])
def test_steps_with_a_cache_give_the_logits_without_one(model, prompt):
    tokens, state = text(), model.start(text()[:, :prompt])
    whole = model(tokens)
    for position in range(prompt, CONTEXT):
        logits, state = model.step(tokens[:, position], state)
        torch.testing.assert_close(logits, whole[:, position], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_recorded_step_goes_through_the_modules_and_gives_the_same(model):
    tokens, state = text(), model.start(text()[:, :5])
    assert state.shortcut is not None
    plain, _ = model.step(tokens[:, 5], state)
    with record_attention(model) as recorded:
        watched, _ = model.step(tokens[:, 5], state)
    torch.testing.assert_close(plain, watched, rtol=1e-4, atol=1e-4)
    assert recorded["layers.0.self_attention"][0].shape[-1] == 6
    model.layers[0].register_forward_hook(lambda *_: None)
    assert model.start(tokens[:, :5]).shortcut is None


@torch.no_grad()
def test_rows_of_a_state_can_be_chosen_and_a_state_stays_valid_after_a_step(model):
    tokens = text()
    state = model.start(tokens[:, :5])
    first, _ = model.step(tokens[:, 5], state)
    other, _ = model.step((tokens[:, 5] + 1) % WORDS, state)
    again, _ = model.step(tokens[[2, 0], 5], model.select(state, torch.tensor([2, 0])))
    torch.testing.assert_close(again, first[[2, 0]])
    assert not torch.allclose(first, other)


@torch.no_grad()
def test_beyond_the_context_it_reads_the_later_half_again(model):
    tokens = text(length=CONTEXT + 1)
    state = model.start(tokens[:, :4])
    for position in range(4, CONTEXT + 1):
        logits, state = model.step(tokens[:, position], state)
    torch.testing.assert_close(logits, model(tokens[:, CONTEXT // 2 :])[:, -1], rtol=1e-4, atol=1e-4)
    assert state.tokens.shape[1] == CONTEXT // 2 + 1


@torch.no_grad()
def test_documents_in_one_row_do_not_see_each_other(model):
    tokens, lengths = text(1, 20), [7, 12, 1]
    together = model.output(model.read(tokens, Packing(torch.tensor(lengths))))
    alone = torch.cat([model(part) for part in tokens.split(lengths, 1)], 1)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_recording_and_the_explicit_route_change_nothing(model):
    tokens, plain = text(), model(text())
    with record_attention(model) as recorded:
        assert torch.equal(model(tokens), plain)
    weights = recorded.joined("layers.1.self_attention")
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert weights.triu(1).abs().max() == 0
    for layer in model.layers:
        layer.self_attention.route = Route.EXPLICIT
    torch.testing.assert_close(model(tokens), plain, rtol=1e-4, atol=1e-4)


def test_it_begins_as_no_more_than_its_embedding_and_learns():
    torch.manual_seed(1)
    model = gpt.build(Config(layers=1, width=32, heads=2, context=8), Shapes(target_words=8))
    x = list(model.residuals(text(1, 8) % 8))
    assert torch.equal(x[0], x[-1])
    tokens = torch.arange(9).repeat(4, 1) % 8
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(40):
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 < 1.5 < losses[0]


@pytest.mark.parametrize("settings", [{"width": 30, "heads": 4}, {"heads": 4, "key_heads": 3}])
def test_heads_that_do_not_fit_are_refused(settings):
    with pytest.raises(ValueError, match="must be a multiple"):
        Config(**settings)


@torch.no_grad()
def test_rotary_base_is_the_wave_by_which_queries_turn_and_learned_positions_have_none():
    settings = {"layers": 1, "width": 16, "heads": 2, "context": CONTEXT}
    vectors = torch.randn(1, CONTEXT, 8, generator=torch.Generator().manual_seed(3))
    angles = torch.arange(CONTEXT)[:, None] * 50.0 ** -(torch.arange(4) / 4)
    turned = torch.polar(torch.ones_like(angles), angles) * torch.complex(vectors[..., :4], vectors[..., 4:])
    model = gpt.build(Config(**settings, rotary_base=50.0), Shapes(target_words=WORDS))
    rotary = next(module for module in model.modules() if isinstance(module, Rotary))
    torch.testing.assert_close(rotary(vectors), torch.cat((turned.real, turned.imag), -1), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match=r"rotary_base = 50\.0 is for positions=rotary"):
        Config(**settings, positions="learned", rotary_base=50.0)


# Beside transformers


def gpt2(**settings):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=WORDS,
        n_positions=CONTEXT,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        **settings,
    )
    return transformers.GPT2LMHeadModel(config)


def llama(**settings):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "max_position_embeddings": CONTEXT, "bos_token_id": 0, "eos_token_id": 1}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=WORDS, **{**sizes, **settings}))


FAMILIES = {
    "gpt2": gpt2,
    "gpt2 with ReLU": lambda: gpt2(activation_function="relu", n_inner=20),
    "llama": llama,
    "llama, tied, all heads": lambda: llama(tie_word_embeddings=True, num_key_value_heads=4),
    "llama, other waves": lambda: llama(rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
}


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers(family, tmp_path):
    torch.manual_seed(1)
    theirs = FAMILIES[family]().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    theirs.save_pretrained(tmp_path)
    ours, labels = hugging_face.from_hugging_face(tmp_path)
    torch.testing.assert_close(ours(text()), theirs(text()).logits, rtol=0, atol=1e-4)
    assert labels == ()


@pytest.mark.parametrize(
    ("family", "settings", "told"),
    [
        (gpt2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        (llama, {"attention_bias": True}, "attention_bias"),
        (llama, {"head_dim": 8}, "head_dim 8"),
        (llama, {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}, "scaled"),
    ],
)
def test_what_cannot_be_read_is_told(family, settings, told, tmp_path):
    family(**settings).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=told):
        hugging_face.read(tmp_path)
