import io
import json

import pytest

import saccade as library
from saccade.errors import ConfigError, UserError
from saccade.runs.train import train
from saccade.tasks.task import Typed

STORY = "Ines walked to the boat house. Milo ran to the chapel. Milo grabbed the lantern."
SMALL = ("data.examples=800", "train.steps=80", "train.validate_every=80", "train.log_every=80")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    where = tmp_path_factory.mktemp("questions") / "run"
    changes = ["model.hidden=24", "model.embedding=16", "model.letters=0", "model.layers=1", "train.warmup_steps=20"]
    return library.load(train("stories-bidaf", [*SMALL, *changes], where))


@pytest.fixture
def context(tmp_path):
    path = tmp_path / "story.txt"
    path.write_text(STORY)
    return path


def test_its_scores_are_compared(run):
    scores = run.evaluate("valid")
    assert [name for name, _ in scores.rows()][:3] == ["questions", "exact match", "F1"]
    assert {"flow.to_context"} <= {score.name for score in scores.facts}
    assert set(scores.compared()) == {"F1", "exact %", "strongest fact %"}


def test_a_memory_network_learns_which_sentence_to_look_at(tmp_path):
    changes = ["data.examples=2000", "train.steps=300", "train.validate_every=300", "train.log_every=300"]
    reader = library.load(train("stories-memory", changes, tmp_path / "run"))
    scores = reader.evaluate("valid")
    assert scores.f1 > 50
    assert max(score.strongest for score in scores.facts) > 50
    hops = reader.look("test:0").maps[0]
    assert (hops.name, hops.query_title, len(hops.queries)) == ("hops", "looks", 3)


def test_an_answer_is_a_span_of_its_context_with_a_probability(run):
    (answer,) = run.predict([("Where is Ines?", STORY)], best=5)
    assert len(answer.lines()) == 5
    assert [each.probability for each in answer.candidates] == sorted(
        (each.probability for each in answer.candidates), reverse=True
    )
    for candidate in answer.candidates:
        assert STORY[candidate.start : candidate.end] == candidate.text


def test_answers_do_not_depend_on_other_questions(run):
    asked = run.task.held_out("valid")[:9]
    together = run.task.answers(asked, run.options("predict", {}))
    for example, answer in zip(asked, together, strict=True):
        (alone,) = run.task.answers([example], run.options("predict", {}))
        assert alone.text == answer.text
        assert alone.best.probability == pytest.approx(answer.best.probability, abs=1e-4)


def test_a_context_of_any_length_is_read_in_windows(run):
    long = " ".join([STORY] * 30)  # 510 words, and windows have 400
    assert len(run.task.windows(_exercise("Where is Ines?", long))) > 1
    (answer,) = run.predict([{"question": "Where is Ines?", "context": long}])
    assert long[answer.best.start : answer.best.end] == answer.text
    view = run.look({"question": "Where is Ines?", "context": long})
    assert "words" in view.subtitle
    assert [len(each.queries) for each in view.summary] == [1, 1, 1]  # long texts are drawn as running text


def _exercise(question, context):
    from saccade.data.questions.exercises import Exercise

    return Exercise(question, context)


def test_a_view_shows_the_question_over_the_context_and_where_the_answer_begins_and_ends(run, tmp_path):
    view = run.look({"question": "Where is Ines?", "context": STORY})
    first, *_, begins, ends = view.maps
    assert (first.query_title, first.key_title) == ("question", "context")
    assert (len(first.queries), len(first.keys)) == (4, 18)
    assert (begins.queries.words, ends.queries.words) == (("begins",), ("ends",))
    assert begins.weights.sum() == pytest.approx(ends.weights.sum(), abs=1e-5)
    view.save(tmp_path / "look.png")
    with pytest.raises(UserError, match=r"it has flow\.to_context, flow\.to_question"):
        run.look({"question": "Where is Ines?", "context": STORY}, only="nothing")


def test_a_hidden_sentence_leaves_the_places_of_the_others(run):
    (question,) = run.task.questions()
    example = run.example({"question": "Where is Ines?", "context": STORY})
    each = question.answer(example, question.takes())
    assert [answer["hidden"] for answer in each["answers"]] == [[0], [1], [2]]
    (found,) = question.answer(example, question.takes(hidden=[0, 2]))["answers"]
    assert found["answer"] in ("", *(STORY[31:54][start:end] for start in range(23) for end in range(24)))
    assert STORY[found["start"] : found["end"]] == found["answer"]
    with pytest.raises(UserError, match="no sentence 3"):
        question.answer(example, question.takes(hidden=[3]))


def test_questions_come_from_options_words_and_lines(run, context):
    def read(*words, stdin=b"", **options):
        chosen = run.options("predict", options)
        return run.task.input.from_command_line(Typed(words, io.BytesIO(stdin), options=chosen))

    assert [example.content.question for example in read("Who?", "Where?", context=context)] == ["Who?", "Where?"]
    assert read(question="Who?", context=context)[0].content.context == STORY
    line = json.dumps({"question": "Who?", "context": STORY, "id": "a1"}).encode()
    assert [example.name for example in read(stdin=line + b"\n\n" + line)] == ["a1", "a1"]
    for words, options, said in (
        (("Who?",), {}, "is a question without a context"),
        ((), {"context": context}, "is a context without a question"),
        ((" ",), {"context": context}, "the question is empty"),
        ((), {"stdin": b"Who?\n"}, "line 1 is not a question with its context"),
        ((), {"stdin": b'{"question": "Who?"}'}, "it lacks 'context'"),
        ((), {"stdin": b'{"question": "Who?", "context": ""}'}, "the context is empty"),
    ):
        with pytest.raises(UserError, match=said):
            read(*words, **options)
    with pytest.raises(ConfigError, match="question needs a context"):
        run.options("predict", {"question": "Who?"})


def test_the_command_line_answers_and_draws(saccade, run, context, tmp_path):
    done = saccade("predict", run.path, "--question", "Where is Ines?", "--context", context, "--best", "2")
    assert len(done.stdout.splitlines()) == 2
    looked = saccade(
        "look", run.path, "--question", "Where is Ines?", "--context", context, "--out", tmp_path / "a.html"
    )
    assert "probability" in looked.stderr
    assert "needs an INPUT" in saccade("look", run.path).stderr


def test_predicting_needs_no_training_data(run, tmp_path):
    import shutil

    shutil.copytree(run.path, tmp_path / "moved", ignore=shutil.ignore_patterns("tokens", "state"))
    moved = library.load(tmp_path / "moved")
    assert moved.predict([("Where is Ines?", STORY)])[0].text == run.predict([("Where is Ines?", STORY)])[0].text
    assert moved.held_out("test:0").truth


def test_own_files_are_split_by_context(tmp_path):
    rows = [(f"Who is number {n}?", f"Number {n} is P{n}. It is told of P{n} often.", f"P{n}") for n in range(30)]
    lines = [json.dumps(dict(zip(("question", "context", "answer"), row, strict=True))) for row in rows]
    lines += [line.replace("Who is", "Which is") for line in lines]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines))
    path = train(
        "question-answering",
        [f"data.train={tmp_path / 'mine.jsonl'}", "train.steps=2", "train.warmup_steps=1", "model.hidden=8"],
        tmp_path / "run",
    )
    own = library.load(path).task.questions_asked
    contexts = [{exercise.context for exercise in part} for part in (own.train, own.valid, own.test)]
    assert sum(map(len, contexts)) == 30
    assert all(contexts)
    assert len(own.train[0].spans) == 2  # both places where the words of the answer stand


def test_files_that_do_not_do_are_refused_before_anything_is_written(saccade, tmp_path):
    (tmp_path / "bad.csv").write_text("question,context,answer\nWho?,Ada sang.,Zoe\n")
    refused = saccade(
        "train", "question-answering", "--set", f"data.train={tmp_path / 'bad.csv'}", "--out", tmp_path / "x"
    )
    assert "the answer 'Zoe' is not in its context" in refused.stderr
    assert refused.returncode == 1
    assert not (tmp_path / "x").exists()
    unnamed = saccade("train", "question-answering", "--out", tmp_path / "x")
    assert "name your questions: --set data.train=FILE" in unnamed.stderr
    assert unnamed.returncode == 2
