"""How many times a, as in how_many.py, by a task that misbehaves when a text asks it to: it waits, fills the memory, dies or fails."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from saccade.config.recipe import Config as BaseConfig
from saccade.errors import UserError
from saccade.tasks.task import Example, Stream
from toys.how_many import Config as HowManyConfig
from toys.how_many import Count, CountOptions, HowMany

_kept: list[Any] = []


class Config(HowManyConfig):
    """The same sections."""


class Naughty(HowMany):
    def answers(self, examples: Sequence[Example[str]], options: CountOptions) -> Iterator[Count]:
        for example in examples:
            _obey(example.content)
        if len(examples) > 1 and any(example.content.startswith("alone") for example in examples):
            raise UserError("this one wants to be alone")
        return super().answers(examples, options)

    def stream(self) -> Stream[str]:
        class Fields(BaseConfig):
            pass

        def answer(example: Example[str], fields: Fields, tell: Callable[[dict[str, Any]], None]) -> None:
            _obey(example.content)
            for number in range(1000):
                _obey(example.content.removeprefix("later ") if number == 1 else "wait 0.05")
                tell({"number": number})

        return Stream("Count to a thousand, slowly", Fields, answer)


def _obey(text: str) -> None:
    word, _, number = text.strip().partition(" ")
    if word == "wait":
        time.sleep(float(number))
    elif word == "eat":
        np.ones(int(number) << 20, np.uint8)
    elif word == "keep":
        _kept.append(np.ones(int(number) << 20, np.uint8))
    elif word == "die":
        os.abort()
    elif word == "fail":
        raise RuntimeError("the secret reason")


TASK = Naughty
