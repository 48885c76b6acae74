"""Held-out examples, made when they are asked for: a sequence that holds none of them."""

from collections.abc import Callable, Sequence
from typing import TypeVar, overload

from saccade.tasks.task import Example

Content = TypeVar("Content")


class HeldOut(Sequence[Example[Content]]):
    def __init__(self, count: int, example: Callable[[int], Example[Content]]):
        self._count = count
        self._example = example

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> Example[Content]: ...
    @overload
    def __getitem__(self, number: slice) -> list[Example[Content]]: ...
    def __getitem__(self, number: int | slice) -> Example[Content] | list[Example[Content]]:
        if isinstance(number, slice):
            return [self._example(place) for place in range(self._count)[number]]
        return self._example(range(self._count)[number])
