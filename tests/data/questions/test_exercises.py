import gzip
import json
import os
import threading

import pytest

from saccade.data.builtin.stories import stories
from saccade.data.questions import exercises
from saccade.data.questions.dataset import QuestionsConfig, prepare
from saccade.data.questions.exercises import Reading, occurrences, read_exercises
from saccade.errors import UserError

NAMES = ("Ann", "Ida", "Eve", "Mia", "Leo", "Tom", "Kim")
CONTEXT = "Ada wrote to Mary in 1843. Mary answered in May."


def squad(*asked, context=CONTEXT) -> str:
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": list(asked)}]}]})


def asked(question="Who answered?", answers=({"text": "Mary", "answer_start": 27},), **more):
    return {"question": question, "id": "q1", "answers": list(answers), **more}


@pytest.fixture
def file(tmp_path):
    def write(content, name="questions.json"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_squad_marks_one_occurrence_and_may_ask_for_all(file):
    one, every, none = read_exercises(
        file(
            gzip.compress(
                squad(
                    asked(),
                    asked(answers=[{"text": "Mary", "answer_start": 27, "occurrences": 2}]),
                    asked(answers=[], is_impossible=True),
                ).encode()
            )
        )
    )
    assert one.spans == ((27, 31),)
    assert every.spans == ((13, 17), (27, 31))
    assert (none.answers, none.spans) == ((), ())


def test_tables_and_json_lines_are_the_same_questions(file):
    rows = [("Who wrote?", CONTEXT, "Ada"), ("Who sang?", CONTEXT, "")]
    table = "Question,context,answer\n" + "".join(f'{q},"{c}",{a}\n' for q, c, a in rows)
    tabs = "question\tcontext\tanswer\n" + "".join("\t".join(row) + "\n" for row in rows)
    lines = "".join(json.dumps(dict(zip(("question", "context", "answer"), row, strict=True))) + "\n" for row in rows)
    for content, name in ((table, "a.csv"), (tabs, "a.tsv"), (lines, "a.jsonl"), (lines, "a.json")):
        first, second = read_exercises(file(content, name))
        assert (first.answers, first.spans, second.spans) == (("Ada",), ((0, 3),), ())


def test_stories_in_babis_form_name_their_supporting_sentences(file):
    text = "1 Ann ran home.\n2 Bob sat.\n3 Where is Ann? \thome\t1\n1 Eve sang.\n2 Who sang?\tEve\t1\n"
    first, second = read_exercises(file(text, "qa1.txt"))
    assert first.context == "Ann ran home. Bob sat."
    assert [first.context[start:end] for start, end in first.facts] == ["Ann ran home."]
    assert second.context == "Eve sang."
    assert first.story != second.story


def test_a_story_is_known_by_its_sentences_and_not_by_its_file(tmp_path):
    """Files of one name hold different stories, and files of different names may hold the same one."""
    stories = [f"1 {name} ran home.\n2 Where is {name}?\thome\t1\n3 Bob sat.\n4 Who sat?\tBob\t3\n" for name in NAMES]
    (tmp_path / "train").mkdir()
    (tmp_path / "test").mkdir()
    (tmp_path / "train" / "stories.txt").write_text("".join(stories[:6]))
    (tmp_path / "test" / "stories.txt").write_text(stories[6])
    (tmp_path / "more.txt").write_text(stories[0])
    train, test, more = (
        read_exercises(tmp_path / name) for name in ("train/stories.txt", "test/stories.txt", "more.txt")
    )
    marks = {exercise.story for exercise in train}
    assert (len(train), len(marks)) == (12, 6)
    assert len({exercise.story for exercise in test}) == 1
    assert not marks & {exercise.story for exercise in test}
    assert {exercise.story for exercise in more} < marks
    config = QuestionsConfig(train=tmp_path / "train" / "stories.txt", test=tmp_path / "test" / "stories.txt")
    said = []
    prepared = prepare(config, tmp_path / "run", said.append)
    assert len(prepared.train) + len(prepared.valid) == 12
    assert not any("left out" in line for line in said)


def test_whole_words_are_preferred_to_parts_of_words():
    assert occurrences("art", "party art") == ((6, 9),)
    assert occurrences("art", "party") == ((1, 4),)


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (squad(asked(answers=[{"text": "Zoe", "answer_start": 0}])), "a.json", "'Zoe' is not in its context"),
        (squad(asked(), context="  "), "a.json", "the context is empty"),
        (squad(asked(question=" ")), "a.json", "the question is empty"),
        ('{"data": [{"paragraph": []}]}', "a.json", "it lacks 'paragraphs'"),
        ("question,context,reply\na,b,c\n", "a.csv", "no column answer: its first line names question, context, reply"),
        ("question,context,answers_text\na,b,c\n", "a.csv", "rename answers_text to answer"),
        ('{"question": "a", "contex": "b", "answer": "c"}\n', "a.jsonl", "line 1: there is no context"),
        ('{"question": "a", "context": "b"}\n', "a.jsonl", "there is no answer"),
        (b"question,context,answer\na,b,b\n" + b"x,\xff,y\n", "a.csv", "line 3: byte 0xff is not UTF-8"),
        ("", "a.csv", "is empty"),
        ("[" * 100_000, "a.json", "is not JSON"),
        ('{"question": ' + "[" * 100_000, "a.jsonl", "line 1, is not JSON"),
        (b"\x1f\x8b\x08\x00", "a.json.gz", "damaged or cut-off gzip"),
        ("1 Ann ran.\n2 Is Ann here?\tyes\t1\n", "a.txt", "the answer 'yes' is not in its context"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(file, content, name, said):
    with pytest.raises(UserError) as error:
        read_exercises(file(content, name))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes")
def test_a_pipe_or_a_device_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    writer = threading.Timer(5, lambda: open(tmp_path / "pipe.json", "wb").close())  # ends the wait that must not be
    writer.daemon = True
    writer.start()
    for path, kind in ((tmp_path / "pipe.json", "a pipe"), (tmp_path, "a folder")):
        with pytest.raises(UserError, match=rf"cannot be read \(it is {kind}, not a file\)"):
            read_exercises(path)
    writer.cancel()


def test_a_packed_file_does_not_grow_without_end(file, monkeypatch):
    text = squad(asked()).encode()
    monkeypatch.setattr(exercises, "_MOST_BYTES", len(text))
    assert len(read_exercises(file(text))) == len(read_exercises(file(gzip.compress(text)))) == 1
    for content in (text + b" ", gzip.compress(text + b" " * 10**6)):
        with pytest.raises(UserError, match=r"has more than \d+ bytes of text: give it in several smaller files"):
            read_exercises(file(content))


def test_bad_questions_can_be_left_out_and_are_counted(file):
    reading = Reading(skip_bad=True)
    kept = read_exercises(file(squad(asked(), asked(answers=[{"text": "Zoe"}]))), reading)
    assert (len(kept), reading.bad) == (1, 1)


def test_an_answer_of_a_built_in_story_follows_from_its_facts():
    for exercise in stories("test", 200):
        for start, end in exercise.spans:
            assert exercise.context[start:end] == exercise.answers[0]
            assert any(first <= start and end <= last for first, last in exercise.facts)
        subject = exercise.question.split()[-1].rstrip("?")
        facts = " ".join(exercise.context[start:end] for start, end in exercise.facts)
        assert subject in facts if exercise.spans else subject not in exercise.context
