"""What tasks read, and how it comes in from a command line, from Python and from a request: `Text`, `TextPair`, `Image` and `Series`."""

import binascii
import json
import os
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image as PillowImage
from pydantic import Field, create_model

from saccade.config.recipe import Config
from saccade.data.image_shape import ImageShape
from saccade.data.images.decoding import ENDINGS, BadImage, open_image
from saccade.data.images.store import AnyImage, name_of, open_store, pixels_of
from saccade.data.questions.exercises import Asked, read_text
from saccade.data.series.columns import Named
from saccade.data.series.files import from_frame, read_series
from saccade.data.series.reading import read_text as read_rows
from saccade.data.series.table import SeriesTable, as_text, measured_only, with_bands
from saccade.data.text.lines import decoded_lines
from saccade.errors import Say, UserError
from saccade.tasks.task import Example, Limits, Typed
from saccade.views.axes import data_address

_NAMED = 10  # lines left empty and unknown words are named one by one up to here
_SUGGESTIONS = 6


class TextFields(Config):
    text: str = Field(description="a sentence", examples=["How are you?"])


class ImageFields(Config):
    image: str = Field(
        description="an image file (PNG, JPEG, WebP, ...) in base64, or as a data: address",
        examples=[data_address(np.full((8, 8, 3), 128, np.uint8))],
    )


class TextPairFields(Config):
    question: str = Field(description="what is asked", examples=["Where is Ines?"])
    context: str = Field(
        description="the text that answers it", examples=["Ines took the map. Then Ines went to the library."]
    )


class SeriesFields(Config):
    series: str = Field(
        description="one series as CSV: a line of names (date, a column for each band, and cloud where it is known), a row for each date",
        examples=["date,NDVI\n2020-04-01,0.3\n2020-06-01,0.8\n"],
    )


def _nothing_wrong(texts: Sequence[str]) -> Mapping[int, str]:
    return {}


def _nothing_unknown(texts: Sequence[str]) -> Sequence[str]:
    return ()


@dataclass(frozen=True)
class Text:
    """A line of text. `problems` says of rows why the model cannot read them, `unknown_words` which words were not seen in training."""

    problems: Callable[[Sequence[str]], Mapping[int, str]] = _nothing_wrong
    unknown_words: Callable[[Sequence[str]], Sequence[str]] = _nothing_unknown
    kind: str = "text"
    fields: type[Config] = TextFields

    def from_command_line(self, typed: Typed) -> list[Example[str]]:
        undecodable: dict[int, str] | None = {} if typed.skip_bad else None
        if typed.words:
            _require_no_files(typed)
            texts = list(typed.words)
        else:
            assert typed.stdin is not None
            texts = [line.rstrip("\r") for line in decoded_lines(typed.stdin, "standard input", undecodable)]
        problems = {**self.problems(texts), **(undecodable or {})}
        if problems and not typed.skip_bad:
            way_out = " (--skip-bad leaves its line empty)" if len(texts) > 1 else ""
            raise UserError(f"{next(iter(problems.values()))}: split it into shorter sentences{way_out}")
        if problems:
            texts = _without(texts, problems, typed)
        unknown = self.unknown_words(texts)
        if unknown:
            typed.say(f"not seen in training, so all read as <unk>: {_listed(unknown)}")
        return [Example(text) for text in texts]

    def from_python(self, value: object) -> Example[str]:
        if not isinstance(value, str):
            raise UserError(f"{value!r} is not text: give a str for each sentence")
        return Example(value)

    def from_json(self, body: Config, limits: Limits) -> Example[str]:
        assert isinstance(body, TextFields)
        if len(body.text) > limits.characters:
            raise UserError(
                f"the text has {len(body.text):,} characters, and {limits.characters:,} are allowed: split it into sentences"
            )
        return Example(body.text)

    def unknown(self, examples: Sequence[Example[str]]) -> Sequence[str]:
        return self.unknown_words([example.content for example in examples])

    def suggestions(self, held_out: Sequence[Example[str]]) -> list[str]:
        """Sentences of a length that shows something, the shortest first."""
        texts = {held_out[number].content for number in range(min(200, len(held_out)))}
        fitting = sorted((text for text in texts if 20 <= len(text) <= 70), key=lambda text: (len(text), text))
        fitting = fitting or sorted(texts, key=len)
        return fitting[:: max(1, len(fitting) // _SUGGESTIONS)][:_SUGGESTIONS]


def _require_no_files(typed: Typed) -> None:
    """The name of a file is no sentence, though it could be read as one."""
    for word in typed.words:
        if os.path.isfile(word):
            if Path(word).suffix.lower() in ENDINGS:
                raise UserError(f"{word} is an image, and this run reads sentences: give it some, or another run")
            raise UserError(
                f"{word} is a file and a sentence is wanted: to read its lines, run `{typed.command} < {word}`"
            )


def _without(texts: Sequence[str], problems: Mapping[int, str], typed: Typed) -> list[str]:
    """Nothing in place of the texts that cannot be read, so that a line in stays a line out."""
    shown = [problems[row] for row in sorted(problems)]
    if len(problems) == len(texts):
        raise UserError(f"none of the {len(texts):,} lines can be read: {shown[0]}")
    more = [f"and {len(shown) - _NAMED:,} more"] if len(shown) > _NAMED else []
    typed.say("\n  ".join([f"left {len(shown):,} of {len(texts):,} lines empty:", *shown[:_NAMED], *more]))
    return ["" if row in problems else text for row, text in enumerate(texts)]


def _listed(words: Sequence[str]) -> str:
    shown = [word if word.isprintable() and word.strip() else repr(word) for word in words[:_NAMED]]
    more = [f"and {len(words) - _NAMED:,} more"] if len(words) > _NAMED else []
    return ", ".join([*shown, *more])


@dataclass(frozen=True)
class TextPair:
    """A question and the text that it is about: questions as words or by --question, with --context FILE; else an object of both on each
    line of standard input."""

    kind: str = "question"
    fields: type[Config] = TextPairFields

    def from_command_line(self, typed: Typed) -> list[Example[Asked]]:
        question, path = (getattr(typed.options, name, None) for name in ("question", "context"))
        questions = [*([question] if question is not None else []), *typed.words]
        if questions and path is None:
            raise UserError(
                f"{questions[0]!r} is a question without a context: name the text file that answers it with --context FILE"
            )
        if questions and path is not None:
            context = read_text(path)
            return [Example(_asked(question, context, str(path))) for question in questions]
        if path is not None:
            raise UserError(f"{path} is a context without a question: give one with --question")
        assert typed.stdin is not None
        lines = decoded_lines(typed.stdin, "standard input")
        return [
            _asked_in_json(line, f"standard input, line {number:,}")
            for number, line in enumerate(lines, start=1)
            if line.strip()
        ]

    def from_python(self, value: object) -> Example[Asked]:
        if isinstance(value, Asked):
            return Example(value)
        pair = (value.get("question"), value.get("context")) if isinstance(value, Mapping) else value
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise UserError(
                f"{value!r} is not a question with its context: give a pair of texts, or a dict with question and context"
            )
        question, context = pair
        return Example(_asked(question, context, "the example"))

    def from_json(self, body: Config, limits: Limits) -> Example[Asked]:
        assert isinstance(body, TextPairFields)
        for name, text, most in (("question", body.question, 1), ("context", body.context, _CONTEXT_PER_TEXT)):
            if len(text) > most * limits.characters:
                raise UserError(
                    f"the {name} has {len(text):,} characters, and {most * limits.characters:,} are allowed: shorten it"
                )
        return Example(_asked(body.question, body.context, "the request"))

    def unknown(self, examples: Sequence[Example[Asked]]) -> Sequence[str]:
        return ()

    def suggestions(self, held_out: Sequence[Example[Asked]]) -> list[str]:
        """Each as JSON, for the page to take apart."""
        places = np.linspace(0, max(len(held_out) - 1, 0), min(_SUGGESTIONS, len(held_out)))
        chosen = [held_out[int(place)].content for place in places]
        return [json.dumps({"question": one.question, "context": one.context}, ensure_ascii=False) for one in chosen]


_CONTEXT_PER_TEXT = 10  # a context may be so many times as long as another text of a request


def _asked(question: str, context: str, where: str) -> Asked:
    for name, text in (("question", question), ("context", context)):
        if not text.strip():
            raise UserError(
                f"{where}: the {name} is empty, and the answer to a question is some words of its context: give both"
            )
    return Asked(" ".join(question.split()), context)


def _asked_in_json(line: str, where: str) -> Example[Asked]:
    try:
        row = json.loads(line)
        question, context = row["question"], row["context"]
        if not isinstance(question, str) or not isinstance(context, str):
            raise ValueError("question and context must be text")
    except (ValueError, KeyError, TypeError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise UserError(
            f'{where} is not a question with its context ({what}): write {{"question": "...", "context": "..."}} on each line, '
            "or give --question and --context FILE"
        ) from None
    return Example(_asked(question, context, where), str(row["id"]) if "id" in row else "")


@dataclass(frozen=True)
class Image:
    """An image: a path, a PIL image, or an array of bytes (H, W) or (H, W, channels). `shape` is what the model gets."""

    shape: ImageShape
    kind: str = "image"
    fields: type[Config] = ImageFields

    def from_command_line(self, typed: Typed) -> list[Example[AnyImage]]:
        words = list(typed.words)
        if not words and typed.stdin is not None:
            words = [line.rstrip("\r") for line in decoded_lines(typed.stdin, "standard input")]
        paths: list[str] = []
        for word in words:
            paths += _images_at(word, typed)
        if typed.skip_bad:
            paths = self._readable(paths, typed)
        return [Example(path, path) for path in paths]

    def _readable(self, paths: Sequence[str], typed: Typed) -> list[str]:
        readable, problems = [], []
        for path in paths:
            if not os.path.lexists(path):
                shown = path or "an empty line"
                raise UserError(
                    f"{shown} is not an image: check the path; --skip-bad leaves out files that cannot be decoded"
                )
            try:
                pixels_of(path, self.shape)
                readable.append(path)
            except BadImage as error:
                problems.append(str(error))
        if not readable:
            reason = (
                f"none of the {len(paths):,} images can be read: {problems[0]}" if problems else "no image was given"
            )
            raise UserError(reason)
        if problems:
            typed.say("\n  ".join([f"left out {len(problems):,} of {len(paths):,} images:", *problems]))
        return readable

    def from_python(self, value: object) -> Example[AnyImage]:
        if not isinstance(value, str | os.PathLike | PillowImage.Image | np.ndarray):
            raise UserError(f"{type(value).__name__} is not an image: give a path, a PIL image or an array of bytes")
        return Example(value, name_of(value))

    def from_json(self, body: Config, limits: Limits) -> Example[AnyImage]:
        """The size is checked before a pixel is decoded."""
        assert isinstance(body, ImageFields)
        _, comma, after = body.image.partition(",")
        try:
            content = b64decode(after if comma and body.image.startswith("data:") else body.image, validate=True)
        except (binascii.Error, ValueError):
            raise UserError("`image` is not base64: encode the bytes of an image file, such as a PNG") from None
        picture = open_image(content, "the picture")
        columns, rows = picture.size
        if columns * rows > limits.pixels:
            raise UserError(
                f"the picture has {columns} × {rows} pixels, and {limits.pixels:,} in all are allowed: make it smaller"
            )
        return Example(picture)

    def unknown(self, examples: Sequence[Example[AnyImage]]) -> Sequence[str]:
        return ()

    def suggestions(self, held_out: Sequence[Example[AnyImage]]) -> list[str]:
        places = np.linspace(0, max(len(held_out) - 1, 0), min(_SUGGESTIONS, len(held_out)))
        arrays = [held_out[int(place)].content for place in places]
        return [data_address(pixels) for pixels in arrays if isinstance(pixels, np.ndarray)]


def _images_at(word: str, typed: Typed) -> list[str]:
    """The image itself, or all images of a folder."""
    if Path(word).suffix.lower() in (".zip", ".csv") and os.path.isfile(word):
        raise UserError(
            f"{word} is not an image, and images or folders of them are read here: unpack it and give the folder, "
            f"or evaluate with `--data {word}`"
        )
    if not os.path.isdir(word):
        return [word]
    store = open_store(Path(word))
    if store.ignored:
        typed.say(f"{word} contains {store.ignored:,} other files, which were not read")
    return [os.path.join(word, name) for name in store.names]


@dataclass(frozen=True)
class Series:
    """Series of a table: those of a file, a pandas DataFrame, or CSV text. All must have the bands of the run."""

    bands: tuple[str, ...]
    has_dates: bool
    named: Named
    longest: int = 3000
    example: str = ""
    kind: str = "series"

    @property
    def fields(self) -> type[Config]:
        if not self.example:
            return SeriesFields
        field = (str, Field(description=SeriesFields.model_fields["series"].description, examples=[self.example]))
        return create_model("SeriesFields", __base__=SeriesFields, series=field)

    def from_command_line(self, typed: Typed) -> list[Example[SeriesTable]]:
        if not typed.words:
            assert typed.stdin is not None
            text = "\n".join(decoded_lines(typed.stdin, "standard input"))
            table = from_frame(read_rows(text, typed.say), self._free, "standard input", typed.say)
            return self._examples(self._checked(table, "standard input", typed.say))
        examples = []
        for word in typed.words:
            path = Path(word)
            if not path.is_file():
                raise UserError(
                    f"{word} is not a table of series: give the path of a CSV file, or test:0 for a held-out one"
                )
            table = self._checked(read_series(path, self._free, typed.say), word, typed.say)
            examples += self._examples(table, f"{word}:" if len(typed.words) > 1 else "")
        return examples

    def from_python(self, value: object) -> Example[SeriesTable]:
        if isinstance(value, SeriesTable):
            table = value
        elif isinstance(value, str | os.PathLike):
            table = read_series(Path(value), self._free, _silent)
        else:
            from pandas import DataFrame

            if not isinstance(value, DataFrame):
                raise UserError(
                    f"{type(value).__name__} is not a series: give a pandas DataFrame or the path of a table"
                )
            table = from_frame(value, self._free, "the table", _silent)
        return self._one(self._checked(table, "the table", _silent), "the table")

    def from_json(self, body: Config, limits: Limits) -> Example[SeriesTable]:
        assert isinstance(body, SeriesFields)
        if len(body.series) > 100 * limits.characters:
            raise UserError(
                f"the series has {len(body.series):,} characters, and {100 * limits.characters:,} are allowed: send one series at a time"
            )
        frame, named = read_rows(body.series, _silent), self._free
        # One series needs no ids, and the examples of a run call their columns date and cloud.
        name, date, cloud = (one if one in frame.columns else None for one in (named.id, named.date, named.cloud))
        table = from_frame(frame, replace(named, id=name, date=date, cloud=cloud), "the series", _silent)
        return self._one(self._checked(table, "the series", _silent), "the series")

    def unknown(self, examples: Sequence[Example[SeriesTable]]) -> Sequence[str]:
        return ()

    def suggestions(self, held_out: Sequence[Example[SeriesTable]]) -> list[str]:
        """One of each class as CSV, as far as there are."""
        by_class: dict[str | None, str] = {}
        for number in range(min(200, len(held_out))):
            example = held_out[number]
            if len(by_class) < _SUGGESTIONS and example.truth not in by_class:
                by_class[example.truth] = as_text(example.content)
        return list(by_class.values())

    @property
    def _free(self) -> Named:
        """Labels and groups are not needed to predict; seasons tell the series of one id apart."""
        return replace(self.named, bands=self.bands, label=None, group=None, x=None, y=None, to_predict=True)

    def _checked(self, table: SeriesTable, origin: str, say: Say) -> SeriesTable:
        table = with_bands(table, self.bands, origin)
        if table.has_dates != self.has_dates:
            wanted = "dates" if self.has_dates else "positions 0, 1, 2, … instead of dates"
            raise UserError(f"{origin}: this run was trained on series with {wanted}: give such a table")
        return measured_only(table, origin, say, self.longest)

    def _examples(self, table: SeriesTable, before: str = "") -> list[Example[SeriesTable]]:
        return [
            Example(
                table.chosen([number]),
                f"{before}{table.ids[number]}",
                None if table.labels is None else table.labels[number],
            )
            for number in range(len(table))
        ]

    def _one(self, table: SeriesTable, origin: str) -> Example[SeriesTable]:
        if len(table) != 1:
            raise UserError(f"{origin} holds {len(table):,} series and one is asked about: give the rows of one id")
        return Example(table, "", None if table.labels is None else table.labels[0])


def _silent(sentence: str) -> None:
    pass
