"""Questions with the text that answers them, from files in five forms, recognised by their content:

    SQuAD's JSON      {"data": [{"paragraphs": [{"context", "qas": [{"question", "answers": [{"text", "answer_start"}]}]}]}]}, 1.1 and 2.0
    JSON lines        {"question", "context", "answer"} a line; "answer_start" where it is known
    CSV and TSV       a first line that names the columns question, context and answer
    bAbI              numbered sentences, and questions among them with a tab, the answer, a tab and the numbers of the supporting facts

Each may be gzipped. An answer is a span of its context: characters [start, end). Where a file does not say which occurrence of the words
is meant, all of them are spans of the answer. No answer at all means that the context does not answer the question.
"""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path
from typing import Any

from saccade.errors import UserError
from saccade.files import open_regular

Span = tuple[int, int]  # characters [start, end)

COLUMNS = ("question", "context", "answer")
_JSON_LINES = (".jsonl", ".ndjson")
_MOST_BYTES = 1 << 29  # of a file, unpacked
_NUMBERED = re.compile(r"\d+ \S")


@dataclass(frozen=True)
class Asked:
    """A question about a text."""

    question: str
    context: str


@dataclass(frozen=True)
class Exercise:
    """A question with its answers. `spans` are those that count as right in training; none where the context does not answer it."""

    question: str
    context: str
    answers: tuple[str, ...] = ()  # for judging: any of them is right
    spans: tuple[Span, ...] = ()
    facts: tuple[Span, ...] = ()  # the sentences that the answer follows from, where the data name them
    story: str = ""  # what must not be parted between training and tests, where that is more than the context

    @property
    def asked(self) -> Asked:
        return Asked(self.question, self.context)


@dataclass
class Reading:
    """What became of the questions of a file."""

    skip_bad: bool = False
    bad: int = 0
    first_problem: str = ""

    def refuse(self, problem: str, advice: str) -> None:
        """Raises, or counts where bad questions are left out."""
        if not self.skip_bad:
            raise UserError(f"{problem}: {advice}")
        self.bad += 1
        self.first_problem = self.first_problem or problem


def read_exercises(path: Path, reading: Reading | None = None) -> list[Exercise]:
    reading = Reading() if reading is None else reading
    text = read_text(path)
    name = path.name.removesuffix(".gz").lower()
    start = text.lstrip()[:1]
    if not start:
        raise UserError(f"{path} is empty: give a file of questions")
    if name.endswith(_JSON_LINES) or (start == "{" and _is_json_line(text)):
        exercises = _from_lines(text, path, reading)
    elif start in "{[":
        exercises = _from_json(text, path, reading)
    elif _NUMBERED.match(text):
        exercises = _from_stories(text, path, reading)
    else:
        exercises = _from_table(text, path, reading)
    found = list(exercises)
    if not found:
        more = f" ({reading.first_problem})" if reading.bad else ""
        raise UserError(f"{path} holds no question{more}: it needs a question, a context and an answer for each")
    return found


def read_text(path: Path) -> str:
    """A text file in UTF-8, gzipped or not."""
    try:
        with open_regular(path) as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            content = (gzip.GzipFile(fileobj=file) if packed else file).read(_MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UserError(f"{path} is a damaged or cut-off gzip file: copy it again") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}): check the path and its rights") from None
    if len(content) > _MOST_BYTES:
        raise UserError(f"{path} has more than {_MOST_BYTES:,} bytes of text: give it in several smaller files")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}, line {line:,}: byte 0x{content[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None


def occurrences(answer: str, context: str) -> tuple[Span, ...]:
    """Where the words of an answer stand in a context: as whole words if they do so anywhere, else inside of words."""
    spans = [(place.start(), place.end()) for place in re.finditer(re.escape(answer), context)] if answer else []
    whole = [(start, end) for start, end in spans if not (_joins(context, start) or _joins(context, end))]
    return tuple(whole or spans)


def _joins(text: str, place: int) -> bool:
    """Whether the letters before and after a place belong to one word."""
    return 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum()


def _is_json_line(text: str) -> bool:
    try:
        return "question" in json.loads(text.lstrip().partition("\n")[0])
    except (ValueError, TypeError, RecursionError):
        return False


# SQuAD


def _from_json(text: str, path: Path, reading: Reading) -> Iterator[Exercise]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}): give a file in SQuAD's form, JSON lines or a CSV") from None
    if isinstance(content, list):
        for number, row in enumerate(content, start=1):
            yield from _from_row(row, f"{path}, entry {number:,}", reading)
        return
    try:
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    yield from _from_squad(str(paragraph["context"]), asked, path, reading)
    except (KeyError, TypeError) as error:
        lacks = f"it lacks {error}" if isinstance(error, KeyError) else "a part of it has another form"
        raise UserError(
            f"{path} is not in SQuAD's form ({lacks}): it needs data, paragraphs with context and qas, and in those question and answers"
        ) from None


def _from_squad(context: str, asked: Mapping[str, Any], path: Path, reading: Reading) -> Iterator[Exercise]:
    question = " ".join(str(asked["question"]).split())
    place = f"{path}, question {asked.get('id', question[:40])!r}"
    if not _is_askable(question, context, place, reading):
        return
    answers = [] if asked.get("is_impossible") else asked["answers"]
    spans: dict[Span, None] = {}
    for answer in answers:
        words, start = str(answer["text"]), answer.get("answer_start")
        found = occurrences(words, context)
        if isinstance(start, int) and context[start : start + len(words)] == words and words:
            found = found if answer.get("occurrences", 1) > 1 else ((start, start + len(words)),)
        if not found:
            reading.refuse(*_not_in_context(place, words))
            return
        spans |= dict.fromkeys(found)
    yield Exercise(question, context, tuple(dict.fromkeys(str(answer["text"]) for answer in answers)), tuple(spans))


def _not_in_context(place: str, answer: str) -> tuple[str, str]:
    return (
        f"{place}: the answer {answer[:60]!r} is not in its context",
        "an answer must be words of the context, letter by letter; --skip-bad leaves such questions out",
    )


def _is_askable(question: str, context: str, place: str, reading: Reading) -> bool:
    for name, text in (("question", question), ("context", context)):
        if not text.strip():
            reading.refuse(f"{place}: the {name} is empty", "fill it in, or --skip-bad leaves such questions out")
            return False
    return True


# Rows


def _from_lines(text: str, path: Path, reading: Reading) -> Iterator[Exercise]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, line {number:,}, is not JSON ({error}): write one object a line") from None
        yield from _from_row(row, f"{path}, line {number:,}", reading)


def _from_table(text: str, path: Path, reading: Reading) -> Iterator[Exercise]:
    first = text.partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter="\t" if "\t" in first else ",")
    rows.fieldnames = [(name or "").strip().lower() for name in rows.fieldnames or ()]
    require_columns(rows.fieldnames, path)
    try:
        for row in rows:
            yield from _from_row(row, f"{path}, line {rows.line_num:,}", reading)
    except csv.Error as error:
        raise UserError(f"{path} is not a readable table ({error}): save it as CSV in UTF-8") from None


def require_columns(names: Iterable[str], path: Path) -> None:
    """Refuses a table without a question, a context and an answer column, with the nearest names that it has."""
    names = [name for name in names if name]
    for wanted in COLUMNS:
        if wanted not in names:
            near = get_close_matches(wanted, names, n=1, cutoff=0.4)
            advice = f"rename {near[0]} to {wanted}" if near else f"name {', '.join(COLUMNS)}"
            raise UserError(
                f"{path} has no column {wanted}: its first line names {', '.join(names) or 'nothing'}; {advice}"
            )


def _from_row(row: Any, place: str, reading: Reading) -> Iterator[Exercise]:
    if not isinstance(row, Mapping):
        raise UserError(f"{place}, is not an object with question, context and answer: write one for each question")
    for wanted in COLUMNS[:2]:
        if not isinstance(row.get(wanted), str):
            near = get_close_matches(wanted, [str(name) for name in row], n=1, cutoff=0.6)
            hint = f"; did you mean {near[0]}?" if near else ""
            reading.refuse(f"{place}: there is no {wanted}", f"each question needs {', '.join(COLUMNS)}{hint}")
            return
    question, context = " ".join(row["question"].split()), row["context"]
    if not _is_askable(question, context, place, reading):
        return
    if "answer" not in row and "answers" not in row:
        reading.refuse(f"{place}: there is no answer", f"each question needs {', '.join(COLUMNS)}")
        return
    given = row.get("answer", row.get("answers"))
    answers = [str(answer).strip() for answer in (given if isinstance(given, list) else [given]) if answer]
    answers = [answer for answer in dict.fromkeys(answers) if answer]
    start = str(row.get("answer_start") or "")
    spans: dict[Span, None] = {}
    for answer in answers:
        found = occurrences(answer, context)
        if not found:
            reading.refuse(*_not_in_context(place, answer))
            return
        marked = (int(start), int(start) + len(answer)) if start.isdecimal() and len(answers) == 1 else None
        spans |= dict.fromkeys((marked,) if marked in found else found)
    yield Exercise(question, context, tuple(answers), tuple(spans))


# Stories in bAbI's form


def _from_stories(text: str, path: Path, reading: Reading) -> Iterator[Exercise]:
    story: dict[int, str] = {}
    asked: list[Exercise] = []
    for line_number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        number, _, rest = line.strip().partition(" ")
        place = f"{path}, line {line_number:,}"
        if not number.isdecimal():
            raise UserError(f"{place}, does not begin with a number, as the lines of a story do: give it one")
        if number == "1":
            yield from _of_one_story(asked, story)
            story, asked = {}, []
        question, tab, answered = rest.partition("\t")
        if not tab:
            story[int(number)] = rest.strip()
            continue
        answer, _, facts = answered.partition("\t")
        asked += _from_story(story, question.strip(), answer.strip(), facts.split(), place, reading)
    yield from _of_one_story(asked, story)


def _of_one_story(asked: Iterable[Exercise], story: Mapping[int, str]) -> Iterator[Exercise]:
    """With the mark of a story: equal where all its sentences are, in whatever file it stands."""
    text = " ".join(" ".join(story.values()).split())
    mark = blake2b(text.encode(), digest_size=16).hexdigest()
    for exercise in asked:
        yield replace(exercise, story=mark)


def _from_story(
    story: Mapping[int, str], question: str, answer: str, facts: list[str], place: str, reading: Reading
) -> Iterator[Exercise]:
    context, places = "", {}
    for number, sentence in story.items():
        start = len(context) + bool(context)
        context += f"{' ' if context else ''}{sentence}"
        places[str(number)] = (start, len(context))
    if not _is_askable(question, context, place, reading):
        return
    spans = occurrences(answer, context)
    if not spans:
        reading.refuse(*_not_in_context(place, answer))
        return
    known = tuple(sorted(places[fact] for fact in facts if fact in places))
    yield Exercise(question, context, (answer,), spans, known)
