"""The engine gives what torch gives: outputs, scores, order, limits and refusals."""

import pytest
import torch

from saccade import load
from saccade.data.text.tokenizer import PAD
from saccade.errors import UserError
from saccade.tasks.translation.export.engine import CTranslate2Engine, fingerprint
from saccade.tasks.translation.options import TranslationOptions


@pytest.fixture(scope="module")
def run(random_run):
    """Its outputs end after a few tokens, or not at all: every rule of a search is met."""
    return random_run("decode.max_length=14", ending=1.5)


@pytest.fixture(scope="module")
def engine(run):
    return CTranslate2Engine(run.task, None, threads=1)


def sources_of(run):
    return [phrase.source for phrase in run.task.corpus.test[:40]]


def translated(engine, sources, **options):
    return list(engine.answers(sources, TranslationOptions(**options)))


def with_decode(task, monkeypatch, **settings):
    decode = task.recipe.decode.with_changes(settings)
    monkeypatch.setattr(task, "recipe", task.recipe.model_copy(update={"decode": decode}))


def check_equal(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert (one.source, one.text, one.alternatives) == (other.source, other.text, other.alternatives)
        for torchs, engines in zip(one.hypotheses, other.hypotheses, strict=True):
            assert (torchs.tokens, torchs.finished) == (engines.tokens, engines.finished)
            assert engines.score == pytest.approx(torchs.score, abs=1e-4)
            assert engines.log_prob == pytest.approx(torchs.log_prob, abs=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"search": "greedy"},
        {"length_penalty": 0.6, "beam": 4},
        {"length_penalty": -0.5},
        {"best": 3, "length_penalty": 0.0},
        {"beam": 20, "best": 2},
        {"beam": 2, "best": 4},
    ],
    ids=str,
)
def test_in_single_precision_it_gives_what_torch_gives(run, engine, options):
    check_equal(run.predict(sources_of(run), **options), translated(engine, sources_of(run), **options))


@pytest.mark.parametrize(("longest", "best"), [(6, 1), (1, 2)])
def test_outputs_end_at_the_recipes_limit(run, engine, monkeypatch, longest, best):
    with_decode(run.task, monkeypatch, max_length=longest)
    check_equal(run.predict(sources_of(run), best=best), translated(engine, sources_of(run), best=best))


def test_the_command_line_translates_with_it(run, saccade):
    lines = "\n".join(["1 2 3", "", "4 5"])
    printed = saccade("predict", str(run.path), "--engine", "ctranslate2", "--best", "2", stdin=lines)
    assert printed.returncode == 0, printed.stderr
    answers = translated(CTranslate2Engine(run.task), ["1 2 3", "", "4 5"], best=2)
    assert [len(answer.lines()) for answer in answers] == [2, 2, 2]
    assert printed.stdout.split("\n")[:-1] == [line for answer in answers for line in answer.lines()]


def test_only_a_quantised_model_asked_for_one_output_stops_early(run, monkeypatch):
    asked = []

    class Watching:
        def __init__(self, translator):
            self.translator = translator

        def translate_batch(self, sources, **how):
            asked.append((how["patience"], how["num_hypotheses"]))
            return self.translator.translate_batch(sources, **how)

    for quantization in (None, "float32", "int8"):
        engine = CTranslate2Engine(run.task, quantization, threads=1)
        monkeypatch.setattr(engine._search, "_translator", Watching(engine._search._translator))
        for best in (1, 3):
            translated(engine, ["1 2 3"], beam=4, best=best)
    patient, hasty = (1.5, 6), (1.0, 4)
    assert list(dict.fromkeys(asked)) == [patient, hasty]
    assert [each for each in asked if each == hasty] == [hasty]


@pytest.mark.slow
def test_a_trained_model_translates_as_by_torch_and_in_int8_nearly_so(trained):
    sources = [phrase.source for phrase in trained.task.corpus.test[:200]]
    ours = trained.predict(sources)
    check_equal(ours, translated(CTranslate2Engine(trained.task, None, threads=1), sources))
    theirs = translated(CTranslate2Engine(trained.task, "int8", threads=1), sources)
    assert sum(one.text == other.text for one, other in zip(ours, theirs, strict=True)) > 160


def test_order_and_empty_lines_are_kept(run, engine, monkeypatch):
    with_decode(run.task, monkeypatch, batch_size=2)
    lines = ["1 2 3 4 5 6 7", "", "8", "  ", "1 2 3"]
    answers = translated(engine, lines)
    assert [answer.source for answer in answers] == lines
    assert [answer.text for answer in answers] == [run.predict([line])[0].text for line in lines]
    assert translated(engine, []) == []


def test_each_sentence_has_its_own_limit_whatever_is_in_the_batch(random_run):
    run = random_run("decode.max_length=36", ending=-50.0)
    engine = CTranslate2Engine(run.task, None, threads=1)
    lines = ["1 " * length for length in (2, 5, 30)]
    for decode in ({"search": "greedy"}, {"length_penalty": 0.0}, {"best": 2}):
        ours, theirs = run.predict(lines, **decode), translated(engine, lines, **decode)
        assert [len(answer.hypotheses[0].tokens) for answer in theirs] == [26, 32, 36]
        for one, other in zip(ours, theirs, strict=True):
            assert not other.hypotheses[0].finished
            assert other.hypotheses[0].tokens == one.hypotheses[0].tokens


def test_padding_is_never_written(random_run):
    run = random_run()
    run.task.model.output.bias.data[PAD] = 5.0
    lines = ["1 2 3", "4 5 6 7 8"]
    engine = CTranslate2Engine(run.task, None, threads=1)
    check_equal(run.predict(lines, search="greedy"), translated(engine, lines, search="greedy"))
    for answer in translated(engine, lines, best=5):
        assert all(PAD not in each.tokens for each in answer.hypotheses)


def test_it_is_exported_once_and_anew_when_the_weights_change(random_run):
    run = random_run()
    first = CTranslate2Engine(run.task, "int8", threads=1)
    assert first.exported is not None
    assert first.path.parent == run.path / "engines"
    again = CTranslate2Engine(run.task, "int8", threads=1)
    assert again.exported is None
    assert again.path == first.path
    whole = CTranslate2Engine(run.task, None, threads=1)
    with torch.no_grad():
        run.task.model.output.bias += 1e-3 * torch.arange(len(run.task.model.output.bias))
    new = CTranslate2Engine(run.task, "int8", threads=1)
    assert new.exported is not None
    assert sorted(run.path.joinpath("engines").iterdir()) == sorted([new.path, whole.path])


def test_the_fingerprint_knows_weights_and_limits_but_not_the_place(random_run, tmp_path, monkeypatch):
    run = random_run()
    before = fingerprint(run.task)
    run.path.rename(tmp_path / "moved")
    task = load(tmp_path / "moved").task
    assert fingerprint(task) == before
    with_decode(task, monkeypatch, max_length=300)
    assert fingerprint(task) != before


def test_a_damaged_engine_is_one_sentence(random_run):
    run = random_run()
    path = CTranslate2Engine(run.task, "int8", threads=1).path
    (path / "model.bin").write_bytes(b"nothing")
    with pytest.raises(UserError, match="cannot be loaded"):
        CTranslate2Engine(run.task, "int8", threads=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"search": "sample"}, "sample with torch"),
        ({"coverage_penalty": 0.2}, "coverage_penalty"),
        ({"prefix": "1"}, "does not score a given prefix: leave it out"),
    ],
    ids=str,
)
def test_what_it_cannot_do_is_refused_in_one_sentence(engine, options, words):
    with pytest.raises(UserError, match=words):
        engine.answers(["1 2"], TranslationOptions(**options))


def test_outputs_longer_than_the_models_positions_are_refused(random_run, monkeypatch):
    run = random_run("model.positions=learned", "model.max_length=60", "data.max_length=50", ending=-50.0)
    engine = CTranslate2Engine(run.task, None, threads=1)
    with_decode(run.task, monkeypatch, max_length=5000)
    with pytest.raises(UserError, match=r"decode\.max_length"):
        translated(engine, ["1 " * 40])


def test_a_sentence_that_is_too_long_is_refused_not_cut(engine):
    with pytest.raises(UserError, match="at most 250"):
        translated(engine, ["1 " * 300])
