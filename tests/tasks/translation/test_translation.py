"""The translation task: it learns, it looks where it should, and its output never depends on the batch."""

import json

import pytest
import torch

from saccade import load
from saccade.config.recipe import load as load_recipe
from saccade.data.builtin.phrasebook.phrases import phrases, split_words
from saccade.data.text.tokenizer import Tokenizer
from saccade.errors import UserError
from saccade.metrics.bleu import score_translations
from saccade.runs.train import train
from saccade.tasks.translation import evaluating
from saccade.tasks.translation.look import alignment_errors, replay
from saccade.tasks.translation.options import TranslationOptions
from saccade.tasks.translation.task import TranslationTask
from saccade.tasks.writing import CoverageStepper


@pytest.fixture(scope="module")
def reverser(tmp_path_factory):
    """Reverses digits after a few seconds of training."""
    changes = [
        "train.steps=350",
        "train.validate_every=350",
        "train.threads=1",
        "train.precision=fp32",
        "data.examples=5000",
    ]
    return load(train("digits-rnn", changes, tmp_path_factory.mktemp("runs") / "reverser"))


def test_it_learns_to_reverse_and_its_attention_runs_backwards(reverser):
    scores = reverser.evaluate("test", search="greedy")
    assert scores.exact > 95
    assert scores.alignment_error_rate < 0.25
    weights = reverser.look("1 2 3 4 5 6 7 8", target="8 7 6 5 4 3 2 1").maps[0].weights[0]
    looked_at = weights[:-1, :-1].argmax(1).tolist()
    assert sum(place == 7 - row for row, place in enumerate(looked_at)) >= 6


def in_batches_of(size, task, monkeypatch):
    decode = task.recipe.decode.model_copy(update={"batch_size": size})
    monkeypatch.setattr(task, "recipe", task.recipe.model_copy(update={"decode": decode}))


@pytest.mark.parametrize("search", ["greedy", "beam", "sample"])
def test_output_never_depends_on_the_batch(reverser, search, monkeypatch):
    sources = [phrase.source for phrase in reverser.task.corpus.test[:40]]
    in_batches_of(64, reverser.task, monkeypatch)
    together = [answer.text for answer in reverser.predict(sources, search=search)]
    in_batches_of(3, reverser.task, monkeypatch)
    small = [answer.text for answer in reverser.predict(sources, search=search)]
    assert together == small
    if search != "sample":  # a sample belongs to the sentence's number
        alone = [reverser.predict([source], search=search)[0].text for source in sources]
        assert together == alone


def test_greedy_search_has_one_answer_and_says_so_before_it_starts(reverser):
    with pytest.raises(UserError, match=r"^best is 3 and greedy search has one answer"):
        reverser.answers(["1 2"], search="greedy", best=3)
    with pytest.raises(UserError, match="greedy search has one"):
        load_recipe(reverser.path / "config.yaml", ["decode.search=greedy", "decode.best=3"])
    # validation searches greedily whatever the recipe says of its own search
    task = TranslationTask(
        load_recipe(reverser.path / "config.yaml", ["decode.best=3", "decode.valid_sentences=5"]), reverser.task.corpus
    )
    assert task.validate().metrics["bleu"] >= 0


@pytest.mark.parametrize("best_by", ["bleu", "perplexity"])
def test_the_best_checkpoint_is_that_of_the_figure_that_was_asked_for(reverser, best_by):
    changes = [f"objective.best_by={best_by}", "decode.valid_sentences=20"]
    task = TranslationTask(load_recipe(reverser.path / "config.yaml", changes), reverser.task.corpus)
    task.model.load_state_dict(reverser.task.model.state_dict())
    validation = task.validate()
    wanted = validation.metrics["bleu"] if best_by == "bleu" else -validation.metrics["perplexity"]
    assert validation.score == pytest.approx(wanted, abs=1e-6)


def test_a_forced_beginning_is_kept(reverser):
    assert reverser.predict(["1 2 3"], prefix="9 9")[0].text.startswith("9 9")


def test_scoring_a_found_translation_gives_the_probability_it_was_found_with(reverser):
    sources = [phrase.source for phrase in reverser.task.corpus.test[:40]]
    found = reverser.predict(sources, best=2)
    pairs = [(each.source, text) for each in found for text in (each.text, *each.alternatives)]
    given = [hypothesis.log_prob for each in found for hypothesis in each.hypotheses]
    assert [each.log_prob for each in reverser.score(pairs)] == pytest.approx(given, abs=1e-4)


def test_coverage_while_searching_is_the_sum_of_the_maps_rows(reverser):
    model, tokens = reverser.task.model, reverser.task.vocabularies
    words, source = [1, *tokens.target.encode("3 2 1")], [*tokens.source.encode("1 2 3"), 2]
    stepper = CoverageStepper(model)
    with torch.no_grad():
        state = stepper.start(model.encode(torch.tensor([source, [*source[:-2], 2, 0]]), torch.tensor([4, 3])))
        for word in words:
            _, state = stepper.step(torch.tensor([word, word]), state)
    weights = replay(reverser.task, [("1 2 3", "3 2 1")])[0][0].weights[0]
    assert stepper.coverage(state)[0].tolist() == pytest.approx(weights.sum(0).tolist(), abs=1e-5)
    assert stepper.coverage(state)[1, 3] == 1.0  # padding is never missed


def test_a_coverage_penalty_is_that_of_the_maps(reverser):
    """log P / ((5 + |Y|) / 6)^length + coverage · Σ log(min(Σ attention, 1)), from the picture's own weights."""
    found = reverser.predict(["1 2 3 4", "5 5 6"], best=3, length_penalty=0.5, coverage_penalty=0.7)
    penalties = []
    for each in found:
        for text, hypothesis in zip((each.text, *each.alternatives), each.hypotheses, strict=True):
            weights = torch.tensor(replay(reverser.task, [(each.source, text)])[0][0].weights[0])
            missed = weights.sum(0).clamp(max=1).log().sum()
            length = len(hypothesis.tokens) + 1
            expected = hypothesis.log_prob / ((5 + length) / 6) ** 0.5 + 0.7 * float(missed)
            assert hypothesis.score == pytest.approx(expected, abs=1e-3)
            penalties.append(float(missed))
    assert min(penalties) < -0.1


def test_without_attention_there_is_nothing_to_cover(tmp_path):
    recipe = load_recipe("digits-rnn", ["model.attention=none", "data.examples=50"])
    task = TranslationTask.prepare(recipe, tmp_path, print)
    with pytest.raises(UserError, match="no attention"):
        task.translate(["1 2"], TranslationOptions(coverage_penalty=0.2))


def test_a_sentence_that_is_too_long_is_refused_not_cut(reverser):
    with pytest.raises(UserError, match="at most 250"):
        reverser.predict(["1 " * 300])


def test_perplexity_is_that_of_a_plain_loop(reverser):
    task, part = reverser.task, reverser.task.corpus.test[:7]
    total, count = 0.0, 0
    for phrase in part:
        source = torch.tensor([[*task.vocabularies.source.encode(phrase.source), 2]])
        target = torch.tensor([[1, *task.vocabularies.target.encode(phrase.target), 2]])
        with torch.no_grad():
            readouts, _ = task.model.read(task.model.encode(source, torch.tensor([source.shape[1]])), target[:, :-1])
            log_probs = task.model.output(readouts).log_softmax(-1)
        total -= float(log_probs[0].gather(1, target[0, 1:, None]).sum())
        count += target.shape[1] - 1
    assert evaluating.perplexity(task, part) == pytest.approx(float(torch.tensor(total / count).exp()), rel=1e-4)


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_a_maps_words_are_the_words_of_the_gold_alignment(kind):
    part = phrases("train", 300)
    tokenizer = Tokenizer.train([text for phrase in part for text in (phrase.source, phrase.target)], kind, 2000)
    for phrase in part:
        for text in (phrase.source, phrase.target):
            assert tokenizer.words(tokenizer.encode(text)) == split_words(text)


def test_a_sentence_with_unknown_characters_is_left_out_of_the_alignment_error(tmp_path):
    """Its words cannot be told; the others' can."""
    recipe = load_recipe("phrasebook-rnn", ["data.tokenizer=characters", "data.examples=10"])
    task = TranslationTask.prepare(recipe, tmp_path, print)
    part = [phrase for phrase in task.corpus.test if phrase.alignment][:40]
    known = [phrase for phrase in part if not any(character.isdigit() for character in phrase.source + phrase.target)]
    assert len(known) < len(part)
    assert 0 <= min(alignment_errors(task, part).values()) <= 1


def test_what_is_written_stays_in_its_line(reverser, monkeypatch):
    monkeypatch.setattr(type(reverser.task.vocabularies.target), "decode", lambda self, tokens: " 1\n2\x1b ")
    assert reverser.predict(["1 2"])[0].text == "1 2"


def test_replay_does_not_depend_on_the_batch(reverser):
    pairs = [(phrase.source, phrase.target) for phrase in reverser.task.corpus.test[:5]]
    together = replay(reverser.task, pairs)
    for pair, maps in zip(pairs, together, strict=True):
        alone = replay(reverser.task, [pair])[0]
        assert abs(maps[0].weights - alone[0].weights).max() < 1e-5


def test_hard_attention_gets_a_gradient_from_reinforce(tmp_path):
    recipe = load_recipe("digits-rnn", ["model.selection=hard", "data.examples=50"])
    task = TranslationTask.prepare(recipe, tmp_path, print)
    task.model.train()
    loss = task.steps()[0].loss(task.batch(task.epoch(0, 0, 1)[0]))
    loss.total.backward()
    gradient = task.model.decoder.attention.score.v.grad
    assert gradient is not None
    assert gradient.abs().sum() > 0


def test_scores_are_json():
    scores = score_translations(["a cat", "a dog"], ["a cat", "the dog"], sources=["x y", "x"]).with_perplexity(2.0)
    values = scores.to_dict()
    assert json.loads(json.dumps(values)) == values
    assert (values["exact"], values["perplexity"], values["sentences"]) == (50.0, 2.0, 2)
    assert [group["source_words"] for group in values["by_length"]] == ["1-10"]


def test_scores_are_sacrebleus():
    import sacrebleu

    outputs, references = ["the cat sat here", "a dog"], ["the cat sat there", "a dog runs"]
    scores = score_translations(outputs, references)
    assert scores.bleu == sacrebleu.corpus_bleu(outputs, [references]).score
    assert scores.chrf == sacrebleu.corpus_chrf(outputs, [references]).score
    assert scores.exact == 0.0
    assert score_translations(["x"], ["x"]).exact == 100.0


def test_what_is_no_sentence_is_refused_in_a_sentence(tiny_run):
    with pytest.raises(UserError, match="5 is not text: give a str for each sentence"):
        load(tiny_run).predict(["1 2", 5])
