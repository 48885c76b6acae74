"""Writing on from a prompt, told as it is written.

Text is told when its characters are whole, and what may be the beginning of a stop string is held back until it is not.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field

from saccade.config.recipe import Config
from saccade.data.text.pairs import as_line
from saccade.decoding import continued
from saccade.tasks.task import Example, Json, Stream

if TYPE_CHECKING:
    from saccade.tasks.language_model.options import DecodeConfig, LanguageOptions
    from saccade.tasks.language_model.task import LanguageModelTask

_MOST_SERVED = 2000  # tokens of a request
End = Literal["tokens", "end", "stop"]


@dataclass(frozen=True)
class Token:
    """A token as it is written: the text that is sure now, and how probable the token was."""

    id: int
    probability: float
    text: str


@dataclass
class Written:
    """What was written after a prompt."""

    prompt: str
    text: str = ""
    ids: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    ended_by: End = "tokens"

    def lines(self) -> list[str]:
        """One line, in which a line break is \\n: a line in, a line out."""
        whole = (self.prompt + self.text).replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
        return [as_line(whole)]

    def to_dict(self) -> Json:
        log_prob = sum(math.log(max(probability, 1e-30)) for probability in self.probabilities)
        return {
            "prompt": self.prompt,
            "text": self.text,
            "tokens": len(self.ids),
            "log_prob": log_prob,
            "ended_by": self.ended_by,
            "probabilities": [round(probability, 6) for probability in self.probabilities],
        }


@dataclass
class Several:
    """The texts of one prompt."""

    texts: list[Written]

    def lines(self) -> list[str]:
        return [line for written in self.texts for line in written.lines()]

    def to_dict(self) -> Json:
        first = self.texts[0].to_dict()
        return {**first, "others": [other.to_dict() for other in self.texts[1:]]} if self.texts[1:] else first


def answers(
    task: "LanguageModelTask", examples: Sequence[Example[str]], options: "LanguageOptions"
) -> Iterator[Several]:
    config = options.decode(task.recipe.decode)
    for number, example in enumerate(examples):
        texts = []
        for sample in range(options.samples):
            written = Written(example.content)
            for _ in write(task, written, config, options.stops, number * options.samples + sample):
                pass
            texts.append(written)
        yield Several(texts)


def parts(task: "LanguageModelTask", example: Example[str], options: "LanguageOptions") -> Iterator[str]:
    """The prompt, and then what is written as soon as it is."""
    yield example.content
    config = options.decode(task.recipe.decode)
    yield from (token.text for token in write(task, Written(example.content), config, options.stops))


def write(
    task: "LanguageModelTask", written: Written, config: "DecodeConfig", stops: Sequence[str] = (), number: int = 0
) -> Iterator[Token]:
    """Fills `written` token by token."""
    task.model.eval()
    prompt = torch.tensor([task.prompt(written.prompt)], device=task.device)
    steps = continued(
        task.gpt,
        prompt,
        config.continuing(),
        never=task.never_written,
        limit=config.tokens,
        seed=config.seed,
        numbers=[number],
    )
    told = 0  # characters
    for step in steps if config.tokens else ():
        token, probability = step.tokens[0], math.exp(step.log_probs[0])
        written.probabilities.append(probability)
        if token in (task.begin, task.tokenizer.special.last):
            written.ended_by = "end"
            break
        written.ids.append(token)
        text = task.tokenizer.decode(written.ids)
        found = [place for stop in stops if (place := text.find(stop)) >= 0]
        if found:
            written.ended_by, text = "stop", text[: min(found)]
            break
        sure = len(text) - _unsure(text, stops)
        yield Token(token, probability, text[told : max(sure, told)])
        told = max(sure, told)
    else:
        text = task.tokenizer.decode(written.ids)
    if written.ended_by == "end":
        text = task.tokenizer.decode(written.ids)
    written.text = text
    if told < len(text):
        yield Token(-1, 0.0, text[told:])


def _unsure(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end may still change, or begin a stop string."""
    broken = len(text) - len(text.rstrip("\ufffd"))
    longest = max(map(len, stops), default=0)
    begins = (n for n in range(min(longest - 1, len(text)), 0, -1) if any(stop.startswith(text[-n:]) for stop in stops))
    return max(broken, next(begins, 0))


class StreamFields(Config):
    tokens: int = Field(200, ge=1, le=_MOST_SERVED, description="how many to write")
    temperature: float = Field(0.8, ge=0, le=1000, description="0 is greedy")
    top_k: int | None = Field(None, ge=1)
    top_p: float = Field(1.0, gt=0, le=1)
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0, le=100)
    stop: list[str] = Field(default_factory=list, max_length=20, description="texts to stop before")
    seed: int = Field(1, ge=0, lt=2**63)


def stream(task: "LanguageModelTask") -> Stream[str]:
    def told(example: Example[str], fields: StreamFields, tell: Callable[[Json], None]) -> None:
        names = ("tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
        config = task.recipe.decode.model_copy(update={name: getattr(fields, name) for name in names})
        written = Written(example.content)
        for token in write(task, written, config, fields.stop):
            tell({"text": token.text, "probability": token.probability})
        tell({"done": True, **written.to_dict()})

    return Stream("Write on from a text, token by token: a line of JSON for each", StreamFields, told)
