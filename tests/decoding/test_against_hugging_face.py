"""The same random Marian weights, searched by Hugging Face's generate and by ours.

Both follow the `size` best candidates that do not end, accept ends among the first `size`, and (with
early_stopping="never" and length_penalty=0, where their score is the plain sum) stop when nothing can improve any more.
At the limit they differ on purpose: generate counts what is cut off as finished; ours ranks it last.
"""

import pytest
import torch
from transformers import MarianConfig, MarianMTModel
from transformers.modeling_outputs import BaseModelOutput

from saccade.decoding import BeamConfig, beam_search, greedy_search, score_targets

VOCABULARY, PAD, EOS = 40, 39, 0
LONGEST = 16


class MarianStepper:
    """Runs the decoder again over the whole prefix at each step; the state is the prefix and what it attends to."""

    def __init__(self, model: MarianMTModel) -> None:
        self.model = model

    def start(self, memory):
        hidden, visible = memory
        return hidden, visible, torch.empty(len(hidden), 0, dtype=torch.long)

    def step(self, token, state):
        hidden, visible, written = state
        written = torch.cat([written, token.unsqueeze(1)], 1)
        encoded = BaseModelOutput(last_hidden_state=hidden)
        output = self.model(encoder_outputs=encoded, attention_mask=visible, decoder_input_ids=written, use_cache=False)
        return output.logits[:, -1], (hidden, visible, written)

    def select(self, state, rows):
        return tuple(part[rows] for part in state)


@pytest.fixture(scope="module", params=[(0, 2.0), (2, 3.0)], ids=["short outputs", "long outputs"])
def model(request) -> MarianMTModel:
    seed, eos_bias = request.param
    torch.manual_seed(seed)
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
        init_std=0.5,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
        tie_word_embeddings=False,
    )
    model = MarianMTModel(config).eval()
    torch.nn.init.normal_(model.lm_head.weight, std=0.3)
    model.final_logits_bias[0, EOS] = eos_bias
    return model


@pytest.fixture(scope="module")
def sources() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, PAD, (48, 9), generator=generator)
    visible = torch.arange(9) < torch.randint(1, 10, (48, 1), generator=generator)
    return {"input_ids": tokens.masked_fill(~visible, PAD), "attention_mask": visible.long()}


@pytest.fixture(scope="module")
def inputs(model, sources):
    with torch.no_grad():
        hidden = model.get_encoder()(**sources).last_hidden_state
    return MarianStepper(model), (hidden, sources["attention_mask"]), torch.full((len(hidden),), PAD)


def generate(model, sources, beams: int, returned: int):
    return model.generate(
        **sources,
        num_beams=beams,
        num_return_sequences=returned,
        max_new_tokens=LONGEST,
        do_sample=False,
        length_penalty=0.0 if beams > 1 else None,
        early_stopping="never" if beams > 1 else None,
        bad_words_ids=[[PAD]],
        forced_eos_token_id=None,
        output_scores=True,
        output_logits=True,
        return_dict_in_generate=True,
    )


def read(sequence: list[int]) -> tuple[list[int], bool]:
    """Generate's row, without its begin token: what it wrote, and whether that ended."""
    written = sequence[1:]
    return (
        (written[: written.index(EOS)], True)
        if EOS in written
        else ([token for token in written if token != PAD], False)
    )


def test_greedy_search_writes_what_generate_writes(model, sources, inputs):
    theirs = generate(model, sources, beams=1, returned=1)
    ours = greedy_search(*inputs, eos=EOS, pad=PAD, max_length=LONGEST)
    assert [(hypothesis.tokens, hypothesis.finished) for hypothesis in ours] == [
        read(row) for row in theirs.sequences.tolist()
    ]
    assert sum(hypothesis.finished for hypothesis in ours) > 9
    assert len({tuple(hypothesis.tokens) for hypothesis in ours}) > 9
    steps = model.compute_transition_scores(theirs.sequences, theirs.logits, normalize_logits=True)
    for hypothesis, row in zip(ours, steps.tolist(), strict=True):
        assert hypothesis.token_log_probs == pytest.approx(row[: len(hypothesis.token_log_probs)], abs=1e-4)


@pytest.mark.parametrize("size", [2, 4])
def test_beam_search_finds_what_generate_finds(model, sources, inputs, size):
    theirs = generate(model, sources, beams=size, returned=size)
    rows = [read(row) for row in theirs.sequences.tolist()]
    scores = theirs.sequences_scores.tolist()
    ours = beam_search(*inputs, BeamConfig(size=size, best=size), eos=EOS, pad=PAD, max_length=LONGEST)
    compared = 0
    for number, outputs in enumerate(ours):
        expected = rows[number * size : (number + 1) * size]
        if not all(finished for _, finished in expected):
            continue
        compared += 1
        assert [(hypothesis.tokens, hypothesis.finished) for hypothesis in outputs] == expected
        assert [hypothesis.score for hypothesis in outputs] == pytest.approx(
            scores[number * size : (number + 1) * size], abs=1e-4
        )
    assert compared > 20


def test_the_best_output_is_never_less_probable_than_that_of_generate(model, sources, inputs):
    theirs = generate(model, sources, beams=4, returned=1)
    ours = beam_search(*inputs, BeamConfig(size=4), eos=EOS, pad=PAD, max_length=LONGEST)
    finished = [number for number, row in enumerate(theirs.sequences.tolist()) if read(row)[1]]
    assert len(finished) > 20
    for number in finished:
        assert ours[number][0].score >= theirs.sequences_scores[number].item() - 1e-4


def test_scoring_equals_teacher_forcing_in_one_forward_pass(model, sources, inputs):
    generator = torch.Generator().manual_seed(2)
    targets = torch.randint(1, PAD, (48, 7), generator=generator)
    lengths = torch.randint(0, 8, (48,), generator=generator)
    scored = score_targets(*inputs, targets, lengths, eos=EOS)
    shifted = torch.cat([torch.full((48, 1), PAD), targets], 1)
    with torch.no_grad():
        log_probs = model(**sources, decoder_input_ids=shifted).logits.log_softmax(-1)
    for row, (hypothesis, length) in enumerate(zip(scored, lengths.tolist(), strict=True)):
        labels = [*targets[row, :length].tolist(), EOS]
        expected = [log_probs[row, at, label].item() for at, label in enumerate(labels)]
        assert hypothesis.token_log_probs == pytest.approx(expected, abs=1e-4)


def test_a_batch_of_real_decoders_gives_what_single_sentences_give(inputs):
    stepper, (hidden, visible), begin = inputs
    config = BeamConfig(size=4, best=4, length_penalty=0.6)
    together = beam_search(stepper, (hidden, visible), begin, config, eos=EOS, pad=PAD, max_length=LONGEST)
    for row in range(0, 48, 7):
        one = slice(row, row + 1)
        [alone] = beam_search(
            stepper, (hidden[one], visible[one]), begin[one], config, eos=EOS, pad=PAD, max_length=LONGEST
        )
        assert [hypothesis.tokens for hypothesis in alone] == [hypothesis.tokens for hypothesis in together[row]]
